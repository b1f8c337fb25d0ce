"""A fusion plan as a value: what is rewritten, which BatchNorms fold, what is copied, the partition into groups."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from autofuse.errors import PlanError

SCHEMA = 1

WINOGRAD_TILES = (4, 2, 0)
"""What a plan may allow of Winograd's algorithm, the coarsest rounding first: tiles of 4x4 results, of 2x2, none."""
LARGEST_TILE = WINOGRAD_TILES[0]


@dataclass(frozen=True)
class Group:
    """Operators (names, in topological order) that become exactly one kernel."""

    operators: tuple[str, ...]


@dataclass(frozen=True)
class FusionPlan:
    """A partition of the graph that `rewrites`, then `folds`, then `copies` leave behind.

    `rewrites`: steps `rule@operator`, in the order in which they are made (see `autofuse.rewrite`). `folds`: names of
    BatchNormalization operators folded into the convolution beside them (sorted); such an operator is in no group.
    `copies`: (operator, reader) pairs, in the order in which they are made: the reader's group holds a copy of the
    operator, called `operator@reader` (see `autofuse.graph.transform.copies`). `groups`: in an order in which they
    can run. `winograd`: largest tiles of its kernels, one of `WINOGRAD_TILES`; smaller where kernels with larger ones,
    right by themselves, made the whole network's results wrong.
    Two plans are equal when they do the same, whatever their `origin` ("none", "tvm-partition", "dnnfusion", "search").
    """

    groups: tuple[Group, ...]
    folds: tuple[str, ...] = ()
    copies: tuple[tuple[str, str], ...] = ()
    rewrites: tuple[str, ...] = ()
    winograd: int = LARGEST_TILE

    @property
    def algorithms(self) -> str:
        """What the kernels may take of Winograd's algorithm, as text."""
        return f"Winograd up to {self.winograd}x{self.winograd}" if self.winograd else "no Winograd"

    @cached_property
    def key(self) -> str:
        """SHA-256 of the canonical text: independent of the order of groups."""
        canonical: dict[str, object] = {
            "folds": sorted(self.folds),
            "groups": sorted(sorted(group.operators) for group in self.groups),
        }
        if self.copies:  # plans without copies keep the key that they had before there were any
            canonical["copies"] = [list(copy) for copy in self.copies]
        if self.rewrites:
            canonical["rewrites"] = list(self.rewrites)
        if self.winograd != LARGEST_TILE:
            canonical["winograd"] = self.winograd
        text = json.dumps(canonical, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    def to_json(self) -> str:
        """Readable, stable JSON text; see `from_json`."""
        body = {
            "schema": SCHEMA,
            "key": self.key,
            **({"rewrites": list(self.rewrites)} if self.rewrites else {}),
            "folds": sorted(self.folds),
            **({"copies": [list(copy) for copy in self.copies]} if self.copies else {}),
            **({"winograd": self.winograd} if self.winograd != LARGEST_TILE else {}),
            "groups": [list(group.operators) for group in self.groups],
        }
        return json.dumps(body, indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str) -> FusionPlan:
        """The plan that `to_json` wrote; PlanError when the text is no plan of this schema."""
        try:
            body: Mapping[str, object] = json.loads(text)
        except json.JSONDecodeError as error:
            raise PlanError(f"plan is not JSON (line {error.lineno}): {error.msg}") from error
        except (ValueError, RecursionError) as error:  # a number or a nesting beyond what Python reads
            raise PlanError(f"plan: {error}") from error
        if not isinstance(body, dict) or body.get("schema") != SCHEMA:
            raise PlanError(f"plan: expected an object with schema = {SCHEMA}")
        groups, folds, copies = body.get("groups"), body.get("folds"), body.get("copies", [])
        rewrites, winograd = body.get("rewrites", []), body.get("winograd", LARGEST_TILE)
        if isinstance(winograd, bool) or winograd not in WINOGRAD_TILES:
            raise PlanError(f"plan: 'winograd' must be one of {', '.join(map(str, WINOGRAD_TILES))}")
        assert isinstance(winograd, int)
        if not _is_names(rewrites):
            raise PlanError("plan: 'rewrites' must be a list of 'rule@operator'")
        assert isinstance(rewrites, list)
        if not isinstance(copies, list) or not all(_is_names(copy) and len(copy) == 2 for copy in copies):
            raise PlanError("plan: 'copies' must be a list of [operator, reader] pairs")
        if not _is_names(folds) or not isinstance(groups, list) or not all(_is_names(group) for group in groups):
            raise PlanError("plan: 'groups' must be lists of operator names and 'folds' a list of names")
        assert isinstance(folds, list)
        pairs = tuple((str(copied), str(reader)) for copied, reader in copies)
        made = tuple(Group(tuple(group)) for group in groups)
        plan = cls(made, tuple(sorted(folds)), pairs, tuple(rewrites), winograd)
        if "key" in body and body["key"] != plan.key:
            raise PlanError("plan: its key does not match its content (was it edited? remove the key)")
        return plan


def _is_names(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)
