"""Maps whose channels fill no block: widened between convolutions, where nobody sees it, and nowhere else."""

from __future__ import annotations

import numpy as np
import pytest

from autofuse.device.target import Target
from autofuse.fusion.plan import FusionPlan, Group
from autofuse.graph.inputs import generate_inputs
from autofuse.graph.submodel import to_model
from autofuse.graph.transform.filled import filled
from autofuse.kernels.lowering.lower import Lowering
from autofuse.measure.checking.reference import capture

RNG = np.random.default_rng(5)
TEXT = "f (float[1, 16, 6, 6] x) => (float[{}] y) {{ {} }}"


def weights(**shapes):
    return {name: RNG.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


WIDE = {"into": (54, 16, 1, 1), "window": (54, 1, 3, 3), "out": (8, 54, 1, 1)}
SQUEEZED = {"small": (4, 54, 1, 1), "large": (54, 4, 1, 1)}
CHANNEL = {"ones": (54,), "shift": (54,), "mean": (54,), "slope": (54, 1, 1), "scale": (1, 54, 1, 1)}
CASES = {
    "a depthwise convolution between two others": (
        "1, 8, 6, 6", "a = Conv (x, into) b = Relu (a) c = Conv <group = 54, pads = [1, 1, 1, 1]> (b, window, shift)"
        " y = Conv (c, out)", {"a", "b", "c"},
    ),
    "squeezed and excited": (
        "1, 8, 6, 6", "a = Conv (x, into) b = GlobalAveragePool (a) c = Conv (b, small) d = Conv (c, large)"
        " e = Sigmoid (d) g = Mul (a, e) y = Conv (g, out)", {"a", "b", "d", "e", "g"},
    ),
    "numbers of a channel": (
        "1, 8, 6, 6", "a = Conv (x, into) n = BatchNormalization (a, ones, shift, mean, ones) p = PRelu (n, slope)"
        " q = Mul (scale, p) y = Conv (q, out)", {"a", "n", "p", "q"},
    ),
    "a transposed convolution": (
        "1, 54, 6, 6", "a = Conv (x, into) b = ConvTranspose (a, turned) y = Conv (b, last)", {"a", "b"},
    ),
    "an output": ("1, 54, 6, 6", "a = Conv (x, into) y = Relu (a)", set()),
    "a Concat": (
        "1, 8, 6, 6", "a = Conv (x, half) b = Relu (a) c = Concat <axis = 1> (a, b) y = Conv (c, out)", set(),
    ),
    "what is not finite of zeros": ("1, 8, 6, 6", "a = Conv (x, into) b = Log (a) y = Conv (b, out)", set()),
    "an infinite factor": (
        "1, 8, 6, 6", "a = Conv (x, into) m = Mul (a, endless) y = Conv (m, out)", set(),
    ),
    "a mean over channels": (
        "1, 8, 6, 6", "a = Conv (x, into) b = ReduceMean (a, axis) c = Sub (a, b) y = Conv (c, out)", set(),
    ),
    "a map that is read turned": (
        "1, 6, 6, 54", "a = Conv (x, into) y = Transpose <perm = [0, 2, 3, 1]> (a)", set(),
    ),
}  # fmt: skip


def constants(text):
    shapes = WIDE | SQUEEZED | CHANNEL | {"half": (27, 16, 1, 1), "turned": (54, 54, 1, 1), "last": (54, 54, 1, 1)}
    made = weights(**shapes)
    made["ones"] = np.abs(made["ones"]) + 1
    made |= {"endless": np.float32(np.inf), "axis": np.array([1])}
    return {name: array for name, array in made.items() if f"{name}," in text or f"{name})" in text}


@pytest.mark.parametrize("name", CASES)
def test_what_nobody_sees_is_filled_and_results_stay(run, graph_of, name):
    shape, text, wider = CASES[name]
    whole = TEXT.format(shape, text)
    graph = graph_of(whole, weights=constants(text))
    wide = filled(graph, 8)
    fresh = wide.tensors.keys() - graph.tensors.keys() - wide.constants.keys()
    assert fresh == {f"{key}/filled" for key in wider}
    assert all(wide.tensors[key].shape[1] == 56 for key in fresh)
    x = RNG.standard_normal((1, 16, 6, 6)).astype(np.float32)
    (expected,), (got,) = run(to_model(graph), {"x": x}), run(to_model(wide), {"x": x})
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("channels", "depthwise", "width"),
    [(54, False, 56), (20, True, 24), (20, False, 20), (13, True, 13), (24, True, 24), (27, False, 32)],
)
def test_only_what_pays_is_filled(graph_of, channels, depthwise, width):
    window = f"b = Conv <group = {channels}> (a, window)" if depthwise else "b = Relu (a)"
    text = TEXT.format("1, 8, 6, 6", f"a = Conv (x, into) {window} y = Conv (b, out)")
    shapes = {"into": (channels, 16, 1, 1), "out": (8, channels, 1, 1)}
    shapes |= {"window": (channels, 1, 1, 1)} if depthwise else {}
    wide = filled(graph_of(text, weights=weights(**shapes)), 8)
    made = [operator.outputs[0] for operator in wide.operators[:2]]
    assert [wide.tensors[name].shape[1] for name in made] == [width, width]


def test_what_a_kernel_of_filled_maps_is_checked_with_is_filled(graph_of, tmp_path):
    """The reference has the maps of the model: those of the filled graph are computed from them."""
    _, text, _ = CASES["a depthwise convolution between two others"]
    graph = graph_of(TEXT.format("1, 8, 6, 6", text), weights=constants(text))
    plan = FusionPlan(groups=tuple(Group((operator.name,)) for operator in graph.operators))
    lowered = Lowering(graph, Target("any", 16, 32, 1, 32768, 1 << 20)).lower(plan)
    store = capture(graph, generate_inputs(graph, 0), tmp_path, ["a", "b", "c"])
    for bound in lowered.kernels:
        store.complete(lowered.graph, (*bound.inputs, *bound.outputs))
        load, case = bound.workload, store.case(bound)
        for kind, paths in (("input", case.inputs), ("output", case.outputs)):
            wanted = [load.values[index].shape for index in load.of_kind(kind)]
            assert [np.load(path).shape for path in paths] == wanted


@pytest.mark.parametrize(("lanes", "layout"), [(4, "c4"), (8, "c8"), (16, "c8")])
def test_filled_maps_lie_in_blocks(graph_of, lanes, layout):
    _, text, _ = CASES["a depthwise convolution between two others"]
    graph = graph_of(TEXT.format("1, 8, 6, 6", text), weights=constants(text))
    plan = FusionPlan(groups=tuple(Group((operator.name,)) for operator in graph.operators))
    lowered = Lowering(graph, Target("any", lanes, 16, 1, 32768, 1 << 20)).lower(plan)
    first = lowered.groups[0].workload
    (output,) = first.of_kind("output")
    assert (first.values[output].layout, first.values[output].shape[1]) == (layout, 56)
    assert lowered.graph.outputs == graph.outputs and lowered.graph.tensors["y"] == graph.tensors["y"]


def test_maps_that_are_joined_after_one_another_stay_joined(graph_of):
    """What holds for the last of many maps holds for the first, however they were joined: none is widened alone."""
    maps = " ".join(f"a{n} = Conv (x, into) b{n} = Relu (a{n})" for n in range(3))
    sums = "c = Add (b0, b1) d = Add (b2, c) e = Relu (b1) g = Conv (e, last)"
    turned = " ".join(f"t{name} = Transpose <perm = [0, 2, 3, 1]> ({name})" for name in "dg")
    text = TEXT.format("1, 6, 6, 54", f"{maps} {sums} {turned} y = Add (td, tg)")
    graph = graph_of(text, weights=constants(text))
    assert filled(graph, 8) is graph
