"""Layouts: maps are blocked along chains of windows, everything else is plain, and every choice runs."""

from __future__ import annotations

import numpy as np
import pytest

from autofuse.device.target import Target
from autofuse.graph.loading.load import from_model
from autofuse.graph.model import Graph
from autofuse.kernels.families.registry import is_own
from autofuse.kernels.lowering.layout import assign_layouts, channel_block
from autofuse.kernels.workload.workload import bind_workload
from tests.kernels.conftest import Array, Bench, Small, parsed, real

AVX2 = Target("znver3", 8, 16, 2, 32768, 524288)
AVX512 = Target("znver4", 16, 32, 2, 32768, 1 << 20)


@pytest.mark.parametrize(
    ("shape", "lanes", "block"),
    [
        ((1, 16, 5, 5), 8, 8), ((1, 16, 5, 5), 16, 16), ((1, 24, 5, 5), 16, 8), ((1, 12, 5, 5), 8, 4),
        ((1, 12, 5), 16, 4), ((1, 13, 5, 5), 8, 0), ((1, 6, 5, 5), 4, 0), ((1, 16), 8, 0), ((16,), 8, 0), ((), 8, 0),
    ],
)  # fmt: skip
def test_the_block_is_the_largest_vector_that_divides_the_channels(
    shape: tuple[int, ...], lanes: int, block: int
) -> None:
    assert channel_block(shape, Target("any", lanes, 16, 1, 1, 1)) == block


def graph_of(text: str, inputs: dict[str, Array], outputs: str, constants: dict[str, Array] | None = None) -> Graph:
    return from_model(Small(parsed(text), inputs, outputs.split(), constants or {}).model(), "test")


def assigned(graph: Graph, target: Target = AVX2, groups: list[list[str]] | None = None) -> dict[str, str]:
    """Layouts when each operator is a group by itself, unless told otherwise."""
    chosen = groups or [[operator.name] for operator in graph.operators]
    own = {number: is_own(bind_workload(graph, group, {}).workload) for number, group in enumerate(chosen)}
    return assign_layouts(graph, chosen, own, target)


WEIGHTS = {"w": real(16, 16, 3, 3), "v": real(24, 16, 1, 1), "odd": real(13, 16, 1, 1), "back": real(16, 13, 1, 1)}
IMAGE = {"x": real(1, 16, 8, 8)}


def test_a_chain_of_convolutions_is_blocked_between_its_plain_ends() -> None:
    text = "a = Conv (x, w); b = Relu (a); c = MaxPool <kernel_shape=[2, 2]> (b); y = Conv (c, v)"
    graph = graph_of(text, IMAGE, "y", {"w": WEIGHTS["w"], "v": WEIGHTS["v"]})
    assert assigned(graph) == {"a": "c8", "b": "c8", "c": "c8"}
    assert assigned(graph, AVX512) == {"a": "c16", "b": "c16", "c": "c16"}
    assert "y" not in assigned(graph)


def test_channels_without_a_block_stay_plain() -> None:
    graph = graph_of(
        "a = Conv (x, odd); b = Relu (a); y = Conv (b, back)", IMAGE, "y", {k: WEIGHTS[k] for k in ("odd", "back")}
    )
    assert assigned(graph) == {}


def test_only_float32_is_blocked() -> None:
    graph = graph_of("a = Conv (x, w); b = Cast <to=11> (a); c = Neg (b); y = Abs (c)", IMAGE, "y", {"w": WEIGHTS["w"]})
    assert assigned(graph) == {"a": "c8"}


def test_sequences_of_rows_stay_plain() -> None:
    text = "a = MatMul (x, w); b = Add (a, x); c = LayerNormalization <axis=-1> (b, g); y = Relu (c)"
    graph = graph_of(text, {"x": real(1, 16, 24)}, "y", {"w": real(24, 24), "g": real(24)})
    assert assigned(graph) == {}


def test_what_an_importer_kernel_reads_or_writes_is_plain() -> None:
    text = "a = Conv (x, w); b = LRN <size=3> (a); c = Conv (b, w); y = Relu (c)"
    graph = graph_of(text, IMAGE, "y", {"w": WEIGHTS["w"]})
    assert assigned(graph) == {"c": "c8"}


def test_a_map_that_every_reader_reshapes_is_plain() -> None:
    text = "a = Conv (x, w); f = Flatten <axis=1> (a); y = MatMul (f, m)"
    graph = graph_of(text, IMAGE, "y", {"w": WEIGHTS["w"], "m": real(576, 8)})
    assert assigned(graph) == {}


@pytest.mark.parametrize(
    ("cut", "layout"),
    [
        ("s = Slice (a, c0, c8, c1)", "c8"), ("s = Slice (a, c8, c16, c1)", "c8"), ("s = Slice (a, c4, c16, c1)", "c4"),
        ("s = Slice (a, c2, c10, c1)", ""), ("s = Slice (a, c0, c8, c1, c2)", ""), ("s = Slice (a, c0, c2, c2)", ""),
        ("t, s = Split <axis=1> (a)", "c8"),
    ],
)  # fmt: skip
def test_channels_that_are_cut_between_blocks_stay_in_blocks(cut: str, layout: str) -> None:
    places = {f"c{n}": np.array([n]) for n in (0, 1, 2, 4, 8, 10, 16)}
    text = f"a = Conv (x, w); {cut}; r = Relu (s); y = Sigmoid (r)"
    graph = graph_of(text, IMAGE, "y", {"w": WEIGHTS["w"], **places})
    names = [operator.name for operator in graph.operators]
    assert assigned(graph, AVX2, [names[:1], names[1:3], names[3:]]).get("r", "") == layout


def test_pooled_channels_are_blocked_since_reshaping_them_is_free() -> None:
    text = "a = Conv (x, w); p = GlobalAveragePool (a); f = Flatten <axis=1> (p); y = MatMul (f, m)"
    graph = graph_of(text, IMAGE, "y", {"w": WEIGHTS["w"], "m": real(16, 8)})
    assert assigned(graph) == {"a": "c8", "p": "c8"}


def test_a_map_that_is_weighed_by_pooled_channels_lies_as_it_did_before() -> None:
    text = "p = GlobalAveragePool (a); q = Sigmoid (p); r = Mul (a, q); s = Softmax <axis=3> (r); y = Relu (s)"

    def weighed(first: str) -> dict[str, str]:
        graph = graph_of(f"a = {first}; {text}", IMAGE, "y", {"w": WEIGHTS["w"]})
        names = [operator.name for operator in graph.operators]
        return assigned(graph, AVX2, [names[:1], names[1:4], names[4:]])

    assert weighed("Tanh (x)") == {}
    assert weighed("Conv <pads=[1, 1, 1, 1]> (x, w)") == {"a": "c8", "r": "c8"}


TURNED = "a = MatMul (r, m); b = Transpose <perm=[0, 2, 1]> (a); c = Reshape (b, s)"
ROWS = {"r": real(1, 64, 24)}
TO_MAP = {"m": real(24, 16), "s": np.array([1, 16, 8, 8]), "w": WEIGHTS["w"], "v": WEIGHTS["v"]}


def turned(text: str, groups: tuple[int, ...]) -> dict[str, str]:
    """Layouts for TURNED and what follows, in groups of so many operators."""
    graph = graph_of(f"{TURNED}; {text}", ROWS, "y", TO_MAP)
    names = iter(operator.name for operator in graph.operators)
    return assigned(graph, AVX2, [[next(names) for _ in range(count)] for count in groups])


def test_a_map_that_its_kernel_turns_from_rows_is_blocked_for_windows() -> None:
    assert turned("y = Conv (c, v)", (3, 1)) == {"c": "c8"}
    assert turned("d = Relu (c); y = Conv (d, v)", (4, 1)) == {"d": "c8"}
    assert turned("y = Conv (c, v)", (1, 2, 1)) == {"c": "c8"}, "a kernel that only moves, too"


def test_a_map_that_is_not_turned_in_its_kernel_or_read_by_more_than_windows_is_plain() -> None:
    assert turned("y = Conv (c, v)", (2, 1, 1)) == {}
    assert turned("d = Conv <pads=[1, 1, 1, 1]> (c, w); y = Add (c, d)", (3, 1, 1)) == {"d": "c8"}


def test_layouts_follow_the_groups() -> None:
    text = "a = Conv (x, w); b = Relu (a); c = Conv (b, v); y = Relu (c)"
    graph = graph_of(text, IMAGE, "y", {"w": WEIGHTS["w"], "v": WEIGHTS["v"]})
    names = [operator.name for operator in graph.operators]
    assert assigned(graph, AVX2, [names[:2], names[2:]]) == {"b": "c8"}
    assert assigned(graph, AVX2, [names]) == {}


NETWORKS = {
    "residual": (
        "a = Conv <pads=[1, 1, 1, 1]> (x, w); b = Relu (a); c = Conv <pads=[1, 1, 1, 1]> (b, w);"
        "d = Add (c, x); e = Relu (d); f = GlobalAveragePool (e); g = Flatten <axis=1> (f); y = MatMul (g, m)",
        {"w": WEIGHTS["w"], "m": real(16, 10)},
    ),
    "maps to rows and back": (
        "a = Conv (x, w); z = Relu (a); b = Reshape (z, s); c = Transpose <perm=[0, 2, 1]> (b);"
        "d = Softmax <axis=-1> (c); e = Transpose <perm=[0, 2, 1]> (d); f = Reshape (e, t); y = Conv (f, v)",
        {"w": WEIGHTS["w"], "v": WEIGHTS["v"], "s": np.array([1, 16, 36]), "t": np.array([1, 16, 6, 6])},
    ),
    "squeeze and excite": (
        "a = Conv <pads=[1, 1, 1, 1]> (x, w); p = ReduceMean <axes=[2, 3]> (a); q = Conv (p, u); r = Sigmoid (q);"
        "y = Mul (a, r)",
        {"w": WEIGHTS["w"], "u": real(16, 16, 1, 1)},
    ),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_of_single_kernels_agrees_through_its_layouts(bench: Bench, name: str) -> None:
    text, constants = NETWORKS[name]
    whole = Small(parsed(text), IMAGE, ["y"], constants)
    graph = from_model(whole.model(), "test")
    layouts = assigned(graph)
    assert layouts
    values: dict[str, Array] = dict(IMAGE)
    for node in parsed(text):
        part = Small(
            [node],
            {k: values[k] for k in node.input if k in values},
            list(node.output),
            {k: constants[k] for k in node.input if k in constants},
        )
        bench.check(part, {key: layout for key, layout in layouts.items() if key in (*node.input, *node.output)})
        values |= part.reference()


@pytest.mark.parametrize("middle", ["d = Relu (c)", "d = Add (c, bias)"])
def test_kernels_that_turn_rows_into_a_map_and_back_agree_through_its_blocks(bench: Bench, middle: str) -> None:
    constants = {"m": TO_MAP["m"], "s": TO_MAP["s"]} | ({"bias": real(16, 1, 1)} if "bias" in middle else {})
    into = Small(parsed(f"{TURNED}; {middle}"), ROWS, ["d"], constants)
    maps = {"d": into.reference()["d"]}
    text = "e = Conv <pads=[1, 1, 1, 1], group=16> (d, deep); f = Reshape (e, t); y = Transpose <perm=[0, 2, 1]> (f)"
    back = Small(parsed(text), maps, ["y"], {"deep": real(16, 1, 3, 3), "t": np.array([1, 16, 64])})
    bench.check(into, {"d": "c8"})
    bench.check(back, {"d": "c8"})


@pytest.mark.parametrize(("then", "layout"), [("y = Tanh (p)", {}), ("y = Conv (p, w)", {"p": "c8"})])
def test_a_pool_of_steps_of_one_leaves_rows_of_pixels_unless_a_convolution_reads_it(
    then: str, layout: dict[str, str]
) -> None:
    text = f"p = AveragePool <kernel_shape=[3, 3], pads=[1, 1, 1, 1]> (x); {then}"
    constants = {"w": WEIGHTS["w"]} if "Conv" in then else {}
    assert assigned(graph_of(text, IMAGE, "y", constants)) == layout


def test_a_pool_keeps_the_blocks_that_it_reads() -> None:
    text = "c = Conv (x, w); p = MaxPool <kernel_shape=[3, 3]> (c); y = Tanh (p)"
    assert assigned(graph_of(text, IMAGE, "y", {"w": WEIGHTS["w"]})) == {"c": "c8", "p": "c8"}
