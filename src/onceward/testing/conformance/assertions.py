"""Imported before the suite: pytest then shows what its assertions expected and what they found."""

from __future__ import annotations

from contextlib import suppress

SUITE = tuple(f"onceward.testing.conformance.{module}" for module in ("base", "two_phase", "write_ahead"))

with suppress(ImportError):
    import pytest

    pytest.register_assert_rewrite(*SUITE)
