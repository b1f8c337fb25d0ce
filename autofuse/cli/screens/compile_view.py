"""What `compile` says: how each kernel is known, equal ones in one line, and the sum of it last, where one looks."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.text import Text

from autofuse.cli.screens.parts_view import parts_tables
from autofuse.cli.screens.render import describe, ranges_text, records

if TYPE_CHECKING:
    from autofuse.api.results import CompileReport

LINE_S = 5.0
"""Seconds between two lines about progress where there is no terminal."""
_WHERE_NAMED = ("header", "provider", "sha256")
_NOT_SHOWN = ("sizes", "steps", "images", "groups", "plans", "plan_key", "hits", "warning", "parts", "rest")


def verb_progress(verb: str) -> Callable[[str, int, int], None]:
    """Shows a verb's progress on stderr: in one line that changes on a terminal, else in one now and then."""
    live, said, width = sys.stderr.isatty(), time.monotonic(), 0

    def tell(phase: str, done: int, total: int) -> None:
        nonlocal said, width
        last = done == total
        count = "" if total == 1 else f" ({total})" if last else f": {done} of {total}"
        text = f"{verb}: {phase}{count}"
        if live:
            sys.stderr.write("\r" + text.ljust(width) + ("\n" if last else ""))
            width = len(text)
        elif last or time.monotonic() - said >= LINE_S:
            sys.stderr.write(text + "\n")
            said = time.monotonic()
        sys.stderr.flush()

    return tell


def compile_text(report: CompileReport) -> Group:
    """A table of the groups, one of the plans where there are several, then the facts."""
    several = len(report.plans) > 1
    same = Counter(
        (group.program, group.group, group.tier, group.us, group.source, group.trusted) for group in report.groups
    )
    doubted = any(group.trusted is False for group in report.groups)
    repeated = max(same.values(), default=1) > 1
    rows = [
        {
            **({"program": program} if several else {}),
            "group": label,
            **({"kernels": kernels} if repeated else {}),
            "tier": tier,
            "time_us": us,
            **({"trusted": trusted} if doubted else {}),
            "from": source,
        }
        for (program, label, tier, us, source, trusted), kernels in same.items()
    ]
    parts: list[Any] = [records(rows), ""] if rows or not report.parts else []
    if report.parts:
        parts += [*parts_tables(report.parts, report.rest), ""]
    if several:
        parts += [records(_plans(report)), ""]
    parts.append(describe(_facts(report)))
    if report.warning:
        parts += ["", Text(report.warning[0].upper() + report.warning[1:] + ".")]
    if report.groups and not report.hits:
        parts += ["", Text(f"Nothing of this was measured here; {_what_measures(report)}.")]
    return Group(*parts)


def _what_measures(report: CompileReport) -> str:
    """How the kernels of a library come to be measured."""
    return f"`autofuse tune` with the same {'--sizes' if report.sizes else '--threads'} does that"


def _plans(report: CompileReport) -> list[dict[str, object]]:
    return [
        {
            "program": number,
            **({"calls": plan.part} if plan.part else {"inputs": _inputs(plan.shapes)}),
            "plan": plan.plan,
            "tier": plan.tier,
            "kernels": plan.kernels,
        }
        for number, plan in enumerate(report.plans)
    ]


def _inputs(shapes: Mapping[str, tuple[int, ...]]) -> str:
    return "; ".join(f"{name} {'x'.join(map(str, shape))}" for name, shape in shapes.items())


def _facts(report: CompileReport) -> dict[str, object]:
    facts = {key: value for key, value in vars(report).items() if key not in _NOT_SHOWN}
    for name in _WHERE_NAMED:
        if not facts[name]:
            del facts[name]
    if report.sizes:
        facts["open sizes"] = ranges_text(report.sizes, report.steps)
    facts["library"] = facts["library"] or "none: a dry run"
    tiers = Counter(group.tier for group in report.groups)
    return {**facts, "schedules": ", ".join(f"{count} {tier}" for tier, count in tiers.most_common())}
