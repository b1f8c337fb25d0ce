"""Generated inputs are valid for the model, and reproducible."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator

from autofuse.graph.inputs import Range, generate_inputs, index_ranges
from autofuse.graph.loading.load import from_model
from autofuse.graph.submodel import to_model

TABLE = {"table": np.arange(24, dtype=np.float32).reshape(12, 2)}


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("y = Gather(table, i)", Range(0, 11)),
        ("c = Cast<to=7>(i) s = Constant<value_ints=[1,4]>() r = Reshape(c, s) y = Gather(table, r)", Range(0, 11)),
        ("k = Constant<value_ints=[2]>() j = Add(i, k) y = Gather(table, j)", Range(-2, 9)),
        ("k = Constant<value_ints=[0,1,2,3]>() j = Add(k, i) y = Gather(table, j)", Range(0, 8)),
        ("k = Constant<value_ints=[2]>() j = Sub(i, k) y = Gather(table, j)", Range(2, 13)),
        ("k = Constant<value_ints=[9]>() j = Sub(k, i) y = Gather(table, j)", Range(-2, 9)),
        ("k = Constant<value_ints=[3]>() j = Mul(i, k) y = Gather(table, j)", Range(0, 3)),
        ("a = Constant<value_int=0>() j = CumSum(i, a) y = Gather(table, j)", Range(0, 2)),
        ("k = Constant<value_ints=[5]>() j = Mod(i, k) y = Gather(table, j)", None),
        (
            """k = Constant<value_int=12>() z = Constant<value_int=0>() n = Less(i, z) w = Add(i, k)
            j = Where(n, w, i) y = Gather(table, j)""",
            Range(0, 11),
        ),
        ("d = Constant<value_int=7>() v = Constant<value_floats=[0.0,1.0]>() y = OneHot(i, d, v)", Range(0, 6)),
        ("f = Cast<to=1>(i) y = Exp(f)", None),
        ("y = Gather<axis=1>(table, i) z = Gather(table, i)", Range(0, 1)),
    ],
)
def test_a_range_is_traced_back_from_the_table(graph_of, body, expected):
    outputs = "float[n] y, float[m] z" if "z = Gather" in body else "float[n] y"
    ranges = index_ranges(graph_of(f"f (int64[4] i) => ({outputs}) {{ {body} }}", weights=TABLE))
    assert ranges.get("i") == expected


def test_a_transformer_gets_ids_types_and_a_mask(graph_of, run):
    graph = graph_of(
        """f (int64[1,8] ids, int64[1,8] types, int64[1,8] mask, float[1,8,4] x) => (float[1,8,4] y) {
        a = Gather(words, ids) b = Gather(kinds, types) c = Add(a, b) d = Add(c, x)
        m = Cast<to=1>(mask) one = Constant<value_float=1.0>() n = Sub(one, m) k = Constant<value_ints=[2]>()
        u = Unsqueeze(n, k) low = Constant<value_float=-1000.0>() v = Mul(u, low) y = Add(d, v) }""",
        weights={"words": np.ones((100, 4), np.float32), "kinds": np.ones((2, 4), np.float32)},
    )
    made = generate_inputs(graph, 0)
    assert made["ids"].max() > 20
    assert made["ids"].min() >= 0
    assert set(made["types"].ravel().tolist()) == {0, 1}
    assert set(made["mask"].ravel().tolist()) <= {0, 1}
    assert made["mask"][0, 0] == 1
    assert abs(float(made["x"].std()) - 1) < 0.5
    assert np.isfinite(run(to_model(graph), made)[0]).all()


def test_types_shapes_and_special_kinds(graph_of):
    graph = graph_of(
        """f (bool[500] m, bool t, uint8[3,4] p, float16[9] h, double[9] d, int32 s) => (float[n] y) {
        a = Cast<to=1>(m) b = Cast<to=1>(t) c = Cast<to=1>(p) e = Cast<to=1>(h) g = Cast<to=1>(d) i = Cast<to=1>(s)
        c1 = ReduceSum(c) e1 = ReduceSum(e) g1 = ReduceSum(g) y = Sum(a, b, c1, e1, g1, i) }"""
    )
    made = generate_inputs(graph, 3)
    assert {name: (array.shape, array.dtype.name) for name, array in made.items()} == {
        name: (graph.tensors[name].shape, graph.tensors[name].dtype) for name in graph.inputs
    }
    assert 0.8 < made["m"].mean() < 0.97
    assert made["t"] == True  # noqa: E712 - a numpy bool
    assert made["p"].max() > 1


def test_the_seed_decides_everything(graph_of):
    graph = graph_of("f (float[9] x, float[9] z) => (float[9] y) { y = Add(x, z) }")
    first, again, other = generate_inputs(graph, 1), generate_inputs(graph, 1), generate_inputs(graph, 2)
    assert np.array_equal(first["x"], again["x"])
    assert not np.array_equal(first["x"], other["x"])
    assert not np.array_equal(first["x"], first["z"])


STEPS = st.sampled_from(
    [
        "{o} = Max({i}, c2)",
        "{o} = Mod({i}, c9)",
        "{o} = Add({i}, c2)",
        "{o} = Sub({i}, c2)",
        "{o} = Sub(c9, {i})",
        "{o} = Mul({i}, c2)",
        "{o} = Min({i}, c9)",
        "{o} = Transpose({i})",
        "{o} = Concat<axis=0>({i}, {i})",
        "{o} = Add({i}, {i})",
        "{o} = CumSum({i}, axis)",
        "{o} = Unsqueeze({i}, axes)",
    ]
)


@settings(max_examples=60, deadline=None)
@given(steps=st.lists(STEPS, max_size=5), seed=st.integers(0, 5))
def test_no_chain_of_steps_leads_an_index_out_of_its_table(steps, seed):
    """Whenever some input keeps the index inside, the generated one does."""
    lines, name = [], "i"
    for number, step in enumerate(steps):
        lines.append(step.format(i=name, o=f"t{number}"))
        name = f"t{number}"
    body = " ".join([*lines, f"probe = Identity({name}) y = Gather(table, probe)"])
    text = f"f (int64[3] i) => (float[n] y, int64[n] probe) {{ {body} }}"
    proto = onnx.parser.parse_model('<ir_version: 8, opset_import: ["" : 18]>\n' + text)
    weights = {
        "c2": np.array([2], np.int64),
        "c9": np.array([9], np.int64),
        "axis": np.array(0, np.int64),
        "axes": np.array([0], np.int64),
        "table": np.zeros((40, 2), np.float32),
    }
    proto.graph.initializer.extend(numpy_helper.from_array(v, k) for k, v in weights.items())
    graph = from_model(proto, "m")
    bound = index_ranges(graph).get("i", Range(0, 1))
    if bound.low > bound.high:
        return
    evaluator = ReferenceEvaluator(proto)
    for value in (generate_inputs(graph, seed)["i"], np.full(3, bound.low), np.full(3, bound.high)):
        probe = np.asarray(evaluator.run(["probe"], {"i": value.astype(np.int64)})[0])
        assert probe.min() >= 0
        assert probe.max() < 40
