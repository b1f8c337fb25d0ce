"""Groups that only rename the axes of what lies in memory already: they need no kernel."""

from __future__ import annotations

from math import prod

from autofuse.kernels.workload.workload import Value, Workload, WorkloadOperator

RENAMING = frozenset({"Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity"})


def is_free_reshape(workload: Workload) -> bool:
    """Whether every output of `workload` is its only input, read as another shape.

    True when each operator keeps the row-major order of its data (a Transpose that moves axes of extent 1
    only does so too), and the stored order of the input and of each output agree, as in c8 [N, C, 1, 1] to
    plain [N, C].
    """
    inputs = workload.of_kind("input")
    if len(inputs) != 1 or not workload.operators:
        return False
    carried = {inputs[0]}
    for operator in workload.operators:
        if not _keeps_order(workload, operator) or not operator.inputs or operator.inputs[0] not in carried:
            return False
        if any(index in carried for index in operator.inputs[1:]):
            return False
        carried.update(operator.outputs)
    source = workload.values[inputs[0]]
    return all(_same_order(source, workload.values[index]) for index in workload.of_kind("output"))


def _keeps_order(workload: Workload, operator: WorkloadOperator) -> bool:
    """Whether the operator keeps the row-major order of its first input in its only output."""
    if operator.domain or len(operator.outputs) != 1:
        return False
    before, after = workload.values[operator.inputs[0]], workload.values[operator.outputs[0]]
    if before.dtype != after.dtype or prod(before.shape) != prod(after.shape):
        return False
    if operator.op_type != "Transpose":
        return operator.op_type in RENAMING
    default = tuple(reversed(range(len(before.shape))))
    order = operator.attribute("perm", default)
    assert isinstance(order, tuple)
    moved = [int(axis) for axis in order if before.shape[int(axis)] != 1]
    return moved == sorted(moved)


def _same_order(left: Value, right: Value) -> bool:
    """Whether both values, equal in row-major order, are stored in the same order too, in as many bits."""
    if left.is_half != right.is_half:
        return False
    if _stored_plain(left) or _stored_plain(right):
        return _stored_plain(left) and _stored_plain(right)
    rest = prod(left.shape[2:]) == prod(right.shape[2:])
    return left.block == right.block and left.shape[:2] == right.shape[:2] and rest


def _stored_plain(value: Value) -> bool:
    """Whether the stored order is row-major: blocks of channels with one pixel each lie as plain ones do."""
    return not value.block or prod(value.shape[2:]) == 1
