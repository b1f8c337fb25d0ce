"""One run as a page: Markdown to read, CSV files to compute with."""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from autofuse.values.outputs import (
    MARKED_BYTES,
    Kind,
    all_or_none,
    check_output,
    database_files,
    has_tail,
    output_file,
    output_folder,
    write_output,
)
from autofuse.values.ratios import Ratio
from autofuse.views.frames.columns import COLUMNS
from autofuse.views.frames.groups import last_choice
from autofuse.views.frames.standing import plan_gap, run_length_s, run_standing
from autofuse.views.frames.whole import UNCONFIRMED, Beside, choice_words, trusted_decisions, whole_model
from autofuse.views.report import markdown
from autofuse.views.report.spreadsheet import csv_safe
from autofuse.views.report.tables import (
    chosen_edges,
    composed_us,
    distinct_groups,
    edge_counts,
    left_of,
    open_tiles,
    paying_fusions,
    provenance_facts,
    ranges_text,
    sizes_race,
    tiles_table,
    tiles_told,
)
from autofuse.views.report.worth_text import what_is_lost, what_it_was_worth
from autofuse.views.terms import TERMS, used_in

if TYPE_CHECKING:
    from autofuse.database.records import RunInfo
    from autofuse.views.frames.analysis import Analysis, RunReference

CSV_FRAMES = (
    "runs", "plan_measurements", "groups", "tasks", "candidates", "measurements", "failures", "trials", "edges",
    "waterfall", "not_asked",
)  # fmt: skip
FRAMES = ("plan_measurements", "choices", "groups", "candidates", "measurements", "failures", "edges", "trials")
MAX_FAILURES = 10
Fact = tuple[str, str]
"""Name and value of a fact of a run's provenance."""
MAX_FUSIONS = 20
HEADLINE = {"none": "without fusion", "onnxruntime": "ONNX Runtime"}
"""What the headline compares the chosen plan with."""


def render_markdown(analysis: Analysis, run: RunReference | None = None) -> str:
    """The report of a run (None: the newest): speedups, trust, coverage, failures, provenance; then details."""
    return with_words(run_markdown(analysis, run))


def with_words(text: str) -> str:
    """A report with what the words in it mean."""
    words = markdown.table(["word", "meaning"], ([term, TERMS[term]] for term in used_in(text)))
    return f"{text}\n\n## Words\n\n{words}\n"


def run_markdown(analysis: Analysis, run: RunReference | None, shared: Collection[Fact] = ()) -> str:
    """The report of a run without its words; `shared`: facts of its provenance that stand elsewhere."""
    info = analysis.run(run)
    frames = {name: analysis.frame(name, info.id) for name in FRAMES}
    parts = [
        f"# {info.model_name}: {_headline(frames)}",
        _about(analysis, info, frames),
        *map(markdown.text, run_standing(info, frames, analysis.database)),
        "## Whole model",
        _whole_model(info, frames),
        *what_it_was_worth(info.summary),
        *what_is_lost(analysis, info),
        "## Trust and coverage",
        _trust(frames),
        "## Failures",
        _failures(frames["failures"]),
        "## Provenance",
        _provenance(facts_of(analysis, info), shared),
        "## Groups",
        _groups(frames),
        "## Edges",
        _edges(frames["edges"], frames["choices"]),
        "## Search",
        _search(info, frames),
    ]
    return "\n\n".join(parts)


def write_csv(analysis: Analysis, run: RunReference | None, folder: str | Path) -> list[Path]:
    """Write one CSV file a frame of a run into `folder` (made where missing); their paths.

    Lists and dicts stand as JSON; no cell is a formula of a spreadsheet. InputError when the folder cannot be written.
    """
    reference = analysis.run().id if run is None else run
    analysis.runs_of(reference)  # refused before anything is written
    place = output_folder(Path(folder))
    paths = {name: place / f"{name}.csv" for name in CSV_FRAMES}
    inputs = database_files(analysis.database.location.path)
    for name, path in paths.items():  # before the first is written: all of them, or none
        check_output(path, table_of(name), inputs)
    with all_or_none([], paths.values()):
        for name, path in paths.items():
            with output_file(path, table_of(name), inputs) as part:
                _plain(analysis.frame(name, reference)).to_csv(part, index=False)
    return list(paths.values())


def _plain(frame: pd.DataFrame) -> pd.DataFrame:
    """A frame as a spreadsheet may read it."""
    for column in frame.columns:
        if pd.api.types.is_object_dtype(frame[column]):
            frame[column] = frame[column].map(_json_text)
    return csv_safe(frame)


def write_markdown(analysis: Analysis, text: str, folder: str | Path) -> Path:
    """Write a report (of a run or a job) into `folder` (made where missing) as `report.md`; its path."""
    path = Path(folder) / "report.md"
    with all_or_none([path.parent]):
        output_folder(path.parent)
        write_output(path, text + f"\n{REPORT_MARK}\n", REPORT, database_files(analysis.database.location.path))
    return path


def table_of(name: str) -> Kind:
    """A frame as a CSV file: one is recognised by its columns, most of which must be the frame's."""

    def is_ours(path: Path) -> bool:
        with path.open(encoding="utf-8", errors="replace", newline="") as file:
            head = next(csv.reader([file.readline(MARKED_BYTES)]), [])
        known = list(COLUMNS[name])
        return head[:1] == known[:1] and 2 * len(set(head) & set(known)) > len(head)

    return Kind(f"the table {name} of an autofuse report", is_ours)


REPORT_MARK = "<!-- written by autofuse report -->"
REPORT = Kind("a report of autofuse", lambda path: has_tail(path, REPORT_MARK.encode()))


def _json_text(value: object) -> object:
    return json.dumps(value, sort_keys=True) if isinstance(value, dict | list) else value


def _headline(frames: dict[str, pd.DataFrame]) -> str:
    whole = whole_model(frames["plan_measurements"], frames["choices"])
    if whole.chosen is None and (tiles := open_tiles(frames["choices"])):
        return f"tuned for {ranges_text(frames['choices'])}, {len(tiles)} tiles"
    if whole.chosen is None:
        return "no plan confirmed yet"
    claims = [text for name in HEADLINE if (text := _claim(whole.ratio(name), HEADLINE[name]))]
    return ", ".join(claims) or f"{markdown.micros(whole.chosen['median_us'])} with plan {whole.chosen['name']}"


def _claim(ratio: Ratio | None, over: str) -> str:
    """What a ratio says, as a part of the headline; "" where there is none."""
    if ratio is None or ratio.value is None or ratio.lo is None or ratio.hi is None:
        return ""
    doubt = "" if ratio.trusted else f" ({ratio.verdict})"
    return f"{ratio.value:.2f}x as fast as {over} {markdown.interval(ratio.lo, ratio.hi)}{doubt}"


def _about(analysis: Analysis, info: RunInfo, frames: dict[str, pd.DataFrame]) -> str:
    device = markdown.text(analysis.frame("devices", info.id)["name"].iloc[0])
    length = "still running" if info.state == "running" else markdown.duration(run_length_s(info, frames))
    threads = f"{info.setting.threads} thread{'s' if info.setting.threads > 1 else ''}"
    return (
        f"Run {info.id} ({markdown.text(info.name)}), {info.state}, started {info.started_at:%Y-%m-%d %H:%M} UTC, "
        f"{length}; device {device}, {threads}. "
        "Times are medians with 95 % intervals; a ratio above 1 means that the chosen plan is faster."
    )


def _whole_model(info: RunInfo, frames: dict[str, pd.DataFrame]) -> str:
    whole = whole_model(frames["plan_measurements"], frames["choices"])
    chosen = whole.chosen
    if chosen is None and open_tiles(frames["choices"]):
        return sizes_race(frames["choices"])
    if chosen is None:
        if not whole.beside:
            return plan_gap(info)
        return "No measured plan was chosen.\n\n" + markdown.table(
            ["plan", "median", "state"],
            (
                [one.name, markdown.micros(one.row["median_us"]), markdown.text(one.row["failure"]) or one.row["state"]]
                for one in whole.beside
            ),
        )
    name = f"**{markdown.text(chosen['name'])}** (chosen)"
    rows = [[name, _timing(chosen), "", "", "", markdown.yes(chosen["trusted"]), _error(chosen)]]
    rows += [_rival_cells(one) for one in whole.beside]
    head = ["plan", "median", "chosen plan beside it", "chosen plan is", "verdict", "trusted", "largest error"]
    return markdown.table(head, rows)


def _rival_cells(one: Beside) -> list[str]:
    row, name, ratio = one.row, markdown.text(one.name), one.ratio
    if ratio is None:
        return [name, f"{row['state']}: {markdown.text(row['failure'])}", "", "", "", "", _error(row)]
    claim = ""
    if ratio.value is not None and ratio.lo is not None and ratio.hi is not None:
        claim = f"{ratio.value:.3f}x {markdown.interval(ratio.lo, ratio.hi)}"
    beside = markdown.micros(ratio.new_us)
    return [name, _timing(row), beside, claim, ratio.verdict, markdown.yes(row["trusted"]), _error(row)]


def _trust(frames: dict[str, pd.DataFrame]) -> str:
    groups = last_choice(frames["groups"])
    if tiles := open_tiles(frames["choices"]):
        return tiles_told(tiles)
    if groups.empty:
        return "No choice was recorded."
    measured = groups["candidate_id"].notna()
    trusted = groups["trusted"].fillna(False).astype(bool)
    total = groups["us"].sum()
    lines = [
        f"- {int(measured.sum())} of {len(groups)} groups have a measured schedule"
        + ("." if measured.all() else "; the others use the fixed rule."),
        f"- {int(trusted.sum())} of {len(groups)} groups have a trusted time: "
        f"{markdown.share(groups.loc[trusted, 'us'].sum(), total)} of the measured time.",
    ]
    share, choice = trusted_decisions(frames["choices"], groups), choice_words(frames["choices"])
    said = f": the chosen plan is {choice}" if choice else ""
    chosen = whole_model(frames["plan_measurements"], frames["choices"]).chosen
    if share is not None:
        on = "" if chosen is not None else " about kernels"
        lines.append(f"- {100 * share:.0f} % of the time that was decided on rests on trusted decisions{on}{said}.")
    elif choice:
        lines.append(f"- The chosen plan is {choice}.")
    if chosen is None:
        lines.append(f"- {UNCONFIRMED[0].upper()}{UNCONFIRMED[1:]}.")
    else:
        lines.append(f"- The whole-model time is {'' if chosen['trusted'] else '**not** '}trusted.")
        if total:
            whole = markdown.micros(chosen["median_us"])
            summed = f"- The groups add up to {markdown.micros(composed_us(groups))} (composed)"
            lines.append(f"{summed}, the whole model takes {whole}.")
    return "\n".join(lines)


def _failures(failures: pd.DataFrame) -> str:
    if failures.empty:
        return "None."
    counts = failures["state"].value_counts()
    summary = ", ".join(f"{count} {state}" for state, count in counts.items())
    kinds = Counter(
        (str(row["state"]), str(row["label"]), str(row["failure"]).partition("\n")[0]) for _, row in failures.iterrows()
    )
    rows = [[*map(markdown.text, kind), count] for kind, count in kinds.most_common(MAX_FAILURES)]
    more = f"\n\n{len(kinds) - MAX_FAILURES} more kinds." if len(kinds) > MAX_FAILURES else ""
    return f"{summary}.\n\n" + markdown.table(["state", "workload", "message", "times"], rows) + more


def facts_of(analysis: Analysis, info: RunInfo) -> list[Fact]:
    """The provenance of a run, with the budget of the job that it is a part of."""
    return provenance_facts(info, analysis.database.jobs.job_of_run(info.id))


def provenance_table(facts: Iterable[Fact]) -> str:
    """Facts of a provenance as a table."""
    return markdown.table(["fact", "value"], ([markdown.text(name), markdown.text(value)] for name, value in facts))


def _provenance(facts: Sequence[Fact], shared: Collection[Fact]) -> str:
    own = [fact for fact in facts if fact not in shared]
    if not shared:
        return provenance_table(own)
    return f"{provenance_table(own)}\n\nWhat all runs of the job share stands at its beginning."


def _groups(frames: dict[str, pd.DataFrame]) -> str:
    """The groups of the choice, equal ones together, the longest first, and how near each comes to the machine's best
    rates."""
    groups = last_choice(frames["groups"])
    if tiles := open_tiles(frames["choices"]):
        return tiles_table(tiles)
    if groups.empty:
        return "No choice was recorded."
    head = [
        "group", "kernels", "share", "time each", "over first schedule", "schedules", "trusted", "MFLOP", "MB",
        "GFLOP/s", "of peak", "of bandwidth", "best schedule",
    ]  # fmt: skip
    left = left_of(groups)
    told = f"{left.text}\n\n" if left is not None else ""
    return told + markdown.table(head, (_group_cells(row) for _, row in distinct_groups(groups).iterrows()))


def _group_cells(row: pd.Series) -> list[object]:
    gain = "" if pd.isna(row["gain"]) else f"{row['gain']:.2f}x {markdown.interval(row['gain_lo'], row['gain_hi'], 2)}"
    return [
        markdown.text(row["label"]),
        row["uses"],
        f"{100 * row['share']:.1f} %",
        markdown.micros(row["us"]),
        gain,
        row["schedules"],
        markdown.yes(row["trusted"]),
        markdown.number(row["flops"] / 1e6),
        markdown.number(row["bytes"] / 1e6),
        markdown.number(row["gflops"]),
        markdown.percent(row["peak_share"]),
        markdown.percent(row["bandwidth_share"]),
        markdown.code(row["schedule"]) if isinstance(row["schedule"], str) else "fixed rule",
    ]


def _edges(edges: pd.DataFrame, choices: pd.DataFrame) -> str:
    chosen = chosen_edges(edges, choices)
    if chosen.empty:
        return "No decisions were recorded."
    rows = [
        ["fused" if row["fused"] else "apart", row["reason"], row["meaning"], row["edges"],
         markdown.micros(row["gain_us"])]
        for _, row in edge_counts(chosen).iterrows()
    ]  # fmt: skip
    counts = markdown.table(["edge", "reason", "meaning", "edges", "saved"], rows)
    fusions = paying_fusions(chosen)
    if fusions.empty:
        return f"{counts}\n\nWhat a fused edge saves is known where both of its forms were measured: nowhere yet."
    more = f"\n\n{len(fusions) - MAX_FUSIONS} more save less." if len(fusions) > MAX_FUSIONS else ""
    return f"{counts}\n\nFused edges, by what they save a call:\n\n{_fusions(fusions.iloc[:MAX_FUSIONS])}{more}"


def _fusions(fusions: pd.DataFrame) -> str:
    rows = (
        [markdown.text(row["producer"]), markdown.text(row["consumer"]), markdown.text(row["label"]),
         markdown.micros(row["group_us"]), markdown.micros(row["gain_us"]), markdown.percent(row["gain_share"])]
        for _, row in fusions.iterrows()
    )  # fmt: skip
    return markdown.table(["producer", "consumer", "kernel", "its time", "saved", "of the time apart"], rows)


def _search(info: RunInfo, frames: dict[str, pd.DataFrame]) -> str:
    """The speed at which the run measured, and when its composed plan got better."""
    measurements, trials = frames["measurements"], frames["trials"]
    candidates = measurements["candidate_id"].nunique()
    lines = [f"{markdown.counted(candidates, 'candidate was', 'candidates were')} measured"]
    if hours := run_length_s(info, frames) / 3600:
        lines.append(f" ({candidates / hours:,.0f} an hour)")
    if len(measurements) > candidates:
        lines.append(f" in {len(measurements):,} measurements")
    lines.append(f", {markdown.counted(len(trials), 'plan was', 'plans were')} tried.{_composition(info)}")
    better = trials[(trials["composed_us"] == trials["best_us"]) & ~trials["best_us"].duplicated()]
    if better.empty:
        return "".join(lines)
    start = pd.Timestamp(info.started_at)
    rows = [
        [
            row["number"],
            markdown.duration((row["created_at"] - start).total_seconds()),
            markdown.text(row["origin"]),
            markdown.micros(row["best_us"]),
        ]
        for _, row in better.iterrows()
    ]
    return "".join(lines) + "\n\n" + markdown.table(["trial", "after", "plan from", "best composed time"], rows)


def _composition(info: RunInfo) -> str:
    """The best plan that the measured groups make exactly, beside the best that was sampled."""
    facts = (info.summary or {}).get("composition")
    if not isinstance(facts, dict):
        return ""
    composed, gap = float(str(facts.get("composed_us"))), facts.get("gap")
    count = markdown.counted(int(str(facts.get("regions"))), "region", "regions")
    distinct = facts.get("distinct")
    regions = count if distinct == facts.get("regions") else f"{count}, {distinct} of them distinct"
    beside = f", {100 * float(str(gap)):.2f} % faster than the best sampled plan" if gap is not None else ""
    return f" Composed exactly from all measured groups ({regions}): {markdown.micros(composed)}{beside}."


def _timing(row: pd.Series) -> str:
    return markdown.timing(row["median_us"], row["ci_lo_us"], row["ci_hi_us"])


def _error(row: pd.Series) -> str:
    error = row["max_rel_error"]
    return "" if markdown.missing(error) else f"{error:.1e}"
