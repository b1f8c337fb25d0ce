"""What `torch.compile(model, backend="autofuse", options={...})` may say."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from autofuse.errors import InputError
from autofuse.graph.loading.given.sizes import MOST
from autofuse.values.arguments import DEFAULT_ON_MISS, check_miss_policy, parse_size

DEFAULT_CACHE_SIZE = "8G"
FIXED = "fixed"
"""What `sizes` says where no size stays open."""


@dataclass(frozen=True)
class Options:
    """`database`, `device`, `on_miss`, `exact`: as `autofuse.compile` takes them. `threads`: None for torch's number.

    `capture`: a folder to which each graph is written as an ONNX file, for `autofuse tune`. `cache`: whether libraries
    are kept on the disk; `cache_size`: at most so much ("8G", or bytes). `sizes`: from where to where a size goes that
    dynamo leaves open, "2:512" (None: as `open_sizes.py` says), or "fixed" for a library of each size.
    """

    database: str | None = None
    device: str = "local"
    threads: int | None = None
    on_miss: str = DEFAULT_ON_MISS
    exact: bool = False
    capture: Path | None = None
    cache: bool = True
    cache_size: str | int = DEFAULT_CACHE_SIZE
    sizes: str | None = None

    @property
    def range(self) -> tuple[int, int] | None:
        """The range of `sizes`, where it says one."""
        if self.sizes is None or self.sizes == FIXED:
            return None
        low, _, high = self.sizes.partition(":")
        return int(low), int(high)

    @property
    def cache_bytes(self) -> int:
        """The size of the cache in bytes."""
        return parse_size(self.cache_size, "options: cache_size")


ALLOWED = tuple(field.name for field in fields(Options))
_TEXTS = ("database", "device", "on_miss", "capture")
_OTHERS = {
    "num_threads": "threads", "db": "database", "target": "device", "cache_limit": "cache_size", "dynamic": "sizes",
}  # fmt: skip
"""What a user may well write -> what the option is called everywhere here."""


def parse_options(given: Mapping[str, Any] | None, mode: str | None = None) -> Options:
    """The options as a value; InputError for one that is unknown, or of a wrong kind.

    `mode`: torch's, of which there is none here.
    """
    if mode not in (None, "default"):
        raise InputError(f"mode: got {mode!r}; the backend has no modes: tune the model instead, see options capture")
    found: dict[str, Any] = {}
    for name, value in (given or {}).items():
        if name not in ALLOWED:
            raise InputError(f"options: unknown {name!r}{_meant(name)}; allowed are {', '.join(ALLOWED)}")
        found[name] = _checked(name, value)
    options = Options(**found)
    check_miss_policy(options.on_miss)
    _ = options.cache_bytes
    return options


def _meant(name: str) -> str:
    near = _OTHERS.get(name) or next(iter(difflib.get_close_matches(name, ALLOWED, 1)), None)
    return f" (did you mean {near!r}?)" if near else ""


def _checked(name: str, value: Any) -> Any:
    if name in ("exact", "cache"):
        if not isinstance(value, bool):
            raise InputError(f"options: {name}: got {value!r}, allowed: True or False")
    elif name == "threads":
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
            raise InputError(f"options: threads: got {value!r}, allowed: a number from 1 on, or None")
    elif name == "sizes":
        found = re.fullmatch(r"(\d{1,7}):(\d{1,7})", value) if isinstance(value, str) else None
        if value not in (None, FIXED) and not (found and 1 <= int(found[1]) < int(found[2]) <= MOST):
            raise InputError(f"options: sizes: got {value!r}, allowed: a range such as '2:512', 'fixed', or None")
    elif name in _TEXTS:
        if name == "capture" and isinstance(value, str | Path) and str(value):
            return Path(value)
        if isinstance(value, Path):
            return str(value)
        if not (isinstance(value, str) and value) and not (value is None and name in ("database", "capture")):
            raise InputError(f"options: {name}: got {value!r}, allowed: a text")
    return value
