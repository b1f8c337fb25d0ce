"""Architectures of machines and of code, by one set of names: "x86_64", "aarch64" (others as the system says)."""

from __future__ import annotations

import platform

from autofuse.device.target import Target

X86_64 = "x86_64"
_NAMES = {"amd64": X86_64, "arm64": "aarch64"}


def host_architecture() -> str:
    """This machine's."""
    machine = platform.machine().lower()
    return _NAMES.get(machine, machine)


def architecture_of(target: Target) -> str:
    """That of the machine code for `target`."""
    if target.mtriple is None:
        return host_architecture()
    name = target.mtriple.split("-")[0].lower()
    return _NAMES.get(name, name)
