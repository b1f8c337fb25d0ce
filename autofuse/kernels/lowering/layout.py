"""Which layout each tensor between groups has: blocked by channels along chains of feature maps, plain elsewhere; as
bfloat16 where its numbers are such.

No kernel converts a layout by itself: a group reads and writes whatever layout its tensors have, so a
conversion happens inside the first kernel behind the place where two layouts meet.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence

from autofuse.device.target import Target
from autofuse.graph.mapping import MAP_RANK, POINTWISE
from autofuse.graph.model import Graph, Operator
from autofuse.kernels.lowering.halves import half_tensors
from autofuse.kernels.nest.nest import FORWARD
from autofuse.kernels.workload.workload import HALF

SMALLEST_BLOCK = 4
WIDEST_BLOCK = 16
FEATURE_MAP = frozenset(
    {"Conv", "MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool", "ConvTranspose", "Resize", "Upsample"}
    | {"Bfloat16Conv", "ConvInteger"}
)
MOVEMENT = FORWARD | {"Expand", "Slice", "Split", "Gather", "GatherElements", "Pad", "Tile"}
MOVEMENT |= {"MatMul", "MatMulInteger", "Gemm", "WeightOnlyMatMul", "Bfloat16MatMul"}
_POOLS = frozenset({"MaxPool", "AveragePool"})
ROWS = frozenset({"LayerNormalization", "RMSNormalization"})
BLOCKED = frozenset({"float32", "int8", "uint8"})
"""Element types of maps that lie in blocks."""


def channel_block(shape: Sequence[int], target: Target) -> int:
    """Largest block, at most a vector, that divides the channels of a feature map; 0 when none does."""
    block = target.lanes
    while block >= SMALLEST_BLOCK:
        if len(shape) > 2 and shape[1] % block == 0:
            return block
        block //= 2
    return 0


def assign_layouts(
    graph: Graph, groups: Sequence[Sequence[str]], own: Mapping[int, bool], target: Target
) -> dict[str, str]:
    """Layout of every tensor that is not plain.

    `groups`: operator names, in an order in which they can run; `own`: whether each group's kernel is
    generated from our definitions (others read and write plain tensors only).
    """
    foreign: set[str] = set(graph.inputs) | set(graph.outputs)
    for number, operators in enumerate(groups):
        if not own[number]:
            reads, writes = graph.boundary(operators)
            foreign.update(reads, writes)
    blocks: dict[str, str] = {}
    written: set[str] = set()
    for operators in groups:
        _, writes = graph.boundary(operators)
        inside = set(operators)
        written.update(writes)
        for name in writes:
            if name in foreign or graph.tensors[name].dtype not in BLOCKED or _reshaped_next(graph, name):
                continue
            block = channel_block(graph.tensors[name].shape, target)
            if block and _is_feature_map(graph, name, inside, blocks, _turned_maps(graph, name, inside)):
                blocks[name] = f"c{block}"
    halves = half_tensors(graph) & written - foreign | graph.halves
    return blocks | {name: f"{blocks[name]}-{HALF}" if name in blocks else HALF for name in halves}


def _turned_maps(graph: Graph, name: str, inside: set[str]) -> set[str]:
    """Of the tensors of its group that `name` is made of, those that are maps turned from rows of channels.

    None where something else than windows reads `name`. Whoever turns rows has neighbouring channels at hand and writes
    them as neighbours into a block, but far apart into a plain map; windows want blocks.
    """
    readers = graph.consumers[name]
    if not readers or any(reader.op_type not in FEATURE_MAP for reader in readers):
        return set()
    found, pending = set[str](), [name]
    while pending:
        made = pending.pop()
        operator = graph.producers.get(made)
        if operator is None or operator.name not in inside:
            continue
        if operator.op_type in FORWARD:
            found |= {made} if _is_turned(graph, operator, inside) else set()
        elif operator.op_type not in MOVEMENT:
            pending += [source for source in graph.activations(operator) if source not in found]
    return found


def _is_turned(graph: Graph, operator: Operator, inside: set[str]) -> bool:
    """Whether a chain of reshapes and turns, up to this operator, makes the last axis the channels of a map."""
    current: Operator | None = operator
    while current is not None and current.name in inside and current.op_type in FORWARD:
        order = current.attributes.get("perm")
        if isinstance(order, tuple) and len(order) > 2 and order[1] == len(order) - 1:
            return True
        current = graph.producers.get(current.inputs[0])
    return False


def _is_feature_map(graph: Graph, name: str, inside: set[str], *maps: Container[str]) -> bool:
    """Whether a tensor descends, through elementwise operators of its group, from a window or one of `maps`.

    What is broadcast decides nothing: one number for each channel lies alike in a block and in a row.
    """
    if any(name in known for known in maps):
        return True
    shape = graph.tensors[name].shape
    operator = graph.producers.get(name)
    if operator is None or operator.name not in inside:
        return False
    if operator.op_type in MOVEMENT:
        return _cuts_between_blocks(graph, operator, name) and _is_feature_map(graph, operator.inputs[0], inside, *maps)
    if operator.op_type in FEATURE_MAP and not _keeps_rows(graph, operator):
        return True
    if operator.op_type.startswith("Reduce") and len(graph.tensors[operator.outputs[0]].shape) != len(shape):
        return False
    sources = [source for source in graph.activations(operator) if len(graph.tensors[source].shape) == len(shape)]
    if operator.op_type in POINTWISE:
        size = graph.tensors[operator.outputs[0]].elements
        sources = [source for source in sources if graph.tensors[source].elements == size]
    return any(_is_feature_map(graph, source, inside, *maps) for source in sources)


def _cuts_between_blocks(graph: Graph, operator: Operator, name: str) -> bool:
    """Whether a Slice or a Split takes neighbouring channels of a map, from one at which a block of theirs begins."""
    shape = graph.tensors[name].shape
    if len(shape) < MAP_RANK - 1:
        return False
    if operator.op_type == "Split":
        before = operator.outputs[: operator.outputs.index(name)]
        first = sum(graph.tensors[part].shape[1] for part in before)
        alone = operator.attributes.get("axis", 0) in (1, 1 - len(shape))
    elif operator.op_type == "Slice" and len(operator.inputs) > 3:
        starts, axes, steps = (
            _numbers(graph, place) for place in (*operator.inputs[1:2], *operator.inputs[3:], "")[:3]
        )
        first = starts[0] if starts else -1
        alone = axes in ([1], [1 - len(shape)]) and (steps == [1] or len(operator.inputs) < 5)
    else:
        return False
    return alone and first >= 0 and first % min(shape[1] & -shape[1], WIDEST_BLOCK) == 0


def _numbers(graph: Graph, name: str) -> list[int]:
    """The elements of a constant of integers; none of what is no constant."""
    found = graph.constants.get(name)
    return [] if found is None else [int(one) for one in found.reshape(-1)]


def _keeps_rows(graph: Graph, operator: Operator) -> bool:
    """Whether a pool makes rows of pixels of such, shifted by whole steps, as fast as blocks of blocks.

    Then its result lies as what it reads, unless a convolution reads that result, which wants blocks.
    """
    if operator.op_type not in _POOLS or len(graph.tensors[operator.outputs[0]].shape) != MAP_RANK:
        return False
    steps = operator.attributes.get("strides") or (1,)
    assert isinstance(steps, tuple)
    readers = graph.consumers[operator.outputs[0]]
    return all(step == 1 for step in steps) and not any(reader.op_type in FEATURE_MAP - _POOLS for reader in readers)


def _reshaped_next(graph: Graph, name: str) -> bool:
    """Whether every reader reshapes a tensor whose order in memory the block would change, or normalises its rows."""
    users: tuple[Operator, ...] = graph.consumers[name]
    if not graph.tensors[name].shape:
        return False
    spatial = graph.tensors[name].elements // max(1, graph.tensors[name].shape[0] * _channels(graph, name))
    return spatial > 1 and bool(users) and all(user.op_type in FORWARD | ROWS for user in users)


def _channels(graph: Graph, name: str) -> int:
    shape = graph.tensors[name].shape
    return shape[1] if len(shape) > 1 else 1
