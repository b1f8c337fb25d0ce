"""The roofline of each group of a choice: how near it comes to what its machine can do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import pandas as pd

from autofuse.errors import AutofuseError
from autofuse.graph.cost import Cost
from autofuse.kernels.workload.as_graph import workload_cost
from autofuse.kernels.workload.free_reshape import is_free_reshape
from autofuse.kernels.workload.workload import Workload

if TYPE_CHECKING:
    from autofuse.database.database import ProfilingDatabase

ROOFLINE = ("flops", "bytes", "handed_bytes", "gflops", "gbs", "peak_share", "bandwidth_share")


def with_roofline(database: ProfilingDatabase, groups: pd.DataFrame) -> pd.DataFrame:
    """`groups` with `ROOFLINE`: operations and bytes by definition, rates by `median_us`, shares of what was probed."""
    costs = _costs(database, groups["workload_key"].unique())
    flops, moved, handed = (
        groups["workload_key"].map({key: of(cost) for key, cost in costs.items()}).astype("float64")
        for of in (_flops, _bytes, _handed)
    )
    seconds = groups["median_us"].astype("float64") / 1e6
    peak, bandwidth = (groups["run_id"].map(_probed(database, name)).astype("float64") for name in PROBED)
    gflops, gbs = flops / seconds / 1e9, moved / seconds / 1e9
    return groups.assign(
        flops=flops, bytes=moved, handed_bytes=handed, gflops=gflops, gbs=gbs,
        peak_share=gflops / peak, bandwidth_share=gbs / bandwidth,
    )  # fmt: skip


PROBED = ("gflops_n", "dram_gbs_n")
"""Peak rates of all threads, see `autofuse.measure.machine.MachineRates`."""


def _probed(database: ProfilingDatabase, name: str) -> dict[object, float]:
    """The rate called `name` of each run that has it."""
    found = {}
    for row in database.table("runs").records():
        provenance = row["provenance"]
        rates = provenance.get("rates") if isinstance(provenance, Mapping) else None
        if isinstance(rates, Mapping) and isinstance(rates.get(name), int | float):
            found[row["run_id"]] = float(rates[name])
    return found


_Costs = tuple[Cost, Cost]
"""What a workload costs with its weights and without; the second is nothing where it is a view, and no kernel."""


def _flops(costs: _Costs) -> int:
    return costs[0].flops


def _bytes(costs: _Costs) -> int:
    return costs[0].bytes_read + costs[0].bytes_written


def _handed(costs: _Costs) -> int:
    return costs[1].bytes_read + costs[1].bytes_written


def _costs(database: ProfilingDatabase, keys: Iterable[str]) -> dict[str, _Costs]:
    """What each workload costs by the definition of its operators; one that cannot be read has none."""
    found = {}
    for key, text in database.workload_texts(keys).items():
        try:
            workload = Workload.from_text(text)
            handed = Cost(0, 0, 0) if is_free_reshape(workload) else workload_cost(workload, weights=False)
            found[key] = workload_cost(workload), handed
        except (AutofuseError, ValueError, TypeError, KeyError, IndexError, AttributeError):
            continue  # a workload of another version: no cost is better than a wrong one
    return found
