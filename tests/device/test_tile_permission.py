"""Asking the system for the tile registers of x86 (AMX)."""

from __future__ import annotations

import platform
import sys
from pathlib import Path

import pytest

from autofuse.device.cpu_features import gives_tiles


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the question is one of x86-64")
def test_a_machine_without_tiles_gives_none() -> None:
    flags = Path("/proc/cpuinfo")
    if flags.exists() and "amx_tile" in flags.read_text(encoding="utf-8"):
        assert gives_tiles() == gives_tiles(), "the answer holds"
    else:
        assert not gives_tiles()


def test_another_system_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert not gives_tiles()
