"""What each contraction takes in each precision: by the profiling database, else by a stated estimate."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import hypot

from autofuse.database.database import ProfilingDatabase
from autofuse.device.target import Target
from autofuse.environment.environment import Environment
from autofuse.environment.plan_evidence import known_pieces, lowered_plans
from autofuse.environment.rates import known_rates
from autofuse.fusion.evidence import LAUNCH_US, GroupTime
from autofuse.fusion.plan import NO_LIMITS, FusionPlan
from autofuse.fusion.planner.baselines import default_plan
from autofuse.graph.cost import Cost, flops, operator_cost
from autofuse.graph.key import graph_key
from autofuse.graph.loading.load import from_model
from autofuse.graph.loading.simplify.quantized.products import NARROW_GROUP
from autofuse.graph.model import Graph, Operator
from autofuse.graph.own.names import BFLOAT16_CONTRACTIONS as ROUNDED
from autofuse.graph.own.weight_only import OP_TYPE as WEIGHT_ONLY
from autofuse.graph.submodel import to_model
from autofuse.graph.transform.quantize.levels import BLOCK
from autofuse.graph.transform.quantize.sites import BF16, CONTRACTIONS, INT8, WEIGHT_BITS, Site, Sites
from autofuse.kernels.families.narrow.instructions import bfloat16_multipliers, multipliers
from autofuse.kernels.lowering.lower import Lowering
from autofuse.precision.choices import Cast
from autofuse.precision.names import FLOAT

MEASURED, DOUBTED, ESTIMATED = "measured", "measured, not trusted", "estimated"
LEAST_GAIN = 0.02
"""Part of a contraction's time in float32 that another precision has to save at least."""
_NARROW = frozenset({"ConvInteger", "MatMulInteger", WEIGHT_ONLY, *ROUNDED.values()})
_NOMINAL_GHZ, _NOMINAL_GBS = 2.5, 10.0
"""Of a core whose rates nobody has probed: two multiply-adds a cycle, and what memory gives."""
_ADVANTAGE = {
    INT8: {"matrices": 8.0, "quads": 4.0, "pairs": 2.0, "single": 1.0},
    BF16: {"matrices": 4.0, "dots": 2.0, "widened": 1.0},
}
"""Narrow products in the time of one of float32, by the instruction that a target has."""
_UNPACKING = 4.0
"""Operations of float32 in the time in which a weight becomes one."""
_WINOGRAD = 2.25
"""Products of a convolution that Winograd's transforms save in float32, in parts of those that are left (2x2 tiles),"""
_TRANSFORMED, _SHARED = 4.0, 4
"""Numbers of its transformed weights (4x4 tiles: 36 of 9) in parts of the weights, and what a core has of a shared
cache in parts of its own: what exceeds that was pushed out by the rest of the network, and comes from memory each time,
"""
_FILLED = 16
"""where as many channels as this fill vectors."""


@dataclass(frozen=True)
class ContractionTime:
    """What the kernel of one contraction takes in each precision, and how that is known: in one of the words above."""

    spans: Mapping[str, GroupTime]
    words: Mapping[str, str]

    @property
    def us(self) -> Mapping[str, float]:
        """Microseconds in each precision."""
        return {kind: span.us for kind, span in self.spans.items()}

    def saved_us(self, kind: str) -> float:
        """What a precision takes off; below 0: what it costs."""
        return self.spans[FLOAT].us - self.spans[kind].us

    def doubt_us(self, kind: str) -> float:
        """What noise may have made of that: the half of its 95 % interval that is towards no gain, and at least
        `LEAST_GAIN` of the time in float32."""
        real, narrow = self.spans[FLOAT], self.spans[kind]
        return max(hypot(real.us - real.lo, narrow.hi - narrow.us), LEAST_GAIN * real.us)

    def is_faster(self, kind: str) -> bool:
        """Whether a precision is faster than float32 beyond doubt."""
        return self.saved_us(kind) > self.doubt_us(kind)

    def counted_us(self, kind: str) -> float:
        """What a precision takes off where sets are compared: of a gain in doubt, the lower end, because a tie goes to
        float32."""
        return self.saved_us(kind) - (0.0 if self.is_faster(kind) else self.doubt_us(kind))

    @property
    def nearest(self) -> str:
        """The precision besides float32 that takes off most; faster beyond doubt, if any is."""
        return max((kind for kind in self.spans if kind != FLOAT), key=self.counted_us)

    @property
    def known(self) -> str:
        """How all times are known, in a few words."""
        words = set(self.words.values())
        if ESTIMATED in words:
            return ESTIMATED if words == {ESTIMATED} else "measured in part"
        return DOUBTED if DOUBTED in words else MEASURED


class Costs:
    """Times of the contractions of a model at one place."""

    def __init__(self, sites: Sites, base: ProfilingDatabase, environment: Environment) -> None:
        self._sites, self._base, self._environment = sites, base, environment
        probed = known_rates(base, environment)
        self._rates = _rates(probed, environment)
        target = environment.target
        ways = {INT8: multipliers(target), BF16: bfloat16_multipliers(target)}
        self._advantage = {precision: _ADVANTAGE[precision][next(iter(found))] for precision, found in ways.items()}
        dots = _dots_advantage(probed)
        if dots is not None and "dots" in ways[BF16]:
            self._advantage[BF16] = dots

    def times(self, given: Graph, narrow: Mapping[str, Graph]) -> dict[str, ContractionTime]:
        """Of each site. `given`: the model as it came; `narrow`: with every site in a precision, by its name."""
        known = {FLOAT: self._known(given)}
        for precision, graph in narrow.items():
            found = self._known(_loaded(graph))
            known[precision] = {_origin(name): time for name, time in found.items()}
        return {site.name: self._time(site, known) for site in self._sites.usable}

    def casts(self) -> list[Cast]:
        """What it takes to make bytes of each tensor that no contraction of bytes makes.

        Of what is computed, the kernel that computes it writes them; inputs of the model take a kernel of their own.
        """
        graph, made = self._sites.graph, self._sites.made_by
        moved = {name: 1 if name in graph.producers else 5 for name in self._sites.tensors}
        return [
            Cast(name, count * graph.tensors[name].elements / self._rates[1] * 1e-3, made.get(name, ""))
            for name, count in moved.items()
        ]

    def _time(self, site: Site, known: Mapping[str, Mapping[str, GroupTime]]) -> ContractionTime:
        """What is known, and what is estimated of the others: in the proportion of the estimates."""
        found = {kind: known[kind][site.name] for kind in (FLOAT, *site.precisions) if site.name in known[kind]}
        estimates = self._estimates(site)
        scale = next((time.us / estimates[kind] for kind, time in found.items()), 1.0)
        spans = {kind: GroupTime(us * scale, us * scale, us * scale) for kind, us in estimates.items()} | found
        words = {kind: MEASURED if time.trusted else DOUBTED for kind, time in found.items()}
        return ContractionTime(spans, dict.fromkeys(spans, ESTIMATED) | words)

    def _estimates(self, site: Site) -> dict[str, float]:
        """Microseconds in each precision: the longer of arithmetic and memory, and a call."""
        graph, (gflops, gbs) = self._sites.graph, self._rates
        operator = graph.by_name[site.name]
        cost = operator_cost(graph, operator)
        arithmetic, memory = cost.flops / gflops * 1e-3, (cost.bytes_read + cost.bytes_written) / gbs * 1e-3
        real = self._by_winograd(site, arithmetic) if _has_winograd(graph, operator) else arithmetic
        found = {FLOAT: max(real, memory) + LAUNCH_US}
        for precision in site.precisions:
            if precision in WEIGHT_BITS:
                unpacking = graph.tensors[site.weights].elements * _UNPACKING / gflops * 1e-3
                products = arithmetic + unpacking
            else:
                products = arithmetic / (1.0 if self._is_narrow(operator) else self._advantage[precision])
            moved = memory / 4 if precision == INT8 else self._moved(site, cost, precision) / gbs * 1e-3
            found[precision] = max(products, moved) + LAUNCH_US
        return found

    def _by_winograd(self, site: Site, arithmetic: float) -> float:
        """Microseconds of a convolution by Winograd's transforms; `arithmetic`: without."""
        weights = self._sites.graph.tensors[site.weights].size_bytes * _TRANSFORMED
        far = weights > _SHARED * self._environment.target.l2_bytes
        return arithmetic / _WINOGRAD + (weights / self._rates[1] * 1e-3 if far else 0.0)

    def _moved(self, site: Site, cost: Cost, precision: str) -> float:
        """Bytes that a contraction moves in bfloat16, where products write float32, or with weights that alone are
        narrow, scales of blocks included."""
        if precision == BF16:
            return cost.bytes_read / 2 + cost.bytes_written / (2 if site.op_type == "Conv" else 1)
        weights, bits = self._sites.graph.tensors[site.weights].size_bytes, WEIGHT_BITS[precision]
        return cost.bytes_read + cost.bytes_written - weights * (1 - bits / 32 - 1 / BLOCK[bits])

    def _is_narrow(self, operator: Operator) -> bool:
        """Whether the integers of a convolution are multiplied as numbers: those of few channels in each group are."""
        groups = operator.attributes.get("group", 1)
        assert isinstance(groups, int)
        channels = self._sites.graph.tensors[operator.inputs[1]].shape[0]
        return operator.op_type == "Conv" and groups > 1 and channels // groups < NARROW_GROUP

    def _known(self, graph: Graph) -> dict[str, GroupTime]:
        """Best time of each contraction's kernel that the database has; of a kernel with several, its part by FLOPs."""
        if self._base.location.path is None or not self._base.location.path.exists():
            return {}
        stored = self._base.best_plan(self._environment.setting, graph_key(graph))
        plans = [default_plan(graph), *([] if stored is None else [FusionPlan.from_json(stored.plan)])]
        lowered = lowered_plans(Lowering(graph, self._environment.target), plans)
        pieces = known_pieces(graph, lowered, self._base, self._environment.setting, NO_LIMITS)
        found: dict[str, GroupTime] = {}
        for piece in pieces:
            inside = [name for name in piece.covers if _contracts(graph, name)]
            total = sum(flops(graph, graph.by_name[name]) for name in inside)
            for name in inside if piece.span is not None and total else ():
                assert piece.span is not None
                part, span = flops(graph, graph.by_name[name]) / total, piece.span
                time = GroupTime(span.us * part, span.lo * part, span.hi * part, span.trusted)
                found[name] = min(time, found.get(name, time), key=lambda one: one.us)
        return found


def _contracts(graph: Graph, name: str) -> bool:
    return name in graph.by_name and graph.by_name[name].op_type in CONTRACTIONS | _NARROW


def _has_winograd(graph: Graph, operator: Operator) -> bool:
    """Whether a convolution in float32 may go by Winograd's transforms: 3x3 taps of stride 1, and enough channels."""
    if operator.op_type != "Conv" or operator.attributes.get("group", 1) != 1:
        return False
    weights = graph.tensors[operator.inputs[1]].shape
    steps = {operator.attributes.get(name, (1, 1)) for name in ("strides", "dilations")}
    return weights[2:] == (3, 3) and steps == {(1, 1)} and min(weights[:2]) >= _FILLED


def _origin(name: str) -> str:
    """The contraction that a narrow product stands for: what the loader writes has a word behind its name."""
    return name.rpartition("/")[0] if name.endswith(("/sums", "/exact", "/product")) else name


def _loaded(graph: Graph) -> Graph:
    """A graph as it is read from a file: with its narrow products."""
    return from_model(to_model(graph), graph.name)


def _rates(probed: Mapping[str, object], environment: Environment) -> tuple[float, float]:
    """GFLOPS and GB/s of the place: as probed, else nominal ones."""
    known = [float(str(probed[name])) for name in ("gflops_n", "dram_gbs_n")] if probed else []
    threads = environment.setting.threads
    return (known[0], known[1]) if all(known) and known else _nominal(environment.target, threads)


def _dots_advantage(probed: Mapping[str, object]) -> float | None:
    """Products of bfloat16 by its instruction in the time of one of float32, as probed, at least those of widened
    numbers; None where nobody probed that."""
    dots, real = (float(str(probed.get(name, 0.0))) for name in ("dots_gflops_1", "gflops_1"))
    return max(dots / real, _ADVANTAGE[BF16]["widened"]) if dots and real else None


def _nominal(target: Target, threads: int) -> tuple[float, float]:
    return 4.0 * target.lanes * _NOMINAL_GHZ * threads, _NOMINAL_GBS
