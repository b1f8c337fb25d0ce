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
from autofuse.kernels.emission import Emission
from autofuse.kernels.lowering.lower import Lowered
from autofuse.kernels.tir.digest import digest
from autofuse.segments.choice import Choice
from autofuse.segments.read import read_whole
from autofuse.values.arguments import Given
from autofuse.values.ratios import Ratio


def raced_alone(
    context: Context, graph: Graph, plan: FoundPlan, kernels: Lowered, found: Mapping[str, Found], emission: Emission
) -> Ratio | None:
    """ONNX Runtime's time over that of these kernels, as `emission` has them, in their newest race here.

    None where there was no race of this very code with this version of ONNX Runtime on this kind of machine, and for a
    device that is not this machine.
    """
    environment = context.environment
    if plan.tier != HIT or context.device.address or not context.device.is_known:
        return None
    loads = {one.workload.key: one.workload for one in kernels.kernels}
    codes = [emission.code(load, found[key].schedule) for key, load in loads.items()]
    digests = [digest(code, environment.target, environment.versions) for code in codes]
    key = alone_key(graph, plan.plan.key, digests, environment.provenance.onnxruntime)
    return newest_alone(context.database, environment.setting, key)


def where_alone_is_faster(context: Context, model: Path, given: Given, ratio: Ratio | None) -> Choice | None:
    """All of the model in ONNX Runtime, where a race says that our kernels are slower beyond doubt; else None.

    A tie, or no race (see `raced_alone`), leaves it to our kernels. InputError where the library must be complete.
    """
    if ratio is None or context.policy.every_segment or not is_slower(ratio):
        return None
    if context.policy.require_complete:
        raise InputError(f"{model}: measured: {told(ratio)}; tune longer, or compile without --require-complete")
    return read_whole(model, given, f"measured: {told(ratio)}")
