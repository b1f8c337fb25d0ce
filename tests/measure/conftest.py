"""Fixtures shared by the measure tests: this machine's target, and a workload that builders of the tests know."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from autofuse.backend.compile.host_cpu import local_device
from autofuse.device.target import Target
from autofuse.kernels.workload.workload import Value, Workload, WorkloadOperator
from autofuse.measure.measurement import Case, MeasureRequest
from autofuse.measure.timing.clock import Clock

pytest.register_assert_rewrite("tests.measure.runner_contract")

SIZE = 4096
KNOBS = ("work", "mark")
Ask = Callable[..., MeasureRequest]


@pytest.fixture(scope="session")
def target() -> Target:
    return local_device().target()


@pytest.fixture(scope="session")
def ask(tmp_path_factory: pytest.TempPathFactory) -> Ask:
    """Requests for y = 2 x + c whose schedule says how the builder in `rogue_builders` misbehaves."""
    folder = tmp_path_factory.mktemp("arrays")
    generator = np.random.default_rng(1)
    x, c = (generator.standard_normal(SIZE).astype("float32") for _ in range(2))
    other = generator.standard_normal(SIZE).astype("float32")
    arrays = {"x": x, "c": c, "y": 2 * x + c, "x2": other, "y2": 2 * other + c, "y_bad": 2 * other}
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array)

    def case(source: str, result: str) -> Case:
        return Case((folder / f"{source}.npy",), (folder / f"{result}.npy",))

    cases = {"good": (case("x", "y"), case("x2", "y2")), "second bad": (case("x", "y"), case("x2", "y_bad"))}

    def request(act: str = "good", *, cases_named: str = "good", **more: object) -> MeasureRequest:
        schedule = {"act": act, **{key: value for key, value in more.items() if key in KNOBS}}
        rest = {key: value for key, value in more.items() if key not in KNOBS}
        return MeasureRequest(doubling_workload(), schedule, cases[cases_named], (folder / "c.npy",), **rest)

    return request


def doubling_workload() -> Workload:
    values = tuple(Value(kind, (SIZE,), "float32") for kind in ("input", "constant", "output"))
    return Workload(values, (WorkloadOperator("Double", (0, 1), (2,)),), 17)


@pytest.fixture(scope="session")
def rogues() -> dict[str, object]:
    """Arguments of a runner that builds with `rogue_builders`."""
    return {"builder": "rogue_builders:build", "import_paths": [Path(__file__).parent]}


PROBE_S = 400e-6


class FakeMachine:
    """A machine whose time, clock and neighbours the tests decide.

    Time advances only by what runs. `speed(t)`: part of full clock; `stolen(t)`: part of time others take.
    """

    def __init__(
        self, speed: Callable[[float], float] = lambda t: 1.0, stolen: Callable[[float], float] = lambda t: 0.0
    ) -> None:
        self.time = 0.0
        self.waited = 0.0
        self.speed, self.stolen = speed, stolen
        self.ran: list[tuple[str, int]] = []
        self.clock = Clock(lambda: self.work(PROBE_S))
        self.clock.calibrate(3)

    def now(self) -> float:
        return self.time

    def waited_ns(self) -> int:
        return int(self.waited * 1e9)

    def work(self, seconds: float) -> float:
        """Do what takes `seconds` at full clock; the wall seconds it took."""
        busy = seconds / self.speed(self.time)
        wall = busy / (1.0 - self.stolen(self.time))
        self.waited += wall - busy
        self.time += wall
        return wall

    def kernel(self, seconds: float, name: str = "kernel") -> Callable[[int], float]:
        def run(calls: int) -> float:
            self.ran.append((name, calls))
            return self.work(seconds * calls) / calls

        return run


@pytest.fixture
def fake() -> type[FakeMachine]:
    """The class of fake machines."""
    return FakeMachine
