"""`bench`: a compiled model against its rivals, checked, interleaved, one process each."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from autofuse.backend.library.library import check as check_library
from autofuse.backend.library.library import count_kernels, read_metadata
from autofuse.backend.library.library import load as load_library
from autofuse.compiler import Context, Policy, compile_in
from autofuse.database.database import open_database
from autofuse.database.record.benchmarks import record_benchmark
from autofuse.environment.device import RunnerOptions, open_runner, thread_count
from autofuse.environment.environment import environment_of
from autofuse.environment.outcomes import plan_outcome
from autofuse.environment.place import Place
from autofuse.errors import DatabaseError, DeviceError, WrongResultError
from autofuse.fusion.planner.baselines import none_plan
from autofuse.graph.inputs import generate_inputs
from autofuse.graph.key import graph_key
from autofuse.graph.loading.load import load
from autofuse.graph.model import Graph
from autofuse.kernels.lowering.coverage import require_kernels
from autofuse.measure.checking.reference import run_reference
from autofuse.measure.networks.bench import Contender, ContenderResult
from autofuse.measure.networks.judgement import judged
from autofuse.measure.networks.libraries import Model
from autofuse.values.arguments import Given, file_title
from autofuse.values.names import NO_FUSION, ONNX_RUNTIME, TVM_UNTUNED
from autofuse.values.ratios import compare
from autofuse.values.scratch import scratch_folder

OWN = "autofuse"
KINDS = {ONNX_RUNTIME: "onnxruntime", TVM_UNTUNED: "tvm"}
"""How a rival runs, see `autofuse.measure.networks.bench.Contender`."""
SEED = 0


@dataclass(frozen=True)
class BenchRequest:
    """What `autofuse.api.bench` was asked for, as each kind of model takes it.

    `library`: what is timed (None: what a compile makes now, `on_miss` as there). `against`: rivals by name. `given`:
    shapes and constants of inputs. `trust`: public keys, one of which must have signed the library.
    """

    library: Path | None
    on_miss: str
    against: Sequence[str]
    budget_s: float
    given: Given
    trust: Sequence[Path] = ()

    def check_library(self, here: bool) -> None:
        """Refuses a library that is damaged or not ours, before anything is measured; `here`: where it will run."""
        if self.library is not None and here:
            load_library(self.library, trust=self.trust)
        elif self.library is not None:
            check_library(self.library, self.trust)


@dataclass(frozen=True)
class RivalReport:
    """A rival's median time; `ratio` = rival / autofuse with its interval; `error`: why it has no time.

    `autofuse_us`: autofuse's median in the same rounds. `verdict`: what the ratio says of autofuse, or why there is no
    ratio (see `autofuse.values.ratios.VERDICTS`).
    """

    median_us: float | None
    ratio: float | None
    ci_lo: float | None
    ci_hi: float | None
    trusted: bool
    error: str = ""
    autofuse_us: float | None = None
    verdict: str = ""


@dataclass(frozen=True)
class BenchReport:
    """What `bench` found; `max_rel_error`: against ONNX Runtime, relative to the range of each output.

    `recorded`: whether the times stand in the database now, for the reports of runs that chose the same plan.
    """

    model: str
    threads: int
    device: str
    autofuse_us: float
    max_rel_error: float
    kernels: int
    rivals: Mapping[str, RivalReport]
    recorded: bool = False


def bench(model: Path, place: Place, request: BenchRequest) -> BenchReport:
    """Time `model` against its rivals; see `autofuse.api.bench`.

    WrongResultError when the library does not compute what ONNX Runtime computes.
    """
    named = place.find(measuring=True)
    threads = thread_count(place.threads, named)
    given, library = request.given, request.library
    graph = load(model, given)
    require_kernels(graph)
    here = named.address is None
    request.check_library(here)
    inputs = generate_inputs(graph, SEED)
    expected = run_reference(graph, inputs)
    with ExitStack() as stack:
        policy = Policy(request.on_miss)
        context = stack.enter_context(Context(place, policy=policy, asked=named))
        context.environment.device.require_measurable()
        folder = stack.enter_context(scratch_folder())

        build = partial(compiled, context, model, given, folder)
        own = build(None, OWN) if library is None else kept(library, request.trust, folder)
        file = partial(Model(model, given).plain_file, graph, folder / "model.onnx")
        contenders = line_up(own, request.against, build, file)
        with open_runner(context.environment.device, threads, RunnerOptions()) as runner:
            results = runner.race(
                contenders, inputs, request.budget_s, expected=[expected[name] for name in graph.outputs]
            )
            results = judged(results, graph, inputs)
        kernels = count_kernels(load_library(own), inputs) if here else read_metadata(own).kernels
        name = context.environment.profile.name
        keys = {OWN: read_metadata(own, request.trust).plan_key, NO_FUSION: none_plan(graph).key}
        recorded = _record(context, graph, results, keys)
    return replace(report_of(file_title(model), threads, name, kernels, results), recorded=recorded)


def compiled(context: Context, model: Path, given: Given, folder: Path, plan: str | None, name: str) -> Path:
    """The library of a model under a plan (None: what a compile takes), in `folder`."""
    path = folder / f"{name}.so"
    compile_in(context, model, path, [given], plan)
    return path


def line_up(
    own: Path, against: Sequence[str], build: Callable[[str | None, str], Path], file: Callable[[], Path]
) -> list[Contender]:
    """Our library and its rivals; `build`: a library of ours under a plan, `file`: what other engines run."""
    contenders = [Contender(OWN, "autofuse", own)]
    for rival in against:
        if rival == NO_FUSION:
            contenders.append(Contender(rival, "autofuse", build("none", rival)))
        else:
            contenders.append(Contender(rival, KINDS[rival], file()))
    return contenders


def kept(library: Path, trust: Sequence[Path], folder: Path) -> Path:
    """The library that is loaded, here or on a device: with `trust` a copy, every byte of which was verified.

    The file itself may become another one at any time. A device takes a file by the SHA-256 of its content.
    """
    if not trust:
        return library
    own = folder / f"{OWN}.so"
    shutil.copyfile(library, own)
    check_library(own, trust)
    return own


def _record(context: Context, graph: Graph, results: Mapping[str, ContenderResult], keys: Mapping[str, str]) -> bool:
    """Keeps the times in the database where there is one that can be written; whether it did."""
    path = context.database_path
    if path is not None and not path.exists():
        return False
    series = uuid.uuid4().hex
    outcomes = [plan_outcome(result, name, series, keys.get(name)) for name, result in results.items()]
    environment = context.environment
    try:
        with open_database(context.place.database) as base:
            setting = environment_of(base, environment.device, context.threads, measuring=False).setting
            with base.writing() as sql:
                record_benchmark(sql, setting, graph_key(graph), outcomes)
    except DatabaseError:  # a file that may only be read: the times stand on the screen all the same
        return False
    return True


def report_of(
    model: str, threads: int, device: str, kernels: int, results: Mapping[str, ContenderResult]
) -> BenchReport:
    """The report of a race. WrongResultError, DeviceError when ours is wrong, or has no time."""
    own = results[OWN]
    if own.wrong:
        raise WrongResultError(f"{model}: the library is wrong: {own.wrong}; tune again, or report this model")
    if own.median_us is None or own.max_rel_error is None:
        raise DeviceError(f"{model}: the library could not be measured: {own.error}")
    rivals = {name: _rival(result, own) for name, result in results.items() if name != OWN}
    return BenchReport(model, threads, device, own.median_us, own.max_rel_error, kernels, rivals)


def _rival(result: ContenderResult, own: ContenderResult) -> RivalReport:
    problem = result.error or result.wrong
    if problem or result.timed is None or own.timed is None:
        return RivalReport(result.median_us, None, None, None, False, problem or "no time")
    ratio = compare(result.timed, own.timed)
    us = result.timed.us.median
    return RivalReport(us, ratio.value, ratio.lo, ratio.hi, ratio.trusted, "", ratio.new_us, ratio.verdict)
