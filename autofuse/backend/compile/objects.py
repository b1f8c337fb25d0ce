"""Object code of single kernels as files under what their code is: a kernel that was compiled once is linked again.

A folder of objects is for one target and one session, whose processes share it.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autofuse.backend.compile.assemble import Symbols
from autofuse.backend.compile.function import write_object
from autofuse.device.target import Target
from autofuse.kernels.tir.digest import code_key

MOST_BYTES = 256 << 20
"""Object code of a session that is kept; beyond it the half that nobody asked for the longest goes."""
FREE_BYTES = 64 << 20
SWEEP_EVERY = 64
SYMBOL_DIGITS = 40


def symbol_of(code: str) -> str:
    """The name of a kernel in its object, from its code key: equal code has one name, whatever it is called."""
    return f"kernel_{code[:SYMBOL_DIGITS]}"


@dataclass
class KernelObjects:
    """The objects in `folder`, for `target`."""

    folder: Path
    target: Target
    _written: int = 0

    def has(self, code: str) -> bool:
        """Whether the kernel with this code key was compiled."""
        return bool(code) and self._path(code).exists()

    def translated(self, function: Any, code: str = "") -> tuple[str, Path]:
        """(symbol, object file) of the TIR `function`, translated where no equal one was before; `code`: its key, where
        that is known."""
        code = code or code_key(function)
        path = self._path(code)
        if path.exists():
            os.utime(path)
        else:
            self.folder.mkdir(parents=True, exist_ok=True)
            part = path.with_suffix(f".{os.getpid()}.part.o")
            write_object(function, symbol_of(code), self.target, part)
            part.replace(path)  # two processes may make the same one
            self._written += 1
        return symbol_of(code), path

    def has_room(self) -> bool:
        """Whether the disk has: LLVM ends the process when it cannot write."""
        self.folder.mkdir(parents=True, exist_ok=True)
        return shutil.disk_usage(self.folder).free >= FREE_BYTES

    def sweep(self) -> None:
        """Remove the older half now and then, when all together take more than `MOST_BYTES`."""
        if self._written < SWEEP_EVERY:
            return
        self._written = 0
        found = sorted((one.stat().st_mtime, one.stat().st_size, one) for one in self.folder.glob("*.o"))
        left = sum(size for _, size, _ in found)
        if left <= MOST_BYTES:
            return
        for _, size, path in found:
            if left <= MOST_BYTES // 2:
                break
            path.unlink(missing_ok=True)
            left -= size

    def _path(self, code: str) -> Path:
        return self.folder / f"{code}.o"


class KeptSymbols(Symbols):
    """The names that equal code has in every library; what has none yet is translated, and kept among `objects`."""

    def __init__(self, objects: KernelObjects) -> None:
        super().__init__()
        self._objects = objects

    def _new(self, function: Any, label: str) -> str:  # noqa: ARG002  # equal code may have several labels
        # With its own name, as whoever measured it saw it: a function without one has another text.
        symbol, path = self._objects.translated(function)
        self.files[symbol] = path
        return symbol
