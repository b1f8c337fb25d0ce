"""ONNX's node cases as the installed onnx package ships them, and what counts as a right result of one."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper

from autofuse.measure.checking.tolerance import BFLOAT16_LEVEL, compare
from autofuse.values.names import BFLOAT16

Array = NDArray[np.generic]
RANDOM = frozenset(
    ("Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike")
)


@dataclass(frozen=True)
class NodeCase:
    """One case. `inputs` and `outputs`: arrays, or lists of them (sequences), or None (an absent optional)."""

    name: str
    model: bytes
    inputs: tuple[Any, ...]
    outputs: tuple[Any, ...]
    rtol: float
    atol: float

    @property
    def operators(self) -> tuple[str, ...]:
        """Operators of the model, without those inside of functions and bodies."""
        return tuple(node.op_type for node in onnx.load_from_string(self.model).graph.node)

    @property
    def is_random(self) -> bool:
        """Whether its results are drawn: by a random operator, or by a Dropout whose third input may ask for it."""
        nodes = onnx.load_from_string(self.model).graph.node
        return any(node.op_type in RANDOM or (node.op_type == "Dropout" and len(node.input) > 2) for node in nodes)


def node_cases() -> list[NodeCase]:
    """Every case with its first data set, by name."""
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = load_model_tests(kind="node")
    cases = []
    for case in found:
        assert case.data_sets is not None and case.model is not None
        inputs, outputs = (tuple(map(_plain, part)) for part in case.data_sets[0])
        cases.append(NodeCase(case.name, case.model.SerializeToString(), inputs, outputs, case.rtol, case.atol))
    return sorted(cases, key=lambda case: case.name)


def _plain(item: Any) -> Any:
    if isinstance(item, onnx.TensorProto):
        return numpy_helper.to_array(item)
    if isinstance(item, onnx.SequenceProto):
        return numpy_helper.to_list(item)
    if isinstance(item, onnx.OptionalProto):
        return _plain(numpy_helper.to_optional(item))
    return [_plain(part) for part in item] if isinstance(item, list) else item


def difference(case: NodeCase, results: Sequence[Any]) -> str:
    """Why `results` are not what the case expects; empty when they are.

    A result is right within the case's own tolerance, or within that of `autofuse bench`; a random one when its
    shape and element type are right.
    """
    if len(results) != len(case.outputs):
        return f"{len(results)} results, the case has {len(case.outputs)}"
    chance = case.is_random
    for number, (got, wanted) in enumerate(zip(results, case.outputs, strict=True)):
        reason = _difference(case, got, wanted, chance)
        if reason:
            return f"result {number}: {reason}"
    return ""


def _difference(case: NodeCase, got: Any, wanted: Any, chance: bool) -> str:
    if wanted is None or got is None:
        return "" if got is wanted else f"{type(got).__name__}, the case has {type(wanted).__name__}"
    if isinstance(wanted, list) or isinstance(got, list):
        if not isinstance(got, list) or not isinstance(wanted, list) or len(got) != len(wanted):
            return "another sequence than the case's"
        return next((r for a, b in zip(got, wanted, strict=True) if (r := _difference(case, a, b, chance))), "")
    got, wanted = np.asarray(got), np.asarray(wanted)
    if got.shape != wanted.shape or (got.dtype != wanted.dtype and wanted.dtype.kind not in "OUST"):
        return f"{got.dtype}{list(got.shape)}, the case has {wanted.dtype}{list(wanted.shape)}"
    if chance:
        return ""
    if wanted.dtype.name == BFLOAT16 and got.dtype == wanted.dtype:
        return compare(got.astype(np.float32), wanted.astype(np.float32), BFLOAT16_LEVEL).reason
    if wanted.dtype.kind not in "fciub":
        return "" if _same_elements(got, wanted) else "other elements than the case's"
    verdict = compare(got, wanted)
    if verdict.ok:
        return ""
    if wanted.dtype.kind in "fc" and np.allclose(got, wanted, case.rtol, case.atol, equal_nan=True):
        return ""
    return verdict.reason


def _same_elements(got: NDArray[Any], wanted: NDArray[Any]) -> bool:
    """Whether texts are the same, or numbers of types that NumPy does not know (bfloat16, float8, 4 bits), which are
    all exact in float32."""
    if wanted.dtype.kind in "OUST":
        return np.array_equal(got.astype(str), wanted.astype(str))
    return np.array_equal(got.astype(np.float32), wanted.astype(np.float32), equal_nan=True)
