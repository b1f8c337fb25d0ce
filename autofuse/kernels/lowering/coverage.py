"""Which operators of a graph have no kernel, and why: said before anything is tuned or built."""

from __future__ import annotations

from dataclasses import replace

from autofuse.errors import UncoveredError
from autofuse.fusion.plan import FusionPlan, Group
from autofuse.graph.loading.given.parameters import Parameters, types_of_tensors
from autofuse.graph.model import Graph
from autofuse.kernels.families.registry import is_own
from autofuse.kernels.importer.fallback import check_importable
from autofuse.kernels.importer.refusals import importer_refusal
from autofuse.kernels.lowering.lower import Lowered
from autofuse.kernels.workload.free_reshape import is_free_reshape
from autofuse.kernels.workload.workload import bind_workload

MOST_NAMED = 3


def without_kernel(graph: Graph, bare: bool = False) -> dict[str, str]:
    """Operator name -> why neither a kernel family nor TVM's importer covers it; empty when all is covered.

    `bare`: kernels must run without TVM's own runtime. Operators of our own families cost nothing to check; each other
    distinct one is imported by TVM once.
    """
    found: dict[str, str] = {}
    known: dict[str, str] = {}
    for operator in graph.operators:
        workload = bind_workload(graph, [operator.name], {}).workload
        if is_own(workload) or is_free_reshape(workload):
            continue
        if workload.key not in known:
            known[workload.key] = check_importable(workload, bare)
        if known[workload.key]:
            found[operator.name] = known[workload.key]
    return found


def with_checked_groups(plan: FusionPlan, lowered: Lowered) -> FusionPlan:
    """`plan` with the operators of each group apart that only TVM's importer covers, and was not checked for.

    What is ours alone may be what the importer gets wrong beside another operator. A group with a copy stays.
    """
    copies = {copy.name for copy in plan.copies}
    groups: list[Group] = []
    for group, bound in zip(plan.groups, lowered.groups, strict=True):
        whole = is_own(bound.workload) or is_free_reshape(bound.workload) or not copies.isdisjoint(group.operators)
        if whole or len(group.operators) == 1 or importer_refusal(bound.workload) is None:
            groups.append(group)
        else:
            groups += [Group((name,)) for name in group.operators]
    return replace(plan, groups=tuple(groups))


def require_kernels(graph: Graph, bare: bool = False) -> None:
    """UncoveredError that names the operators which have no kernel; `bare`: see `without_kernel`."""
    missing = without_kernel(graph, bare)
    if missing:
        named = [f"{graph.by_name[name].op_type} {name!r} ({reason})" for name, reason in missing.items()]
        more = f", and {len(named) - MOST_NAMED} more" if len(named) > MOST_NAMED else ""
        types = types_of_tensors(graph.tensors[name] for name in graph.inputs)
        parameters = Parameters([graph.by_name[name] for name in missing], types, graph.constants)
        advice = parameters.hint_of_all() or "replace these operators in the model, or cut the model before them"
        raise UncoveredError(f"{graph.name}: no kernel can be made for {'; '.join(named[:MOST_NAMED])}{more}: {advice}")
