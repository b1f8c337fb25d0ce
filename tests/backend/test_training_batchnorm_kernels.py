"""BatchNormalization in training mode between convolutions: statistics end one kernel, the scale begins another."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator

from autofuse.backend.compile.realise import build_library
from autofuse.backend.library.library import load
from autofuse.device.target import Target
from autofuse.fusion.legality import check_plan
from autofuse.fusion.plan import FusionPlan, Group
from autofuse.fusion.planner.baselines import none_plan
from autofuse.fusion.planner.planner import Planner
from autofuse.graph.loading.load import from_model
from autofuse.graph.model import Graph
from autofuse.graph.transform.copies import Copy
from autofuse.kernels.lowering.lower import lower
from autofuse.views.inspect import bytes_moved

TARGET = Target("x86-64-v3", lanes=8, registers=16, cores=2, l1_bytes=32768, l2_bytes=262144)
NETWORK = """net (float[2,8,12,10] x, float[16] m, float[16] v) => (float[2,8,12,10] y, float[16] rm, float[16] rv) {
    c = Conv <pads: ints = [1, 1, 1, 1]> (x, w)
    b, rm, rv = BatchNormalization <training_mode: int = 1, momentum: float = 0.7> (c, s, t, m, v)
    r = Relu (b)
    y = Conv (r, u) }"""
SHAPES = {"w": (16, 8, 3, 3), "s": (16,), "t": (16,), "u": (8, 16, 1, 1)}


@pytest.fixture(scope="module")
def model() -> onnx.ModelProto:
    made = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 15]> {NETWORK}')
    random = np.random.default_rng(0)
    for name, shape in SHAPES.items():
        made.graph.initializer.append(numpy_helper.from_array(random.uniform(-1, 1, shape).astype("float32"), name))
    return made


@pytest.fixture(scope="module")
def graph(model: onnx.ModelProto) -> Graph:
    return from_model(model, "net")


def of_type(graph: Graph, op_type: str) -> list[str]:
    return [operator.name for operator in graph.operators if operator.op_type == op_type]


def split(graph: Graph) -> FusionPlan:
    """Convolution and statistics | scale, shift, Relu and the next convolution, which read the first result again."""
    first, second = of_type(graph, "Conv")
    (relu,), centred = of_type(graph, "Relu"), of_type(graph, "Sub")[0]
    shifted = graph.producers[graph.by_name[relu].inputs[0]]
    scaled = next(
        graph.producers[name].name
        for name in shifted.inputs
        if name in graph.producers and centred in {p.name for p in graph.predecessors(graph.producers[name])}
    )
    behind = (f"{centred}@{scaled}", scaled, shifted.name, relu, second)
    before = tuple(operator.name for operator in graph.operators if operator.name not in behind)
    assert first in before
    return FusionPlan((Group(before), Group(behind)), copies=(Copy(centred, scaled),))


def fewest(graph: Graph) -> FusionPlan:
    """The plan whose answers, changed one at a time as long as that saves bytes, move least."""
    planner = Planner(graph)
    answers: dict[str, str] = {}
    best = bytes_moved(graph, planner.plan(answers))
    improved = True
    while improved:
        improved = False
        for decision in planner.decisions:
            for choice in decision.choices:
                other = answers | {decision.name: choice}
                bytes_ = bytes_moved(graph, planner.plan(other))
                if bytes_ < best:
                    answers, best, improved = other, bytes_, True
    return planner.plan(answers)


def test_the_split_moves_less_than_half_of_what_unfused_kernels_move(graph: Graph) -> None:
    plan = split(graph)
    check_plan(graph, plan)
    assert bytes_moved(graph, plan) < 0.5 * bytes_moved(graph, none_plan(graph))


def test_the_decisions_of_a_search_reach_as_few_bytes(graph: Graph) -> None:
    plan = fewest(graph)
    check_plan(graph, plan)
    assert bytes_moved(graph, plan) <= bytes_moved(graph, split(graph))


@pytest.mark.parametrize("make", [split, fewest])
def test_outputs_and_running_statistics_of_fused_kernels_are_right(
    model: onnx.ModelProto, graph: Graph, tmp_path: Path, make: object
) -> None:
    assert callable(make)
    plan = make(graph)
    lowered = lower(graph, plan, TARGET, [group.operators for group in plan.groups])
    build_library(lowered, {bound.workload.key: {} for bound in lowered.kernels}, TARGET, 1, tmp_path / "net.so")
    random = np.random.default_rng(3)
    feeds: dict[str, NDArray[np.float32]] = {
        "x": random.standard_normal((2, 8, 12, 10)).astype("float32"),
        "m": random.standard_normal(16).astype("float32"),
        "v": random.uniform(0.5, 2.0, 16).astype("float32"),
    }
    expected = ReferenceEvaluator(model).run(None, feeds)
    for got, wanted in zip(load(tmp_path / "net.so")(feeds), expected, strict=True):
        np.testing.assert_allclose(got, np.asarray(wanted), rtol=1e-4, atol=1e-4)
