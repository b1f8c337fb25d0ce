"""What is said of a model that runs in parts: where each part runs, and why operators are not in a kernel of ours."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeGuard

from rich.console import Group
from rich.text import Text

from autofuse.cli.screens.render import describe, plain, records

if TYPE_CHECKING:
    from autofuse.api.results import Certificate, PartReport, PartsSummary, RestReport, WhoRuns

ALONE = "ONNX Runtime runs all of this model."


def parts_tables(parts: Sequence[PartReport], rest: Sequence[RestReport]) -> list[Any]:
    """The parts in their order, then the reasons of the rest."""
    rows: list[dict[str, object]] = [
        {
            "part": number,
            "runs in": part.side,
            "operators": part.operators,
            "GFLOPs": part.flops / 1e9 if part.flops else None,
            "share of the estimate": None if part.unknown == part.operators else f"{part.share:.0%}",
            "of open size": part.unknown or None,
            "of which": part.kinds,
        }
        for number, part in enumerate(parts)
    ]
    why = [{"operator": row.op_type, "count": row.count, "first": row.first, "why": row.reason} for row in rest]
    found: list[Any] = [records(rows, "parts")]
    if why:
        found += ["", records(why, "why ONNX Runtime runs them")]
    if not any(part.side == "autofuse" for part in parts):
        found += ["", Text(ALONE)]
    return found


def summary_text(summary: PartsSummary) -> Group:
    """Both sides, then what each segment offers."""
    own = sum(part.operators for part in summary.parts if part.side == "autofuse")
    facts = {
        "model": summary.name,
        "operators": summary.operators,
        "in kernels of autofuse": own,
        "in ONNX Runtime": summary.operators - own,
        "GFLOPs": summary.flops / 1e9,
        "of which in kernels of autofuse": summary.own_flops / 1e9,
        **runs_facts(summary.runs, (), summary.certificate),
    }
    rows = [
        {
            "segment": one.name,
            "operators": len(one.operators),
            "kernels of the default plan": one.kernels_default,
            "open decisions": len(one.decisions),
            "plans": f"at most 10^{one.log10_plans:.1f}",
        }
        for one in summary.segments
    ]
    found: list[Any] = [describe(facts), "", *parts_tables(summary.parts, summary.rest)]
    if rows:
        found += ["", records(plain(rows), "segments")]
    return Group(*found)


def runs_facts(
    runs: WhoRuns | None, wide_levels: Sequence[str] = (), certificate: Certificate | None = None
) -> dict[str, object]:
    """Who runs a model, and why; which of its products of levels are not of integers; its certificate."""
    found: dict[str, object] = {} if runs is None else {"runs in": runs.side, "why": runs.reason}
    if wide_levels:
        reason = "sums of such products may not fit 32 bits, and ONNX Runtime computes them so, too"
        found["levels of 16 bits"] = f"{len(wide_levels)} products or convolutions in float32: {reason}"
    return found if certificate is None else {**found, "certificate": certificate.facts()}


def of_segments(parts: Sequence[PartReport], rest: Sequence[RestReport], texts: Sequence[Any]) -> Group:
    """Which part runs where and why, then what is told of each segment."""
    numbers = [number for number, part in enumerate(parts) if part.side == "autofuse" and not part.most_rows]
    found = parts_tables(parts, rest)
    for number, text in zip(numbers, texts, strict=False):
        found += ["", Text(f"part {number}, in kernels of autofuse"), text]
    return Group(*found)


def is_in_parts(found: object) -> TypeGuard[Any]:
    """Whether what was found is of a model in parts; the classes are not loaded for that."""
    return hasattr(found, "rest")
