"""The C compiler: the one that CC names where it makes the right code, else one that is installed; its own words."""

from __future__ import annotations

from pathlib import Path

import pytest

from autofuse.backend.link.architecture import host_architecture
from autofuse.backend.link.c_compiler import c_compiler
from autofuse.errors import DeviceError


def pretended(folder: Path, machine: str, fails_with: str = "") -> Path:
    """A program that says that it compiles for `machine`, and else fails."""
    path = folder / f"{machine}-cc"
    asked = f'case "$*" in *-dumpmachine) echo {machine}; exit;; esac'
    path.write_text(f'#!/bin/sh\n{asked}\nprintf "{fails_with}" >&2\nexit 1\n')
    path.chmod(0o755)
    return path


def test_cc_is_taken_where_it_makes_the_right_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere:/bin:/usr/bin")
    here, there = pretended(tmp_path, f"{host_architecture()}-linux-gnu"), pretended(tmp_path, "riscv64-linux-gnu")
    monkeypatch.setenv("CC", f"{here} -O1")
    assert c_compiler(host_architecture()).command == (str(here), "-O1")
    monkeypatch.setenv("CC", str(there))
    assert c_compiler("riscv64").command == (str(there),)
    assert c_compiler(host_architecture()).command != (str(there),)
    monkeypatch.setenv("CC", str(here))
    with pytest.raises(DeviceError, match="no C compiler for riscv64 on this machine"):
        c_compiler("riscv64")


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("ld: cannot find -lfoo\ncollect2: error: ld returned 1 exit status\n", "ld: cannot find -lfoo"),
        ("a.c: In function 'f':\na.c:3: error: 'x' undeclared\n", "a.c:3: error: 'x' undeclared"),
        ("", "no message"),
    ],
)
def test_what_fails_is_told_in_its_own_words(
    said: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CC", str(pretended(tmp_path, f"{host_architecture()}-linux-gnu", said.replace("\n", "\\n"))))
    with pytest.raises(DeviceError, match=f"linking it with .* failed: {reason}$"):
        c_compiler(host_architecture()).run(["-c", "a.c"], tmp_path, "linking it")
