"""TVM's importer is asked only for what was checked against ONNX, and what it gets wrong is mended or refused."""

from __future__ import annotations

import json
from importlib import metadata
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from autofuse.graph.loading.load import from_model
from autofuse.graph.loading.upgrade import FORM
from autofuse.graph.nodes import schema_of
from autofuse.kernels.importer.checked import check_list, merged, unchecked
from autofuse.kernels.importer.refusals import importer_refusal
from autofuse.kernels.importer.variant import Variant, variant_of
from autofuse.kernels.lowering.coverage import with_checked_groups
from autofuse.kernels.workload.workload import Value, Workload, WorkloadOperator, bind_workload
from experiments.importer_check.check import check
from experiments.importer_check.draws import Application, applied, random_workload
from tests.kernels.conftest import Array, Bench, Small, parsed, real


def one(op_type: str, dtypes: list[str], shape: tuple[int, ...], result: str, **attributes: Any) -> Workload:
    values = [*(Value("input", shape, dtype) for dtype in dtypes), Value("output", shape, result)]
    places = tuple(range(len(dtypes)))
    operator = WorkloadOperator(op_type, places, (len(dtypes),), tuple(sorted(attributes.items())))
    return Workload(tuple(values), (operator,), 21)


def test_the_list_belongs_to_the_installed_tvm() -> None:
    assert check_list()["versions"]["apache-tvm"] == metadata.version("apache-tvm")


def test_the_list_names_operators_and_versions_of_the_installed_onnx() -> None:
    newest = onnx.defs.onnx_opset_version()
    for part in ("right", "wrong"):
        for operator, entries in check_list()[part].items():
            for version in {version for entry in entries for version in entry["version"]}:
                schema = schema_of(operator, min(version, newest))
                assert schema is not None and schema.since_version == version, (operator, version)


def test_what_is_wrong_says_how() -> None:
    assert all(entry["because"] for entries in check_list()["wrong"].values() for entry in entries)


def test_no_variant_is_both_right_and_wrong() -> None:
    for operator in set(check_list()["right"]) & set(check_list()["wrong"]):
        for right in check_list()["right"][operator]:
            for wrong in check_list()["wrong"][operator]:
                names = set(right) | set(wrong) - {"because"}
                apart = any(set(right.get(name, [""])).isdisjoint(wrong.get(name, [""])) for name in names)
                assert apart, (operator, right, wrong)


def test_a_sample_of_the_list_is_still_right() -> None:
    chance, tried = np.random.default_rng(11), set()
    while len(tried) < 8:
        for workload in random_workload(chance):
            kind = workload.operators[0].op_type
            if kind not in tried and importer_refusal(workload) is None:
                tried.add(kind)
                finding = check(workload.text)
                assert finding.state == "right", finding


@pytest.mark.parametrize("opset", range(FORM, onnx.defs.onnx_opset_version() + 1))
def test_quantized_models_of_any_opset_use_variants_that_were_checked(opset: int) -> None:
    for kind, types in (
        ("QuantizeLinear", "float32 float32 int8 > int8"),
        ("DequantizeLinear", "int8 float32 > float32"),
    ):
        inputs, result = (part.split() for part in types.split(" > "))
        values = [Value("input", (3, 4) if place == 0 else (), dtype) for place, dtype in enumerate(inputs)]
        operator = WorkloadOperator(kind, tuple(range(len(values))), (len(values),))
        workload = Workload((*values, Value("output", (3, 4), result[0])), (operator,), opset)
        assert unchecked(workload) is None


@pytest.mark.parametrize(
    ("kind", "inputs", "attributes"),
    [
        ("GatherND", ((2, 3, 4), (2, 2, 1)), {"batch_dims": 1}),
        ("ScatterElements", ((3, 4), (3, 4), (3, 4)), {"axis": 0, "reduction": "add"}),
        ("EyeLike", ((4, 4),), {"k": -1}),
        ("Einsum", ((2, 3, 4), (2, 4, 5)), {"equation": "bij,bjk->bik"}),
    ],
)
def test_ways_that_networks_use_were_checked(
    kind: str, inputs: tuple[tuple[int, ...], ...], attributes: dict[str, Any]
) -> None:
    arrays = [np.zeros(shape, np.int64 if kind != "Einsum" and place == 1 else np.float32)
              for place, shape in enumerate(inputs)]  # fmt: skip
    (workload,) = applied(Application(kind, tuple(arrays), attributes))
    assert unchecked(workload) is None


def test_what_nobody_checked_is_refused_with_its_variant() -> None:
    reason = unchecked(one("Trilu", ["uint32"], (2, 3), "uint32"))
    assert reason == "Trilu: what TVM computes was not checked against ONNX (uint32 > uint32)"


def test_entries_hold_exactly_the_variants_that_were_merged() -> None:
    chance = np.random.default_rng(3)
    every = {
        Variant("Op", version, types, "", rank, tuple(attributes))
        for version in (1, 13)
        for types in ("float32 > float32", "int8 > int8")
        for rank in (1, 2, 3)
        for attributes in ([], [("mode", "a")], [("mode", "b")], [("mode", "b"), ("axis", "last")])
    }
    some = {variant for variant in sorted(every, key=repr) if chance.random() < 0.5}
    entries = merged(dict.fromkeys(some, ""))
    assert json.loads(json.dumps(entries)) == entries
    assert len(entries) < len(some)

    def held(variant: Variant) -> bool:
        return any(all(variant.facets.get(name, "") in entry[name] for name in entry) for entry in entries)

    assert {variant for variant in every if held(variant)} == some


def test_a_switch_is_part_of_the_variant() -> None:
    values = [Value("input", (2,), "float32"), Value("literal", (), "float32", literal="0.5")]
    variants = set()
    for literal in ("true", "false"):
        switch = Value("literal", (), "bool", literal=literal)
        operator = WorkloadOperator("Dropout", (0, 1, 2), (3,))
        workload = Workload((*values, switch, Value("output", (2,), "float32")), (operator,), 21)
        variants.add(variant_of(workload, operator))
    assert len(variants) == 2


def imported(bench: Bench, small: Small) -> dict[str, Array]:
    """What the importer's kernel of a model makes."""
    from autofuse.kernels.build import Kernel
    from autofuse.kernels.importer.fallback import imported_function

    bound, target = bench.bind(small), bench.target()
    return bench.run(small, bound, Kernel(*imported_function(bound.workload, target)), target)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["half_pixel", "output_half_pixel"])
@pytest.mark.parametrize("scale", [0.5, 0.25, 2.0])
def test_regions_are_scaled_before_they_are_shifted(bench: Bench, mode: str, scale: float) -> None:
    node = helper.make_node(
        "RoiAlign", ["x", "r", "i"], ["y"], spatial_scale=scale, output_height=3, output_width=2,
        coordinate_transformation_mode=mode,
    )  # fmt: skip
    regions = np.array([[0, 0, 7, 6], [1.5, 2, 9, 8], [0.3, 0.1, 4, 5]], "float32") / np.float32(scale) * 0.8
    feeds = {"x": real(2, 3, 9, 10), "r": regions.astype("float32"), "i": np.array([0, 1, 1])}
    small = Small([node], feeds, ["y"], opset=21)
    np.testing.assert_allclose(imported(bench, small)["y"], small.reference()["y"], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("kind", ["ReduceMax", "ReduceMin"])
def test_the_extreme_of_nothing_but_infinity_is_infinite(bench: Bench, kind: str, dtype: str) -> None:
    worst = -np.inf if kind == "ReduceMax" else np.inf
    x = np.array([[worst, worst, worst], [1, 2, worst]], dtype)
    small = Small(parsed(f"y = {kind} <keepdims=0> (x, a)"), {"x": x}, ["y"], {"a": np.array([1])}, opset=21)
    np.testing.assert_array_equal(imported(bench, small)["y"], (x.max if kind == "ReduceMax" else x.min)(axis=1))


@pytest.mark.parametrize("last", [0, 1])
@pytest.mark.parametrize("kind", ["ArgMax", "ArgMin"])
def test_the_place_of_an_extreme_lies_on_the_axis(bench: Bench, kind: str, last: int) -> None:
    worst = -np.inf if kind == "ArgMax" else np.inf
    x = np.array([[worst] * 4, [1, 2, 2, 1]], "float32")
    nodes = parsed(f"y = {kind} <axis=1, select_last_index={last}> (x)")
    small = Small(nodes, {"x": x}, ["y"], opset=21)
    np.testing.assert_array_equal(imported(bench, small)["y"], small.reference()["y"])


@pytest.mark.parametrize("kind", ["Div", "Mod"])
def test_integers_beside_what_only_tvm_covers_divide_by_anything(bench: Bench, kind: str) -> None:
    a, b = np.array([7, -7, -(2**31), 5], "int32"), np.array([0, 2, -1, -3], "int32")
    made = imported(bench, Small(parsed(f"y = {kind} (a, b)"), {"a": a, "b": b}, ["y"]))["y"]
    wanted = [0, -3, -(2**31), -1] if kind == "Div" else [0, 1, 0, -1]
    np.testing.assert_array_equal(made, np.array(wanted, "int32"))


def test_a_group_that_only_an_unchecked_import_covers_is_taken_apart() -> None:
    from autofuse.fusion.plan import FusionPlan, Group
    from autofuse.kernels.lowering.lower import lower
    from tests.kernels.one_operator import TARGET

    text = "g (double[4,6] a, double[4,6] b) => (double[4,6] y) { m = Max (a, b) y = HardSwish (m) }"
    graph = from_model(onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 21]> {text}'), "g")
    names = tuple(operator.name for operator in graph.operators)
    plan = FusionPlan((Group(names),))
    lowered = lower(graph, plan, TARGET, [names])
    assert with_checked_groups(plan, lowered) == plan  # both are ours
    text = "g (uint32[4,6] a, uint32[4,6] b) => (uint32[4,6] y) { m = Max (a, b) y = Trilu (m) }"
    graph = from_model(onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 21]> {text}'), "g")
    names = tuple(operator.name for operator in graph.operators)
    plan = FusionPlan((Group(names),))
    parted = with_checked_groups(plan, lower(graph, plan, TARGET, [names]))
    assert [group.operators for group in parted.groups] == [(name,) for name in names]
    assert bind_workload(graph, names[:1], {}).workload.operators[0].op_type == "Max"
