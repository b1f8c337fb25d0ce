"""`autofuse.open("profile.db")`: the profiling database for people who work with DataFrames."""

from __future__ import annotations

import os
from types import TracebackType
from typing import Self

import pandas as pd

from autofuse.database.database import ProfilingDatabase, open_database
from autofuse.database.job_records import JobInfo
from autofuse.database.records import RunInfo
from autofuse.errors import InputError
from autofuse.views.frames.columns import COLUMNS
from autofuse.views.frames.comparison import compare_runs
from autofuse.views.frames.frames import best_of, read_frame, tasks_of, worth_frame
from autofuse.views.frames.lookups import lookups_of
from autofuse.views.frames.night import night_frame

ASKED = ("comparison", "night")
"""Frames that need more than a run to be made: see `Analysis.compare` and `Analysis.night`."""
SHARED = {"candidates": "candidate_id", "best": "candidate_id", "devices": "device_id", "plans": "plan_id"}
"""What several runs of a job may share, by frame: the column that tells one row from another."""
NO_RUN = -1
RunReference = int | str
"""A run by its number, or the newest one by its name; where jobs are allowed, a job by its name."""


def open_analysis(path_or_url: str | os.PathLike[str] | None = None) -> Analysis:
    """Open a profiling database for reading; DatabaseError as `open_database` has it."""
    return Analysis(open_database(path_or_url, read_only=True))


class Analysis:
    """A profiling database as plain DataFrames of everything that was measured.

    Times end in `_us` (microseconds a call) or `_s` (seconds), dates are UTC. Each column is explained by
    `describe(frame)`. Every property reads the database anew; `frame(name, run)` keeps to one run.
    """

    def __init__(self, database: ProfilingDatabase) -> None:
        """See `open_analysis`."""
        self.database = database

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.database.__exit__(kind, error, trace)

    def close(self) -> None:
        """Let go of the database."""
        self.database.close()

    @staticmethod
    def describe(frame: str) -> pd.Series:
        """What each column of a frame means."""
        if frame not in COLUMNS:
            raise InputError(f"frame {frame!r}: allowed are {', '.join(COLUMNS)}")
        return pd.Series(COLUMNS[frame], name=frame)

    def frame(self, name: str, run: RunReference | None = None) -> pd.DataFrame:
        """The frame `name` ("candidates", ...), of all runs or of what one run, or the runs of a job, did."""
        if name not in COLUMNS or name in ASKED:
            allowed = [frame for frame in COLUMNS if frame not in ASKED]
            raise InputError(f"frame {name!r}: allowed are {', '.join(allowed)}")
        if run is None:
            return self._frame(name, None)
        parts = [self._frame(name, info.id) for info in self.runs_of(run)]
        if len(parts) == 1:
            return parts[0]
        whole = pd.concat(parts, ignore_index=True) if parts else self._frame(name, NO_RUN)
        return whole.drop_duplicates(SHARED[name], ignore_index=True) if name in SHARED else whole

    def _frame(self, name: str, run_id: int | None) -> pd.DataFrame:
        if name == "tasks":
            return tasks_of(read_frame(self.database, "candidates", run_id))
        if name == "best":
            return best_of(read_frame(self.database, "candidates", run_id))
        if name == "lookups":
            return lookups_of(self.database, run_id)
        if name == "runs":
            return self._runs(run_id)
        if name in ("waterfall", "not_asked"):
            return worth_frame(self.database, name, run_id)
        return read_frame(self.database, name, run_id)

    def _runs(self, run_id: int | None) -> pd.DataFrame:
        """The runs with their present states: one whose process is gone is interrupted, whatever it said last."""
        frame = read_frame(self.database, "runs", run_id)
        for index in frame.index[frame["state"] == "running"]:
            info = self.database.run(int(frame["run_id"][index]))
            frame.loc[index, "state"] = info.state if info is not None else "interrupted"
        return frame

    def night(self, name: str) -> pd.DataFrame:
        """The job of this name: a row for each model and device, with its gain, its trust and what to do next."""
        job = self.job(name)
        if job is None:
            raise InputError(f"profiling database {self.database.location.text}: no job {name!r}")
        return night_frame(self.database, job)

    def run(self, reference: RunReference | None = None) -> RunInfo:
        """The run of this number or name, or the newest one; InputError when there is none."""
        if reference is None:
            found = self.database.run()
        elif isinstance(reference, int):
            found = self.database.run(number=reference)
        else:
            found = self.database.run(name=reference)
        if found is None:
            names = list(dict.fromkeys(self.runs["name"].tail(5)))
            job = self.database.jobs.job()
            jobs = f"; the newest job is {job.name}" if job is not None else ""
            known = f"the newest are {', '.join(names)}{jobs}" if names else "it is empty; `autofuse tune` makes a run"
            asked = "no run" if reference is None else f"no run {reference!r}"
            raise InputError(f"profiling database {self.database.location.text}: {asked}; {known}")
        return found

    def job(self, reference: RunReference | None) -> JobInfo | None:
        """The job of this name, if there is one."""
        return self.database.jobs.job(reference) if isinstance(reference, str) else None

    def runs_of(self, reference: RunReference | None) -> tuple[RunInfo, ...]:
        """The runs of the job of this name (one a model and device that was begun), else the run that `run` finds."""
        job = self.job(reference)
        if job is None:
            return (self.run(reference),)
        numbers = [task.run_id for task in job.tasks if task.run_id is not None]
        return tuple(run for run in map(self.database.run, numbers) if run is not None)

    @property
    def runs(self) -> pd.DataFrame:
        """Tuning runs: model, device, threads, state, budget, provenance."""
        return self.frame("runs")

    @property
    def devices(self) -> pd.DataFrame:
        """Devices that were measured on."""
        return self.frame("devices")

    @property
    def tasks(self) -> pd.DataFrame:
        """Workload x device: how many candidates, what they came to, first and best time."""
        return self.frame("tasks")

    @property
    def candidates(self) -> pd.DataFrame:
        """Schedules of workloads with their present verdict."""
        return self.frame("candidates")

    @property
    def best(self) -> pd.DataFrame:
        """The best candidate of each task."""
        return self.frame("best")

    @property
    def measurements(self) -> pd.DataFrame:
        """Every measurement of a candidate: a time or a failure."""
        return self.frame("measurements")

    @property
    def samples(self) -> pd.DataFrame:
        """Every single time, with its block and clock."""
        return self.frame("samples")

    @property
    def failures(self) -> pd.DataFrame:
        """Every measurement that failed, with its message."""
        return self.frame("failures")

    @property
    def plans(self) -> pd.DataFrame:
        """Fusion plans."""
        return self.frame("plans")

    @property
    def plan_measurements(self) -> pd.DataFrame:
        """Whole-model times of plans and rivals."""
        return self.frame("plan_measurements")

    @property
    def trials(self) -> pd.DataFrame:
        """Trials of the plan search, with the best so far."""
        return self.frame("trials")

    @property
    def choices(self) -> pd.DataFrame:
        """What runs chose: what `compile` reads."""
        return self.frame("choices")

    @property
    def groups(self) -> pd.DataFrame:
        """Groups of the chosen plans, with their share of the time."""
        return self.frame("groups")

    @property
    def edges(self) -> pd.DataFrame:
        """Which edges of a graph were fused, and why."""
        return self.frame("edges")

    @property
    def noise(self) -> pd.DataFrame:
        """The steadiness of each measurement: interval, outliers, clock."""
        return self.frame("noise")

    @property
    def waterfall(self) -> pd.DataFrame:
        """What each decision of a run was worth, from no fusion to the plan that it chose."""
        return self.frame("waterfall")

    @property
    def not_asked(self) -> pd.DataFrame:
        """What runs did not come to, and what that is expected to gain."""
        return self.frame("not_asked")

    @property
    def lookups(self) -> pd.DataFrame:
        """What a compile finds now for each group that was ever chosen, and why it finds nothing."""
        return self.frame("lookups")

    def compare(self, a: RunReference, b: RunReference) -> pd.DataFrame:
        """Run b against run a: the whole model (of the same graph), and each workload that both chose.

        Each counts with what it measured itself; jobs are compared model by model. A verdict "faster" or "slower"
        needs trusted times whose ratio's interval leaves out 1.
        """
        return compare_runs(self.database, self.runs_of(a), self.runs_of(b))
