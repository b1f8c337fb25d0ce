"""A fusion plan as a value, and the limits of the schedules that its kernels may take."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache, cached_property
from typing import Literal

from pydantic import ConfigDict, TypeAdapter, ValidationError

from autofuse.errors import InputError, PlanError
from autofuse.graph.transform.copies import Copy

SCHEMA, LIMITED_SCHEMA = 1, 2
"""The schema of a plain plan, and of one with limits beside it, which a version that knows no limits must refuse."""

Tile = Literal[4, 2, 0]
"""What may be allowed of Winograd's algorithm, the coarsest rounding first: tiles of 4x4 results, of 2x2, none."""
WINOGRAD_TILES: tuple[Tile, ...] = (4, 2, 0)
_EXACTLY = ConfigDict(extra="forbid", strict=True)


@dataclass(frozen=True)
class Group:
    """A group of operators (names, in topological order) that become exactly one kernel."""

    operators: tuple[str, ...]


@dataclass(frozen=True)
class ScheduleLimits:
    """The limits of a network's schedules; they travel beside whichever plan the network gets.

    `winograd_tile`: largest tiles of Winograd's algorithm, one of `WINOGRAD_TILES`; smaller where kernels with larger
    ones, right by themselves, made the whole network's results wrong. `weight_growth`: how many times the model's
    weights the kernels' may be (Winograd's are larger; None: any). `exact`: no rounding changes before the kernels run
    (see `autofuse.fusion.planner.rewriting.is_exact`). InputError for a growth below 1.
    """

    __pydantic_config__ = _EXACTLY

    winograd_tile: Tile = 4
    weight_growth: float | None = None
    exact: bool = False

    def __post_init__(self) -> None:
        if self.weight_growth is not None and not self.weight_growth >= 1:  # NaN too
            raise InputError(f"--weight-growth: got {self.weight_growth}, allowed: a number from 1, such as 1.5")

    def __and__(self, other: ScheduleLimits) -> ScheduleLimits:
        """The limits that keep to both."""
        growths = [one.weight_growth for one in (self, other) if one.weight_growth is not None]
        return ScheduleLimits(
            min(self.winograd_tile, other.winograd_tile), min(growths, default=None), self.exact or other.exact
        )

    @property
    def algorithms(self) -> str:
        """What the kernels may take of Winograd's algorithm, as text."""
        tile = self.winograd_tile
        return f"Winograd up to {tile}x{tile}" if tile else "no Winograd"

    def to_json(self) -> dict[str, object]:
        """The limits that are set, by name; `from_json` reads them."""
        return {part.name: value for part in fields(self) if (value := getattr(self, part.name)) != part.default}

    @classmethod
    def from_json(cls, body: Mapping[str, object] | None) -> ScheduleLimits:
        """The limits that `to_json` wrote (None: none are set); PlanError when they are anything else."""
        try:
            return _limits_reader().validate_json(json.dumps(dict(body or {})))
        except ValidationError as error:
            raise PlanError(f"limits: {_first(error)}") from error


NO_LIMITS = ScheduleLimits()


@dataclass(frozen=True)
class FusionPlan:
    """A fusion plan: a partition of the graph that `rewrites`, then `folds`, then `copies` leave behind.

    `rewrites`: steps `rule@operator`, in the order in which they are made (see `autofuse.rewrite`). `folds`: names of
    BatchNormalization operators folded into the convolution beside them (sorted); such an operator is in no group.
    `copies`: in the order in which they are made; the group of a copy's reader holds it, under the copy's name.
    `groups`: in an order in which they
    can run. Two plans are equal when they do the same.
    """

    groups: tuple[Group, ...]
    folds: tuple[str, ...] = ()
    copies: tuple[Copy, ...] = ()
    rewrites: tuple[str, ...] = ()

    @cached_property
    def key(self) -> str:
        """SHA-256 of the canonical text: independent of the order of groups."""
        return self._key()

    def _key(self, **further: object) -> str:
        canonical: dict[str, object] = {
            "folds": sorted(self.folds),
            "groups": sorted(sorted(group.operators) for group in self.groups),
            **further,
        }
        if self.copies:  # plans without copies keep the key that they had before there were any
            canonical["copies"] = [[copy.operator, copy.reader] for copy in self.copies]
        if self.rewrites:
            canonical["rewrites"] = list(self.rewrites)
        text = json.dumps(canonical, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    def to_json(self, limits: ScheduleLimits = NO_LIMITS) -> str:
        """Readable, stable JSON text, with the limits beside the plan; see `read_plan`."""
        body = {
            "schema": SCHEMA if limits == NO_LIMITS else LIMITED_SCHEMA,
            "key": self.key,
            **({"rewrites": list(self.rewrites)} if self.rewrites else {}),
            "folds": sorted(self.folds),
            **({"copies": [[copy.operator, copy.reader] for copy in self.copies]} if self.copies else {}),
            **({"limits": limits.to_json()} if limits != NO_LIMITS else {}),
            "groups": [list(group.operators) for group in self.groups],
        }
        return json.dumps(body, indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str) -> FusionPlan:
        """The plan of `read_plan`, without its limits."""
        return read_plan(text)[0]


@dataclass(frozen=True)
class _PlanText:
    """The JSON of a plan. `winograd`: where the limit of tiles stood when it was a part of the plan."""

    __pydantic_config__ = ConfigDict(strict=True)

    schema: Literal[1, 2]
    folds: tuple[str, ...]
    groups: tuple[tuple[str, ...], ...]
    copies: tuple[tuple[str, str], ...] = ()
    rewrites: tuple[str, ...] = ()
    limits: ScheduleLimits = NO_LIMITS
    winograd: Tile | None = None
    key: str | None = None


def read_plan(text: str) -> tuple[FusionPlan, ScheduleLimits]:
    """The plan and the limits that `FusionPlan.to_json` wrote, now or in an older version.

    PlanError when the text is no plan of this schema, or when its key does not match its content.
    """
    try:
        found = _plan_reader().validate_json(text)
    except ValidationError as error:
        problem = _first(error)
        raise PlanError(f"plan is not JSON: {problem}" if "JSON" in problem else f"plan: {problem}") from error
    groups = tuple(Group(operators) for operators in found.groups)
    copies = tuple(Copy(operator, reader) for operator, reader in found.copies)
    plan = FusionPlan(groups, tuple(sorted(found.folds)), copies, found.rewrites)
    limits, key = found.limits, plan.key
    if found.winograd is not None:
        limits, key = limits & ScheduleLimits(found.winograd), plan._key(winograd=found.winograd)
    if found.key not in (None, key):
        raise PlanError("plan: its key does not match its content (was it edited? remove the key)")
    return plan, limits


@cache
def _plan_reader() -> TypeAdapter[_PlanText]:
    return TypeAdapter(_PlanText)


@cache
def _limits_reader() -> TypeAdapter[ScheduleLimits]:
    return TypeAdapter(ScheduleLimits)


def _first(error: ValidationError) -> str:
    """What is wrong first, and where."""
    first = error.errors(include_url=False, include_input=False)[0]
    place = ".".join(map(str, first["loc"]))
    return f"{place}: {first['msg']}" if place else str(first["msg"])
