"""The plans that have a name, and those in files: what `--plan` means without a database."""

from __future__ import annotations

import re
from pathlib import Path

from autofuse.errors import InputError, PlanError
from autofuse.fusion.legality import check_plan
from autofuse.fusion.plan import NO_LIMITS, FusionPlan, ScheduleLimits, read_plan
from autofuse.fusion.planner import baselines
from autofuse.graph.model import Graph
from autofuse.values.names import TVM_PARTITION, plan_name
from autofuse.values.outputs import read_text

NAMES = ("none", TVM_PARTITION, "dnnfusion", "default", "always")
"""No fusion; TVM's own partition with our kernels; the paper's algorithm; the answers where nothing is measured; all
legal fusion."""


def named_plan(graph: Graph, plan: str) -> FusionPlan:
    """The plan of `graph` called `plan` (one of `NAMES`), or the one in the JSON file at that path.

    InputError for a name that is neither; PlanError when the file holds no legal plan of this graph.
    """
    return limited_plan(graph, plan)[0]


def plans_of_ranges(asked: str) -> list[tuple[str, int | None]]:
    """The plans that one text asks for, each with the largest product of the open sizes for which it is taken.

    "none@64,default": the plan none up to 64, above that the default one. None for the last one, and for a single one
    without such an end. InputError where the ends do not grow, or the last plan has one.
    """
    parts = asked.split(",")
    found = [re.fullmatch(r"(.+)@([0-9]{1,18})", part) for part in parts]
    if not any(found[:-1]):
        return [(asked, None)]
    ends = [int(one[2]) for one in found[:-1] if one is not None]
    if found[-1] or len(ends) < len(found) - 1 or ends != sorted(set(ends)):
        raise InputError(
            f"--plan: {asked!r}: allowed are plans with growing ends and one without behind them: none@64,default"
        )
    return [*((one[1], int(one[2])) for one in found[:-1] if one is not None), (parts[-1], None)]


def limited_plan(graph: Graph, plan: str) -> tuple[FusionPlan, ScheduleLimits]:
    """The `named_plan`, with the limits that stand beside it in its file."""
    if plan_name(plan) == TVM_PARTITION:
        from autofuse.backend.tvm.partition import tvm_plan

        return tvm_plan(graph), NO_LIMITS
    makers = {
        "none": baselines.none_plan,
        "dnnfusion": baselines.dnnfusion_plan,
        "default": baselines.default_plan,
        "always": baselines.always_plan,
    }
    if plan in makers:
        return makers[plan](graph), NO_LIMITS
    return plan_in_file(graph, Path(plan))


def plan_in_file(graph: Graph, path: Path) -> tuple[FusionPlan, ScheduleLimits]:
    """The plan in a file, checked against `graph`, and the limits beside it."""
    try:
        text = read_text(path)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        allowed = ", ".join((*NAMES, "best"))
        raise InputError(f"--plan: {str(path)!r}: {reason}; allowed: {allowed}, or the path of a plan file") from error
    try:
        plan, limits = read_plan(text)
        check_plan(graph, plan)
    except PlanError as error:
        raise PlanError(f"{path}: {error}") from error
    return plan, limits
