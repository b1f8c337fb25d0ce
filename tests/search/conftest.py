"""A device whose every time follows from the workload and its schedule: searches are tested exactly, and fast."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

import pytest

from autofuse.device.target import Target
from autofuse.environment.place import Place
from autofuse.graph.loading.load import load
from autofuse.graph.model import Graph
from autofuse.kernels.lowering.lower import lower
from autofuse.kernels.workload.workload import Workload
from autofuse.measure.checking.reference import run_reference
from autofuse.measure.children.ahead import Ahead, nothing_ahead
from autofuse.measure.measurement import Failure, Left, Measurement, MeasureRequest, Slice, Timing, no_end
from autofuse.measure.networks.bench import Contender, ContenderResult, compared
from autofuse.measure.networks.libraries import Model, Order
from autofuse.measure.timing.race import Samples
from autofuse.search.progress import SearchRequest, TuneResult
from autofuse.search.schedules.schedule_search import schedule_text
from autofuse.values.ratios import kept
from autofuse.values.statistics import median_interval

Schedule = Mapping[str, int | str]
Cost = Callable[[Workload, Schedule], float | Failure]
Tune = Callable[..., TuneResult]
LAUNCH_US = 0.3

SPACE = """
schema = 1
[schedule.contraction]
algorithm = ["direct"]
vectors = [1, 2]
pixels = [2, 4, 1]
rows_per_task = [4, 1]
panels_per_task = [1]
order = ["weights"]
pixel_rows = [1]
[schedule.windowed]
algorithm = ["direct"]
pixels = [4]
rows_per_task = [0]
[schedule.elementwise]
tasks = [8]
"""
"""Twelve schedules of a contraction, one of anything else: a search can try them all."""


def chance(*parts: object) -> float:
    """A number in [0, 1) that depends on `parts` alone."""
    return int(hashlib.sha256(repr(parts).encode()).hexdigest()[:12], 16) / 16**12


def scattered(workload: Workload, schedule: Schedule) -> float:
    """10 us an operator, up to twice that by a bad schedule."""
    return 10.0 * len(workload.operators) * (1 + chance(workload.key, schedule_text(schedule)))


def pretended(workload: Workload, schedule: Schedule, _target: Target | None = None) -> str:
    """Stands for the code of a kernel: nothing is emitted for such devices."""
    return hashlib.sha256(f"{workload.key} {schedule_text(schedule)}".encode()).hexdigest()


@pytest.fixture(autouse=True)
def _no_kernel_is_emitted(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a synthetic device measures, the codes of stored candidates are as it pretends them."""
    if "device" in request.fixturenames:
        monkeypatch.setattr("autofuse.environment.codes.emitted_code", pretended)


class SyntheticDevice:
    """A runner, a builder and a race in one. `cost`: microseconds of a candidate, or its failure.

    `whole`: microseconds of a whole plan, from its name and the sum of its kernels (a text: it is wrong).
    `drift`: relative error of a plan, by name, on further inputs. `measured`: (workload key, schedule) in the order
    asked for. `on_measure` is called before each. `trusted`: whether a workload's times are. `noise`: by what part the
    blocks of a race differ. `chance`: a number that depends on its arguments alone.
    `alone_us`: microseconds of ONNX Runtime (a text: why it is wrong).
    """

    chance = staticmethod(chance)
    launch_us = LAUNCH_US

    def __init__(self, cost: Cost = scattered) -> None:
        self.cost = cost
        self.whole: Callable[[str, float], float | str] = lambda _name, us: us
        self.measured: list[tuple[str, str]] = []
        self.labels: list[str] = []
        self.raced: list[str] = []
        self.drift: Callable[[str], float] = lambda _name: 0.0
        self.trusted: Callable[[Workload], bool] = lambda _workload: True
        self.on_measure: Callable[[], None] = lambda: None
        self.noise = 0.02
        self.alone_us: float | str = 1.0
        self._graphs: dict[Path, Graph] = {}

    def __call__(self, *_: object) -> SyntheticDevice:
        return self

    def __enter__(self) -> SyntheticDevice:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def close(self) -> None:
        pass

    def measure(self, batch: Sequence[MeasureRequest]) -> list[Measurement]:
        found = dict(self.stream(batch))
        return [found[index] for index in range(len(batch))]

    def stream(
        self, batch: Sequence[MeasureRequest], left: Left = no_end, ahead: Ahead = nothing_ahead
    ) -> Iterator[tuple[int, Measurement]]:
        for index in reversed(range(len(batch))):  # a real runner answers in no special order either
            if left() <= 0:
                return
            request = batch[index]
            self.on_measure()
            self.measured.append((request.workload.key, schedule_text(request.schedule)))
            self.labels.append(request.workload.label)
            outcome = self.cost(request.workload, request.schedule)
            code = pretended(request.workload, request.schedule)
            if isinstance(outcome, Failure):
                yield index, Measurement(failure=outcome, build_s=0.01, code=code)
            else:
                slices = tuple(Slice(outcome, 1, 1.0, 0.0, True) for _ in range(5))
                trusted = self.trusted(request.workload)
                timing = Timing(median_interval([outcome] * 5), slices, trusted, "", "enough")
                yield index, Measurement(timing, build_s=0.01, max_rel_error=1e-7, code=code)

    def build(
        self,
        model: Model,
        target: Target,
        threads: int,
        orders: Sequence[Order],
        tell: Callable[[str, int, int], None],
        workers: int | None = None,
        left: Left = no_end,
        objects: Path | None = None,
    ) -> dict[str, str]:
        graph = load(model.path, model.given)
        for number, order in enumerate(orders):
            tell(f"building plan {order.name}", number, len(orders))
            lowered = lower(graph, order.plan, target, [group.operators for group in order.plan.groups])
            times = [self.cost(bound.workload, order.schedules[bound.workload.key]) for bound in lowered.kernels]
            assert not any(isinstance(us, Failure) for us in times), "a failed candidate became part of a plan"
            total = sum(us + LAUNCH_US for us in times if not isinstance(us, Failure))
            order.output.write_text(json.dumps(total))
            self._graphs[order.output] = lowered.graph
        return {}

    def outputs(self, library: Path, inputs: Mapping[str, Any], left: Left = no_end) -> list[Any]:
        """What a "library" computes: what the model does, up to `drift`."""
        graph, factor = self._graphs[library], 1 + self.drift(library.stem.removeprefix("plan-"))
        results = run_reference(graph, inputs)
        return [results[name] * results[name].dtype.type(factor) for name in graph.outputs]

    def race(self, contenders: Sequence[Contender], *_: object, **_named: object) -> dict[str, ContenderResult]:
        found = {}
        for contender in contenders:
            self.raced.append(contender.name)
            alone = contender.kind == "onnxruntime"
            us = self.alone_us if alone else self.whole(contender.name, json.loads(contender.path.read_text()))
            if isinstance(us, str):
                found[contender.name] = ContenderResult(1.0, None, None, None, False, max_rel_error=1.0, wrong=us)
                continue
            times = [kept(us * (1 + self.noise * (chance(contender.name, number) - 0.5))) for number in range(15)]
            slices = tuple(Slice(one, 1, 1.0, 0.0, True) for one in times)
            samples = Samples(slices, tuple(range(15)), median_interval(times), True, "")
            found[contender.name] = ContenderResult(
                us, None, None, None, True, max_rel_error=1e-7, load_s=0.1, samples=samples
            )
        return compared(found)


D = TypeVar("D", bound=SyntheticDevice)


def put_in_place(made: D, monkeypatch: pytest.MonkeyPatch) -> D:
    """Lets searches run on this device."""
    monkeypatch.setattr("autofuse.search.tune.open_runner", made)
    monkeypatch.setattr("autofuse.search.finals.finals.build_libraries", made.build)
    return made


@pytest.fixture
def steady(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that goes on alike in every run: what a question costs is measured, and has a say in which is asked."""
    ticks = count()
    clock = SimpleNamespace(monotonic=lambda: 0.01 * next(ticks), thread_time=lambda: 0.0, sleep=lambda _seconds: None)
    monkeypatch.setattr("autofuse.search.budget.budget.time", clock)


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch, steady: None) -> SyntheticDevice:
    """The device that searches of this test run on, however busy this machine is."""
    return put_in_place(SyntheticDevice(), monkeypatch)


@pytest.fixture
def space(tmp_path: Path) -> Path:
    """A search space that can be exhausted."""
    path = tmp_path / "small.toml"
    path.write_text(SPACE)
    return path


@pytest.fixture
def run(device: SyntheticDevice, space: Path, tmp_path: Path) -> Tune:
    """`run(model)`: tune it on the synthetic device, with a database of the test and the small space."""
    from autofuse.search.tune import tune

    def call(model: Path, **changes: Any) -> TuneResult:
        arguments: dict[str, Any] = {"space": str(space), "trained": "none"}
        where = {"database": str(tmp_path / "profile.db"), "threads": 1}
        where |= {name: changes.pop(name) for name in ("database", "threads", "device") if name in changes}
        since = changes.pop("since", None)
        return tune(model, Place(**where), SearchRequest(**{**arguments, **changes}), since)

    return call


@pytest.fixture
def two_layers(onnx_builder: Any, tmp_path: Path) -> Path:
    """Two dense layers, a residual and a softmax: three groups, and three decisions with 18 combinations."""
    b = onnx_builder()
    y = b.op("Relu", "relu", b.dense("first", "x", (16, 24)))
    x = b.op("Add", "residual", b.dense("second", y, (24, 24)), y)
    return Path(b.save(tmp_path / "two_layers.onnx", {"x": [8, 16]}, [b.op("Softmax", "softmax", x)]))


@pytest.fixture
def convolution(onnx_builder: Any, tmp_path: Path) -> Path:
    """A convolution with its BatchNormalization, which the default folds and TVM's partition does not."""
    b = onnx_builder()
    x = b.op("Relu", "relu", b.conv_bn("conv", "x", (8, 16)))
    return Path(b.save(tmp_path / "convolution.onnx", {"x": [1, 8, 6, 6]}, [b.op("GlobalAveragePool", "pool", x)]))


@pytest.fixture
def one_layer(onnx_builder: Any, tmp_path: Path) -> Path:
    """The first layer of `two_layers`, and something else after it."""
    b = onnx_builder()
    y = b.op("Relu", "relu", b.dense("first", "x", (16, 24)))
    return Path(b.save(tmp_path / "one_layer.onnx", {"x": [8, 16]}, [b.op("Softmax", "other", y)]))
