"""What each contraction takes in float32 and in int8: by the profiling database, else by a stated estimate."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from autofuse.database.ask.devices import probed_rates
from autofuse.database.database import ProfilingDatabase
from autofuse.device.target import Target
from autofuse.environment.environment import Environment
from autofuse.environment.plan_evidence import known_pieces, lowered_plans
from autofuse.fusion.evidence import LAUNCH_US
from autofuse.fusion.plan import NO_LIMITS, FusionPlan
from autofuse.fusion.planner.baselines import default_plan
from autofuse.graph.cost import flops, operator_cost
from autofuse.graph.key import graph_key
from autofuse.graph.loading.load import from_model
from autofuse.graph.loading.simplify.quantized.products import NARROW_GROUP
from autofuse.graph.model import Graph, Operator
from autofuse.graph.submodel import to_model
from autofuse.graph.transform.quantize.sites import CONTRACTIONS, Site, Sites
from autofuse.kernels.families.narrow.instructions import multipliers
from autofuse.kernels.lowering.lower import Lowering
from autofuse.search.composition.precisions import Cast

MEASURED, DOUBTED, ESTIMATED = "measured", "measured, not trusted", "estimated"
_INTEGERS = frozenset({"ConvInteger", "MatMulInteger"})
_NOMINAL_GHZ, _NOMINAL_GBS = 2.5, 10.0
"""Of a core whose rates nobody has probed: two multiply-adds a cycle, and what memory gives."""
_ADVANTAGE = {"quads": 4.0, "pairs": 2.0, "single": 1.0}
"""Products of bytes in the time of one of float32, by the instruction that a target has."""


@dataclass(frozen=True)
class ContractionTime:
    """What the kernel of one contraction takes, and how both times are known: in one of the words above."""

    float_us: float
    int8_us: float
    float_known: str
    int8_known: str

    @property
    def saved_us(self) -> float:
        """What multiplying integers takes off; below 0: what it costs."""
        return self.float_us - self.int8_us

    @property
    def known(self) -> str:
        """How both times are known, in a few words."""
        words = {self.float_known, self.int8_known}
        if ESTIMATED in words:
            return ESTIMATED if words == {ESTIMATED} else "measured in part"
        return DOUBTED if DOUBTED in words else MEASURED


@dataclass(frozen=True)
class _Known:
    """A time that the database has."""

    us: float
    trusted: bool


class Costs:
    """Times of the contractions of a model at one place."""

    def __init__(self, sites: Sites, base: ProfilingDatabase, environment: Environment) -> None:
        self._sites, self._base, self._environment = sites, base, environment
        self._rates = _rates(base, environment)
        ways = multipliers(environment.target)
        self._advantage = _ADVANTAGE.get(next(iter(ways)), 1.0)

    def times(self, given: Graph, bytes_graph: Graph) -> dict[str, ContractionTime]:
        """Of each site. `given`: the model as it came; `bytes_graph`: with every site in int8."""
        known = self._known(given)
        fast = {_origin(name): time for name, time in self._known(_loaded(bytes_graph)).items()}
        return {site.name: self._time(site, known.get(site.name), fast.get(site.name)) for site in self._sites.usable}

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

    def _time(self, site: Site, real: _Known | None, fast: _Known | None) -> ContractionTime:
        """What is known, and what is estimated of the other: in the proportion of both estimates."""
        guess, fast_guess = self._estimates(site)
        real_us = real.us if real else (guess if fast is None else fast.us * guess / fast_guess)
        fast_us = fast.us if fast else (fast_guess if real is None else real.us * fast_guess / guess)
        words = [ESTIMATED if time is None else MEASURED if time.trusted else DOUBTED for time in (real, fast)]
        return ContractionTime(real_us, fast_us, *words)

    def _estimates(self, site: Site) -> tuple[float, float]:
        """Microseconds in float32 and in int8: the longer of arithmetic and memory, and a call."""
        graph, (gflops, gbs) = self._sites.graph, self._rates
        operator = graph.by_name[site.name]
        cost = operator_cost(graph, operator)
        arithmetic, memory = cost.flops / gflops * 1e-3, (cost.bytes_read + cost.bytes_written) / gbs * 1e-3
        advantage = 1.0 if self._is_narrow(operator) else self._advantage
        return max(arithmetic, memory) + LAUNCH_US, max(arithmetic / advantage, memory / 4) + LAUNCH_US

    def _is_narrow(self, operator: Operator) -> bool:
        """Whether the integers of a convolution are multiplied as numbers: those of few channels in each group are."""
        groups = operator.attributes.get("group", 1)
        assert isinstance(groups, int)
        channels = self._sites.graph.tensors[operator.inputs[1]].shape[0]
        return operator.op_type == "Conv" and groups > 1 and channels // groups < NARROW_GROUP

    def _known(self, graph: Graph) -> dict[str, _Known]:
        """Best time of each contraction's kernel that the database has; of a kernel with several, its part by FLOPs."""
        if self._base.location.path is None or not self._base.location.path.exists():
            return {}
        stored = self._base.best_plan(self._environment.setting, graph_key(graph))
        plans = [default_plan(graph), *([] if stored is None else [FusionPlan.from_json(stored.plan)])]
        lowered = lowered_plans(Lowering(graph, self._environment.target), plans)
        pieces = known_pieces(graph, lowered, self._base, self._environment.setting, NO_LIMITS)
        found: dict[str, _Known] = {}
        for piece in pieces:
            inside = [name for name in piece.covers if _contracts(graph, name)]
            total = sum(flops(graph, graph.by_name[name]) for name in inside)
            for name in inside if piece.span is not None and total else ():
                assert piece.span is not None
                part = flops(graph, graph.by_name[name]) / total
                time = _Known(piece.span.us * part, piece.span.trusted)
                found[name] = min(time, found.get(name, time), key=lambda one: one.us)
        return found


def _contracts(graph: Graph, name: str) -> bool:
    return name in graph.by_name and graph.by_name[name].op_type in CONTRACTIONS | _INTEGERS


def _origin(name: str) -> str:
    """The contraction that a product of integers stands for: what the loader writes has a word behind its name."""
    return name.rpartition("/")[0] if name.endswith(("/sums", "/exact")) else name


def _loaded(graph: Graph) -> Graph:
    """A graph as it is read from a file: with its products of integers."""
    return from_model(to_model(graph), graph.name)


def _rates(base: ProfilingDatabase, environment: Environment) -> tuple[float, float]:
    """GFLOPS and GB/s of the place: as a run or the profile has them, else nominal ones."""
    threads, profile = environment.setting.threads, environment.profile
    with base.reading() as sql:
        found: Mapping[str, object] | None = probed_rates(sql).get((environment.setting.device, threads))
    if not found and profile.rates is not None and profile.rates.threads == threads:
        found = profile.rates.model_dump()
    known = [float(str(found[name])) for name in ("gflops_n", "dram_gbs_n")] if found else []
    return (known[0], known[1]) if all(known) and known else _nominal(environment.target, threads)


def _nominal(target: Target, threads: int) -> tuple[float, float]:
    return 4.0 * target.lanes * _NOMINAL_GHZ * threads, _NOMINAL_GBS
