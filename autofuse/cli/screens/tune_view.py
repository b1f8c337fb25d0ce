"""What `tune` ends with: the plan that it chose, how fast that is and how sure, and what it left out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from autofuse.cli.screens.render import beside, records
from autofuse.cli.screens.waterfall_view import facts, waterfall_text
from autofuse.values.arguments import format_duration, micros, size
from autofuse.values.names import ONNX_RUNTIME, counted

if TYPE_CHECKING:
    from autofuse.api.results import (
        AskedQuestions,
        ChoiceDecision,
        CompositionReport,
        PartReport,
        PlanTime,
        RangeChoice,
        SizeRatio,
        TuneResult,
    )


def tune_text(result: TuneResult) -> Group:
    """The choice first, then every plan that was measured whole, then what else the search knows."""
    threads = f"{result.threads} thread{'s' if result.threads > 1 else ''}"
    title = f"{result.model} on {result.device}, {threads}: {result.state} after {format_duration(result.elapsed_s)}"
    grid = Table.grid(padding=(0, 2))
    for name, text in _facts(result):
        grid.add_row(name, Text(text))
    table = records(_tiles(result), "tiles") if result.tiles else records(_plans(result), "plans")
    parts: list[RenderableType] = [Text(title, style="bold"), grid, "", table]
    if result.waterfall is not None:
        parts += ["", waterfall_text(result.waterfall)]
    if result.front:
        rows = [
            {"composed_us": point.us, "peak memory": size(point.peak_bytes), "kernels": point.kernels,
             "plan": point.plan_key[:12]}
            for point in result.front
        ]  # fmt: skip
        parts += ["", records(rows, "time against memory")]
    return Group(*parts)


def _tiles(result: TuneResult) -> list[dict[str, object]]:
    """Tiles, the one that takes most time of a call first."""
    return [
        {
            "tile": one.label,
            "rows": one.places or one.rows or None,
            "runs a call": round(one.runs, 1),
            "median_us": one.us,
            "of the rule's": None if not one.us or not one.rule_us else f"{one.rule_us / one.us:.2f}x",
            "schedules": one.tried,
        }
        for one in result.tiles
    ]


def _facts(result: TuneResult) -> Iterator[tuple[str, str]]:
    if result.tiles:
        yield from _facts_of_tiles(result)
        return
    yield "chosen", _chosen(result)
    if result.parts:
        yield "parts", _parts(result.parts)
    if result.decision is not None:
        yield "decided", decision_text(result.decision)
    if result.decided_share is not None:
        yield "trusted decisions", f"{100 * result.decided_share:.0f} %, by the time of the kernels decided on"
    if result.alone:
        yield "as a whole", result.alone
    if result.composition is not None:
        yield "composed", _composition(result.composition)
    yield "candidates", _candidates(result)
    if result.questions:
        yield "asked", "; ".join(_asked(one) for one in result.questions)
    chosen = result.plans.get(result.chosen)
    yield from facts(result.not_asked, result.more_time, None if chosen is None else chosen.composed_us)
    if result.untrusted:
        yield "not trusted", f"the times of {', '.join(result.untrusted)}"
    if result.warning:
        yield "warning", result.warning
    elif result.left_out:
        yield "left out", "; ".join(result.left_out)
    yield "recorded", _recorded(result)


def _facts_of_tiles(result: TuneResult) -> Iterator[tuple[str, str]]:
    """What there is to say of a model with open sizes."""
    yield "searched", f"{counted(len(result.tiles), 'tile')} of {counted(result.kernels, 'kernel')}"
    if result.ranges:
        yield "chosen", "; ".join(_range(one) for one in result.ranges)
    elif result.chosen == ONNX_RUNTIME:
        yield "chosen", "ONNX Runtime runs the model"
    else:
        yield "chosen", f"plan {result.chosen}, {counted(result.kernels, 'kernel')}"
    if result.parts:
        yield "parts", _parts(result.parts)
    if result.decision is not None:
        yield "decided", decision_text(result.decision)
    if result.raced:
        yield "at sizes", ", ".join(_at_size(one) for one in result.raced)
    if result.alone:
        yield "as a whole", result.alone
    yield "candidates", _candidates(result)
    if result.warning:
        yield "warning", result.warning
    yield "recorded", _recorded(result)


def _parts(parts: Sequence[PartReport]) -> str:
    """Which part of a model runs where, in their order."""
    return "; then ".join(f"{one.side}: {one.kinds}" for one in parts)


def _range(one: RangeChoice) -> str:
    """A plan for a part of the range: "tokens up to 5: 14 kernels, 1.20x (1.18-1.23) at 2"."""
    ratios = (f", {each.ratio:.2f}x ({each.lo:.2f}-{each.hi:.2f}) at {each.size}" for each in one.raced)
    return f"{one.part}: {counted(one.kernels, 'kernel')}{''.join(ratios)}"


def _candidates(result: TuneResult) -> str:
    """How many schedules and plans were tried."""
    return (
        f"{result.measured - result.failed} ok, {result.failed} failed, {result.hits} known already; "
        f"{counted(result.plan_trials, 'plan')} tried"
    )


def _recorded(result: TuneResult) -> str:
    """Where everything stands that was measured."""
    return f"run {result.run_id} ({result.run}) in {result.database}"


def _at_size(one: SizeRatio) -> str:
    """What a race of plans said at a size: "64: 1.05x (1.03-1.07)"."""
    return (
        f"{one.size}: {one.problem}"
        if one.ratio is None
        else f"{one.size}: {one.ratio:.2f}x ({one.lo:.2f}-{one.hi:.2f})"
    )


def _asked(one: AskedQuestions) -> str:
    """A kind of question: "plans 5x in 9 s (18.1 µs gained)"."""
    gained = f" ({micros(one.gained_us)} gained)" if one.gained_us > 0 else ""
    return f"{one.kind} {one.asked}x in {format_duration(one.spent_s)}{gained}"


def _chosen(result: TuneResult) -> str:
    """The plan with its time, its ratio, and what speaks against them."""
    head = f"plan {result.chosen}, {counted(result.kernels, 'kernel')}"
    time = result.plans.get(result.chosen)
    if time is None or time.median_us is None:
        return f"{head}: not measured whole"
    ratio = "" if time.speedup is None else f", {_ratio(time)} of no fusion"
    decided = result.decision is not None or time.trusted
    doubt = "" if decided else f" (not trusted: {time.problem or 'noise'})"
    return f"{head}: {micros(time.median_us)}{ratio}{doubt}"


def decision_text(found: ChoiceDecision) -> str:
    """How sure the choice is: "against plan untuned: faster, 1.31x (1.28-1.33)"."""
    ratio = "" if found.ratio is None else f", {found.ratio:.2f}x ({found.lo:.2f}-{found.hi:.2f})"
    kept = "" if found.trusted else "; the noise leaves it open, so the simpler one was taken"
    return f"against plan {found.against}: {found.verdict}{ratio}{kept}"


def _ratio(time: PlanTime) -> str:
    """A ratio with its interval, or why there is none."""
    if time.speedup is None or time.ci_lo is None or time.ci_hi is None:
        return time.verdict or "-"
    return f"{time.speedup:.2f}x ({time.ci_lo:.2f}-{time.ci_hi:.2f})"


def _plans(result: TuneResult) -> list[dict[str, object]]:
    """Fastest first; those that were not measured whole last."""
    timed = sorted(result.plans.items(), key=lambda item: item[1].median_us or float("inf"))
    noted = any(time.problem for _, time in timed)
    return [
        {
            "plan": name,
            "kernels": time.kernels,
            "composed_us": time.composed_us,
            "median_us": time.median_us,
            "of no fusion": _ratio(time),
            "trusted": None if time.median_us is None else time.trusted,
            "largest error": None if time.max_rel_error is None else f"{time.max_rel_error:.1e}",
            **({"note": time.problem} if noted else {}),
        }
        for name, time in timed
    ]


def _composition(found: CompositionReport) -> str:
    parts = [f"{micros(found.composed_us)} at best, of all measured kernels", f"bound {micros(found.bound_us)}"]
    if found.gap is not None:
        parts.append(f"gap {100 * found.gap:.2f} %")
    return ", ".join([*parts, _regions(found)])


def _regions(found: CompositionReport) -> str:
    return beside(found.regions, found.distinct, "of which {} differ", counted(found.regions, "region"))
