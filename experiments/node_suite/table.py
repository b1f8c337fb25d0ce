"""The table of the node cases: states beside ONNX Runtime's, and why cases are refused."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from experiments.node_suite.engines import CONSTANTS, PROVIDER, STATES, Row
from experiments.records import Table

REASONS = (
    (r"sequence, an optional or text|is no tensor|element type string", "sequences, optionals, texts"),
    (r"training mode", "training mode"),
    (r"no kernel of it that agrees", "operators without a kernel (attention, recurrent, random, ...)"),
    (r"was not checked|TVM computes differs", "variants that TVM's importer gets wrong, or that nobody checked"),
    (r"element type|tensors of type", "element types (bfloat16, float8, 4 bits, complex)"),
    (r"no static shape|not fixed|known at run time", "shapes that depend on data"),
    (r"is empty|without elements", "empty tensors"),
    (r"unknown operator|too old|unknown to the installed|names no ONNX opset", "operators outside of the standard"),
    (r"Loop|Scan|\bIf\b|control flow", "loops and branches"),
    (r"TVM|importer", "what TVM's importer cannot lower"),
)


def category(reason: str) -> str:
    """The kind of a refusal."""
    return next((name for pattern, name in REASONS if re.search(pattern, reason)), "others")


@dataclass(frozen=True)
class Verdict:
    """What both engines made of a case: their states, the kind of our refusal, and why ours is neither good state.

    `alone`: no part of ours ran in ONNX Runtime.
    """

    case: str
    autofuse: str
    onnxruntime: str
    refused_because: str = ""
    reason: str = ""
    alone: bool = True

    @property
    def state(self) -> str:
        """What autofuse made of it."""
        return self.autofuse


def verdicts(rows: Iterable[Row]) -> list[Verdict]:
    """One verdict a case that both engines have a row of, by name."""
    found = {(row.engine, row.case): row for row in rows}
    both = sorted(case for engine, case in found if engine == "autofuse" and ("onnxruntime", case) in found)
    return [_verdict(found["autofuse", case], found["onnxruntime", case]) for case in both]


def _verdict(ours: Row, theirs: Row) -> Verdict:
    because = category(ours.reason) if ours.state == "refused" else ""
    reason = ours.reason if ours.state not in ("right", "refused") else ""
    return Verdict(ours.case, ours.state, theirs.state, because, reason, ours.alone)


def table(cases: Sequence[Verdict]) -> str:
    """States of both engines, then the refusals by kind, then every case that is neither right nor refused."""
    ours, theirs = Counter(case.autofuse for case in cases), Counter(case.onnxruntime for case in cases)
    alone = Counter(case.autofuse if case.alone else "refused" for case in cases)
    lines = ["| | autofuse | its kernels alone | ONNX Runtime |", "|---|---:|---:|---:|"]
    lines += [f"| {state} | {ours[state]} | {alone[state]} | {theirs[state]} |" for state in STATES]
    lines += [f"| all | {len(cases)} | {len(cases)} | {len(cases)} |", ""]
    lines += ["| refused because of | cases | of these right in ONNX Runtime |", "|---|---:|---:|"]
    refused = Counter(case.refused_because for case in cases if case.autofuse == "refused")
    both = Counter(case.refused_because for case in cases if case.onnxruntime == "right")
    lines += [f"| {name} | {count} | {both[name]} |" for name, count in refused.most_common()]
    bad = [f"- `{case.case}`: {case.autofuse}: {case.reason}" for case in cases if case.reason]
    return "\n".join([*lines, "", *bad]).rstrip() + "\n"


@dataclass(frozen=True)
class Bound:
    """A case whose deciding inputs were given as constants: its state, and whether our kernels ran it alone."""

    case: str
    state: str
    alone: bool
    reason: str = ""


def bound_rows(rows: Iterable[Row]) -> list[Bound]:
    """The rows of the runs with constants, by name."""
    own = sorted((row for row in rows if row.engine == CONSTANTS), key=lambda row: row.case)
    bad = {row.case: row.reason for row in own if row.state not in ("right", "refused")}
    return [Bound(row.case, row.state, row.alone, bad.get(row.case, "")) for row in own]


def bound_table(cases: Sequence[Bound]) -> str:
    """States with and without ONNX Runtime's part, then each case that our kernels do not run alone."""
    states, alone = (
        Counter(case.state for case in cases),
        Counter(case.state if case.alone else "refused" for case in cases),
    )
    lines = ["| with constants | autofuse | its kernels alone |", "|---|---:|---:|"]
    lines += [f"| {state} | {states[state]} | {alone[state]} |" for state in STATES if states[state] or alone[state]]
    lines += [f"| all | {len(cases)} | {len(cases)} |", ""]
    lines += [
        f"- `{case.case}`: {case.state}: {case.reason}" for case in cases if case.state not in ("right", "refused")
    ]
    return "\n".join(lines).rstrip() + "\n"


@dataclass(frozen=True)
class Driven:
    """A case that ONNX Runtime ran, our kernels as its execution provider, and by itself: both states.

    `alone`: our kernels ran all of it.
    """

    case: str
    state: str
    onnxruntime: str
    alone: bool
    reason: str = ""


def driven_rows(rows: Iterable[Row]) -> list[Driven]:
    """The cases that have a row of the provider and one of ONNX Runtime, by name."""
    found = {(row.engine, row.case): row for row in rows}
    both = sorted(case for engine, case in found if engine == PROVIDER and ("onnxruntime", case) in found)
    return [_driven(found[PROVIDER, case], found["onnxruntime", case]) for case in both]


def _driven(ours: Row, theirs: Row) -> Driven:
    """An error of the session that ONNX Runtime alone ends with, too, is its refusal."""
    if (ours.state, theirs.state) == ("error", "refused"):
        ours = replace(ours, state="refused")
    reason = ours.reason if ours.state not in ("right", "refused") or theirs.state == "right" != ours.state else ""
    return Driven(ours.case, ours.state, theirs.state, ours.alone, reason)


def driven_table(cases: Sequence[Driven]) -> str:
    """States with the provider, of all cases and of those that ONNX Runtime passes, then each that is amiss."""
    passed = [case for case in cases if case.onnxruntime == "right"]
    states, there, alone = (
        Counter(case.state for case in some) for some in (cases, passed, [case for case in passed if case.alone])
    )
    lines = ["| through the provider | all | of these right in ONNX Runtime | of these with our kernels alone |"]
    lines += ["|---|---:|---:|---:|"]
    lines += [f"| {state} | {states[state]} | {there[state]} | {alone[state]} |" for state in STATES if states[state]]
    lines += [f"| all | {len(cases)} | {len(passed)} | {sum(alone.values())} |", ""]
    lines += [f"- `{case.case}`: {case.state}: {case.reason}" for case in cases if case.reason]
    return "\n".join(lines).rstrip() + "\n"


SUITE = Table("node_suite", Verdict, ("case",), table)
BOUND = Table("node_suite_constants", Bound, ("case",), bound_table)
DRIVEN = Table("node_suite_provider", Driven, ("case",), driven_table)
