"""Options and fixtures for all tests."""

from __future__ import annotations

import signal
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import autofuse  # noqa: F401  before any test imports ONNX Runtime: it switches telemetry off
from autofuse.database.database import ProfilingDatabase, open_database
from autofuse.measure.machine import MachineRates
from autofuse.measure.timing.race import Samples, interleaved

RACES = ("autofuse.measure.networks.bench.interleaved", "autofuse.measure.remote.remote_race.interleaved")
"""Where whole networks are raced."""
VARIANTS = 41
"""`--brief` runs about one of so many variants of a test of these rooms:"""
VARIED = {"experiments", "freestanding", "job", "kernels", "open_sizes", "ort", "search", "segments"}


def pytest_configure() -> None:
    """Hears signals again that a script or `nohup` let be ignored: the children of tests would inherit that."""
    for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, handler)


@pytest.fixture(autouse=True, scope="session")
def nothing_kept() -> Iterator[None]:
    """Tests translate their kernels: none takes the machine code that the user, or another test, has kept."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("autofuse.backend.compile.objects.user_folder", lambda: None)
        yield


@pytest.fixture
def database(tmp_path: Path) -> Iterator[ProfilingDatabase]:
    """An empty database, open while a test runs."""
    with open_database(tmp_path / "profile.db") as opened:
        yield opened


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write the golden files instead of comparing")
    parser.addoption("--mutations", default="60", metavar="N", help="damaged imports that the fuzz tests try")
    parser.addoption("--brief", action="store_true", help="what is needed at each change (`make test`)")
    parser.addoption("--beyond-brief", action="store_true", help="what --brief leaves out or shortens, no more")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keeps what `--brief` or `--beyond-brief` asks for; files with slow tests come first, so that no worker is left
    with one at the end."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)
    beyond = {item for item in items if item.get_closest_marker("long")} | further_variants(items)
    if config.getoption("--brief"):
        dropped = beyond
    elif config.getoption("--beyond-brief"):
        dropped = {item for item in items if item not in beyond and not item.get_closest_marker("shortened")}
    else:
        return
    config.hook.pytest_deselected(items=list(dropped))
    items[:] = [item for item in items if item not in dropped]


def further_variants(items: Sequence[pytest.Item]) -> set[pytest.Item]:
    """Most variants of each parametrised test of the rooms in `VARIED`: they differ in a size, a type or a form.

    The first variant of a test that is not `long` is never among them, and the choice is the same each time.
    """
    seen: set[tuple[Path, str]] = set()
    found = set()
    for item in items:
        if item.get_closest_marker("long"):
            continue  # it stands for none of the others, which would all be left out with it
        test = item.path, item.nodeid.partition("[")[0]
        if VARIED & {*item.path.parts} and test in seen and zlib.crc32(item.nodeid.encode()) % VARIANTS:
            found.add(item)
        seen.add(test)
    return found


@pytest.fixture(autouse=True)
def no_probing(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tune of a test probes no peak rates, which takes seconds; `@pytest.mark.probing` wants the real ones."""
    if request.node.get_closest_marker("probing") is None:
        for probe in ("probe_machine", "probe_device"):
            monkeypatch.setattr(
                f"autofuse.environment.rates.{probe}", lambda *_, **__: MachineRates(1, 50, 50, 40, 40, 10, 10)
            )


@contextmanager
def counted_rounds(rounds: int = 6) -> Iterator[None]:
    """Races of so many rounds, in which every block counts: each has its ratio, on a busy machine too.

    The clock and the waiting of each block are measured and kept as ever; only what they rule out is not. No budget of
    seconds ends such a race, so a test that uses it asserts what stands in a result, never that it is trusted.
    """

    def raced(contenders: Any, clock: Any, policy: Any, **further: Any) -> dict[str, Samples]:
        counted = replace(policy, max_rounds=rounds, budget_s=300.0, settle_probes=2, clock_floor=0.0, waited_limit=1e9)
        return interleaved(contenders, clock, counted, **further)

    with pytest.MonkeyPatch.context() as patch:
        for place in RACES:
            patch.setattr(place, raced)
        yield


@pytest.fixture(name="counted_rounds")
def counted_rounds_fixture() -> Iterator[None]:
    """See `counted_rounds`."""
    with counted_rounds():
        yield


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """`golden(name, text)`: compare with `golden/<name>` beside the test, or write it under --update-golden."""
    folder = request.path.parent / "golden"

    def check(name: str, text: str) -> None:
        path = folder / name
        if request.config.getoption("--update-golden"):
            folder.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
        assert path.exists(), f"{path} is missing: run pytest with --update-golden and review what it writes"
        assert text == path.read_text(encoding="utf-8"), f"{path} differs: review, then run with --update-golden"

    return check


class OnnxBuilder:
    """Builds a small ONNX model with random weights; each operator is named after its result."""

    def __init__(self) -> None:
        self._nodes: list[onnx.NodeProto] = []
        self._constants: list[onnx.TensorProto] = []
        self._random = np.random.default_rng(0)

    def weights(self, *shape: int, positive: bool = False) -> str:
        array = self._random.standard_normal(shape).astype(np.float32) * np.float32(0.2)
        return self.constant(np.abs(array) + np.float32(0.5) if positive else array)

    def constant(self, array: object) -> str:
        name = f"c{len(self._constants)}"
        self._constants.append(onnx.numpy_helper.from_array(np.asarray(array), name))
        return name

    def op(self, kind: str, name: str, *inputs: str, **attributes: object) -> str:
        self._nodes.append(onnx.helper.make_node(kind, list(inputs), [name], name=name, **attributes))
        return name

    def conv_bn(self, name: str, x: str, channels: tuple[int, int], kernel: int = 3, **attributes: int) -> str:
        """Conv -> BatchNormalization, the size kept but for the stride; `channels`: in and out."""
        group, stride = attributes.get("group", 1), attributes.get("stride", 1)
        weights = self.weights(channels[1], channels[0] // group, kernel, kernel)
        y = self.op("Conv", name, x, weights, pads=[kernel // 2] * 4, group=group, strides=[stride] * 2)
        scale, shift, mean, variance = (self.weights(channels[1], positive=p) for p in (True, False, False, True))
        return self.op("BatchNormalization", f"{name}_bn", y, scale, shift, mean, variance)

    def dense(self, name: str, x: str, sizes: tuple[int, int]) -> str:
        y = self.op("MatMul", name, x, self.weights(*sizes))
        return self.op("Add", f"{name}_bias", y, self.weights(sizes[1]))

    def save(self, path: Path, inputs: Mapping[str, Sequence[int | str]], outputs: Sequence[str]) -> Path:
        value, kind = onnx.helper.make_tensor_value_info, onnx.TensorProto.FLOAT
        graph = onnx.helper.make_graph(
            self._nodes,
            path.stem,
            [value(name, kind, shape) for name, shape in inputs.items()],
            [value(name, kind, None) for name in outputs],
            self._constants,
        )
        model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=9)
        onnx.save(onnx.shape_inference.infer_shapes(model), path)
        return path


@pytest.fixture(scope="session")
def onnx_builder() -> type[OnnxBuilder]:
    """The class that builds small models."""
    return OnnxBuilder
