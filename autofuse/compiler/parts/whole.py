"""A model that our kernels cover whole, and that ONNX Runtime alone was measured to run faster."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from autofuse.compiler.context import Context
from autofuse.compiler.plan_ladder import FoundPlan
from autofuse.compiler.report import HIT
from autofuse.compiler.schedule_ladder import Found
from autofuse.environment.alone import alone_key, is_slower, newest_alone, told
from autofuse.errors import InputError
from autofuse.graph.model import Graph
from autofuse.kernels.lowering.lower import Lowered
from autofuse.segments.choice import Choice
from autofuse.segments.read import read_whole
from autofuse.values.arguments import Given


def where_alone_is_faster(
    context: Context, model: Path, given: Given, graph: Graph, plan: FoundPlan, kernels: Lowered,
    found: Mapping[str, Found],
) -> Choice | None:  # fmt: skip
    """All of the model in ONNX Runtime, where a race here says that these kernels are slower beyond doubt; else None.

    A tie, or no race of this very code on this kind of machine, leaves it to our kernels, and so does a device that is
    not this machine. InputError where the library must be complete.
    """
    environment = context.environment
    if plan.tier != HIT or context.policy.every_segment or context.device.address or not context.device.is_known:
        return None
    loads = {one.workload.key: one.workload for one in kernels.kernels}
    digests = [environment.codes.now(load, found[key].schedule) for key, load in loads.items()]
    key = alone_key(graph, plan.plan.key, digests)
    ratio = newest_alone(context.database, environment.setting, key)
    if ratio is None or not is_slower(ratio):
        return None
    if context.policy.require_complete:
        raise InputError(f"{model}: measured: {told(ratio)}; tune longer, or compile without --require-complete")
    return read_whole(model, given, f"measured: {told(ratio)}")
