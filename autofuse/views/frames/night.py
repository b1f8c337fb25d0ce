"""A job as a table: a row for each model and device, with what it gained, how sure that is, and what to do next."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pandas as pd

from autofuse.database.job_records import DONE, FAILED
from autofuse.views.frames.columns import COLUMNS
from autofuse.views.frames.frames import read_frame
from autofuse.views.frames.groups import last_choice
from autofuse.views.frames.standing import model_name, task_state
from autofuse.views.frames.whole import decided_together, whole_model

if TYPE_CHECKING:
    from autofuse.database.database import ProfilingDatabase
    from autofuse.database.job_records import JobInfo, TaskInfo

WORTH_MORE = 0.01
"""Part of a model's time that another hour is expected to save before more search is advised."""
NOISY_PERCENT = 5.0
"""Median width of the intervals beyond which a machine is called noisy."""
_FLOATS = ("median_us", "gain", "gain_lo", "gain_hi", "over_onnxruntime", "left", "interval_width", "trusted_share")


def night_frame(database: ProfilingDatabase, job: JobInfo) -> pd.DataFrame:
    """See `Analysis.night`."""
    rows = [_row(database, job, task) for task in job.tasks]
    frame = pd.DataFrame(rows, columns=list(COLUMNS["night"]))
    kinds: dict[str, Any] = dict.fromkeys(_FLOATS, "float64")
    return frame.astype({**kinds, "run_id": "Int64", "trusted": "boolean"})


def _row(database: ProfilingDatabase, job: JobInfo, task: TaskInfo) -> dict[str, object]:
    row: dict[str, object] = {
        "model": model_name(task),
        "device": task.device,
        "run_id": task.run_id,
        "state": task_state(task, job),
        "left": task.gain,
        "candidates": task.measured,
        "failed": task.failed,
        "spent_s": task.spent_s,
        "untrusted_groups": 0,
        "failure": task.failure or "",
    }
    if task.run_id is not None:
        row |= {**_times(database, task.run_id), **_noise(database, task.run_id)}
    return {**row, "next": _advice(task, row)}


def _times(database: ProfilingDatabase, run: int) -> dict[str, object]:
    """The chosen plan of a run, and how it stands to no fusion and to ONNX Runtime."""
    names = ("plan_measurements", "choices", "groups")
    measurements, choices, groups = (read_frame(database, name, run) for name in names)
    whole = whole_model(measurements, choices)
    if whole.chosen is None or whole.time is None:
        return _of_open_sizes(choices)
    last = last_choice(groups)
    found: dict[str, object] = {
        "plan": str(whole.chosen["name"]),
        "median_us": whole.time.us.median,
        "trusted": bool(choices.iloc[-1]["trusted"]),
        "untrusted_groups": 0
        if decided_together(choices)
        else int((~last["trusted"].fillna(False).astype(bool)).sum()),
    }
    if (gain := whole.ratio("none")) is not None:
        found |= {"gain": gain.value, "gain_lo": gain.lo, "gain_hi": gain.hi, "verdict": gain.verdict}
    if (other := whole.ratio("onnxruntime")) is not None:
        found["over_onnxruntime"] = other.value
    return found


def _of_open_sizes(choices: pd.DataFrame) -> dict[str, object]:
    """The chosen plan of a model with open sizes, whose race is no time of its own; nothing of another one."""
    details = {} if choices.empty else choices.iloc[-1]["details"]
    if not isinstance(details, dict) or "sizes" not in details:
        return {}
    return {"plan": str(details.get("name")), "trusted": bool(choices.iloc[-1]["trusted"])}


def _noise(database: ProfilingDatabase, run: int) -> dict[str, object]:
    """The steadiness of a run's measurements."""
    noise = read_frame(database, "noise", run)
    if noise.empty:
        return {}
    width = 100.0 * (noise["ci_hi_us"] - noise["ci_lo_us"]) / noise["median_us"]
    return {
        "interval_width": float(width.median()),
        "trusted_share": float(noise["trusted"].fillna(False).astype(bool).mean()),
    }


def _advice(task: TaskInfo, row: dict[str, object]) -> str:
    """What to do next with a model."""
    if task.state == FAILED:
        return "see the failure; tune this model alone to look into it"
    if task.state != DONE:
        return "run the job on"
    left, width = _number(row.get("left")), _number(row.get("interval_width"))
    if not row.get("trusted", False):
        return "undecided: run it again while the machine is quiet"
    if row["untrusted_groups"]:
        return f"measure again on a quiet machine: {row['untrusted_groups']} groups are not trusted"
    if left is not None and left >= WORTH_MORE:
        return f"more time: an hour may save another {100 * left:.0f} %"
    if width is not None and width > NOISY_PERCENT:
        return "compile it; a quieter machine would find more"
    return "compile it"


def _number(value: object) -> float | None:
    return value if isinstance(value, float) and math.isfinite(value) else None
