"""One run as an HTML file that needs no network: first screen, plots and tables, readable on a phone."""

from __future__ import annotations

import json
import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import asdict
from html import escape
from importlib import resources
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any

import pandas as pd

from autofuse import __version__
from autofuse.environment.worth import more_time_of, not_asked_of, waterfall_of
from autofuse.values.names import TITLES
from autofuse.values.outputs import Kind, database_files, has_head, has_mark, write_output
from autofuse.values.ratios import Ratio
from autofuse.views.accuracy import certificate_of_run, front_of_contractions, front_of_models
from autofuse.views.frames.groups import last_choice
from autofuse.views.frames.standing import job_standing, plan_gap, run_length_s, run_standing
from autofuse.views.frames.whole import UNCONFIRMED, choice_words, trusted_decisions, whole_model
from autofuse.views.report import markdown, series
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
)
from autofuse.views.terms import TERMS

if TYPE_CHECKING:
    from autofuse.database.job_records import JobInfo
    from autofuse.database.records import RunInfo
    from autofuse.views.frames.analysis import Analysis, RunReference

FRAMES = ("plan_measurements", "choices", "groups", "candidates", "measurements", "failures", "edges", "trials")
MAX_ROWS = 400
"""Rows of a table on the page; `autofuse report --output` writes them all."""

SEEN = (
    "median", "ratio", "trusted", "composed", "no fusion", "tvm-partition", "tvm-untuned", "largest error",
    "over first schedule", "fixed rule", "remainder", "hollow dot", "of peak", "of bandwidth", "#",
)  # fmt: skip
"""Terms that the page uses."""

SCRIPTS = ("basics.js", "plots.js", "page.js")
"""The parts of the page's one script, in their order."""

Json = dict[str, object]


def write_html(analysis: Analysis, run: RunReference | None, path: str | Path) -> Path:
    """Write the page of a run (None: the newest) to `path`; InputError when it cannot be written."""
    place = Path(path)
    text = render_html(analysis, run)
    write_output(place, text, PAGE, database_files(analysis.database.location.path), option="--html")
    return place


def _is_page(path: Path) -> bool:
    """Finds a page by the footer of `page.html`, which follows the style and stands before the data."""
    return has_head(path, b"<!doctype html>") and has_mark(path, b"Written by autofuse ")


PAGE = Kind("a page that autofuse wrote", _is_page)


def render_html(analysis: Analysis, run: RunReference | None = None) -> str:
    """The page of a run (None: the newest) or of a job as text: everything it shows is in it, and it asks no server."""
    job, runs = analysis.job(run), analysis.runs_of(run)
    transfer = _transfer(analysis)
    data: Json = {
        "night": None if job is None else night_data(analysis, job),
        "pages": [page_data(analysis, info, transfer) for info in runs],
    }
    assets = resources.files("autofuse.views.report") / "assets"
    skeleton = Template((assets / "page.html").read_text(encoding="utf-8"))
    # Inside a <script>, only "<" could end it; U+2028 is allowed in JSON and, since ES2019, in scripts.
    document = json.dumps(_plain(data), ensure_ascii=False, allow_nan=False).replace("<", "\\u003c")
    return skeleton.substitute(
        title=escape(
            f"{runs[0].model_name}: autofuse run {runs[0].id}" if job is None else f"{job.name}: autofuse job"
        ),
        style=(assets / "page.css").read_text(encoding="utf-8"),
        script="\n".join((assets / name).read_text(encoding="utf-8") for name in SCRIPTS),
        data=document,
        version=escape(__version__),
    )


def night_data(analysis: Analysis, job: JobInfo) -> Json:
    """What the first screen of a job shows: how it stands, and a row for each model and device."""
    rows = analysis.night(job.name).to_dict("records")
    return {"name": job.name, "state": job.state, "standing": job_standing(job, analysis.database), "models": rows}


def page_data(analysis: Analysis, info: RunInfo, transfer: Json | None = None) -> Json:
    """Everything that the page of a run shows, as plain values; `transfer`: see `_transfer` (None: made here)."""
    frames = {name: analysis.frame(name, info.id) for name in FRAMES}
    groups = last_choice(frames["groups"])
    start = pd.Timestamp(info.started_at)
    return {
        "run": _run(analysis, info, frames),
        "speedup": _speedup(frames),
        "open": _open(frames["choices"]),
        "rivals": _rivals(frames),
        "trust": _trust(frames, groups),
        "counts": _counts(frames),
        "worth": _worth(info),
        "accuracy": _accuracy(analysis, info),
        "plots": {
            "progress": {
                "groups": series.best_so_far(
                    groups,
                    frames["measurements"],
                    frames["candidates"].set_index("candidate_id")["workload_key"],
                    start,
                ),
                "plans": series.trial_progress(frames["trials"], start),
            },
            "speedups": series.group_gains(groups),
            "shares": series.time_shares(groups),
            "noise": series.noise_over_time(analysis.frame("noise", info.id), start),
            "failures": series.failure_classes(frames["failures"]),
            "predicted": series.composed_and_measured(frames["plan_measurements"], _composed(frames, groups)),
            "transfer": _transfer(analysis) if transfer is None else transfer,
        },
        "left": left.text if (left := left_of(groups)) is not None else "",
        "tables": {
            "groups": _group_rows(groups),
            "tiles": open_tiles(frames["choices"])[:MAX_ROWS],
            "edges": _edge_rows(frames["edges"], frames["choices"]),
            "fusions": _fusion_rows(frames["edges"], frames["choices"]),
            "failures": series.failure_kinds(frames["failures"]),
            "provenance": _provenance(analysis, info),
            "words": [{"word": word, "meaning": TERMS[word]} for word in SEEN],
        },
    }


def _run(analysis: Analysis, info: RunInfo, frames: dict[str, pd.DataFrame]) -> Json:
    device = analysis.frame("devices", info.id)["name"].iloc[0]
    return {
        "id": info.id,
        "name": info.name,
        "model": info.model_name,
        "state": info.state,
        "device": str(device),
        "threads": info.setting.threads,
        "started": f"{info.started_at:%Y-%m-%d %H:%M} UTC",
        "length": "still running" if info.state == "running" else markdown.duration(run_length_s(info, frames)),
        "standing": run_standing(info, frames, analysis.database),
        "gap": sizes_race(frames["choices"]) if open_tiles(frames["choices"]) else plan_gap(info),
    }


def _speedup(frames: dict[str, pd.DataFrame]) -> Json | None:
    """The chosen plan over no fusion, else over what was measured beside it; None without a whole-model time."""
    whole = whole_model(frames["plan_measurements"], frames["choices"])
    if whole.chosen is None:
        return None
    found: Json = {
        "plan": str(whole.chosen["name"]), "us": float(whole.chosen["median_us"]), "ratio": None, "over": "",
        "onnxruntime": _ratio(whole.ratio("onnxruntime")),
    }  # fmt: skip
    for name in ("none", *(one.name for one in whole.beside)):
        ratio = whole.ratio(name)
        if ratio is not None:
            return {**found, "ratio": _ratio(ratio), "over": name}
    return found


def _open(choices: pd.DataFrame) -> Json | None:
    """Which sizes a run left open, and how its plan was decided; None of a run of fixed sizes."""
    return {"sizes": ranges_text(choices), "race": sizes_race(choices)} if open_tiles(choices) else None


def _worth(info: RunInfo) -> Json:
    """What each decision was worth, what was not reached, and what more time promises; empty where nobody knows."""
    found, more = waterfall_of(info.summary), more_time_of(info.summary)
    return {
        "ratio": None if found is None else found.ratio,
        "start": None if found is None else TITLES.get(found.start, found.start),
        "measured": found is not None and found.measured,
        "steps": [] if found is None else found.rows(),
        "not_asked": [asdict(one) for one in not_asked_of(info.summary)],
        "more": None if more is None else asdict(more),
    }


def _accuracy(analysis: Analysis, info: RunInfo) -> Json:
    """What a quantised model lost for which time, and the models that were made of one float model."""
    found = certificate_of_run(info)
    return {
        "facts": [] if found is None else [{"fact": name, "value": text} for name, text in found.facts().items()],
        "allowed": None if found is None else found.max_drop,
        "contractions": [] if found is None else front_of_contractions(found),
        "models": front_of_models(analysis, info),
    }


def _rivals(frames: dict[str, pd.DataFrame]) -> list[Json]:
    whole = whole_model(frames["plan_measurements"], frames["choices"])
    own: list[Json] = [] if whole.chosen is None else [{**_timed(whole.chosen), "chosen": True, "ratio": None}]
    return own + [{**_timed(one.row), "chosen": False, "ratio": _ratio(one.ratio)} for one in whole.beside]


def _timed(row: pd.Series) -> Json:
    ok = row["state"] == "ok"
    return {
        "name": str(row["name"]),
        "state": str(row["state"]),
        "failure": "" if ok else str(row["failure"])[:300],
        "us": float(row["median_us"]) if ok else None,
        "lo": float(row["ci_lo_us"]) if ok else None,
        "hi": float(row["ci_hi_us"]) if ok else None,
        "trusted": bool(row["trusted"]) if ok else None,
        "error": None if pd.isna(row["max_rel_error"]) else float(row["max_rel_error"]),
    }


def _ratio(ratio: Ratio | None) -> Json | None:
    """A ratio's value (null below the blocks that it needs), interval, verdict, and the two medians beside it."""
    if ratio is None:
        return None
    return {
        "value": ratio.value, "lo": ratio.lo, "hi": ratio.hi, "trusted": ratio.trusted, "verdict": ratio.verdict,
        "old_us": ratio.old_us, "new_us": ratio.new_us, "blocks": ratio.blocks,
    }  # fmt: skip


def _trust(frames: dict[str, pd.DataFrame], groups: pd.DataFrame) -> Json:
    tiles = open_tiles(frames["choices"])
    if tiles:
        return _of_tiles(tiles, frames["choices"])
    chosen = whole_model(frames["plan_measurements"], frames["choices"]).chosen
    trusted = groups["trusted"].fillna(False).astype(bool)
    total = float(groups["us"].sum())
    facts: Json = {
        "groups": len(groups),
        "measured": int(groups["candidate_id"].notna().sum()),
        "trusted": int(trusted.sum()),
        "trusted_share": float(groups.loc[trusted, "us"].sum()) / total if total else 0.0,
        "decided_share": trusted_decisions(frames["choices"], groups),
        "choice": choice_words(frames["choices"]),
        "sum_us": composed_us(groups),
        "whole": None if chosen is None else bool(chosen["trusted"]),
        "whole_us": None if chosen is None else float(chosen["median_us"]),
    }
    return {**facts, "card": _decisions(facts)}


def _of_tiles(tiles: Sequence[Json], choices: pd.DataFrame) -> Json:
    """The same of open sizes, whose kernels are made of tiles."""
    timed = sum(one["us"] is not None for one in tiles)
    card = [ranges_text(choices), sizes_race(choices)]
    return {
        "groups": len(tiles), "measured": timed, "trusted": 0, "trusted_share": 0.0, "decided_share": None,
        "choice": choice_words(choices), "sum_us": None, "whole": None, "whole_us": None, "card": card,
    }  # fmt: skip


def _decisions(trust: Mapping[str, Any]) -> list[str]:
    """What was decided and how well, as a value and the words below it."""
    if not trust["groups"]:
        return ["no plan", "no plan was chosen"]
    share, whole = trust["decided_share"], trust["whole"]
    value = "none" if share is None else f"{100 * share:.0f} % trusted"
    if share is not None and whole is None:
        value = f"{value}, of kernels"
    words = [f"chosen plan: {trust['choice']}" if trust["choice"] else "", UNCONFIRMED if whole is None else ""]
    words += [] if whole is None else [f"whole-model time {'' if whole else 'not '}trusted"]
    words += [f"groups with a trusted time: {100 * trust['trusted_share']:.0f} %"]
    return [value, f"by time; {'; '.join(filter(None, words))}"]


def _counts(frames: dict[str, pd.DataFrame]) -> Json:
    return {
        "measured": len(frames["measurements"]),
        "failed": len(frames["failures"]),
        "candidates": len(frames["candidates"]),
        "trials": len(frames["trials"]),
    }


def _composed(frames: dict[str, pd.DataFrame], groups: pd.DataFrame) -> pd.Series:
    """Predicted time of each plan: its last trial's, and for the chosen one the sum of its groups."""
    trials = frames["trials"].dropna(subset=["composed_us"]).drop_duplicates("plan_key", keep="last")
    known = trials.set_index("plan_key")["composed_us"]
    if not groups.empty and not frames["choices"].empty and groups["us"].notna().all():
        known[frames["choices"].iloc[-1]["plan_key"]] = composed_us(groups)
    return known


def _transfer(analysis: Analysis) -> Json:
    """Between all places of the database; empty where there is only one."""
    places = analysis.choices[["device_fingerprint", "target_key", "threads"]].drop_duplicates()
    if len(places) < 2:
        return {"names": [], "cells": []}
    return series.device_transfer(analysis.candidates)


def _group_rows(groups: pd.DataFrame) -> list[Json]:
    return [
        {
            **_named(row),
            "schedule": _knobs(row["schedule"])[:400] if isinstance(row["schedule"], str) else "fixed rule",
        }
        for row in distinct_groups(groups).iloc[:MAX_ROWS].to_dict("records")
    ]


def _knobs(schedule: str) -> str:
    """A schedule as "family: knob=value ..."; one without knobs is what its kernel family does by itself."""
    families: dict[str, list[str]] = {}
    for knob, value in json.loads(schedule).items():
        family, _, name = knob.rpartition(".")
        families.setdefault(family, []).append(f"{name}={value}")
    texts = [f"{family}: {' '.join(knobs)}" if family else " ".join(knobs) for family, knobs in families.items()]
    return "; ".join(texts) or "as the family has it"


def _edge_rows(edges: pd.DataFrame, choices: pd.DataFrame) -> list[Json]:
    """Edges of the chosen plan counted by the reason that decided them, and what that gained."""
    rows = edge_counts(chosen_edges(edges, choices)).to_dict("records")
    return [{**_named(row), "fused": "one kernel" if row["fused"] else "apart"} for row in rows]


def _fusion_rows(edges: pd.DataFrame, choices: pd.DataFrame) -> list[Json]:
    """The fused edges of the chosen plan whose gain is known, the largest first."""
    return [_named(row) for row in paying_fusions(chosen_edges(edges, choices)).iloc[:MAX_ROWS].to_dict("records")]


def _named(row: Mapping[Hashable, Any]) -> Json:
    return {str(name): value for name, value in row.items()}


def _provenance(analysis: Analysis, info: RunInfo) -> list[Json]:
    facts = provenance_facts(info, analysis.database.jobs.job_of_run(info.id))
    return [{"fact": name, "value": value[:500]} for name, value in facts]


def _plain(value: object) -> object:
    """JSON's own types; what is no number is null."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if value is None or value is pd.NA or isinstance(value, str | bool | int):
        return None if value is pd.NA else value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    item = getattr(value, "item", None)
    return _plain(item()) if callable(item) else str(value)
