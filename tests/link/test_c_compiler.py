"""The C compiler: the one that CC names where it makes the right code, else one that is installed; its own words."""

from __future__ import annotations

import ctypes
import shutil
from pathlib import Path

import pytest

from autofuse.errors import DeviceError
from autofuse.link.architecture import host_architecture
from autofuse.link.c_compiler import c_compiler


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


def test_zig_is_taken_where_there_is_no_other_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    with pytest.raises(
        DeviceError, match=r"install gcc or clang, or `pip install ziglang`, or name one in the variable CC"
    ):
        c_compiler(host_architecture())
    (tmp_path / "ziglang").mkdir()
    (tmp_path / "ziglang/__init__.py").touch()
    zig = tmp_path / "ziglang/zig"
    zig.touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    for architecture in ("x86_64", "aarch64"):
        assert c_compiler(architecture).command == (str(zig), "cc", "-target", f"{architecture}-linux-gnu")


def test_a_tool_that_the_compiler_lacks_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", str(pretended(tmp_path, f"{host_architecture()}-linux-gnu")))
    compiler = c_compiler(host_architecture())
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(DeviceError, match="linking it: .* has no objcopy: install binutils"):
        compiler.run_tool("objcopy", ["a.o"], tmp_path, "linking it")


def test_a_library_is_linked_by_a_compiler_of_several_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    monkeypatch.setenv("CC", f"{compiler} -O1")
    (tmp_path / "a.c").write_text("int seven(void) { return 7; }")
    c_compiler(host_architecture()).link(tmp_path / "a.so", [tmp_path / "a.c"])
    assert ctypes.CDLL(str(tmp_path / "a.so")).seven() == 7


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
