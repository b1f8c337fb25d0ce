"""Numbers that say what a group is and where it runs: pure functions of its workload and its machine.

A workload carries everything that counts (operators, shapes, layouts) and is what the profiling database stores, so
that a group that is only planned and one that was measured have the same features. Sizes, counts of bytes and of
FLOPs are logarithms to the base 2 (of 1 + x), so that networks of other sizes lie near.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import log2, prod

from autofuse.device.target import Target
from autofuse.fusion.edges import MOVES, Edges, reads_once
from autofuse.fusion.edges import Edge as PlannedEdge
from autofuse.fusion.evidence import LAUNCH_US
from autofuse.fusion.relation import COLUMNS, relation
from autofuse.graph.cost import EXPENSIVE, flops, group_cost, operator_cost
from autofuse.graph.mapping import MappingType, names
from autofuse.graph.model import Graph, Operator
from autofuse.kernels.families.registry import FAMILIES, is_own, kind_of, nests_of
from autofuse.kernels.workload.as_graph import as_graph
from autofuse.kernels.workload.workload import Workload

FEATURES_VERSION = 1
"""Changes whenever the meaning of a feature does: a model that was trained on others is refused."""

CONTRACTIONS = frozenset({"Conv", "MatMul", "Gemm", "ConvTranspose", "Einsum", "Attention"})
FEATURES = {"last_axis": "row", "inner_axis": "column"}
"""Kinds of nests -> their names in the features, where trained models know them by others."""
_MOST_READS = 1e4
_DEAR = 10.0
"""Operations that an expensive pointwise operator takes an element."""

# Nominal speed of one core, to put a scale to times: the trees learn what is true. Operations, bytes a microsecond.
_CYCLES = 3000.0
_FMA_OPERATIONS = 4.0
_NEAR_L2, _NEAR_L3, _MEMORY = 40e3, 20e3, 10e3
_START_US = 0.2


@dataclass(frozen=True)
class Machine:
    """The machine of a kernel: the device's target with its caches (bytes), and the threads of the model.

    `family`: class of the target ("avx2", "avx512", "neon", "generic").
    """

    family: str
    lanes: int
    registers: int
    cores: int
    l1_bytes: int
    l2_bytes: int
    l3_bytes: int
    threads: int

    @classmethod
    def of(cls, target: Target, device_facts: Mapping[str, object], threads: int) -> Machine:
        """A target with the caches of a device; `device_facts`: of its fingerprint, as the database stores them."""
        caches = device_facts.get("caches")
        l3_kib = caches.get("l3_kib", 0) if isinstance(caches, Mapping) else 0
        l3_bytes = int(l3_kib) * 1024 if isinstance(l3_kib, int | float) else 0
        return cls(
            target.isa, target.lanes, target.registers, target.cores, target.l1_bytes, target.l2_bytes,
            max(l3_bytes, target.l2_bytes), threads,
        )  # fmt: skip


def features(workload: Workload, machine: Machine) -> dict[str, float]:
    """Every feature of a workload on a machine, by name; always the same names in the same order."""
    return on_machine(facts_of(workload), machine)


def facts_of(workload: Workload) -> dict[str, float]:
    """What a workload is, wherever it runs: plain counts, sizes in bytes, FLOPs. See `on_machine`."""
    graph = as_graph(workload)
    edges = Edges(graph)
    return {
        **_kinds(graph, edges),
        **_kernel(workload),
        **_work(graph, edges),
        **_memory(workload, graph),
        **_anchor(graph),
        **_layouts(workload),
    }


def on_machine(facts: Mapping[str, float], machine: Machine) -> dict[str, float]:
    """The features of a workload with these facts on a machine."""
    found = {f"log_{name}" if name in _SIZES else name: _log(facts[name]) if name in _SIZES else facts[name]
             for name in facts}  # fmt: skip
    moved = facts["bytes_in"] + facts["bytes_constant"] + facts["bytes_out"]
    for cache, size in (("l1", machine.l1_bytes), ("l2", machine.l2_bytes), ("l3", machine.l3_bytes)):
        found[f"largest_inner_per_{cache}"] = log2((1 + facts["largest_inner_bytes"]) / size)
        found[f"moved_per_{cache}"] = log2((1 + moved) / size)
        found[f"constants_per_{cache}"] = log2((1 + facts["bytes_constant"]) / size)
    found["register_pressure"] = facts["live_values"] / machine.registers
    found["chunks_per_thread"] = _log(facts["chunks"] / machine.threads)
    found["idle_share"] = _idle(facts["chunks"], machine.threads)
    found["lane_waste"] = _waste(facts["inner_extent"], machine.lanes)
    found["log_roofline_us"] = log2(roofline_us(facts, machine))
    found |= {
        "lanes": float(machine.lanes), "registers": float(machine.registers), "threads": float(machine.threads),
        "cores": float(machine.cores), "log_l1": log2(machine.l1_bytes), "log_l2": log2(machine.l2_bytes),
        "log_l3": log2(machine.l3_bytes), "neon": float(machine.family == "neon"),
    }  # fmt: skip
    return found


def roofline_us(facts: Mapping[str, float], machine: Machine) -> float:
    """A rough time of the workload, from its FLOPs and bytes: what the model corrects.

    Weights are counted as read from memory (groups are timed with them out of the cache), the rest at the speed of
    the cache that it fits.
    """
    vector = machine.lanes * _CYCLES * machine.threads
    compute = facts["contraction_flops"] / (vector * _FMA_OPERATIONS) + facts["other_flops"] / vector
    compute += (facts["dear_flops"] * _DEAR + facts["recomputed_flops"]) / vector
    near = facts["bytes_in"] + facts["bytes_out"]
    speed = _NEAR_L2 if near <= machine.l2_bytes else _NEAR_L3 if near <= machine.l3_bytes else _MEMORY
    return _START_US + compute + near / speed + facts["bytes_constant"] / _MEMORY


def cut_features(
    whole: Mapping[str, float], parts: Sequence[Mapping[str, float]], machine: Machine, launches: int
) -> dict[str, float]:
    """What fusing changes: features of a group beside those of the parts that it would otherwise be.

    `whole`, `parts`: facts of the workloads; `launches`: kernels that the parts take (views take none).
    """
    moved = _moved(whole)
    apart = sum(_moved(part) for part in parts)
    between = max(0.0, apart - moved)
    times = sum(roofline_us(part, machine) for part in parts) + launches * LAUNCH_US
    own = roofline_us(whole, machine) + LAUNCH_US
    found = on_machine(whole, machine)
    found |= {
        "cut_parts": float(len(parts)),
        "cut_launches": float(launches),
        "cut_log_bytes": _log(between),
        "cut_bytes_share": between / max(1.0, apart),
        "cut_log_ratio": log2(times / own),
        "cut_launch_share": launches * LAUNCH_US / times,
        "cut_log_largest_part_us": log2(max(roofline_us(part, machine) for part in parts)),
        "cut_smallest_share": min(roofline_us(part, machine) for part in parts) / times,
        "cut_own_parts": sum(part["own"] for part in parts) / len(parts),
        "cut_live_values": max(part["live_values"] for part in parts),
        "cut_log_chunks": _log(max(part["chunks"] for part in parts)),
        "cut_recomputed": whole["recomputed_flops"] / max(1.0, whole["flops"]),
        "cut_contractions": float(sum(part["contraction_flops"] > 0 for part in parts)),
    }
    for cache, size in (("l1", machine.l1_bytes), ("l2", machine.l2_bytes), ("l3", machine.l3_bytes)):
        found[f"cut_bytes_per_{cache}"] = log2((1 + between) / size)
    return found


_SIZES = names(
    """flops contraction_flops other_flops dear_flops recomputed_flops bytes_in bytes_constant bytes_out bytes_apart
    inner_bytes largest_inner_bytes rows columns depth reduction chunks inner_extent converted_bytes"""
)
"""Facts that span powers of ten: their logarithm is the feature."""


def _kinds(graph: Graph, edges: Edges) -> dict[str, float]:
    """Counts of operators by mapping type, and of edges by cell and colour of the paper's table."""
    own = [edges.own[operator.name] for operator in graph.operators]
    found = {"operators": float(len(own)), "inputs": float(len(graph.inputs)), "outputs": float(len(graph.outputs))}
    found |= {f"type_{kind.name.lower()}": float(own.count(kind)) for kind in MappingType}
    inside = [(edges.own[edge.producer], edge.kind) for edge in edges.all]
    for first, second in product(COLUMNS, COLUMNS):
        found[f"cell_{cell_name(first, second)}"] = float(inside.count((first, second)))
    colours = [relation(first, second).value for first, second in inside]
    found |= {f"edges_{colour}": float(colours.count(colour)) for colour in ("through", "depend", "break")}
    types = [operator.op_type for operator in graph.operators]
    found["dear_operators"] = float(sum(kind in EXPENSIVE for kind in types))
    found["moves"] = float(sum(kind in MOVES for kind in types))
    found["gathers"] = float(sum(kind.startswith("Gather") for kind in types))
    found["reductions"] = float(sum(reads_once(operator) for operator in graph.operators))
    found["foreign_types"] = float(sum(t.dtype not in ("float32", "int64", "bool") for t in graph.tensors.values()))
    return found


def cell_name(first: MappingType, second: MappingType) -> str:
    """Name of a cell of the paper's table: `many_to_many_x_one_to_one`."""
    return f"{first.name.lower()}_x_{second.name.lower()}"


def _kernel(workload: Workload) -> dict[str, float]:
    """Whose kernel it is (ours or that of TVM's importer), and of which loop nests."""
    nests = nests_of(workload)
    kinds = [kind_of(workload, nest) for nest in nests]
    known = [kind for family in FAMILIES for kind in family.kinds]
    found = {"own": float(is_own(workload)), "nests": float(len(nests))}
    return found | {f"nests_{FEATURES.get(kind, kind)}": float(kinds.count(kind)) for kind in known}


def _work(graph: Graph, edges: Edges) -> dict[str, float]:
    counts = {operator.name: float(flops(graph, operator)) for operator in graph.operators}
    products = sum(counts[op.name] for op in graph.operators if op.op_type in CONTRACTIONS)
    total = sum(counts.values())
    repeated = [_repeated(graph, edge, counts) for edge in edges.all]
    return {
        "flops": total,
        "contraction_flops": products,
        "other_flops": total - products,
        "dear_flops": sum(counts[op.name] for op in graph.operators if op.op_type in EXPENSIVE),
        "recomputed_flops": sum(repeated),
        "broadcasts": float(sum(edge.kind == MappingType.ONE_TO_MANY for edge in edges.all)),
        "live_values": float(_most_alive(graph)),
    }


def _repeated(graph: Graph, edge: PlannedEdge, counts: Mapping[str, float]) -> float:
    """FLOPs that an edge inside one kernel may make the kernel do again: below a broadcast, or before an anchor."""
    consumer = graph.by_name[edge.consumer]
    out = graph.tensors[next(name for name in consumer.outputs if name)].elements
    again = 0.0
    for name in edge.tensors:
        elements = max(1, graph.tensors[name].elements)
        if edge.kind == MappingType.ONE_TO_MANY:
            again = max(again, out / elements - 1)
        elif edge.kind == MappingType.MANY_TO_MANY and not reads_once(consumer):
            again = max(again, min(_MOST_READS, counts[edge.consumer] / (2 * elements)) - 1)
    cheap = graph.by_name[edge.producer].op_type not in CONTRACTIONS
    return max(0.0, again) * counts[edge.producer] if cheap else 0.0


def _most_alive(graph: Graph) -> int:
    """Most results inside the kernel that are alive at once: a measure of what its registers must hold."""
    last = {name: place for place, op in enumerate(graph.operators) for name in op.inputs if name in graph.producers}
    alive: set[str] = set()
    most = 0
    for place, operator in enumerate(graph.operators):
        alive |= {name for name in operator.outputs if name in last}
        most = max(most, len(alive) + len(graph.activations(operator)))
        alive = {name for name in alive if last[name] > place}
    return most


def _memory(workload: Workload, graph: Graph) -> dict[str, float]:
    """Bytes moved by the group as one kernel and by its operators one by one, and what stays inside."""
    whole = group_cost(graph, tuple(operator.name for operator in graph.operators))
    apart = sum(cost.bytes_read + cost.bytes_written for cost in (operator_cost(graph, op) for op in graph.operators))
    constants = sum(graph.tensors[f"v{index}"].size_bytes for index in workload.of_kind("constant"))
    inner = [graph.tensors[f"v{index}"].size_bytes for index in workload.of_kind("inner")]
    moved = whole.bytes_read + whole.bytes_written
    read = max(0, whole.bytes_read - constants)
    return {
        "bytes_in": float(read),
        "bytes_constant": float(min(constants, whole.bytes_read)),
        "bytes_out": float(whole.bytes_written),
        "bytes_apart": float(apart),
        "inner_bytes": float(sum(inner)),
        "largest_inner_bytes": float(max(inner, default=0)),
        "saved_share": (apart - moved) / max(1, apart),
        "intensity": log2((1 + whole.flops) / (1 + moved)),
        "intensity_apart": log2((1 + whole.flops) / (1 + apart)),
    }


def _anchor(graph: Graph) -> dict[str, float]:
    """Sizes of the operator that does most of the work: those of its product, window or reduction."""
    main = max(graph.operators, key=lambda op: (flops(graph, op), -graph.position[op.name]))
    shapes = [graph.tensors[name].shape if name else () for name in main.inputs]
    out = graph.tensors[next(name for name in main.outputs if name)].shape
    last = graph.tensors[graph.outputs[0]].shape
    rows, columns, depth = _product(main, shapes, out)
    kernel, strides = _ints(main, "kernel_shape"), _ints(main, "strides")
    group = main.attributes.get("group", 1)
    first = prod(shapes[0]) if shapes else 1
    return {
        "rows": float(rows),
        "columns": float(columns),
        "depth": float(depth),
        "taps": float(prod(kernel)),
        "stride": float(prod(strides)),
        "grouped": float(isinstance(group, int) and group > 1),
        "reduction": float(_reduction(main, shapes, first, prod(out))),
        "chunks": float(_chunks(main, out, rows, columns)),
        "rank": float(len(last)),
        "inner_extent": float(last[-1] if last else 1),
    }


def _product(main: Operator, shapes: Sequence[tuple[int, ...]], out: tuple[int, ...]) -> tuple[int, int, int]:
    """Rows, columns and depth of a product (of a convolution: pixels, channels, channels x taps); else zeros."""
    if main.op_type == "Conv" and len(out) > 2:
        return out[0] * prod(out[2:]), out[1], prod(shapes[1][1:])
    if main.op_type in ("MatMul", "Gemm") and out and shapes[0]:
        transposed = main.op_type == "Gemm" and bool(main.attributes.get("transA", 0))
        return prod(out[:-1]), out[-1], shapes[0][0] if transposed else shapes[0][-1]
    return 0, 0, 0


def _reduction(main: Operator, shapes: Sequence[tuple[int, ...]], first: int, out: int) -> int:
    """Elements that make one result of a reduction or a row; 0 for what reduces nothing."""
    if main.op_type in ("Softmax", "LogSoftmax", "LayerNormalization", "RMSNormalization") and shapes[0]:
        return shapes[0][-1]
    return first // max(1, out) if reads_once(main) else 0


def _chunks(main: Operator, out: tuple[int, ...], rows: int, columns: int) -> int:
    """Parallel jobs that the default schedule makes of the main operator, roughly."""
    if main.op_type == "Conv" and len(out) > 2:
        lines = out[2] if len(out) > 3 else 1
        return out[0] * max(1, lines // 4) * max(1, columns // 16)
    if rows:
        return max(1, rows // 4) * max(1, columns // 16)
    return max(1, prod(out) // 4096)


def _layouts(workload: Workload) -> dict[str, float]:
    """Layouts of the tensors at the boundary, and bytes that change their order on the way through the kernel."""
    into = [workload.values[index] for index in workload.of_kind("input")]
    out = [workload.values[index] for index in workload.of_kind("output")]
    blocks = {value.block for value in out if len(value.shape) > 2}
    other = [value for value in into if len(value.shape) > 2 and blocks and value.block not in blocks]
    return {
        "blocked_inputs": float(sum(value.block > 0 for value in into)),
        "blocked_outputs": float(sum(value.block > 0 for value in out)),
        "converted_bytes": 4.0 * sum(prod(value.shape) for value in other),
    }


def _moved(facts: Mapping[str, float]) -> float:
    return facts["bytes_in"] + facts["bytes_constant"] + facts["bytes_out"]


def _ints(operator: Operator, name: str) -> tuple[int, ...]:
    value = operator.attributes.get(name, ())
    return tuple(int(item) for item in value) if isinstance(value, tuple) else ()


def _log(value: float) -> float:
    return log2(1.0 + value)


def _idle(chunks: float, threads: int) -> float:
    """Share of the threads' time that is lost because the chunks do not divide evenly."""
    rounds = -(-chunks // threads)
    return 1.0 - chunks / (rounds * threads)


def _waste(extent: float, lanes: int) -> float:
    """Share of the last vectors' lanes that compute nothing."""
    extent = max(1.0, extent)
    return 1.0 - extent / (-(-extent // lanes) * lanes)
