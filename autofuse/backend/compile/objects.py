"""The names of the kernels of a library, and their object code as files under what it is: what was compiled once is
linked again.

`KernelObjects`: of one target and one session, whose processes share its folder. `UserObjects`: of all that a user
compiles, from one process to the next.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autofuse.backend.compile.function import (
    ANY_SYMBOL,
    ENTRY,
    NOTHING_KEPT,
    SETTINGS,
    SYMBOL_LENGTH,
    Kept,
    renamed,
    write_object,
)
from autofuse.backend.library.library import installed_versions
from autofuse.device.target import Target
from autofuse.kernels.tir.digest import Distinct, code_key
from autofuse.values.locks import own_folder
from autofuse.values.scratch import part_name, sweep_parts

MOST_BYTES = 256 << 20
"""Object code of a session that is kept; beyond it the half that nobody asked for the longest goes."""
FREE_BYTES = 64 << 20
SWEEP_EVERY = 64
_MARK = 32
"""Bytes of the SHA-256 behind an object."""


class Symbols:
    """The names of TIR functions in a library; structurally equal ones are one.

    `files`: objects of those that are translated already, by name.
    """

    def __init__(self) -> None:
        self._known: Distinct[str] = Distinct()
        self._count = 0
        self.files: dict[str, Path] = {}

    def of(self, function: Any, label: str) -> str:
        """The symbol of `function`; `label` says what it computes."""
        return self._known.of(function, lambda: self._new(function, label))

    def _new(self, function: Any, label: str) -> str:  # noqa: ARG002  # other names are made of the function
        symbol = f"kernel{self._count}_{re.sub(r'[^0-9A-Za-z]+', '_', label)}"[:SYMBOL_LENGTH].ljust(SYMBOL_LENGTH, "_")
        self._count += 1
        return symbol


def symbol_of(code: str) -> str:
    """The name of a kernel in its object, from its code key: equal code has one name, whatever it is called."""
    return f"kernel_{code}"[:SYMBOL_LENGTH]


def _bound(folder: Path) -> None:
    """Remove the objects that nobody asked for the longest, down to half, when all together take too much."""
    found = sorted((one.stat().st_mtime, one.stat().st_size, one) for one in folder.glob("*.o"))
    left = sum(size for _, size, _ in found)
    if left <= MOST_BYTES:
        return
    for _, size, path in found:
        if left <= MOST_BYTES // 2:
            break
        path.unlink(missing_ok=True)
        left -= size


@dataclass
class KernelObjects:
    """The objects in `folder`, for `target`."""

    folder: Path
    target: Target
    _written: int = 0

    def has(self, code: str) -> bool:
        """Whether the kernel with this code key was compiled."""
        return bool(code) and self._path(code).exists()

    def translated(self, function: Any, code: str = "", kept: Kept = NOTHING_KEPT) -> tuple[str, Path]:
        """(symbol, object file) of the TIR `function`, translated where no equal one was before, here or in `kept`,
        where it is from now on.

        `code`: its key, where that is known.
        """
        code = code or code_key(function)
        path, symbol, key = self._path(code), symbol_of(code), kept.key(function, code)
        if path.exists():
            os.utime(path)
        else:
            self.folder.mkdir(parents=True, exist_ok=True)
            part = path.with_suffix(f".{os.getpid()}.part.o")
            if not kept.take(key, symbol, part):
                write_object(function, symbol, self.target, part)
            part.replace(path)  # two processes may make the same one
            self._written += 1
        kept.keep(key, symbol, path)
        return symbol, path

    def has_room(self) -> bool:
        """Whether the disk has: LLVM ends the process when it cannot write."""
        self.folder.mkdir(parents=True, exist_ok=True)
        return shutil.disk_usage(self.folder).free >= FREE_BYTES

    def sweep(self) -> None:
        """Remove the older half now and then, when all together take more than `MOST_BYTES`."""
        if self._written < SWEEP_EVERY:
            return
        self._written = 0
        _bound(self.folder)

    def _path(self, code: str) -> Path:
        return self.folder / f"{code}.o"


class KeptSymbols(Symbols):
    """The names that equal code has in every library; what has none yet is translated, and kept among `objects`.

    `kept`: of the user, for whoever compiles what is searched here.
    """

    def __init__(self, objects: KernelObjects, kept: Kept = NOTHING_KEPT) -> None:
        super().__init__()
        self._objects, self._kept = objects, kept

    def _new(self, function: Any, label: str) -> str:  # noqa: ARG002  # equal code may have several labels
        # With its own name, as whoever measured it saw it: a function without one has another text.
        symbol, path = self._objects.translated(function, kept=self._kept)
        self.files[symbol] = path
        return symbol


def user_folder() -> Path | None:
    """Among the temporary files, for a verb writes nowhere else unasked; mode 0700, as what lies there is run.

    None where that cannot be this user's alone.
    """
    found = Path(tempfile.gettempdir()) / f"autofuse-{os.getuid()}" / "objects"
    return found if own_folder(found.parent) and own_folder(found) else None


def user_objects(target: Target) -> Kept:
    """The objects of this user for a target."""
    folder = user_folder()
    return NOTHING_KEPT if folder is None else UserObjects(folder, target)


@dataclass(frozen=True)
class UserObjects:
    """The objects in `folder` for `target`: each with a SHA-256 behind it, so that a damaged one is as none."""

    folder: Path
    target: Target

    def key(self, function: Any, code: str = "") -> str:
        """The name of an object: of the function's code, whatever it is called, and of what translates it."""
        found = hashlib.sha256(repr((self.target.key, installed_versions(), SETTINGS)).encode())
        found.update((code or code_key(function.with_attr("global_symbol", ENTRY))).encode())
        return found.hexdigest()

    def take(self, key: str, symbol: str, path: Path) -> bool:
        """Whether the object is there; then it is written to `path`, its function called `symbol`."""
        kept = self.folder / f"{key}.o"
        try:
            content = kept.read_bytes()
            code, mark = content[:-_MARK], content[-_MARK:]
            if hashlib.sha256(code).digest() != mark:
                kept.unlink(missing_ok=True)
                return False
            os.utime(kept)
        except OSError:
            return False
        path.write_bytes(renamed(code, ANY_SYMBOL, symbol))
        return True

    def keep(self, key: str, symbol: str, path: Path) -> None:
        """Keep the object file `path`, where there is none yet; where the disk does not, nothing is lost."""
        with suppress(OSError):
            if (self.folder / f"{key}.o").exists():
                os.utime(self.folder / f"{key}.o")
                return
            if shutil.disk_usage(self.folder).free < FREE_BYTES:
                return
            code = renamed(path.read_bytes(), symbol, ANY_SYMBOL)
            part = self.folder / part_name()
            try:
                part.write_bytes(code + hashlib.sha256(code).digest())
                part.replace(self.folder / f"{key}.o")
            finally:
                part.unlink(missing_ok=True)

    def bound(self) -> None:
        """Make room: remove what nobody asked for the longest, and what killed processes left half-written."""
        with suppress(OSError):
            _bound(self.folder)
        sweep_parts(self.folder)


def kept_bytes() -> list[int]:
    """The size of each object that the user keeps."""
    folder = user_folder()
    return [] if folder is None else [path.stat().st_size for path in folder.glob("*.o")]


def remove_objects() -> None:
    """Remove all objects that the user keeps."""
    folder = user_folder()
    for path in [] if folder is None else list(folder.glob("*.o")):
        path.unlink(missing_ok=True)
