"""Whole libraries built and run in children: what fails stays a word about one library."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import psutil
import pytest

from autofuse.backend.compile.host_cpu import local_device
from autofuse.errors import DeviceError
from autofuse.fusion.planner.baselines import default_plan, none_plan
from autofuse.graph.inputs import generate_inputs
from autofuse.graph.loading.load import load
from autofuse.kernels.lowering.lower import lower
from autofuse.kernels.schedule.guesses import first_schedules
from autofuse.kernels.schedule.knobs import open_knobs
from autofuse.measure.checking.reference import run_reference
from autofuse.measure.children.pool import Answer
from autofuse.measure.measurement import no_end
from autofuse.measure.networks.bench import outputs_of
from autofuse.measure.networks.libraries import Model, Order, _Builders, build_libraries

TARGET = local_device().target()


@pytest.fixture(scope="module")
def model(onnx_builder: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    b = onnx_builder()
    y = b.op("Relu", "relu", b.dense("first", "x", (16, 24)))
    return Path(b.save(tmp_path_factory.mktemp("libraries") / "net.onnx", {"x": [8, 16]}, [b.op("Tanh", "tanh", y)]))


@pytest.fixture
def orders(model: Path, tmp_path: Path) -> list[Order]:
    graph, made = load(model, {}), []
    for name, plan in (("none", none_plan(graph)), ("default", default_plan(graph))):
        lowered = lower(graph, plan, TARGET, [group.operators for group in plan.groups])
        schedules: dict[str, Mapping[str, int | str]] = {
            bound.workload.key: first_schedules(bound.workload, open_knobs(bound.workload, TARGET, {}), TARGET)[0]
            for bound in lowered.kernels
        }
        made.append(Order(name, plan, schedules, tmp_path / f"{name}.so"))
    return made


def children(module: str) -> list[psutil.Process]:
    """The living children of this process that run a module."""
    living = (one for one in psutil.Process().children() if one.status() != psutil.STATUS_ZOMBIE)
    return [one for one in living if module in " ".join(one.cmdline())]


def build(model: Path, orders: list[Order], between: Any = lambda *_: None) -> dict[str, str]:
    return build_libraries(Model(model, {}), TARGET, 1, orders, between, 2)


def test_each_library_computes_what_the_model_does(model: Path, orders: list[Order]) -> None:
    """And one that lacks a schedule says so, while the others are built."""
    orders.append(Order("bare", orders[0].plan, {}, orders[0].output.with_name("bare.so")))
    told: list[tuple[str, int, int]] = []
    problems = build(model, orders, lambda *what: told.append(what))
    assert list(problems) == ["bare"]
    assert "no schedule is given" in problems["bare"]
    assert "building plan none, plan default" in {note for note, _, _ in told}
    counts = [done for _, done, _ in told]
    assert counts[0] == 0 and counts == sorted(counts) and max(counts) >= 1 and {total for *_, total in told} == {3}
    graph = load(model, {})
    inputs = generate_inputs(graph, 1)
    expected = run_reference(graph, inputs)[graph.outputs[0]]
    for order in orders[:2]:
        (found,) = outputs_of(order.output, inputs, 1, TARGET)
        assert np.allclose(found, expected, atol=1e-5)
    assert not children("autofuse.measure")


def test_a_library_that_is_done_before_anybody_looks_is_built(orders: list[Order]) -> None:
    """A child may take an order and answer within one step: linking kernels that exist takes less than that."""
    pool: Any = SimpleNamespace(under_way=list, waiting=[], finish=lambda _member: None)
    builders = _Builders(pool, no_end)
    builders.take(Answer(replace(orders[0], expected_s=5.0), SimpleNamespace(), SimpleNamespace()))  # type: ignore
    assert builders.done() == 1 and not builders.problems
    builders.drop_late()
    assert builders._slower == 1.0


@pytest.mark.long
def test_plans_share_the_kernels_that_one_of_them_has_compiled(
    model: Path, orders: list[Order], tmp_path: Path
) -> None:
    """And they compute the same as when each is compiled whole."""
    inputs = generate_inputs(load(model, {}), 1)
    assert build(model, orders) == {}
    whole = [outputs_of(order.output, inputs, 1, TARGET)[0] for order in orders]
    for _ in range(2):
        assert build_libraries(Model(model, {}), TARGET, 1, orders, lambda *_: None, 2, objects=tmp_path / "kept") == {}
        kept = {one.name: one.stat().st_mtime for one in (tmp_path / "kept").iterdir()}
        linked = [outputs_of(order.output, inputs, 1, TARGET)[0] for order in orders]
        assert [one.tobytes() for one in linked] == [one.tobytes() for one in whole]
    assert 0 < len(kept) <= sum(len(order.schedules) for order in orders)
    assert all(Path(name).suffix == ".o" for name in kept)


@pytest.mark.long
def test_a_child_that_dies_takes_one_library_with_it(model: Path, orders: list[Order]) -> None:
    killed: list[int] = []

    def kill_once(*_told: object) -> None:
        if killed:
            return
        builders = children("library_builder")
        if len(builders) == 2 and all(one.cpu_times().user > 1.0 for one in builders):
            killed.append(builders[0].pid)
            os.kill(builders[0].pid, signal.SIGKILL)

    problems = build(model, orders, kill_once)
    assert len(problems) <= 1
    assert sum(order.output.exists() for order in orders) >= 1


def test_an_interrupt_between_ends_every_child(model: Path, orders: list[Order]) -> None:
    def stop(*_told: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build(model, orders, stop)
    assert not children("library_builder")


def test_a_model_that_no_child_can_load_fails_every_library(orders: list[Order], tmp_path: Path) -> None:
    problems = build(tmp_path / "absent.onnx", orders)
    assert set(problems) == {"none", "default"}
    assert "no process that builds starts" in problems["none"]


def test_a_library_that_cannot_run_is_a_lost_device_and_no_end(tmp_path: Path) -> None:
    (tmp_path / "bad.so").write_bytes(b"no library")
    with pytest.raises(DeviceError, match=r"bad.so does not run"):
        outputs_of(tmp_path / "bad.so", {}, 1, TARGET)
