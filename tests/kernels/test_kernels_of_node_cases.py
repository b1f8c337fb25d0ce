"""ONNX's own operator cases: what we claim to own is right (a fixed sample: all of them take minutes)."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from onnx.backend.test.loader import load_model_tests

from autofuse.errors import InputError
from autofuse.graph.loading.load import from_model
from autofuse.graph.model import Graph
from autofuse.kernels.build import build_kernel
from autofuse.kernels.families.registry import is_own, refusal
from autofuse.kernels.workload.workload import bind_workload
from autofuse.measure.checking.tolerance import compare
from tests.kernels.conftest import Array, Bench, Small

EACH = 31
"""Every so-manieth case is taken, in the order of their names."""
WINDOWS = ("test_averagepool", "test_basic_conv", "test_conv_with", "test_convtranspose", "test_maxpool")
"""Cases of whole families that are all ours, but for those named next."""
OTHERS = {
    "test_maxpool_with_argmax_2d_precomputed_pads": "several outputs",
    "test_maxpool_with_argmax_2d_precomputed_strides": "several outputs",
}
SHAPED_BY_INPUTS = {"Resize", "Upsample", "ConstantOfShape"}
ROUNDED = {"test_averagepool_2d_ceil_last_window_starts_on_pad": 1e-3}
"""Cases whose reference is written with few digits, and how exact it is."""


@pytest.fixture(scope="module")
def cases() -> list[Any]:
    """Every case, by name."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return sorted(load_model_tests(kind="node"), key=lambda case: str(case.name))


def chosen(cases: list[Any]) -> Iterator[Any]:
    """The cases that are tried."""
    for case in cases[::EACH]:
        if case.model is not None and case.data_sets:
            yield case


def arrays_of(items: Any) -> list[Array] | None:
    """The tensors of a data set; None when something else is among them, or bfloat16, whose cases run as whole models
    in `tests/graph/test_onnx_node_cases.py`."""
    found = [numpy_helper.to_array(item) if isinstance(item, onnx.TensorProto) else item for item in items]
    plain = all(isinstance(item, np.ndarray) and item.dtype.name != "bfloat16" for item in found)
    return found if plain else None


def graph_of(case: Any, feeds: dict[str, Array], constant_weights: bool) -> Graph | None:
    """The case with small integer vectors (and maybe all inputs but the first) as constants; None when refused."""
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    special = any(node.op_type in SHAPED_BY_INPUTS for node in model.graph.node)
    kept = []
    for number, value in enumerate(case.model.graph.input):
        array = feeds[value.name]
        small = array.dtype.kind in "iu" and array.ndim <= 1 and len(feeds) > 1
        if small or (number and (constant_weights or special)):
            model.graph.initializer.append(numpy_helper.from_array(array, value.name))
        else:
            kept.append(value)
    del model.graph.input[:]
    model.graph.input.extend(kept)
    try:
        return from_model(model, str(case.name), {value.name: feeds[value.name].shape for value in kept})
    except InputError:
        return None


def verdict(bench: Bench, case: Any, constant_weights: bool, seen: set[str]) -> str:
    """ "right" or "wrong: ..." for a case of ours; else why it is none."""
    given, wanted = (arrays_of(part) for part in case.data_sets[0])
    if given is None or wanted is None or len(given) != len(case.model.graph.input):
        return "not tensors"
    feeds = dict(zip((value.name for value in case.model.graph.input), given, strict=True))
    graph = graph_of(case, feeds, constant_weights)
    if graph is None or not graph.operators:
        return "refused or folded"
    bound = bind_workload(graph, [operator.name for operator in graph.operators], {})
    if not is_own(bound.workload) or bound.workload.key in seen:
        return "not ours, or seen before"
    seen.add(bound.workload.key)
    kernel = build_kernel(bound.workload, {}, bench.target())
    constants = [np.asarray(graph.constants[name]) for name in bound.constants]
    small = Small([], {name: feeds[name] for name in bound.inputs}, bound.outputs)
    results = bench.run(small, bound, kernel, bench.target(), constants)
    expected = dict(zip((value.name for value in case.model.graph.output), wanted, strict=True))
    for name, result in results.items():
        found = compare(result, expected[name], ROUNDED.get(str(case.name), 1e-4))
        if not found.ok:
            return f"wrong: {case.name}, {name}: {found.reason}"
    return "right"


@pytest.mark.slow
def test_the_cases_that_are_ours_are_right(bench: Bench, cases: list[Any]) -> None:
    tried = list(chosen(cases))
    seen: set[str] = set()
    found = [verdict(bench, case, constant_weights, seen) for case in tried for constant_weights in (False, True)]
    assert not [text for text in found if text.startswith("wrong")]
    counts = Counter(found)
    assert counts["right"] >= 20, counts


@pytest.mark.slow
def test_every_window_is_ours_and_right(bench: Bench, cases: list[Any]) -> None:
    tried = [case for case in cases if str(case.name).startswith(WINDOWS) and case.data_sets]
    found = {str(case.name): verdict(bench, case, True, set()) for case in tried}
    assert {name for name, text in found.items() if text != "right"} == set(OTHERS), found
    assert sum(name.startswith("test_convtranspose") for name in found) >= 10


@pytest.mark.slow
def test_the_others_are_refused_by_name(cases: list[Any]) -> None:
    for case in cases:
        if case.name in OTHERS:
            given, _ = (arrays_of(part) for part in case.data_sets[0])
            assert given is not None
            graph = graph_of(
                case, dict(zip((value.name for value in case.model.graph.input), given, strict=True)), True
            )
            assert graph is not None
            workload = bind_workload(graph, [operator.name for operator in graph.operators], {}).workload
            assert OTHERS[str(case.name)] in str(refusal(workload, workload.operators[0]))
