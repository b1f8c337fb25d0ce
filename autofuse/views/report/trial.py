"""A trial of a database: for `db check`, all its plans are read and all reports made, and thrown away."""

from __future__ import annotations

import json

from autofuse.database.record.plan_records import every_limits, every_plan
from autofuse.errors import PlanError
from autofuse.fusion.plan import ScheduleLimits, read_plan
from autofuse.views.frames.analysis import Analysis
from autofuse.views.report.night_text import render_text
from autofuse.views.report.page import render_html


def unreadable(analysis: Analysis) -> list[str]:
    """The plans and limits that `compile` could not take, and why: changed, or stored under another's key."""
    found = []
    with analysis.database.reading() as sql:
        plans, limits = every_plan(sql), every_limits(sql)
    for number, key, text in plans:
        try:
            plan, _ = read_plan(text)
            if key not in (plan.key, json.loads(text).get("key")):
                found.append(f"af_plan row {number}: key {key[:60]!r} is not that of its text; was it altered?")
        except PlanError as error:
            found.append(f"af_plan row {number}: {error}")
    for table, number, body in limits:
        try:
            ScheduleLimits.from_json(body)
        except PlanError as error:
            found.append(f"{table} row {number}: {error}")
    return found


def unreportable(analysis: Analysis) -> list[str]:
    """The runs whose report fails, and why; empty when all can be made."""
    found = []
    for run in map(int, analysis.runs["run_id"]):
        try:
            render_text(analysis, run)
            render_html(analysis, run)
        except Exception as error:  # noqa: BLE001  whatever it is, it is what was asked for
            lines = str(error).strip().splitlines() or [""]
            found.append(f"`report --run {run}` fails: {type(error).__name__}: {lines[0][:200]}")
    return found
