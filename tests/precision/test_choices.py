"""The pieces of quantising: levels, metrics, samples, and the fastest set under a bound."""

from __future__ import annotations

from itertools import chain, combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper, numpy_helper

from autofuse.database.database import open_database
from autofuse.environment.environment import environment_of
from autofuse.errors import InputError
from autofuse.graph.loading.load import from_model
from autofuse.graph.model import Graph
from autofuse.graph.transform.quantize.levels import Range, bias_levels, rounded, weight_levels
from autofuse.graph.transform.quantize.probes import SWITCHES, switched
from autofuse.graph.transform.quantize.sites import BF16, INT8, find_sites
from autofuse.graph.transform.quantize.write import quantised_graph
from autofuse.measure.checking.reference import run_reference
from autofuse.precision.choices import Cast, Choice, fastest_precisions
from autofuse.precision.cost import Costs, _dots_advantage
from autofuse.precision.metrics import mean_drop, metric_of
from autofuse.precision.samples import digest, read_samples


def graph_of(nodes: list[tuple[Any, ...]], constants: dict[str, Any], shapes: dict[str, tuple[int, ...]]) -> Graph:
    """A graph of (type, inputs, output, attributes); its outputs are those named "y..."."""
    made = [helper.make_node(kind, inputs, [output], output, **named) for kind, inputs, output, named in nodes]
    results = [name for _, _, name, _ in nodes if name.startswith("y")]
    graph = helper.make_graph(
        made, "g", [helper.make_tensor_value_info(name, 1, shape) for name, shape in shapes.items()],
        [helper.make_tensor_value_info(name, 1, None) for name in results],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()],
    )  # fmt: skip
    return from_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), "g")


def normal(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype("float32")


def test_a_range_holds_zero_and_both_of_its_ends() -> None:
    for low, high in ((-1.0, 3.0), (2.0, 5.0), (-5.0, -2.0), (0.0, 0.0)):
        scale, zero = Range(low, high).levels
        ends = (np.array([0, 255]) - int(zero)) * float(scale)
        assert ends[0] <= min(low, 0.0) + scale / 2 and ends[1] >= max(high, 0.0) - scale / 2
    values = np.array([-9.0, -1.0, 0.0, 1.3, 99.0])
    found = rounded(values, Range(-1.0, 3.0))
    assert found[2] == 0.0 and np.abs(found[1:4] - values[1:4]).max() <= 2 / 255 and found[4] < 3.01


def test_weights_have_a_scale_for_each_channel_and_a_bias_steps_of_the_sums() -> None:
    weights = normal(6, 4, 3, 3) * np.arange(6).reshape(6, 1, 1, 1)
    found = weight_levels(weights, 0)
    assert found.scale.shape == (6,) and np.abs(found.integers).max() == 127
    assert np.abs(found.numbers - weights).max() <= found.scale.max() / 2 + 1e-6
    assert not found.integers[0].any()
    steps = bias_levels(np.array([1.0, -2.0], "f"), np.array([0.5, 0.25], "f"))
    assert steps is not None and steps.tolist() == [2, -8]
    assert bias_levels(np.array([1e9], "f"), np.array([1e-3], "f")) is None


def residual() -> Graph:
    """Two convolutions around a sum, a pool that only moves, a product with its rows, and one of two computed ones."""
    constants = {"w1": normal(8, 3, 3, 3), "b1": normal(8), "w2": normal(8, 8, 3, 3), "w3": normal(32, 6),
                 "b3": normal(6), "rows": np.array([8, 32])}  # fmt: skip
    same: dict[str, Any] = {"pads": [1, 1, 1, 1]}
    return graph_of(
        [("Conv", ["x", "w1", "b1"], "c1", same), ("Relu", ["c1"], "r1", {}), ("Conv", ["r1", "w2"], "c2", same),
         ("Add", ["c2", "r1"], "sum", {}), ("Relu", ["sum"], "r2", {}),
         ("MaxPool", ["r2"], "p", {"kernel_shape": [2, 2], "strides": [2, 2]}), ("Reshape", ["p", "rows"], "flat", {}),
         ("Gemm", ["flat", "w3", "b3"], "y1", {}), ("Transpose", ["flat"], "turned", {"perm": [1, 0]}),
         ("MatMul", ["flat", "turned"], "y2", {})],
        constants, {"x": (1, 3, 8, 16)},
    )  # fmt: skip


def test_a_switch_does_what_the_written_graph_does() -> None:
    graph = residual()
    sites = find_sites(graph)
    assert [site.name for site in sites.usable] == ["c1", "c2", "y1", "y2"] and not sites.refused
    assert set(sites.tensors) == {"x", "r1", "r2", "c2"}, "the pool and the movements have the levels of the map"
    ranges = {"x": Range(-4, 4), "r1": Range(0, 20), "r2": Range(0, 120), "c2": Range(-90, 90)}
    asked, x = switched(sites, ranges), {"x": normal(1, 3, 8, 16, seed=4)}
    exact = run_reference(graph, x)
    for chosen in (set(), {"c1"}, {"c2"}, {"y1"}, {"c1", "c2"}, {"c1", "c2", "y1", "y2"}):
        written = run_reference(quantised_graph(sites, dict.fromkeys(chosen, INT8), ranges), x)
        mask = np.array([site.name in chosen for site in sites.usable])
        found = run_reference(asked, {**x, SWITCHES: mask})
        for name, wanted in written.items():
            scale = float(np.abs(exact[name]).max())
            apart = float(np.abs(wanted.astype("d") - exact[name]).max())
            assert (apart > 0) == bool(chosen - ({"y2"} if name == "y1" else {"y1"})), (chosen, name)
            assert float(np.abs(found[name].astype("d") - wanted).max()) <= max(0.3 * apart, 1e-4 * scale), chosen


def test_a_switch_to_bfloat16_does_what_the_written_graph_does() -> None:
    """And the bytes beside it stay bytes: any mixture of precisions."""
    graph = residual()
    sites = find_sites(graph, (INT8, BF16))
    assert sites.options == tuple((name, kind) for name in ("c1", "c2", "y1", "y2") for kind in (INT8, BF16))
    ranges = {"x": Range(-4, 4), "r1": Range(0, 20), "r2": Range(0, 120), "c2": Range(-90, 90)}
    asked, x = switched(sites, ranges), {"x": normal(1, 3, 8, 16, seed=4)}
    exact = run_reference(graph, x)
    halves = dict.fromkeys(("c1", "c2", "y1", "y2"), BF16)
    for chosen in (halves, {"c2": BF16}, {"c1": INT8, "c2": BF16, "y1": INT8}, {"c1": BF16, "y1": BF16, "y2": INT8}):
        whole = quantised_graph(sites, chosen, ranges)
        kinds = [operator.op_type for operator in from_model_of(whole).operators]
        assert sum(kind.startswith("Bfloat16") for kind in kinds) == list(chosen.values()).count(BF16)
        written = run_reference(whole, x)
        mask = np.array([chosen.get(name) == kind for name, kind in sites.options])
        found = run_reference(asked, {**x, SWITCHES: mask})
        for name, wanted in written.items():
            scale, apart = float(np.abs(exact[name]).max()), float(np.abs(wanted - exact[name]).max())
            assert apart > 0 and (INT8 in chosen.values() or apart < 0.02 * scale)
            assert float(np.abs(found[name] - wanted).max()) <= max(0.3 * apart, 1e-4 * scale), chosen


def test_a_convolution_of_few_channels_a_group_cannot_be_in_bfloat16() -> None:
    same: dict[str, Any] = {"pads": [1, 1, 1, 1]}
    graph = graph_of(
        [("Conv", ["x", "w"], "d", {"group": 8, **same}), ("Conv", ["d", "v"], "y", {})],
        {"w": normal(8, 1, 3, 3), "v": normal(16, 8, 1, 1)}, {"x": (1, 8, 6, 6)},
    )  # fmt: skip
    sites = find_sites(graph, (BF16,))
    assert sites.options == (("y", BF16),) and "few channels" in sites.refused["d"]
    assert find_sites(graph, (INT8, BF16)).by_name["d"].precisions == (INT8,)


def test_an_operator_that_only_moves_is_written_between_bytes() -> None:
    sites = find_sites(residual())
    ranges = {name: Range(-9, 9) for name in sites.tensors}
    whole = from_model_of(quantised_graph(sites, dict.fromkeys(["c1", "c2", "y1", "y2"], INT8), ranges))
    kinds = [operator.op_type for operator in whole.operators]
    assert not {"Conv", "MatMul", "Gemm"} & set(kinds) and kinds.count("QuantizeLinear") == 4
    moves = [operator for operator in whole.operators if operator.op_type in ("MaxPool", "Reshape", "Transpose")]
    assert {whole.tensors[operator.outputs[0]].dtype for operator in moves} == {"uint8"}


def from_model_of(graph: Graph) -> Graph:
    from autofuse.graph.submodel import to_model

    return from_model(to_model(graph), "again")


def test_contractions_that_cannot_multiply_integers_say_why() -> None:
    constants = {"w": normal(4, 6), "v": normal(6), "t": normal(4, 2, 3, 3)}
    graph = graph_of(
        [("MatMul", ["x", "w"], "a", {}), ("MatMul", ["a", "v"], "y1", {}), ("Gemm", ["x", "w"], "y2", {"alpha": 0.5}),
         ("ConvTranspose", ["z", "t"], "y3", {})],
        constants, {"x": (3, 4), "z": (1, 4, 5, 5)},
    )  # fmt: skip
    sites = find_sites(graph)
    assert [site.name for site in sites.usable] == ["a"]
    assert {name: reason.split()[-1] for name, reason in sites.refused.items()} == {
        "y1": "vector", "y2": "transposed", "y3": "integers",
    }  # fmt: skip


def drawn_choices(rng: np.random.Generator, count: int) -> list[Choice]:
    """Contractions in int8, most of them also in bfloat16, which saves less, is quieter, and reads no bytes."""
    found = []
    for n in range(count):
        saved, noise = float(rng.uniform(-1, 5)), float(rng.uniform(0, 1e-3))
        found.append(Choice(f"c{n}", saved, noise, (f"t{rng.integers(0, 3)}",), INT8))
        if rng.random() < 0.7:
            found.append(Choice(f"c{n}", saved * float(rng.uniform(0.3, 1.1)), noise / 50, (), BF16))
    return found


def test_the_fastest_set_is_that_of_an_exhaustive_search() -> None:
    rng, mixed = np.random.default_rng(3), 0
    for _ in range(15):
        count = int(rng.integers(2, 6))
        choices = drawn_choices(rng, count)
        casts = [Cast(f"t{n}", float(rng.uniform(0, 4)), f"c{rng.integers(0, count)}") for n in range(3)]
        most = float(rng.uniform(0, 2e-3))

        def gain(chosen: tuple[Choice, ...], casts: list[Cast] = casts) -> float:
            names = {one.name for one in chosen if one.precision == INT8}
            read = {(cast, one.name) for one in chosen for cast in casts if cast.tensor in one.reads}
            paid = {cast for cast, reader in read if reader == cast.maker or cast.maker not in names}
            return sum(one.saved_us for one in chosen) - sum(cast.us for cast in paid)

        sets = chain.from_iterable(combinations(choices, size) for size in range(count + 1))
        able = [one for one in sets if len({choice.name for choice in one}) == len(one)]
        best = max(gain(one) for one in able if sum(choice.noise for choice in one) <= most)
        found = fastest_precisions(choices, casts, most)
        chosen = tuple(choice for choice in choices if found.get(choice.name) == choice.precision)
        assert len(chosen) == len(found)
        assert sum(choice.noise for choice in chosen) <= most * (1 + 1e-6)
        assert gain(chosen) == pytest.approx(best, abs=1e-6)
        mixed += len(set(found.values())) == 2
    assert mixed > 3


def test_metrics_of_outputs() -> None:
    before, after = {"y": np.array([[1.0, 3.0, 2.0]])}, {"y": np.array([[1.0, 2.0, 3.0]])}
    assert metric_of("top1").drops(before, after, {}) == [1.0]
    assert metric_of("top1").drops(before, before, {}) == [0.0]
    assert metric_of("cosine").drops(before, after, {})[0] == pytest.approx(1 - 13 / 14)
    softmax = np.exp(before["y"]) / np.exp(before["y"]).sum()
    other = np.exp(after["y"]) / np.exp(after["y"]).sum()
    wanted = float((softmax * np.log(softmax / other)).sum())
    assert metric_of("kl").drops(before, after, {}) == [pytest.approx(wanted)]
    assert metric_of("kl").drops({"y": softmax}, {"y": other}, {}) == [pytest.approx(wanted)]
    with pytest.raises(InputError, match="no output has classes"):
        metric_of("top1").drops({"y": np.zeros((4, 1))}, {"y": np.zeros((4, 1))}, {})
    with pytest.raises(InputError, match="it gave 1.0 and nan"):
        metric_of(lambda outputs, _: float(outputs["y"][0])).drops({"y": np.ones(1)}, {"y": np.array([np.nan])}, {})


def test_a_drop_has_bounds() -> None:
    few = mean_drop([0.0] * 98 + [1.0] * 2)
    assert (few.mean, few.lo, few.hi) == (0.02, pytest.approx(0.0036, abs=1e-4), pytest.approx(0.0616, abs=1e-4))
    assert mean_drop([0.0] * 600).hi < 0.005 < mean_drop([0.0] * 590).hi
    many = mean_drop(np.random.default_rng(0).uniform(0, 0.01, 200).tolist())
    assert many.lo < many.mean < many.hi and many.hi - many.lo == pytest.approx(
        2 * 1.6525 * 0.01 / np.sqrt(12 * 200), rel=0.1
    )
    assert mean_drop([0.0] * 90 + [-1.0] * 10).hi > 0, "what has become better makes nothing up"


def test_samples_come_stacked_or_one_by_one() -> None:
    graph = residual()
    for shape, count in (((1, 3, 8, 16), 1), ((5, 3, 8, 16), 5), ((5, 1, 3, 8, 16), 5), ((3, 8, 16), 1)):
        found = read_samples([{"x": np.zeros(shape, "float64")}], graph, "--calibration")
        assert len(found) == count and {sample["x"].shape for sample in found} == {(1, 3, 8, 16)}
        assert found[0]["x"].dtype == np.float32
    labelled = read_samples([{"x": np.zeros((4, 3, 8, 16), "f"), "label": np.arange(4)}], graph, "--calibration")
    assert [int(sample["label"]) for sample in labelled] == [0, 1, 2, 3]
    assert digest(labelled) != digest(labelled[:3])
    for bad in ([], [3], 7, [{"x": np.zeros((2, 3, 8, 17), "f")}]):
        with pytest.raises(InputError, match="--calibration"):
            read_samples(bad, graph, "--calibration")  # type: ignore[arg-type]


def test_winograds_weights_from_memory_leave_large_convolutions_to_bfloat16(tmp_path: Path) -> None:
    """Few channels stay in float32: the transforms save more than bfloat16 does. Many have weights for no cache."""
    same: dict[str, Any] = {"pads": [1, 1, 1, 1]}
    constants = {"w": normal(64, 64, 3, 3), "v": normal(256, 64, 1, 1), "u": normal(256, 256, 3, 3)}
    graph = graph_of(
        [("Conv", ["x", "w"], "few", same), ("Conv", ["few", "v"], "wide", {}), ("Conv", ["wide", "u"], "y", same)],
        constants, {"x": (1, 64, 14, 14)},
    )  # fmt: skip
    with open_database(tmp_path / "p.db") as base:
        costs = Costs(find_sites(graph, (BF16,)), base, environment_of(base, "zen4", 1, measuring=False))
        times = costs.times(graph, {BF16: graph})
    assert {name: time.is_faster(BF16) for name, time in times.items()} == {"few": False, "wide": True, "y": True}


@pytest.mark.parametrize(
    ("probed", "advantage"),
    [
        ({}, None),
        ({"gflops_1": 100.0}, None),
        ({"gflops_1": 100.0, "dots_gflops_1": 0.0}, None),
        ({"gflops_1": 100.0, "dots_gflops_1": 190.0}, 1.9),
        ({"gflops_1": 100.0, "dots_gflops_1": 43.0}, 1.0),
    ],
)
def test_an_instruction_on_bfloat16_gains_what_was_probed(probed: dict[str, float], advantage: float | None) -> None:
    """One that is slower than float32 leaves its place to widened numbers."""
    assert _dots_advantage(probed) == advantage
