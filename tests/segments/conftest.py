"""Segments of any size are entered here: the models of these tests are small."""

from __future__ import annotations

import pytest


@pytest.fixture
def any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every segment pays, however small it is."""
    monkeypatch.setattr("autofuse.segments.worth.LEAST_US", 0.0)
