"""What loading makes of a model: names, shapes, constants, no-ops, one form an operator."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper

from autofuse.errors import InputError
from autofuse.graph.loading.load import from_model, load
from autofuse.graph.submodel import to_model
from tests.graph.constants import constant_ints


def kinds(graph):
    return [operator.op_type for operator in graph.operators]


def test_operators_keep_their_names_and_nameless_or_repeated_ones_get_readable_ones(model):
    proto = model("f (float[2] x) => (float[2] y) { a = Relu(x) b = Exp(a) c = Neg(b) y = Abs(c) }")
    proto.graph.node[1].name = "/head/Exp"
    proto.graph.node[2].name = "/head/Exp"
    graph = from_model(proto, "m")
    assert [operator.name for operator in graph.operators] == ["Relu_0", "/head/Exp", "Neg_2", "Abs_3"]


def test_a_made_up_name_never_meets_a_given_one(model):
    proto = model("f (float[2] x) => (float[2] y) { a = Relu(x) y = Relu(a) }")
    proto.graph.node[1].name = "Relu_0"
    assert [operator.name for operator in from_model(proto, "m").operators] == ["Relu_0_1", "Relu_0"]


def test_loading_leaves_the_given_model_untouched(model):
    proto = model("f (float[2,3] x) => (float[6] y) { s = Constant<value_ints=[6]>() y = Reshape(x, s) }", 12)
    before = proto.SerializeToString(deterministic=True)
    from_model(proto, "m")
    assert proto.SerializeToString(deterministic=True) == before


def test_a_long_constant_that_becomes_little_longer_is_folded(graph_of):
    graph = graph_of(
        """f (float[16,512] x) => (float[16,512] y) {
        from = Constant<value_int=0>() to = Constant<value_int=512>() one = Constant<value_int=1>()
        r = Range(from, to, one) s = Constant<value_ints=[16,512]>() n = Expand(r, s)
        y = GatherElements<axis=1>(x, n) }"""
    )
    assert kinds(graph) == ["GatherElements"]
    assert graph.constants[graph.operators[0].inputs[1]].shape == (16, 512)


def test_elements_picked_from_a_longer_constant_are_folded(graph_of):
    """Of fewer indices than elements the reference makes nothing."""
    graph = graph_of(
        """f (float[1,3] x) => (float[1,3] y) {
        d = Constant<value = float[2,5] {0, 1, 2, 3, 4, 5, 6, 7, 8, 9}>()
        i = Constant<value = int64[1,3] {4, -5, 2}>()
        g = GatherElements<axis=1>(d, i) y = Add(x, g) }"""
    )
    assert kinds(graph) == ["Add"]
    assert graph.constants[graph.operators[0].inputs[1]].tolist() == [[4, 0, 2]]


def test_what_is_picked_from_equal_integers_is_one_of_them(graph_of):
    graph = graph_of(
        """f (float[2,3] x, int64[2,3] i) => (float[2,3] y) {
        one = Constant<value_int=7>() long = Constant<value_ints=[2, 4000000]>() d = Expand(one, long)
        g = GatherElements<axis=1>(d, i) h = Cast<to = 1>(g) y = Add(x, h) }"""
    )
    assert kinds(graph) == ["Add"]
    assert {float(value) for value in graph.constants[graph.operators[0].inputs[1]].reshape(-1)} == {7.0}


@pytest.mark.parametrize("size", [2, 700])
def test_one_row_for_all_places_broadcasts_whatever_their_number(graph_of, size):
    """The embedding of the one kind of tokens: written out it would be folded for few of them, and not for many."""
    graph = graph_of(
        f"""f (float[{size},9,400] x) => (float[{size},9,400] y) {{
        table = Constant<value = float[2,1] {{3, 5}}>() s = Constant<value_ints=[2,400]>() rows = Expand(table, s)
        zero = Constant<value_int=1>() many = Constant<value_ints=[{size},9]>() kinds = Expand(zero, many)
        g = Gather(rows, kinds) y = Add(x, g) }}"""
    )
    assert kinds(graph) == ["Add"]
    row = graph.constants[graph.operators[0].inputs[1]]
    assert row.size == 400 and (row == 5).all()


def test_an_expand_of_what_has_no_shape_yet_waits_for_it(graph_of):
    """A Reshape to a target that is folded later, as the deviation over time that ECAPA-TDNN puts beside each step."""
    graph = graph_of(
        """f (float[2,4,6] x) => (float[2,4,6] y) {
        last = Constant<value_ints=[-1]>() one = Constant<value_ints=[1]>() m = ReduceMean<keepdims=0>(x, last)
        s = Shape(m) flat = Reshape(s, last) target = Concat<axis=0>(flat, one) c = Reshape(m, target)
        wide = Shape(x) e = Expand(c, wide) y = Sqrt(e) }"""
    )
    assert kinds(graph) == ["ReduceMean", "Reshape", "Sqrt", "Expand"]


def test_a_shape_computed_by_a_chain_vanishes(graph_of):
    graph = graph_of(
        """f (float[2,3,4] x) => (float[2,12] y) {
        s = Shape(x) zero = Constant<value_int=0>() b = Gather(s, zero)
        axes = Constant<value_ints=[0]>() row = Unsqueeze(b, axes) rest = Constant<value_ints=[-1]>()
        t = Concat<axis=0>(row, rest) y = Reshape(x, t) }"""
    )
    assert kinds(graph) == ["Reshape"]
    assert constant_ints(graph, graph.operators[0], 1) == (2, 12)
    assert set(graph.tensors) == {"x", "y", graph.operators[0].inputs[1]}


@pytest.mark.parametrize(
    "body",
    [
        "y = Identity(a)",
        "y = Dropout(a)",
        "y = Cast<to=1>(a)",
        "s = Constant<value_ints=[0, -1]>() y = Reshape(a, s)",
        "y = Transpose<perm=[0,1]>(a)",
        "y = Flatten(a)",
        "b = Concat<axis=0>(a) y = Sum(b)",
        "p = Constant<value_ints=[0,0,0,0]>() y = Pad(a, p)",
        "s = Constant<value_ints=[0]>() e = Constant<value_ints=[99]>() y = Slice(a, s, e)",
        "s = Constant<value_ints=[2,1]>() y = Expand(a, s)",
    ],
)
def test_an_operator_that_computes_nothing_is_removed_and_the_output_keeps_its_name(graph_of, body):
    graph = graph_of(f"f (float[2,3] x) => (float[2,3] y) {{ a = Relu(x) {body} }}")
    assert kinds(graph) == ["Relu"]
    assert graph.outputs == ("y",)
    assert graph.operators[0].outputs == ("y",)


def test_a_slice_that_reverses_is_no_noop(graph_of):
    graph = graph_of(
        """f (float[2,3] x) => (float[2,3] y) { s = Constant<value_ints=[-1]>() e = Constant<value_ints=[-99]>()
        a = Constant<value_ints=[1]>() y = Slice(x, s, e, a, a1) }""",
        weights={"a1": np.array([-1], np.int64)},
    )
    assert kinds(graph) == ["Slice"]


def test_an_output_that_is_an_input_or_a_constant_stays_behind_an_identity(graph_of, run):
    graph = graph_of(
        """f (float[2] x) => (float[2] y, float[2] c, float[2] d, float[2] z) {
        y = Identity(x) c = Constant<value_floats=[1.0, 2.0]>() d = Mul(c, c) z = Relu(x) }"""
    )
    assert sorted(kinds(graph)) == ["Identity", "Identity", "Identity", "Relu"]
    x = np.array([-1, 3], np.float32)
    y, c, d, z = run(to_model(graph), {"x": x})
    assert (y.tolist(), c.tolist(), d.tolist(), z.tolist()) == ([-1, 3], [1, 2], [1, 4], [0, 3])


def test_an_initializer_can_be_an_output(graph_of, run):
    graph = graph_of(
        "f (float[2] x) => (float[2] w, float[2] y) { y = Add(x, w) }", weights={"w": np.ones(2, np.float32)}
    )
    w, y = run(to_model(graph), {"x": np.zeros(2, np.float32)})
    assert graph.outputs == ("w", "y")
    assert w.tolist() == y.tolist() == [1, 1]


def test_two_outputs_of_one_value_both_stay(graph_of, run):
    graph = graph_of("f (float[2] x) => (float[2] y, float[2] z) { a = Relu(x) y = Identity(a) z = Identity(a) }")
    assert sorted(kinds(graph)) == ["Identity", "Relu"]
    assert [out.tolist() for out in run(to_model(graph), {"x": np.array([-1, 2], np.float32)})] == [[0, 2], [0, 2]]


def test_a_sum_becomes_a_chain_of_adds_that_ends_in_its_name(graph_of):
    graph = graph_of("f (float[2] x, float[1] a, float[2] b) => (float[2] y) { y = Sum(x, a, b) }")
    assert [(op.name, op.op_type) for op in graph.operators] == [("Sum_0/add1", "Add"), ("Sum_0", "Add")]
    assert graph.operators[1].outputs == ("y",)


def test_dead_operators_unused_weights_and_unused_optional_outputs_go(graph_of):
    graph = graph_of(
        """f (float[1,2,4,4] x) => (float[1,2,2,2] y) {
        dead = Exp(x) y, indices = MaxPool<kernel_shape=[2,2], strides=[2,2]>(x) }""",
        weights={"unused": np.ones(3, np.float32)},
    )
    assert kinds(graph) == ["MaxPool"]
    assert graph.operators[0].outputs == ("y",)
    assert not graph.constants


def test_an_unused_input_stays_an_input(graph_of):
    assert graph_of("f (float[2] x, float[5] z) => (float[2] y) { y = Relu(x) }").inputs == ("x", "z")


def test_a_weight_listed_as_input_is_a_constant(model):
    proto = model("f (float[2] x, float[2] w) => (float[2] y) { y = Add(x, w) }", weights={"w": np.ones(2, np.float32)})
    graph = from_model(proto, "m")
    assert graph.inputs == ("x",)
    assert list(graph.constants) == ["w"]


def test_operators_out_of_order_are_sorted(model):
    proto = model("f (float[2] x) => (float[2] y) { y = Relu(a) a = Exp(x) }")
    assert kinds(from_model(proto, "m")) == ["Exp", "Relu"]


def test_functions_are_inlined(run):
    function = helper.make_function(
        "acme",
        "Twice",
        ["a"],
        ["b"],
        [helper.make_node("Add", ["a", "a"], ["t"]), helper.make_node("Relu", ["t"], ["b"])],
        [helper.make_opsetid("", 18)],
    )
    value = [helper.make_tensor_value_info(name, 1, [2]) for name in ("x", "y")]
    body = helper.make_graph([helper.make_node("Twice", ["x"], ["y"], "n", domain="acme")], "g", value[:1], value[1:])
    imports = [helper.make_opsetid("", 18), helper.make_opsetid("acme", 1)]
    graph = from_model(helper.make_model(body, opset_imports=imports, functions=[function]), "m")
    assert kinds(graph) == ["Add", "Relu"]
    assert run(to_model(graph), {"x": np.array([-1, 2], np.float32)})[0].tolist() == [0, 4]


def test_a_branch_with_a_constant_condition_is_taken(model, run):
    text = """f (float[2,1] x) => (float[y0] y) {
        s = Shape<start=1>(x) one = Constant<value_ints=[1]>() same = Equal(s, one) axes = Constant<value_ints=[0]>()
        c = Squeeze(same, axes)
        y = If(c) <
          then_branch = g1 () => (float[a] p) { k = Constant<value_ints=[1]>() p = Squeeze(x, k) },
          else_branch = g2 () => (float[b,d] q) { q = Identity(x) }> }"""
    graph = from_model(model(text), "m")
    assert kinds(graph) == ["Squeeze"]
    assert graph.tensors["y"].shape == (2,)
    assert run(to_model(graph), {"x": np.array([[1], [2]], np.float32)})[0].tolist() == [1, 2]


def test_a_branch_decided_at_run_time_keeps_what_it_captures(model, run):
    text = """f (bool c, float[2] x) => (float[2] y) {
        a = Exp(x) i = Identity(a)
        y = If(c) <
          then_branch = g1 () => (float[2] p) { p = Neg(i) },
          else_branch = g2 () => (float[2] q) { q = Abs(i) }> }"""
    graph = from_model(model(text), "m")
    assert kinds(graph) == ["Exp", "If"]
    branch = graph.operators[1]
    assert branch.inputs == ("c", "a")
    assert [op.name for op in graph.predecessors(branch)] == ["Exp_0"]
    x = np.array([0, 1], np.float32)
    assert np.allclose(run(to_model(graph), {"x": x, "c": np.array(True)})[0], -np.exp(x))
    assert np.allclose(run(to_model(graph), {"x": x, "c": np.array(False)})[0], np.exp(x))


def test_folding_does_not_blow_up_a_model(graph_of):
    graph = graph_of(
        """f (float[4096,1024] x) => (float[4096,1024] y) {
        one = Constant<value_float=1.0>() s = Constant<value_ints=[4096,1024]>() m = Expand(one, s)
        r = RandomUniformLike(x) a = Add(x, m) y = Add(a, r) }"""
    )
    assert "RandomUniformLike" in kinds(graph)
    assert sum(array.nbytes for array in graph.constants.values()) < 1000


def test_random_operators_are_never_folded(graph_of):
    graph = graph_of("f (float[2] x) => (float[2] y) { r = RandomNormal<shape=[2], seed=1.0>() y = Add(x, r) }")
    assert kinds(graph) == ["RandomNormal", "Add"]


def test_nan_weights_load_as_they_are(graph_of):
    weights = {"w": np.array([1, np.nan], np.float32), "v": np.ones(2, np.float32)}
    graph = graph_of("f (float[2] x) => (float[2] y) { a = Add(x, w) y = Mul(a, v) }", weights=weights)
    assert np.isnan(graph.constants["w"][1]) and np.isfinite(graph.constants["v"]).all()


def test_a_symbolic_dimension_binds_by_shape_and_by_its_name(model):
    proto = model("f (float[N,3] x, float[N,M] z) => (float[N,3] y, float[N,M] w) { y = Relu(x) w = Exp(z) }")
    graph = from_model(proto, "m", {"z": (4, 5)})
    assert (graph.tensors["x"].shape, graph.tensors["y"].shape, graph.tensors["w"].shape) == ((4, 3), (4, 3), (4, 5))


def test_attention_masks_shrink_to_a_row(graph_of):
    graph = graph_of(
        """f (int64[1,4] mask, float[1,2,4,4] scores) => (float[1,2,4,4] y) {
        b = Cast<to=9>(mask) g = GatherND(b, every) both = And(square, g) z = Constant<value_float=0.0>()
        low = Constant<value_float=-1000.0>() m = Where(both, z, low) y = Add(scores, m) }""",
        weights={
            "every": np.stack(np.meshgrid([0], range(4), indexing="ij"), -1).reshape(1, 1, 1, 4, 2).astype(np.int64),
            "square": np.ones((1, 1, 4, 1), bool),
        },
    )
    assert kinds(graph) == ["Cast", "Reshape", "Where", "Add"]
    assert graph.tensors[graph.operators[2].outputs[0]].shape == (1, 1, 1, 4)


def test_every_operator_has_one_form(graph_of):
    graph = graph_of(
        """f (float[1,4,9,9] x, float[1,8,5,5] z) => (float[1,8,1,1] y) {
        a = Conv<auto_pad="SAME_UPPER", strides=[2,2]>(x, w) b = Add(c, a) d = Softmax(b)
        k = Constant<value_ints=[-1,-2]>() e = ReduceMean(d, k) y = Identity(e) }""",
        weights={"w": np.ones((8, 4, 3, 3), np.float32), "c": np.ones((1, 8, 1, 1), np.float32)},
    )
    conv, add, softmax, mean = graph.operators
    assert dict(conv.attributes) == {
        "strides": (2, 2),
        "kernel_shape": (3, 3),
        "dilations": (1, 1),
        "pads": (1, 1, 1, 1),
        "group": 1,
    }
    assert add.inputs[1] == "c"
    assert dict(softmax.attributes) == {"axis": 3}
    assert constant_ints(graph, mean, 1) == (2, 3)


def test_loading_again_what_was_loaded_changes_nothing(graph_of):
    graph = graph_of(
        """f (float[1,4,9,9] x) => (float[1,4,3,3] y, float[1,2,9,9] u, float[1,2,9,9] v) {
        y = AveragePool<kernel_shape=[3,3], strides=[3,3], auto_pad="VALID">(x)
        a = Transpose(x) b = Transpose(a) c = Sum(b, x, x) u, v = Split<axis=-3, num_outputs=2>(c) }"""
    )
    again = from_model(to_model(graph), "test")
    assert again.operators == graph.operators
    assert dict(again.tensors) == dict(graph.tensors)
    assert again.outputs == graph.outputs


def test_a_file_with_weights_beside_it_loads(tmp_path, model, run):
    weights = {"w": np.arange(4096, dtype=np.float32)}
    proto = model("f (float[4096] x) => (float[4096] y) { y = Add(x, w) }", weights=weights)
    path = tmp_path / "net.onnx"
    onnx.save_model(proto, path, save_as_external_data=True, location="net.data", size_threshold=0)
    graph = load(path)
    assert graph.name == "net"
    assert np.array_equal(graph.constants["w"], weights["w"])
    with pytest.raises(ValueError, match="read-only"):
        graph.constants["w"][0] = 1
    with pytest.raises(InputError, match="external"):
        from_model(onnx.load(path, load_external_data=False), "m")


def test_mean_variance_normalization_loads_although_its_body_is_invalid_in_onnx(graph_of):
    graph = graph_of("g (float[1,2,3,4] x) => (float[1,2,3,4] y) { y = MeanVarianceNormalization (x) }", 13)
    assert [operator.op_type for operator in graph.operators] == ["MeanVarianceNormalization"]
