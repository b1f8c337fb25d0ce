"""Which code a kernel is: the text of its TIR freed of chosen names, and the digest that its times are kept under."""

from __future__ import annotations

import hashlib
import json
import keyword
import re
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

from autofuse.device.target import Target

GENERATORS = ("tvm", "llvm")
"""What makes machine code of TIR: another version of them makes other code of the same text."""

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|#[^\n]*|(?<![\w.])[A-Za-z_]\w*(?![\w=])')
_KEPT = frozenset({*keyword.kwlist, *keyword.softkwlist, "T", "range"})
"""Words of TVM's script that are no names of variables."""
Known = TypeVar("Known")


def code_text(function: Any) -> str:
    """Text of a TIR function that two functions share exactly when they are the same code.

    Variables, buffers and arguments are numbered in the order in which they are met; statements keep their order.
    The same in every process and on every machine, for one version of TVM.
    """
    names: dict[str, str] = {}

    def numbered(found: re.Match[str]) -> str:
        word = found.group()
        if word[0] == '"' or word in _KEPT:
            return word
        if word[0] == "#":
            return ""
        return names.setdefault(word, f"n{len(names)}")

    return _TOKEN.sub(numbered, str(function.script(show_meta=True))).strip() + "\n"


def code_key(function: Any) -> str:
    """SHA-256 of `code_text`."""
    return hashlib.sha256(code_text(function).encode()).hexdigest()


def digest(code: str, target: Target, versions: Mapping[str, str]) -> str:
    """SHA-256 of what was built: the `code_key` of a kernel, its target, the versions of `GENERATORS`.

    Empty for a kernel that has no code ("").
    """
    if not code:
        return ""
    body = {"code": code, "target": target.key} | {name: versions.get(name, "") for name in GENERATORS}
    return hashlib.sha256(json.dumps(body, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


class Distinct(Generic[Known]):
    """What is known of each of several TIR functions; structurally equal ones are one, whatever they are called."""

    def __init__(self) -> None:
        self._known: dict[int, list[tuple[Any, Known]]] = {}

    def of(self, function: Any, make: Callable[[], Known]) -> Known:
        """What is known of `function`; `make`: says it of one that none before was equal to."""
        from tvm_ffi import structural_equal, structural_hash

        bare = function.without_attr("global_symbol")
        known = self._known.setdefault(int(structural_hash(bare)), [])
        for other, found in known:
            if structural_equal(other, bare):
                return found
        known.append((bare, make()))
        return known[-1][1]
