"""ONNX's own operator cases: each loads to an equal model, or is refused with a message."""

from __future__ import annotations

import collections
import warnings

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from onnx.backend.test.loader import load_model_tests

from autofuse.errors import InputError
from autofuse.graph.cost import operator_cost
from autofuse.graph.inputs import generate_inputs
from autofuse.graph.loading.load import from_model
from autofuse.graph.mapping import mapping_type
from autofuse.graph.submodel import to_model

_PARAMETRISED = {"Resize", "Upsample", "ConstantOfShape"}
_RANDOM = {
    "Bernoulli",
    "RandomNormal",
    "RandomUniform",
    "RandomNormalLike",
    "RandomUniformLike",
    "Multinomial",
    "Dropout",
}


def _with_constants(proto, feeds):
    """Vectors of integers (axes, shapes) become weights, since a kernel needs them at compile time."""
    special = any(node.op_type in _PARAMETRISED for node in proto.graph.node)
    first = proto.graph.input[0].name if proto.graph.input else ""
    bound = onnx.ModelProto()
    bound.CopyFrom(proto)
    kept = []
    for value in proto.graph.input:
        array = feeds[value.name]
        small = array.dtype.kind in "iu" and array.ndim <= 1 and len(proto.graph.input) > 1
        if small or (special and (value.name != first or len(proto.graph.input) == 1)):
            bound.graph.initializer.append(numpy_helper.from_array(array, value.name))
        else:
            kept.append(value)
    del bound.graph.input[:]
    bound.graph.input.extend(kept)
    return bound


def _array(item):
    return numpy_helper.to_array(item) if isinstance(item, onnx.TensorProto) else item


def _verdict(case, run) -> str:
    arrays = [_array(item) for item in case.data_sets[0][0]]
    if len(arrays) != len(case.model.graph.input) or not all(isinstance(item, np.ndarray) for item in arrays):
        return "not tensors"
    feeds = {value.name: array for value, array in zip(case.model.graph.input, arrays, strict=True)}
    proto = _with_constants(case.model, feeds)
    try:
        graph = from_model(proto, case.name, {value.name: feeds[value.name].shape for value in proto.graph.input})
    except InputError:
        return "refused"
    for operator in graph.operators:
        mapping_type(graph, operator)
        cost = operator_cost(graph, operator)
        assert cost.flops >= 0
        assert cost.bytes_written > 0
    assert set(generate_inputs(graph, 0)) == set(graph.inputs)
    if any(operator.op_type in _RANDOM for operator in graph.operators):
        return "random"
    try:
        wanted = run(case.model, feeds)
    except Exception:  # noqa: BLE001 - the reference lacks the operator
        return "no reference"
    made = run(to_model(graph), feeds)
    defined = [_array(item) for item in case.data_sets[0][1]]
    return "equal" if _all_equal(wanted, made) or _all_equal(defined, made) else "different"


def _all_equal(wanted, made) -> bool:
    """ONNX Runtime masks two products of attention with the lowest number, where ONNX defines minus infinity."""
    return len(wanted) == len(made) and all(_equal(old, new) for old, new in zip(wanted, made, strict=True))


def _equal(old, new) -> bool:
    if old.dtype != new.dtype or old.shape != new.shape:
        return False
    if old.dtype.kind not in "fc":
        return bool(np.array_equal(old, new))
    tolerance = 4e-3 if old.dtype == np.float16 else 1e-5
    return bool(np.allclose(old, new, rtol=tolerance, atol=tolerance, equal_nan=True))


@pytest.mark.long
@pytest.mark.slow
def test_every_case_is_equal_or_refused(run):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cases = [case for case in load_model_tests(kind="node") if case.model is not None and case.data_sets]
        verdicts = {case.name: _verdict(case, run) for case in cases}
    assert not [name for name, verdict in verdicts.items() if verdict == "different"]
    counts = collections.Counter(verdicts.values())
    assert counts["equal"] >= 1000, counts
    assert counts["refused"] <= 0.2 * len(cases), counts
