"""Sphinx's settings; `tools/build-docs` puts the pages beside a copy of this file."""

from onceward import __version__

project = "onceward"
version = release = __version__
extensions = ["myst_parser", "sphinx.ext.autodoc"]
html_theme = "furo"
html_title = "onceward"
html_show_sphinx = False
# Links in the repository are written as its browser makes anchors.
myst_heading_anchors = 4
myst_fence_as_directive: list[str] = []
# Blocks without a language are what a terminal prints.
highlight_language = "text"
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_class_signature = "mixed"
python_use_unqualified_type_names = True
nitpicky = False
