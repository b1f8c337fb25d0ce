"""Measures the groups of many networks evenly: what the profitability model learns from.

    python -m experiments profitability.collect --db FILE [--budget 75s] [--threads 1] [--device local] [NETWORK ...]

A tuning job spends its time where the best plan needs it. Here every group that a plan of `candidates` brings up gets
the same care: its first schedule that works, and then, while time is left, the rules' other guesses. All of it goes
through the product's own runner, which checks each kernel against ONNX Runtime before it times it; failures are rows.

A network that had its budget in these circumstances is left alone; one that was cut off goes on, and with a larger
budget each goes on from what is known.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from autofuse.database.database import ProfilingDatabase, open_database
from autofuse.database.records import RunStart
from autofuse.environment.environment import Environment, environment_of
from autofuse.environment.space import load_space
from autofuse.errors import AutofuseError
from autofuse.fusion.plan import FusionPlan
from autofuse.graph.inputs import generate_inputs
from autofuse.graph.key import graph_key
from autofuse.graph.loading.load import load
from autofuse.kernels.lowering.coverage import require_kernels
from autofuse.measure.checking.reference import capture
from autofuse.measure.local_runner import LocalRunner
from autofuse.measure.measurement import Limits
from autofuse.measure.timing.sampling import SamplingPolicy
from autofuse.search.budget.budget import Budget
from autofuse.search.lab.lab import Lab
from autofuse.search.schedules.evidence import SearchEvidence
from autofuse.search.schedules.schedule_search import WorkloadSearch
from autofuse.values.scratch import scratch_folder
from experiments.catalogue import WRITTEN
from experiments.model_files import FOLDERS
from experiments.networks.row import sha256
from experiments.options import new_parser
from experiments.profitability import candidates, networks

SEED = 0
PAIRS_AT_ONCE = 5
AT_ONCE = 16
"""Candidates between two looks at the clock; they are built side by side."""
TRIES = 3
"""Candidates of a group, at most."""
POLICY = SamplingPolicy(cold_constants=True, good_slices=11, cap_s=0.4)
"""As a tuning job measures, but with less patience: many groups tell more than a few exact ones."""
LIMITS = Limits(build_s=20.0)


@dataclass(frozen=True, eq=False)
class Job:
    """Where and how long a network is measured: `budget_s` seconds with `runner`, whose children outlive networks."""

    models: Path
    budget_s: float
    environment: Environment
    runner: LocalRunner


def collect(network: str, base: ProfilingDatabase, job: Job) -> str:
    """Measure one network; one line about what was done. AutofuseError when it cannot be measured at all."""
    environment = job.environment
    model = networks.find(network, job.models)
    if _finished(base, environment, model, job.budget_s):
        return f"{network} on {environment.setting.threads} of {environment.profile.name}: finished before"
    with _lab(model, base, job) as lab:
        end = time.monotonic() + job.budget_s
        key, plans = graph_key(lab.evidence.graph), candidates.plans(lab.evidence.graph, SEED)
        basis, count = [], 0
        for origin, plan in plans:
            base.record_plan(key, plan.key, plan.to_json(), origin)
            count += 1
            if origin in candidates.BASIS:
                basis.append(plan)
                continue
            if basis:
                _measure_pairs(lab, basis, end)
                basis = []
            _give_each(lab, lab.evidence.of(plan), 1, end)
            if time.monotonic() > end:
                break
        if basis:
            _measure_pairs(lab, basis, end)
        _give_each(lab, list(lab.evidence.searches.values()), TRIES, end)
        done, groups = lab.evidence.counts, len(lab.evidence.searches)
        return (
            f"{network} on {environment.setting.threads} of {environment.profile.name}: {done.measured} candidates "
            f"measured ({done.failed} failed, {len(lab.evidence.untrusted)} not trusted), {groups} groups, "
            f"{count} plans"
        )


def _measure_pairs(lab: Lab, basis: Sequence[FusionPlan], end: float) -> None:
    """Pairs of neighbours in an order drawn by chance, each with its two operators alone.

    So there is something to compare, however early the time is over. `basis`: every operator alone, then the plans
    that hold the pairs.
    """
    alone: dict[str, WorkloadSearch] = {}
    pairs: list[list[WorkloadSearch]] = []
    for plan in basis:
        for group, bound in zip(plan.groups, lab.evidence.admit(plan).groups, strict=True):
            search = lab.evidence.searches.get(bound.workload.key)  # None: a view, which costs no kernel
            if search is not None and len(group.operators) == 1:
                alone.setdefault(group.operators[0], search)
            elif search is not None:
                pairs.append([*(alone[name] for name in group.operators if name in alone), search])
    random.Random(SEED).shuffle(pairs)
    for start in range(0, len(pairs), PAIRS_AT_ONCE):
        some = [search for pair in pairs[start : start + PAIRS_AT_ONCE] for search in pair]
        _give_each(lab, list({search.key: search for search in some}.values()), 1, end)
    _give_each(lab, list(alone.values()), 1, end)


def _give_each(lab: Lab, searches: Sequence[WorkloadSearch], times: int, end: float) -> None:
    """Candidates for these groups until each has `times` of them that worked, or used up its tries and guesses."""
    while time.monotonic() < end:
        poor = [search for search in searches if _wants(search, times)]
        if not poor:
            return
        lab.measure(sorted(poor, key=lambda search: len(search.tried))[:AT_ONCE], Budget())


def _wants(search: WorkloadSearch, times: int) -> bool:
    worked = sum(us is not None for us in search.tried.values())
    guesses = search.pending or search.suggested or not worked
    return worked < times and len(search.tried) < TRIES and bool(guesses) and not search.complete


def _finished(base: ProfilingDatabase, environment: Environment, model: Path, budget_s: float) -> bool:
    """Whether this network had such a budget in these very circumstances, and came to its end."""
    setting = environment.setting
    wanted = {
        "model_sha256": sha256(model),
        "state": "finished",
        "device_fingerprint": setting.device,
        "target_key": setting.target,
        "threads": setting.threads,
        "versions_key": setting.versions,
    }
    for row in base.table("runs").records():
        budget = row["budget"]
        enough = isinstance(budget, dict) and budget.get("seconds", 0.0) >= budget_s
        if enough and all(row[name] == value for name, value in wanted.items()):
            return True
    return False


@contextmanager
def _lab(model: Path, base: ProfilingDatabase, job: Job) -> Iterator[Lab]:
    """What is known of the network's groups, to measure more; its run ends as the block does."""
    graph = load(model, {})
    require_kernels(graph)
    with scratch_folder() as scratch:
        made = [name for operator in graph.operators for name in operator.outputs if name]
        wanted = [name for name in made if name not in graph.constants]
        reference = capture(graph, generate_inputs(graph, SEED), scratch / "reference", wanted)
        run = _run(base, job.environment, model, graph_key(graph), job.budget_s)
        state = "failed"
        try:
            space = load_space(None, job.environment.target.isa)
            yield Lab(
                SearchEvidence(graph, space, job.environment, base, SEED), job.runner, reference, run, lambda _: None
            )
            state = "finished"
        except KeyboardInterrupt:
            state = "interrupted"
            raise
        finally:
            base.finish_run(run, state)


def _run(base: ProfilingDatabase, environment: Environment, model: Path, key: str, budget_s: float) -> int:
    """The run of this network here that was cut off, or a new one."""
    base.release_dead()
    sha = sha256(model)
    old = base.interrupted_run(environment.setting, sha)
    if old is not None:
        base.resume_run(old.id)
        return old.id
    start = RunStart(
        name=f"{model.stem}-{environment.setting.threads}t-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}",
        model_name=model.stem,
        model_sha256=sha,
        graph_key=key,
        seed=SEED,
        arguments={
            "purpose": "profitability",
            "device": environment.profile.name,
            "threads": environment.setting.threads,
        },
        budget={"seconds": budget_s},
        provenance=environment.provenance.as_dict(),
    )
    return base.start_run(environment.setting, start)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure the networks named (none: all); 1 when one of them could not be measured."""
    parser = new_parser(__doc__, threads=1, budget="75s")
    parser.add_argument("networks", nargs="*", metavar="NETWORK", help=f"of {', '.join(networks.FAMILIES)}")
    parser.add_argument("--db", type=Path, default=Path("out/profitability/times.db"), help="where times are kept")
    parser.add_argument("--models", type=Path, default=FOLDERS[WRITTEN], help="folder of the ONNX files")
    parser.add_argument("--workers", type=int, help="children that build side by side (default: one a core)")
    parser.add_argument("--device", default="local", help="local, the name of a profile, or a .toml file")
    options = parser.parse_args(arguments)
    options.db.parent.mkdir(parents=True, exist_ok=True)
    failed = 0
    with ExitStack() as stack:
        base = stack.enter_context(open_database(options.db))
        environment = environment_of(base, options.device, options.threads, measuring=True)
        runner = stack.enter_context(
            LocalRunner(environment.target, options.threads, policy=POLICY, limits=LIMITS, workers=options.workers)
        )
        job = Job(options.models, options.budget, environment, runner)
        for network in options.networks or networks.in_turn():
            try:
                print(collect(network, base, job), flush=True)
            except AutofuseError as error:
                failed += 1
                print(f"{network}: {error}", file=sys.stderr, flush=True)
    return 1 if failed else 0
