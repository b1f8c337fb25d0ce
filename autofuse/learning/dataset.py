"""The profiling database as training data: a frame of times, and a frame of decisions between fused and apart.

Columns of `Dataset.rows` (one row a workload, device, target and number of threads; times in microseconds):

    workload      key of the workload                 label       its short name
    device        name of the device                  fingerprint its identity
    family        class of the target ("avx2", ...)   threads     that ran it
    network       the model in whose run it was measured first ("" when no run is known)
    networks      all models that measured or chose it, joined by ","
    median_us     best median, ci_lo_us and ci_hi_us its interval, trusted: see `autofuse.database`
    candidates    schedules that worked, of which this is the fastest
    roofline_us   the rough time that the features say
    f_*           features (`autofuse.learning.features.features`)

Columns of `Dataset.decisions` (one row a group and a way to cut it into kernels that were all measured there):

    site          number of the group at its place: rows of one site are alternatives to the same fused kernel
    network, networks, device, fingerprint, family, threads, workload, label   of the fused group
    cut           "edge" (two parts), "singles" (its operators one by one), "chain" (cut several times)
    relation      cell of the paper's table at the edge that is cut: "many-to-many > one-to-one"; "several" for more
    colour        what the paper says of it: "through", "depend", "break"; "several"
    parts         number of parts             kernels     of them that cost a launch (a view of memory costs none)
    part_keys     keys of the parts' workloads, joined by ","; "view" for a view
    fused_us      time of the group, apart_us the sum of its parts' times, both with the launch of each kernel
    log_gain      log2(apart_us / fused_us): above 0, fusing pays
    fused_rel_ci, apart_rel_ci   half widths of their 95 % intervals, relative to the times
    trusted       whether every time in it is
    f_*           features (`autofuse.learning.features.cut_features`; those of the group, and what the cut changes)

A group that was measured in several layouts counts with its fastest, and so do its parts.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from math import log2
from typing import TYPE_CHECKING

from autofuse.database.ask.training import TimedWorkload, networks_of_workloads, timed_workloads
from autofuse.database.database import open_database
from autofuse.device.target import Target
from autofuse.errors import InputError
from autofuse.fusion.evidence import LAUNCH_US, GroupTime, total
from autofuse.fusion.relation import relation
from autofuse.kernels.workload.free_reshape import is_free_reshape
from autofuse.kernels.workload.workload import Workload
from autofuse.learning.features import Machine, cut_features, facts_of, on_machine, roofline_us
from autofuse.learning.parts import MOST_PARTITIONS, PartEdge, Parts, without_layouts

if TYPE_CHECKING:
    import pandas as pd

FEATURE = "f_"
SEVERAL = "several"
VIEW = "view"
_VIEW_SPAN = GroupTime(0.0, 0.0, 0.0)
_UNFIT = (InputError, TypeError, ValueError, KeyError, IndexError, StopIteration, AssertionError, NotImplementedError)

Row = dict[str, object]


@dataclass(frozen=True, eq=False)
class Dataset:
    """Training data, see the module's text. `unfit`: stored workloads that no features can be made of."""

    rows: pd.DataFrame
    decisions: pd.DataFrame
    unfit: int = 0


def feature_columns(frame: pd.DataFrame) -> list[str]:
    """The columns of features of a frame, in their order."""
    return [name for name in frame.columns if name.startswith(FEATURE)]


def read_dataset(databases: Sequence[str | os.PathLike[str] | None]) -> Dataset:
    """The training data of some profiling databases together, opened read-only.

    Of a workload that several databases timed on one machine, the trusted and then the faster time counts.
    """
    timed: dict[tuple[str, str, str, int], TimedWorkload] = {}
    networks: dict[str, dict[str, None]] = {}
    with ExitStack() as stack:  # all stay open to the end: what fails on an unfit row names it
        for base in [stack.enter_context(open_database(place, read_only=True)) for place in databases]:
            with base.reading() as sql:
                for row in timed_workloads(sql):
                    key = row.workload_key, row.fingerprint, row.target, row.threads
                    known = timed.get(key)
                    if known is None or (not row.trusted, row.median_us) < (not known.trusted, known.median_us):
                        timed[key] = row
                for name, found in networks_of_workloads(sql).items():
                    networks.setdefault(name, {}).update(dict.fromkeys(found))
        return make_dataset(timed.values(), {key: tuple(names) for key, names in networks.items()})


def make_dataset(timed: Iterable[TimedWorkload], networks: Mapping[str, tuple[str, ...]]) -> Dataset:
    """The training data of timed workloads; `networks`: names of the models that each is of, by workload key."""
    import pandas as pd

    maker = _Maker(networks)
    for row in timed:
        maker.take(row)
    rows = pd.DataFrame(maker.rows)
    decisions = pd.DataFrame(list(maker.decisions()))
    return Dataset(rows, decisions, len(maker.unfit))


@dataclass(frozen=True)
class _Known:
    """A timed workload on its machine, read."""

    workload: Workload
    key: str
    span: GroupTime
    trusted: bool


class _Maker:
    """A collector of timed workloads, each read once whatever the places that it was timed at."""

    def __init__(self, networks: Mapping[str, tuple[str, ...]]) -> None:
        self.networks = networks
        self.rows: list[Row] = []
        self.unfit: set[str] = set()
        self._facts: dict[str, dict[str, float]] = {}
        self._workloads: dict[str, tuple[Workload, str]] = {}
        self._at: dict[tuple[str, str, int], tuple[Machine, Row, dict[str, _Known]]] = {}

    def take(self, timed: TimedWorkload) -> None:
        """Takes in a timed workload; one that cannot be read is counted in `unfit`."""
        if timed.workload_key in self.unfit:
            return
        try:
            workload, plain = self._read(timed.workload_key, timed.workload)
            machine = Machine.of(target_from(timed.target), timed.device_facts, timed.threads)
        except _UNFIT:
            self.unfit.add(timed.workload_key)
            return
        facts = self._facts[timed.workload_key]
        where: Row = {
            "device": timed.device, "fingerprint": timed.fingerprint, "family": machine.family, "threads": timed.threads
        }  # fmt: skip
        self.rows.append(
            {
                "workload": timed.workload_key,
                "label": timed.label,
                **where,
                **self._names(timed.workload_key),
                "median_us": timed.median_us,
                "ci_lo_us": timed.ci_lo_us,
                "ci_hi_us": timed.ci_hi_us,
                "trusted": timed.trusted,
                "candidates": timed.candidates,
                "roofline_us": roofline_us(facts, machine),
                **{f"{FEATURE}{name}": value for name, value in on_machine(facts, machine).items()},
            }
        )
        span = GroupTime(timed.median_us + LAUNCH_US, timed.ci_lo_us + LAUNCH_US, timed.ci_hi_us + LAUNCH_US)
        _, _, known = self._at.setdefault((timed.fingerprint, timed.target, timed.threads), (machine, where, {}))
        new = _Known(workload, timed.workload_key, span, timed.trusted)
        old = known.get(plain)
        if old is None or (not new.trusted, new.span.us) < (not old.trusted, old.span.us):
            known[plain] = new

    def _names(self, key: str) -> Row:
        names = self.networks.get(key, ())
        return {"network": names[0] if names else "", "networks": ",".join(names)}

    def _read(self, key: str, text: str) -> tuple[Workload, str]:
        """A workload and its key without layouts; its facts are kept."""
        if key not in self._workloads:
            workload = Workload.from_text(text)
            self._facts[key] = facts_of(workload)
            self._workloads[key] = workload, without_layouts(workload).key
        return self._workloads[key]

    def decisions(self) -> Iterator[Row]:
        """Every way that is known to cut every group, on each machine."""
        site = 0
        shared: dict[str, tuple[Parts, dict[frozenset[int], str]]] = {}
        for machine, where, known in self._at.values():
            for fused in known.values():
                if len(fused.workload.operators) < 2:
                    continue
                if fused.key not in shared:
                    shared[fused.key] = Parts(fused.workload), {}
                parts, keys = shared[fused.key]
                cutter = _Cutter(parts, known, keys)
                cuts = cutter.cuts()
                for cut in cuts:
                    decision = self._decision(fused, cut, machine, parts)
                    yield {"site": site, **where, **self._names(fused.key), **decision}
                site += bool(cuts)

    def _facts_of(self, workload: Workload) -> dict[str, float]:
        if workload.key not in self._facts:
            self._facts[workload.key] = facts_of(workload)
        return self._facts[workload.key]

    def _decision(self, fused: _Known, cut: _Cut, machine: Machine, parts: Parts) -> Row:
        apart = total(part.span for part in cut.parts)
        kernels = sum(part.key != VIEW for part in cut.parts)
        facts = [self._facts_of(parts.part(part.operators)) for part in cut.parts]
        found = cut_features(self._facts[fused.key], facts, machine, kernels)
        return {
            "workload": fused.key,
            "label": fused.workload.label,
            "cut": cut.kind,
            **cell_of(parts, cut.edge),
            "parts": len(cut.parts),
            "kernels": kernels,
            "part_keys": ",".join(part.key for part in cut.parts),
            "fused_us": fused.span.us,
            "apart_us": apart.us,
            "log_gain": log2(apart.us / fused.span.us),
            "fused_rel_ci": (fused.span.hi - fused.span.lo) / 2 / fused.span.us,
            "apart_rel_ci": (apart.hi - apart.lo) / 2 / apart.us,
            "trusted": fused.trusted and all(part.trusted for part in cut.parts),
            **{f"{FEATURE}{name}": value for name, value in found.items()},
        }


def cell_of(parts: Parts, edge: PartEdge | None) -> dict[str, str]:
    """The cell of the paper's table that a cut lies in, and its colour (edge None: several)."""
    if edge is None:
        return {"relation": SEVERAL, "colour": SEVERAL}
    edges = parts.planned
    consumer = parts.graph.operators[edge.consumer].name
    producer = parts.graph.operators[edge.producer].name
    along = next(one.kind for one in edges.into[consumer] if one.producer == producer)
    above = edges.own[producer]
    return {"relation": f"{above.value} > {along.value}", "colour": relation(above, along).value}


@dataclass(frozen=True)
class _Part:
    """A part of a cut with the time of its kernel; a view has the key "view" and takes none."""

    operators: frozenset[int]
    key: str
    span: GroupTime
    trusted: bool


@dataclass(frozen=True)
class _Cut:
    kind: str
    parts: tuple[_Part, ...]
    edge: PartEdge | None


class _Cutter:
    """A finder of the ways to cut one group whose parts are all known on one machine.

    `known`: timed workloads by their key without layouts. `keys`: such keys of the group's subsets, as far as made.
    """

    def __init__(self, parts: Parts, known: Mapping[str, _Known], keys: dict[frozenset[int], str]) -> None:
        self.parts, self.known, self.keys = parts, known, keys
        self._best: dict[frozenset[int], tuple[_Part, ...] | None] = {}

    def cuts(self) -> list[_Cut]:
        """Two-way cuts along an edge, the operators one by one, and the best cut into more parts, as far as known."""
        whole = self.parts.all
        found: dict[frozenset[frozenset[int]], _Cut] = {}
        for first, rest, edge in self.parts.splits(whole):
            pair = self._part(first), self._part(rest)
            if pair[0] is not None and pair[1] is not None:
                self._add(found, _Cut("edge", (pair[0], pair[1]), edge))
        singles = [self._part(frozenset({index})) for index in sorted(whole)]
        if len(singles) > 2 and all(single is not None for single in singles):
            self._add(found, _Cut("singles", tuple(single for single in singles if single is not None), None))
        chain = self._apart(whole)
        if chain is not None and len(chain) > 2:
            self._add(found, _Cut("chain", chain, None))
        return list(found.values())

    @staticmethod
    def _add(found: dict[frozenset[frozenset[int]], _Cut], cut: _Cut) -> None:
        if sum(part.span.us for part in cut.parts) > 0:
            found.setdefault(frozenset(part.operators for part in cut.parts), cut)

    def _part(self, operators: frozenset[int]) -> _Part | None:
        """The kernel of some operators, where it is known."""
        if operators not in self.keys:
            workload = self.parts.part(operators, plain=True)
            self.keys[operators] = VIEW if is_free_reshape(workload) else workload.key
        key = self.keys[operators]
        if key == VIEW:
            return _Part(operators, VIEW, _VIEW_SPAN, True)
        known = self.known.get(key)
        return None if known is None else _Part(operators, known.key, known.span, known.trusted)

    def _apart(self, operators: frozenset[int]) -> tuple[_Part, ...] | None:
        """The fastest known way to cut `operators` into two or more parts, one measured part at a time."""
        if operators in self._best:
            return self._best[operators]
        self._best[operators] = None
        best: tuple[_Part, ...] | None = None
        for first, rest, _ in self.parts.splits(operators) if len(self._best) < MOST_PARTITIONS else ():
            for one, other in ((first, rest), (rest, first)):
                part = self._part(one)
                if part is None:
                    continue
                whole, cut = self._part(other), self._apart(other)
                options = [option for option in ((whole,) if whole is not None else None, cut) if option is not None]
                for option in options:
                    parts = (part, *option)
                    if best is None or _us(parts) < _us(best):
                        best = parts
        self._best[operators] = best
        return best


def _us(parts: Sequence[_Part]) -> float:
    return sum(part.span.us for part in parts)


def target_from(text: str) -> Target:
    """The target that the database stored; InputError for a text that is no target."""
    try:
        body = json.loads(text)
        return Target(**{**body, "mattr": tuple(body.get("mattr", ()))})
    except (TypeError, ValueError, AttributeError) as error:
        raise InputError(f"target text is malformed: {error}") from error
