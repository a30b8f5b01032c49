"""The version, as the installed package says."""

from importlib.metadata import version

__version__ = version("onceward")
