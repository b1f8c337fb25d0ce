"""How fast a network could be at most on a machine: arithmetic at its peak rate, memory at its bandwidth."""

from __future__ import annotations

from dataclasses import dataclass

from autofuse.graph.cost import group_cost
from autofuse.graph.model import Graph


@dataclass(frozen=True)
class Demand:
    """`flops`: operations as the model states them; `bytes`: weights and inputs read once, outputs written once."""

    flops: int
    bytes: int


@dataclass(frozen=True)
class Rates:
    """What this machine reached in the same run, at the same number of threads: GFLOP/s of float32, GB/s of DRAM."""

    gflops: float
    dram_gbs: float


@dataclass(frozen=True)
class Limit:
    """Microseconds that arithmetic alone, and memory alone, would take."""

    compute_us: float
    memory_us: float

    @property
    def us(self) -> float:
        """The larger of the two."""
        return max(self.compute_us, self.memory_us)

    @property
    def bound(self) -> str:
        """Which of the two it is."""
        return "compute" if self.compute_us >= self.memory_us else "memory"


def demand_of(graph: Graph) -> Demand:
    """What no execution of `graph` can avoid, were it one kernel that computes each operator by its definition."""
    cost = group_cost(graph, [operator.name for operator in graph.operators])
    return Demand(cost.flops, cost.bytes_read + cost.bytes_written)


def limit_of(demand: Demand, rates: Rates) -> Limit:
    """The least time of a network on a machine; ValueError for a rate that is not positive."""
    if rates.gflops <= 0 or rates.dram_gbs <= 0:
        raise ValueError(f"rates must be positive, got {rates}")
    return Limit(demand.flops / rates.gflops / 1e3, demand.bytes / rates.dram_gbs / 1e3)
