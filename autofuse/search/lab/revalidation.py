"""Revalidation: the schedules of stored winners are built, checked and timed anew with the versions of today."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from autofuse.database.ask.times import timed_candidate
from autofuse.database.database import ProfilingDatabase
from autofuse.database.records import EXACT, BestSchedule, Setting
from autofuse.environment.device import RunnerOptions, open_runner
from autofuse.environment.environment import Environment
from autofuse.environment.place import Place
from autofuse.environment.plan_evidence import fitting, known_limits
from autofuse.errors import AutofuseError, InputError
from autofuse.graph.inputs import generate_inputs
from autofuse.graph.model import Graph, Operator, Tensor
from autofuse.graph.own.rounding import rounded
from autofuse.kernels.workload.workload import BoundWorkload, Workload
from autofuse.measure.checking.reference import capture, run_reference
from autofuse.measure.measurement import Measurement, MeasureRequest, Timing
from autofuse.measure.runner import Runner
from autofuse.measure.timing.sampling import SamplingPolicy
from autofuse.search.lab.lab import outcome_of
from autofuse.search.lab.priors import Prior, shared_priors
from autofuse.search.schedules.schedule_search import schedule_text
from autofuse.values.ratios import Timed, compare, differs
from autofuse.values.scratch import scratch_folder
from autofuse.values.statistics import Interval

MARGIN = 0.05
"""Two measurements of one kernel on different days differ by up to so much for reasons of their own (layout of
memory, heat): only more is a change."""
HOLDS, FASTER, SLOWER, FAILED, SKIPPED = "holds", "faster", "slower", "failed", "skipped"


@dataclass(frozen=True)
class Revalidated:
    """A winner measured again: `verdict` on its new time, `ratio` old / new with its interval (None: no new time).

    `stale`: it had been measured with other versions, or as other code. `note`: why there is no verdict, or that it is
    no more.
    """

    label: str
    workload_key: str
    schedule: str
    uses: int
    stale: bool
    old_us: float
    new_us: float | None
    ratio: float | None
    lo: float | None
    hi: float | None
    verdict: str
    note: str = ""


@dataclass(frozen=True)
class _Winner:
    best: BestSchedule
    text: str
    label: str
    uses: int


def revalidate(
    database: ProfilingDatabase,
    count: int,
    place: Place,
    *,
    progress: Callable[[Revalidated], None] = lambda _done: None,
) -> tuple[Revalidated, ...]:
    """Measure the `count` weightiest winners of this device again: stale ones first, then what others shared and nobody
    measured here, then by the time they take.

    Each is built from its stored workload with made-up data, checked against ONNX Runtime, timed, and recorded with
    the versions of today, so that a hit is exact from then on. InputError when nothing was ever chosen here, and
    nothing was shared.
    """
    if count < 1:
        raise InputError(f"--revalidate: got {count}, allowed: an integer from 1")
    environment = place.environment(database, measuring=True)
    winners = _winners(database, environment.setting)
    stale = [winner for winner in winners if winner.best.tier != EXACT]
    todo: list[_Winner | Prior] = [*stale, *shared_priors(database, environment)]
    todo = [*todo, *(winner for winner in winners if winner.best.tier == EXACT)][:count]
    if not todo:
        raise InputError(
            f"--revalidate: {database.location.text} has no measured choice for {environment.profile.name} with "
            f"{environment.setting.threads} thread(s), and nothing that others shared"
        )
    done: list[Revalidated] = []
    with ExitStack() as stack:
        scratch = stack.enter_context(scratch_folder())
        options = RunnerOptions(policy=SamplingPolicy(cold_constants=True))
        runner = stack.enter_context(open_runner(environment.device, environment.setting.threads, options))
        for number, one in enumerate(todo):
            folder = scratch / str(number)
            if isinstance(one, Prior):
                done.append(_confirmed(database, environment, runner, one, folder))
            else:
                done.append(_again(database, environment, runner, one, folder))
            progress(done[-1])
    return tuple(done)


def _winners(database: ProfilingDatabase, setting: Setting) -> list[_Winner]:
    """Best schedules of the workloads that were chosen here, the ones to look at first in front."""
    graphs = {
        row["choice_id"]: str(row["graph_key"])
        for row in database.table("choices").records()
        if (row["device_fingerprint"], row["target_key"], row["threads"])
        == (setting.device, setting.target, setting.threads)
    }
    limits = {key: known_limits(database, setting, key) for key in set(graphs.values())}
    groups = [row for row in database.table("groups").records() if row["choice_id"] in graphs]
    winners: dict[int, _Winner] = {}
    for limit in dict.fromkeys(limits.values()):
        used = [row for row in groups if limits[graphs[row["choice_id"]]] == limit]
        uses = Counter(str(row["workload_key"]) for row in used)
        labels = {str(row["workload_key"]): str(row["label"]) for row in used}
        found = database.lookup(setting, uses, fitting(limit))
        texts = database.workload_texts(found)
        for key, best in found.items():
            known = winners.get(best.candidate_id)
            count = uses[key] + (known.uses if known else 0)
            winners[best.candidate_id] = _Winner(best, texts[key], labels[key], count)
    return sorted(winners.values(), key=lambda w: (w.best.tier == EXACT, -w.uses * w.best.median_us))


def _again(
    database: ProfilingDatabase, environment: Environment, runner: Runner, winner: _Winner, folder: Path
) -> Revalidated:
    best = winner.best
    base = Revalidated(
        winner.label, best.workload_key, best.schedule, winner.uses, best.tier != EXACT, best.median_us,
        None, None, None, None, SKIPPED,
    )  # fmt: skip
    try:
        bound, graph = rebuilt(winner.text)
        schedule = json.loads(best.schedule)
        store = capture(graph, _drawn(bound, graph), folder, ())
        constants = store.constants(graph, bound)
        request = MeasureRequest(bound.workload, schedule, (store.case(bound),), constants)
    except AutofuseError as error:
        return replace(base, note=f"it cannot be built without its model: {error}")
    stored = Interval(best.median_us, best.ci_lo_us, best.ci_hi_us, 0.95, 0)
    old = timed_candidate(database.samples(best.candidate_id), stored, best.trusted)
    (measurement,) = runner.measure([request])
    if measurement.failure is not None and measurement.failure.kind == "device_lost":
        return replace(base, note=measurement.failure.message)
    database.record_candidate(environment.setting, outcome_of(bound, schedule, measurement, environment.codes))
    return _judged(base, old, measurement)


def _confirmed(
    database: ProfilingDatabase, environment: Environment, runner: Runner, prior: Prior, folder: Path
) -> Revalidated:
    """A schedule that others shared, measured beside the rule's own: from then on both are this device's samples."""
    base = Revalidated(
        prior.label, prior.key, schedule_text(prior.schedule), 0, False, prior.shared_us,
        None, None, None, None, SKIPPED,
    )  # fmt: skip
    try:
        bound, graph = rebuilt(prior.text)
        store = capture(graph, _drawn(bound, graph), folder, ())
        case, constants = store.case(bound), store.constants(graph, bound)
    except AutofuseError as error:
        return replace(base, note=f"it cannot be built without its model: {error}")
    texts = dict.fromkeys([schedule_text(prior.rule), schedule_text(prior.schedule)])
    requests = [MeasureRequest(bound.workload, json.loads(text), (case,), constants) for text in texts]
    found = runner.measure(requests)
    for request, measurement in zip(requests, found, strict=True):
        if measurement.failure is None or measurement.failure.kind != "device_lost":
            outcome = outcome_of(bound, request.schedule, measurement, environment.codes)
            database.record_candidate(environment.setting, outcome)
    shared = found[-1]
    if shared.timing is None:
        lost = shared.failure is not None and shared.failure.kind == "device_lost"
        return replace(
            base, verdict=SKIPPED if lost else FAILED, note=shared.failure.message if shared.failure else "no time"
        )
    rule = found[0].timing
    note = "shared by others; the rule's own schedule fails" if rule is None else _beside_the_rule(shared.timing, rule)
    return replace(base, new_us=shared.timing.us.median, verdict=HOLDS, note=note)


def _beside_the_rule(shared: Timing, rule: Timing) -> str:
    return f"shared by others; here {rule.us.median / shared.us.median:.2f}x as fast as the rule's own schedule"


def _judged(base: Revalidated, old: Timed, measurement: Measurement) -> Revalidated:
    timing = measurement.timing
    if timing is None:
        note = measurement.failure.message if measurement.failure else "no time"
        return replace(base, verdict=FAILED, note=note)
    done = replace(base, new_us=timing.us.median)
    if not timing.trusted:
        return replace(done, verdict=HOLDS, note="no difference shown: the new time is not trusted")
    ratio = compare(old, Timed(timing.us, True, tuple(piece.us for piece in timing.slices if piece.good)))
    if ratio.value is None:
        return replace(done, verdict=HOLDS, note=f"no difference shown: {ratio.verdict}")
    verdict = HOLDS if not differs(ratio, MARGIN) else FASTER if ratio.value > 1 else SLOWER
    return replace(done, ratio=ratio.value, lo=ratio.lo, hi=ratio.hi, verdict=verdict)


def _drawn(bound: BoundWorkload, graph: Graph) -> dict[str, NDArray[np.generic]]:
    """Made-up inputs; bfloat16 where the workload stores them as such."""
    workload = bound.workload
    stored = dict(zip(bound.inputs, map(workload.values.__getitem__, workload.of_kind("input")), strict=True))
    drawn = generate_inputs(graph, 0)
    return {name: rounded(array) if stored[name].is_half else array for name, array in drawn.items()}


def rebuilt(text: str) -> tuple[BoundWorkload, Graph]:
    """A graph that is only this workload, with made-up constants; InputError when it cannot be made.

    Constants are drawn as inputs are, so that indices stay inside their tables; where the reference then yields NaN
    (a variance below 0), they are made positive.
    """
    workload = Workload.from_text(text)
    if any(isinstance(value, dict) for node in workload.operators for _, value in node.attributes):
        raise InputError("an attribute is kept as a hash only")
    tensors = {f"v{index}": Tensor(f"v{index}", v.shape, v.dtype) for index, v in enumerate(workload.values)}

    def names(kind: str) -> tuple[str, ...]:
        return tuple(f"v{index}" for index in workload.of_kind(kind))

    def of(indices: Sequence[int]) -> tuple[str, ...]:
        return tuple(f"v{index}" if index >= 0 else "" for index in indices)

    operators = tuple(
        Operator(f"n{number}", node.op_type, of(node.inputs), of(node.outputs), dict(node.attributes), node.domain)
        for number, node in enumerate(workload.operators)
    )
    literals = {f"v{index}": workload.values[index].literal_array() for index in workload.of_kind("literal")}
    inputs, constants, outputs = names("input"), names("constant"), names("output")
    open_graph = Graph("workload", (*inputs, *constants), outputs, operators, tensors, literals, workload.opset)
    drawn = generate_inputs(open_graph, 1)
    graph = replace(open_graph, inputs=inputs, constants={**literals, **{n: drawn[n] for n in constants}})
    if not _sound(graph):
        positive = {n: np.abs(drawn[n]) if drawn[n].dtype.kind == "f" else drawn[n] for n in constants}
        graph = replace(graph, constants={**literals, **positive})
    return BoundWorkload(workload, inputs, constants, outputs), graph


def _sound(graph: Graph) -> bool:
    try:
        run_reference(graph, generate_inputs(graph, 0))
    except InputError as error:
        if "NaN" not in str(error):
            raise
        return False
    return True


def summary(done: Sequence[Revalidated]) -> Mapping[str, int]:
    """How many came to each verdict."""
    return Counter(one.verdict for one in done)
