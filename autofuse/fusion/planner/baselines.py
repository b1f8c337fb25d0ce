"""Fixed plans to compare with: no fusion, all fusion, the paper's algorithm, this project's defaults.

TVM's own partition is `autofuse.backend.tvm.partition.tvm_plan`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from math import prod

from autofuse.fusion.edges import Edge, Edges
from autofuse.fusion.legality import Legality, ordered_groups
from autofuse.fusion.plan import FusionPlan, Group
from autofuse.fusion.planner.growth import GrowingGroup, partition
from autofuse.fusion.planner.questions import KEEP
from autofuse.fusion.planner.rewriting import RewritingPlanner, decision_name
from autofuse.fusion.relation import Relation, combined, relation
from autofuse.fusion.skeleton import skeleton
from autofuse.fusion.space import FusionSpace
from autofuse.graph.cost import written_bytes
from autofuse.graph.mapping import MappingType, mapping_type
from autofuse.graph.model import Graph
from autofuse.graph.transform.fold import fold_sites
from autofuse.rewrite.rule import Kind, Match
from autofuse.rewrite.rules.algebra import product_with_repeated
from autofuse.rewrite.rules.transposed import transposed_convolution_by_places

PRODUCTS = frozenset({"MatMul", "Gemm"})


def none_plan(graph: Graph) -> FusionPlan:
    """No fusion and no folding: every operator is a kernel."""
    return FusionPlan(tuple(Group((operator.name,)) for operator in graph.operators))


def always_plan(graph: Graph, space: FusionSpace | None = None) -> FusionPlan:
    """Fuse whatever may be fused: every BatchNorm folded, edges merged in topological order wherever that is legal.

    The other end of `none_plan`: what a compiler would do that believed in fusion without measuring.
    """
    folds = tuple(sorted(fold_sites(graph)))
    realised = skeleton(graph, folds)
    legality = Legality(realised, (space or FusionSpace()).max_group_operators)
    reach = legality.reach
    owner = {operator.name: operator.name for operator in realised.operators}
    members = {operator.name: [operator.name] for operator in realised.operators}
    for consumer in realised.operators:
        for producer in realised.predecessors(consumer):
            above, below = owner[producer.name], owner[consumer.name]
            if above != below and legality.may_merge(reach.mask(members[above]), reach.mask(members[below])):
                members[above] += members.pop(below)
                owner.update(dict.fromkeys(members[above], above))
                legality.settle(reach.mask(members[above]))
    return FusionPlan(ordered_groups(realised, members.values()), folds)


def default_plan(graph: Graph, space: FusionSpace | None = None) -> FusionPlan:
    """What is done when nothing has been measured: rewritten as the paper does, then the planner's default answers."""
    return RewritingPlanner(graph, space).plan({})


OpenAxes = Callable[[str], Collection[int]]
"""The axes of a tensor that have an open size."""
_NORMS = frozenset({"LayerNormalization", "RMSNormalization"})
_SOFTMAXES = frozenset({"LogSoftmax", "Softmax"})


def plan_of_rows(graph: Graph, space: FusionSpace, least_bytes: int, open_axes: OpenAxes | None = None) -> FusionPlan:
    """The default plan of a graph whose rows stay open; see `planner_of_rows`."""
    return planner_of_rows(graph, space, least_bytes, open_axes).plan({})


def planner_of_rows(
    graph: Graph, space: FusionSpace, least_bytes: int, open_axes: OpenAxes | None = None
) -> RewritingPlanner:
    """The planner of a graph whose rows stay open. By default products of one tensor stay apart where their weights
    have so many bytes: each writes its rows where they belong, and reads its weights once for all of them, while a
    Split behind one product of all would be computed some rows at a time, and so would that product. Heads that share
    keys stay heads, of which the kernel of an open attention takes one at a time. A norm or a softmax along an open
    axis stays the steps that it is written as: their reductions have kernels, and one operator for all has none. So
    does a transposed convolution, whose places between two elements would be an axis beside the open one, and what puts
    the open axis of an input or output in front."""
    planner = RewritingPlanner(graph, space)
    merged = (one for one in planner.matches if one.rule.kind == Kind.MERGE and one.rule.roots <= PRODUCTS)
    apart = {decision_name(one): KEEP for one in merged if _weight_bytes(one) >= least_bytes}
    apart |= {decision_name(one): KEEP for one in planner.matches if one.rule is product_with_repeated}
    planner = RewritingPlanner(graph, space, apart) if apart else planner
    # What is left of one norm may be read as another, and heads may share keys behind a rewrite only.
    while open_axes is not None:
        met = (
            one
            for one in planner.met
            if one.rule is product_with_repeated
            or _is_along(one, graph, open_axes)
            or _takes_turn(one, graph, open_axes)
        )
        mixing = set(map(decision_name, met))
        if mixing <= apart.keys():
            break
        apart |= dict.fromkeys(mixing, KEEP)
        planner = RewritingPlanner(graph, space, apart)
    return planner


def _takes_turn(found: Match, graph: Graph, open_axes: OpenAxes) -> bool:
    """Whether a rewrite takes a Transpose away that puts the open axis of an input in front, or that of an output
    behind others: what it stands beside would have the size there."""
    made = {name for operator in found.change.added for name in operator.outputs}
    gone = {*found.change.removed, *(graph.producers[name].name for name in made & graph.producers.keys())}
    for operator in (graph.by_name[name] for name in gone & graph.by_name.keys()):
        if operator.op_type != "Transpose":
            continue
        read, turned = operator.inputs[0], operator.outputs[0]
        given = read in graph.inputs and list(open_axes(turned)) == [0] and _is_behind(graph, read, open_axes)
        if given or (turned in graph.outputs and list(open_axes(read)) == [0] and _is_behind(graph, turned, open_axes)):
            return True
    return False


def _is_behind(graph: Graph, name: str, open_axes: OpenAxes) -> bool:
    """Whether a tensor has its open axis behind others of more than one place."""
    axes, shape = list(open_axes(name)), graph.tensors[name].shape
    return len(axes) == 1 and prod(shape[: axes[0]]) > 1


def _is_along(found: Match, graph: Graph, open_axes: OpenAxes) -> bool:
    """Whether a rewrite makes a norm or a softmax of what stands along an open axis, or axes of places beside one."""
    places = found.rule is transposed_convolution_by_places
    for operator in found.change.added:
        x = operator.inputs[0] if operator.inputs else ""
        if x not in graph.tensors or not (operator.op_type in _NORMS | _SOFTMAXES or places):
            continue
        rank, first = len(graph.tensors[x].shape), operator.attributes.get("axis", -1)
        assert isinstance(first, int)
        from_axis = 2 if places else first % rank
        last = from_axis if operator.op_type in _SOFTMAXES else rank - 1
        if any(from_axis <= axis <= last for axis in open_axes(x)):
            return True
    return False


def _weight_bytes(found: Match) -> int:
    """Bytes of the constants that a rewrite makes."""
    return sum(tensor.size_bytes for name, tensor in found.change.tensors.items() if name in found.change.made)


def dnnfusion_plan(graph: Graph, space: FusionSpace | None = None) -> FusionPlan:
    """The paper's Listing 1 as printed, every yellow cell accepted, every BatchNorm folded.

    Seeds are one-to-one operators, the smallest result first; a group grows along successors, then
    predecessors, by Table 3 on the paper's mapping types; what no seed reaches stays alone. The paper
    folds BatchNormalization by its rewriting stage, before planning. Its listing has no convexity
    check: pairs that close a cycle are refused here, since no kernels could run them.
    """
    folds = tuple(sorted(fold_sites(graph)))
    realised = skeleton(graph, folds)
    legality = Legality(realised, (space or FusionSpace()).max_group_operators)
    policy = _PaperPolicy(realised)
    groups = partition(Edges(realised), legality, policy, policy.seeds())
    covered = {name for group in groups for name in group}
    groups += [(operator.name,) for operator in realised.operators if operator.name not in covered]
    return FusionPlan(ordered_groups(realised, groups), folds)


class _PaperPolicy:
    """Table 3 on whole operators: see `autofuse.fusion.planner.growth.Policy`."""

    repeats = False

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.types = {operator.name: mapping_type(graph, operator) for operator in graph.operators}

    def seeds(self) -> list[str]:
        """One-to-one operators by the size of their result."""

        def size(name: str) -> tuple[int, int]:
            return written_bytes(self.graph, self.graph.by_name[name]), self.graph.position[name]

        return sorted((name for name, kind in self.types.items() if kind == MappingType.ONE_TO_ONE), key=size)

    def own(self, name: str) -> MappingType:
        return self.types[name]

    def below(self, group: GrowingGroup, edge: Edge) -> MappingType | None:
        return self._fused(group.kind, self.types[edge.consumer])

    def above(self, group: GrowingGroup, edge: Edge) -> MappingType | None:
        return self._fused(self.types[edge.producer], group.kind)

    def climbing(self, edges: Sequence[Edge]) -> Iterable[Edge]:
        return edges

    @staticmethod
    def _fused(producer: MappingType, consumer: MappingType) -> MappingType | None:
        return None if relation(producer, consumer) == Relation.BREAK else combined(producer, consumer)
