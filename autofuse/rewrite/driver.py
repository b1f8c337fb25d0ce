"""Finding matches, choosing among them, rewriting: the fixpoint that the paper calls greedy, with every choice open."""

from __future__ import annotations

import hashlib
from collections import ChainMap, Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from heapq import heappop, heappush

from autofuse.errors import PlanError
from autofuse.graph.cost import operator_cost
from autofuse.graph.model import Graph, Operator
from autofuse.rewrite.maker import Maker, Refused
from autofuse.rewrite.rule import PHASE, Kind, Match, Rule, Step
from autofuse.rewrite.rules.catalogue import BY_NAME, RULES
from autofuse.rewrite.work import Array, Change, Work

Choice = Callable[[Match], bool]
_Rank = tuple[int, int, tuple[int, int], int]
_Candidate = tuple[_Rank, str, str]

DEPTH = 12
"""Operators below a change up to which new patterns may end: the longest pattern has so many."""
REPEATS = 8
"""How often one rule may be applied at one operator: no chain of real networks needs more."""


@dataclass(frozen=True)
class Rewritten:
    """A rewritten graph: `graph` after the matches `applied`, in their order; `asked`: every match met, each once."""

    graph: Graph
    applied: tuple[Match, ...]
    asked: tuple[Match, ...]

    @property
    def steps(self) -> tuple[str, ...]:
        """What a plan stores."""
        return tuple(match.step for match in self.applied)


def matches(graph: Graph, exact: bool = False) -> tuple[Match, ...]:
    """Every place of `graph` where a rule applies, in topological order.

    `exact`: leave out rules that change rounding. Applying one may remove others, or make new ones possible.
    """
    work = Work.of(graph)
    found = (_match(work, rule, op) for op in graph.operators for rule in _rules(op.op_type, exact))
    return tuple(match for match in found if match is not None)


def apply(
    graph: Graph, chosen: Iterable[Match | str], constants: dict[str, Array] | None = None, like: Graph | None = None
) -> Graph:
    """The graph after these matches (or steps `rule@operator`), one after the other; see `replay`."""
    return replay(graph, chosen, constants, like).graph


def replay(
    graph: Graph, chosen: Iterable[Match | str], constants: dict[str, Array] | None = None, like: Graph | None = None
) -> Rewritten:
    """What matches (or steps `rule@operator`) make of a graph, one after the other.

    Each is looked for again in the graph as it is then: PlanError when it is not there. `constants`: where the values
    of constants are kept, by name, so that several rewrites of one graph share them. `like`: the graph of the same
    model at another size for which they were chosen: what a rewrite makes is named by its content, which may have the
    size in it.
    """
    work, applied = Work.of(graph, constants), []
    twin, own = None if like is None else Work.of(like), dict[str, str]()
    for text in (one.step if isinstance(one, Match) else one for one in chosen):
        step = Step.of(text)
        match = _carried_step(work, text, step.rule, own.get(step.root, step.root))
        if twin is not None:
            there = _carried_step(twin, text, step.rule, step.root).change.added
            own.update((one.name, here.name) for one, here in zip(there, match.change.added, strict=False))
        applied.append(match)
    return Rewritten(work.freeze() if applied else graph, tuple(applied), ())


def _carried_step(work: Work, text: str, name: str, root: str) -> Match:
    """Carries out rule `name` at an operator. PlanError where it does not apply; `text`: the step, for messages."""
    if name not in BY_NAME:
        raise PlanError(f"plan rewrites with {name!r}, which is no rule of this version")
    operator = work.operators.get(root)
    match = None if operator is None else _match(work, BY_NAME[name], operator)
    if match is None:
        raise PlanError(f"plan rewrites {text!r}, but the rule does not apply there ({BY_NAME[name].text})")
    _carried_out(work, match)
    return match


def greedy(graph: Graph, exact: bool = False) -> Rewritten:
    """What the paper does: the match that saves most FLOPs first, again and again, until none pays."""
    return rewrite(graph, lambda match: match.pays, exact)


def rewrite(graph: Graph, choose: Choice, exact: bool = False, constants: dict[str, Array] | None = None) -> Rewritten:
    """Rewrite wherever `choose` says so, by phases, the match that saves most first, until no match is left.

    `constants`: see `replay`.
    """
    search = _Search(Work.of(graph, constants), choose, exact)
    search.run()
    result = search.work.freeze() if search.applied else graph
    return Rewritten(result, tuple(search.applied), tuple(search.asked.values()))


@dataclass
class _Search:
    """A greedy rewriting: candidates by phase; a phase is drained, the match that saves most first, then what it
    changed is looked at."""

    work: Work
    choose: Choice
    exact: bool
    applied: list[Match] = field(default_factory=list)
    asked: dict[tuple[str, str, str], Match] = field(default_factory=dict)
    waiting: list[list[_Candidate]] = field(default_factory=lambda: [[] for _ in range(len(PHASE))])
    times: Counter[tuple[str, str]] = field(default_factory=Counter)

    def run(self) -> None:
        """Rewrites until no candidate is left."""
        self.look(tuple(self.work.operators))
        while heap := next((heap for heap in self.waiting if heap), None):
            changed: set[str] = set()
            while heap:
                rank, name, root = heappop(heap)
                operator = self.work.operators.get(root)
                match = None if operator is None else _match(self.work, BY_NAME[name], operator)
                if match is None:
                    continue
                now = _rank(self.work, match.rule, match.root, match.change, match.flops_saved, match.bytes_saved)
                if now > rank:
                    heappush(heap, (now, name, root))
                    continue
                self.asked.setdefault((name, root, match.group), match)
                if self.times[name, root] < REPEATS and self.choose(match):
                    self.times[name, root] += 1
                    changed |= self.carry_out(match)
            self.look(self.below(changed))

    def carry_out(self, match: Match) -> set[str]:
        """Makes one change; names of operators around it."""
        change = match.change
        leaves = {read for op in change.added for read in op.inputs if read} | set(change.alias.values())
        leaves |= {read for name in change.removed for read in self.work.operators[name].inputs if read}
        touched = _carried_out(self.work, match)
        self.applied.append(match)
        for name in leaves:
            touched |= {user.name for user in self.work.siblings(name)} if name in self.work.tensors else set()
            producer = self.work.producer(name)
            if producer is not None:
                touched.add(producer.name)
        return touched

    def below(self, start: Iterable[str]) -> tuple[str, ...]:
        """Operators at most `DEPTH` below some others, themselves included."""
        found = dict.fromkeys(name for name in start if name in self.work.operators)
        layer = tuple(found)
        for _ in range(DEPTH):
            outputs = (out for name in layer for out in self.work.operators[name].outputs if out)
            readers = (user for out in outputs for user in self.work.readers.get(out, ()) if user not in found)
            layer = tuple(dict.fromkeys(readers))
            found.update(dict.fromkeys(layer))
        return tuple(found)

    def look(self, names: Sequence[str]) -> None:
        """Takes in every candidate at some operators."""
        for name in names:
            operator = self.work.operators[name]
            for rule in _rules(operator.op_type, self.exact):
                change = _change(self.work, rule, operator)
                if change is not None:
                    before, after = _cost(self.work, change)
                    rank = _rank(self.work, rule, name, change, before[0] - after[0], before[1] - after[1])
                    heappush(self.waiting[rule.phase], (rank, rule.name, name))


def _carried_out(work: Work, match: Match) -> set[str]:
    touched = work.make(match.change, match.root)
    if match.rule.kind == Kind.FISSION:
        work.parted |= {operator.name for operator in match.change.added}
    return touched


def _rank(work: Work, rule: Rule, root: str, change: Change, flops: int, moved: int) -> _Rank:
    """Order in which matches of a phase are taken."""
    gain = len(change.removed) if rule.kind == Kind.COMPOSITE else flops
    return -gain, -moved, work.order[root], _PLACE[rule.name]


_PLACE = {rule.name: place for place, rule in enumerate(RULES)}


@cache
def _rules(op_type: str, exact: bool) -> tuple[Rule, ...]:
    return tuple(rule for rule in RULES if op_type in rule.roots and (rule.exact or not exact))


def _change(work: Work, rule: Rule, operator: Operator) -> Change | None:
    """What the rule makes of the place where its pattern ends in `operator`; None when it does not apply."""
    if operator.op_type not in rule.roots or operator.domain:
        return None
    if rule.kind == Kind.COMPOSITE and operator.name in work.parted:
        return None  # it was taken apart on purpose
    maker = Maker(work, rule.name, operator)
    try:
        return maker.change() if rule.find(work, operator, maker) else None
    except Refused:
        return None


def _match(work: Work, rule: Rule, operator: Operator) -> Match | None:
    change = _change(work, rule, operator)
    if change is None:
        return None
    before, after = _cost(work, change)
    group = _group(work, rule, operator, change)
    return Match(rule, operator.name, group, before[0], after[0], before[1], after[1], change)


def _cost(work: Work, change: Change) -> tuple[tuple[int, int], tuple[int, int]]:
    tensors = ChainMap(dict(change.tensors), work.tensors)
    view = Graph("", (), (), (), tensors, {}, work.graph.opset)
    found = []
    for operators in ((work.operators[name] for name in change.removed), change.added):
        costs = [operator_cost(view, operator) for operator in operators]
        moved = sum(cost.bytes_read + cost.bytes_written for cost in costs)
        found.append((sum(cost.flops for cost in costs), moved))
    return found[0], found[1]


def _group(work: Work, rule: Rule, root: Operator, change: Change) -> str:
    """Label of the operators that go, with their shapes, what feeds them and what reads the result."""
    gone = [work.operators[name] for name in change.removed]
    inside = {out for operator in gone for out in operator.outputs}
    parts = []
    for operator in gone:
        reads = [
            f"{_mark(work, name)}{work.tensors[name].dtype}{list(work.shape(name))}"
            if name and name not in inside
            else "."
            for name in operator.inputs
        ]
        shapes = [list(work.shape(out)) for out in operator.outputs if out]
        parts.append(f"{operator.op_type}{sorted(operator.attributes.items(), key=str)}{reads}{shapes}")
    below = sorted(user.op_type for out in root.outputs if out for user in work.siblings(out))
    text = "\x1f".join((rule.name, *sorted(parts), *below))
    return hashlib.sha256(text.encode()).hexdigest()[:10]


def _mark(work: Work, tensor: str) -> str:
    producer = work.producer(tensor)
    return "constant" if work.is_constant(tensor) else producer.op_type if producer else "input"
