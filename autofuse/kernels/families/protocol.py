"""What a kernel family is: the operators that it takes, its knobs and what they mean, its first guesses, its emitter.

A family is a subclass of `Family` in a file or room of its own, and one entry of the tuple in `registry.py`. Its knobs
stand in schedules under `<family>.<knob>`; the search space (TOML) has one line for each.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from autofuse.device.rates import CoreRates
from autofuse.device.target import Target
from autofuse.kernels.nest.evaluate import Scope
from autofuse.kernels.nest.nest import Nest
from autofuse.kernels.workload.workload import Workload, WorkloadOperator

Values = tuple[int | str, ...]
Schedule = Mapping[str, int | str]
"""`family.knob` -> value. A knob that is absent has the first value that its family declares."""
Guess = dict[str, int | str]


@dataclass(frozen=True)
class Knob:
    """A choice that the schedules of a family have.

    `values`: what is tried where the search space names no values; the first is what a schedule without this knob has.
    `tile`: it says how many results of a tile are written out in the code. Such knobs of a family are stepped together.
    `packs`: it says how constants are packed. Kernels that differ in other knobs alone read the same packed weights.
    """

    values: Values
    meaning: str
    tile: bool = False
    packs: bool = False


Declared = Mapping[str, Knob]
"""The knobs of a family, by their short names."""


@dataclass(frozen=True)
class Joined:
    """Nests that one kernel family computes together."""

    nests: tuple[Nest, ...]


Unit = Nest | Joined
"""What a family emits in one go."""


@dataclass(frozen=True)
class Case:
    """What a family is asked about: a workload with its nests, and where it will run.

    `knobs`: the open ones with their values (the first is the default), once these are known. `rates`: how fast a core
    of the device is, where that was probed.
    """

    workload: Workload
    nests: tuple[Nest, ...]
    target: Target
    threads: int = 1
    knobs: Mapping[str, Values] = field(default_factory=dict)
    rates: CoreRates | None = None

    @property
    def default(self) -> Guess:
        """The first value of every open knob."""
        return {name: values[0] for name, values in self.knobs.items()}


class Family(ABC):
    """One kind of kernel. A subclass says its `name`, its `knobs` and what it takes, and emits it.

    `anchors`: the operators that own a loop nest of this family. `element_types`: of their first input and their
    results. `closed`: it writes all results of an operator, of
    which there may be several, and computes nothing behind them in its loops.
    """

    name: ClassVar[str]
    knobs: ClassVar[Declared] = {}
    anchors: ClassVar[frozenset[str]] = frozenset()
    closed: ClassVar[bool] = False
    element_types: ClassVar[frozenset[str]] = frozenset({"float32"})

    @property
    def kinds(self) -> tuple[str, ...]:
        """Names of the kinds of nests that it takes, see `kind`."""
        return (self.name,)

    def kind(self, nest: Nest) -> str:
        """Which of its kinds a nest is."""
        return self.name

    def takes(self, workload: Workload, unit: Unit) -> bool:
        """Whether this family emits a unit, of a workload all of whose operators have a definition of ours."""
        return isinstance(unit, Nest) and unit.anchor is not None and unit.anchor.op_type in self.anchors

    def refusal(self, workload: Workload, operator: WorkloadOperator) -> str | None:
        """Why it does not emit this operator, which is one of its anchors (None: it does)."""
        return None

    def useful(self, case: Case, unit: Unit, knob: str, values: Values) -> Iterable[int | str]:
        """Those of `values` that make a difference for a unit; one or none: the knob is not open."""
        return values

    def canonical(self, schedule: Guess, knobs: Mapping[str, Values]) -> Guess:
        """`schedule` without knobs that its other choices make idle. `knobs`: the open ones."""
        return schedule

    def guesses(self, case: Case, found: list[Guess]) -> list[Guess]:
        """`found`, the guesses so far (at first the defaults alone), with those of this family; the best one first."""
        return found

    def fits(self, schedule: Schedule, target: Target) -> bool:
        """Whether what a schedule holds in registers fits them."""
        return True

    def fault(self, schedule: Schedule, target: Target) -> str | None:
        """Why a target cannot run what a schedule asks for (None: it may)."""
        return None

    def added_bytes(self, case: Case, nest: Nest, schedule: Schedule) -> float:
        """Bytes by which the weights of a nest are larger than the model's."""
        return 0

    @abstractmethod
    def emit(self, scope: Scope, unit: Unit, schedule: Schedule) -> None:
        """Emits the loops of a unit."""

    def chosen(self, schedule: Schedule) -> Guess:
        """The values of its knobs in a schedule, by their short names; see `Schedule`."""
        return chosen(self.name, self.knobs, schedule)

    def full(self, knob: str) -> str:
        """Name of a knob in a schedule."""
        return f"{self.name}.{knob}"


class FusedFamily(Family):
    """A family that computes several nests together, a part of the rows at a time. Its knob `rows` says how many."""

    @property
    def kinds(self) -> tuple[str, ...]:
        """See Family: none, since its nests are those of other families."""
        return ()

    @abstractmethod
    def joined(self, workload: Workload, units: Sequence[Unit]) -> Sequence[Unit]:
        """`units` with every longest run that it can compute together as one."""

    def is_on(self, schedule: Schedule) -> bool:
        """Whether it computes anything together under a schedule."""
        return bool(self.chosen(schedule)["rows"])

    def rules(self, schedule: Schedule) -> bool:
        """Whether it computes the nests by loops of its own, so that their families say nothing about idle knobs."""
        return False


def chosen(family: str, knobs: Declared, schedule: Schedule) -> Guess:
    """The values of a family's knobs in a schedule, by their short names; see `Schedule`."""
    return {knob: schedule.get(f"{family}.{knob}", declared.values[0]) for knob, declared in knobs.items()}


def up_to(values: Values, limit: int) -> Iterator[int | str]:
    """Values that do not exceed `limit`; at least the smallest."""
    numbers = [value for value in values if isinstance(value, int)]
    fitting = [value for value in numbers if value <= limit]
    yield from fitting or [min(numbers)]


def vector_lanes(workload: Workload, target: Target) -> int:
    """Lanes of the vectors along feature maps in a workload: a full register, or their smallest block."""
    return min([target.lanes, *(value.block for value in workload.values if value.block)])
