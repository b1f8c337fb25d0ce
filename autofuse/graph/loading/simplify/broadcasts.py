"""Copies that need not be made: gathers of everything in order, and broadcasts written out too early.

Attention masks are exported as GatherND -> And -> Where over the full square of positions; what is left
of them here is a row that broadcasts where it is added.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from autofuse.graph.loading.draft import Draft
from autofuse.graph.mapping import POINTWISE
from autofuse.graph.model import Operator, Tensor

_SINKABLE = POINTWISE - {"BiasGelu", "CastLike", "SwiGLU"}


def simplify_copies(draft: Draft) -> bool:
    """One step of each rewrite below, wherever it applies; True when the draft changed."""
    result: list[Operator] = []
    for operator in draft.operators:
        known = all(name in draft.tensors for name in (*operator.inputs, *operator.outputs) if name)
        result.append(_simpler(draft, operator) if known else operator)
    changed = any(new is not old for new, old in zip(result, draft.operators, strict=True))
    draft.operators = result
    return _sink_expands(draft) or changed


def _simpler(draft: Draft, operator: Operator) -> Operator:
    for rule in (_gather_of_equals, _gather_of_one, _gather_to_reshape, _neutral_to_expand, _decided_choice):
        operator = rule(draft, operator)
    return operator


def _decided_choice(draft: Draft, operator: Operator) -> Operator:
    """Where(all true, x, y)   becomes   x, and Where(all false, x, y)   becomes   y, in the shape that it has."""
    if operator.op_type != "Where":
        return operator
    condition = draft.constants.get(operator.inputs[0])
    if condition is None or not condition.size or condition.any() != condition.all():
        return operator
    chosen, result = operator.inputs[1 if condition.all() else 2], draft.tensors[operator.outputs[0]]
    plain = replace(operator, op_type="Identity", inputs=(chosen,))
    if draft.tensors[chosen].shape == result.shape:
        return plain
    return draft.with_input(replace(plain, op_type="Expand"), 1, "shape", result.shape)


def _gather_of_equals(draft: Draft, operator: Operator) -> Operator:
    """GatherElements of equal integers   becomes   Expand(one of them), whichever is picked.

    So are kinds of tokens picked for each position, from a row of zeros. (A table of an embedding stays, whatever its
    weights are: it says which indices there may be.)
    """
    integers = operator.op_type == "GatherElements" and draft.tensors[operator.inputs[0]].dtype in ("int32", "int64")
    if not integers or operator.domain:
        return operator
    one = _only_element(draft, operator.inputs[0])
    return operator if one is None else _expanded(draft, operator, np.asarray(one))


def _gather_of_one(draft: Draft, operator: Operator) -> Operator:
    """Gather(x, i i i ... i)   becomes   Expand(the i-th of x), for a constant x: a row that broadcasts.

    So is the embedding of the one kind of tokens, however many there are.
    """
    place = place_picked(draft, operator)
    if place is None:
        return operator
    data, axis = draft.constants[operator.inputs[0]], operator.attributes.get("axis", 0)
    assert isinstance(axis, int)
    axis, many = axis % data.ndim, len(draft.tensors[operator.inputs[1]].shape)
    row = np.take(data, place, axis).reshape(*data.shape[:axis], *(1,) * many, *data.shape[axis + 1 :])
    return _expanded(draft, operator, row)


def place_picked(draft: Draft, operator: Operator) -> int | None:
    """The place that a Gather of a constant picks again and again; None where it picks several, or one once.

    `simplify_copies` makes an Expand of it: folded it would be, or not, by how often it picks.
    """
    data = draft.constants.get(operator.inputs[0]) if operator.op_type == "Gather" and not operator.domain else None
    if data is None or operator.inputs[1] not in draft.tensors or draft.tensors[operator.inputs[1]].elements < 2:
        return None
    place, axis = _only_element(draft, operator.inputs[1]), operator.attributes.get("axis", 0)
    assert isinstance(axis, int)
    extent = data.shape[axis % data.ndim]
    return int(place) if place is not None and -extent <= int(place) < extent else None


def _expanded(draft: Draft, operator: Operator, array: NDArray[np.generic]) -> Operator:
    """The Expand of a constant to what an operator makes."""
    name, shape = operator.outputs[0], draft.tensors[operator.outputs[0]].shape
    plain = replace(operator, op_type="Expand", inputs=(draft.add_constant(f"{name}/one", array),), attributes={})
    return draft.with_input(plain, 1, "shape", shape)


def _only_element(draft: Draft, name: str) -> np.generic | None:
    """The one value that all elements of a constant have, or of what an Expand makes of one, which is folded or not by
    its size; None where they differ."""
    array = draft.constants.get(name)
    if array is None:
        maker = next((one for one in draft.operators if name in one.outputs), None)
        array = draft.constants.get(maker.inputs[0]) if maker is not None and maker.op_type == "Expand" else None
    flat = None if array is None else array.reshape(-1)
    if flat is None or not flat.size or flat[0] != flat[-1] or not np.all(flat == flat[0]):
        return None
    one: np.generic = flat[0]
    return one


def _gather_to_reshape(draft: Draft, operator: Operator) -> Operator:
    """Gather(x, 0 1 2 ... n-1) and GatherND(x, every index in order)   become   Reshape(x)."""
    if operator.op_type not in ("Gather", "GatherND"):
        return operator
    indices = draft.constants.get(operator.inputs[1])
    data, result = draft.tensors[operator.inputs[0]], draft.tensors[operator.outputs[0]]
    if indices is None or data.elements != result.elements:
        return operator
    if operator.op_type == "Gather":
        axis = operator.attributes.get("axis", 0)
        assert isinstance(axis, int)
        ordered = np.array_equal(indices.reshape(-1), np.arange(data.shape[axis]))
    else:
        rows = indices.reshape(-1, indices.shape[-1])
        table = data.shape[: indices.shape[-1]]
        everything = np.stack(np.unravel_index(np.arange(np.prod(table)), table), axis=-1) if table else rows[:, :0]
        ordered = not operator.attributes.get("batch_dims", 0) and np.array_equal(rows, everything)
    if not ordered:
        return operator
    plain = replace(operator, op_type="Reshape", inputs=(operator.inputs[0],), attributes={})
    return draft.with_input(plain, 1, "shape", result.shape)


def _neutral_to_expand(draft: Draft, operator: Operator) -> Operator:
    """And(x, all true), Or(x, all false) that only enlarge x   become   Expand(x)."""
    if operator.op_type not in ("And", "Or"):
        return operator
    other = draft.constants.get(operator.inputs[1])
    if other is None or not np.all(other == (operator.op_type == "And")):
        return operator
    plain = replace(operator, op_type="Expand", inputs=(operator.inputs[0],), attributes={})
    return draft.with_input(plain, 1, "shape", draft.tensors[operator.outputs[0]].shape)


def sinking(draft: Draft) -> frozenset[str]:
    """Results of Expand that `simplify_copies` takes behind all who read them: nobody needs them written out.

    Whether one is does not depend on how large it is, so that a model is the same at each open size.
    """
    readers = draft.readers()
    expands = (op for op in draft.operators if op.op_type == "Expand" and _known(draft, op))
    return frozenset(op.outputs[0] for op in expands if _sinks(draft, op, readers.get(op.outputs[0], [])))


def _sinks(draft: Draft, expand: Operator, readers: Sequence[Operator]) -> bool:
    source, result = expand.inputs[0], expand.outputs[0]
    if result in draft.returned or not all(one.op_type in _SINKABLE and _known(draft, one) for one in readers):
        return False
    return len(readers) == 1 or all(
        _without(draft, one, result, source)[1] == draft.tensors[one.outputs[0]].shape for one in readers
    )


def _without(draft: Draft, operator: Operator, result: str, source: str) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """What `operator` reads, with `source` in place of the `result` of its Expand, and the shape that it has then."""
    names = tuple(source if name == result else name for name in operator.inputs)
    return names, np.broadcast_shapes(*(draft.tensors[name].shape for name in names if name))


def _sink_expands(draft: Draft) -> bool:
    """Add(Expand(x), y)   becomes   Add(x, y), and Exp(Expand(x))   becomes   Expand(Exp(x)).

    The first where y alone gives the result its shape; the second where the Expand has no other reader.
    """
    expands = {op.outputs[0]: op for op in draft.operators if op.op_type == "Expand" and _known(draft, op)}
    readers = draft.readers()
    result: list[Operator] = []
    sunk: set[str] = set()
    changed = False
    for operator in draft.operators:
        source = next((name for name in operator.inputs if name in expands and name not in sunk), None)
        if source is None or operator.op_type not in _SINKABLE or not _known(draft, operator):
            result.append(operator)
            continue
        expand = expands[source]
        names, shape = _without(draft, operator, source, expand.inputs[0])
        out = draft.tensors[operator.outputs[0]]
        if shape == out.shape:
            result.append(replace(operator, inputs=names))
            changed = True
        elif len(readers[source]) == 1 and source not in draft.returned:
            narrow = draft.fresh(f"{out.name}/narrow")
            draft.tensors[narrow] = Tensor(narrow, shape, out.dtype)
            result.append(replace(operator, inputs=names, outputs=(narrow,)))
            wide = replace(expand, inputs=(narrow,), outputs=(out.name,))
            result.append(draft.with_input(wide, 1, "shape", out.shape))
            sunk.add(source)
            changed = True
        else:
            result.append(operator)
    draft.operators = [op for op in result if not (op.outputs[0] in sunk and op.op_type == "Expand")]
    return changed


def _known(draft: Draft, operator: Operator) -> bool:
    return len(operator.outputs) == 1 and all(n in draft.tensors for n in (*operator.inputs, *operator.outputs) if n)
