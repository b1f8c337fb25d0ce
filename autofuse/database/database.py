"""The profiling database as one object: open it, record into it, ask it."""

from __future__ import annotations

import os
import threading
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import Self

from sqlalchemy import Connection, Engine

from autofuse.database import connection
from autofuse.database.ask import lookups, transfers, views
from autofuse.database.content.soundness import flaws
from autofuse.database.faults import clear_errors, content_error, damage_of, unexpected
from autofuse.database.record import candidates, plan_records, runs
from autofuse.database.record.identities import Identities
from autofuse.database.record.job_queue import JobQueue
from autofuse.database.records import (
    BestSchedule,
    CandidateOutcome,
    ChosenGroup,
    EdgeDecision,
    ForeignPlan,
    ForeignSchedule,
    Json,
    MeasuredSchedule,
    PlanChoice,
    PlanOutcome,
    RelatedSchedule,
    RunInfo,
    RunStart,
    SampleBlock,
    Setting,
    Table,
    Trial,
    canonical_json,
    content_key,
)
from autofuse.database.retries import connected, persistent
from autofuse.database.tables import migration
from autofuse.database.tables.owner import Owner
from autofuse.database.tables.schema import DeviceRow, TargetRow, VersionsRow, WorkloadRow
from autofuse.device.target import Target
from autofuse.errors import DatabaseError

BUSY_TIMEOUT_S = 60.0


def open_database(
    path_or_url: str | os.PathLike[str] | connection.Location | None = None,
    *,
    read_only: bool = False,
    create: bool = True,
    busy_timeout_s: float = BUSY_TIMEOUT_S,
) -> ProfilingDatabase:
    """Open a profiling database, created (where `create`) and migrated as needed; neither when `read_only`.

    `path_or_url`: a file, `sqlite:///FILE`, another SQLAlchemy URL, ":memory:", or None for
    `autofuse/profile.db` in the user's data folder. DatabaseError, saying what to change, when the
    place is no database, is damaged, of a newer autofuse, locked for `busy_timeout_s`, not writable.
    """
    location = connection.locate(path_or_url)
    connection.prepare_file(location, read_only, create)
    engine = connection.make_engine(location, read_only, busy_timeout_s)
    database = ProfilingDatabase(engine, location, read_only, busy_timeout_s)
    try:
        database.migrate()
    except BaseException:
        database.close()
        raise
    return database


def open_for_lookup(path_or_url: str | os.PathLike[str] | None = None) -> ProfilingDatabase:
    """Open a profiling database to be asked only; a file that does not exist is an empty one, and stays missing."""
    location = connection.locate(path_or_url)
    if location.path is not None and not location.path.exists():
        return open_database(connection.MEMORY)
    return open_database(path_or_url, read_only=True)


class ProfilingDatabase:
    """The profiling database: everything that was measured. Each `record_*` is one commit: done when the call returns.

    Times are microseconds a call. Every method raises DatabaseError when the database fails, and
    InputError for a value that it must not hold. Usable as a context manager, and from several threads.
    """

    def __init__(self, engine: Engine, location: connection.Location, read_only: bool, busy_timeout_s: float) -> None:
        """See `open_database`."""
        self.location = location
        self.read_only = read_only
        self._busy_timeout_s = busy_timeout_s
        self._engine = engine
        self._writer = engine.execution_options(**{connection.WRITE_OPTION: True})
        self._ids = Identities()
        self._one_writer = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        with closing(self):
            if unexpected(error) and (found := self.problems(content=True)):
                raise content_error(self.location.text, found[0]) from error

    def close(self) -> None:
        """Let go of the file or the server."""
        self._engine.dispose()

    # Circumstances -----------------------------------------------------------------------------

    @persistent
    def setting(
        self,
        *,
        fingerprint: str,
        device_name: str,
        device_facts: Mapping[str, Json],
        target: Target,
        threads: int,
        versions: Mapping[str, str],
    ) -> Setting:
        """The circumstances of a time, stored unless read-only. `versions`: of what makes machine code."""
        versions_text = canonical_json(dict(versions))
        setting = Setting(fingerprint, target.key, threads, content_key(versions_text))
        if self.read_only:
            return setting
        device = {"name": device_name, "facts": dict(device_facts), "created_at": datetime.now(UTC)}
        canonical_json(device["facts"])
        with self._writing() as sql:
            self._ids.find_or_make(sql, DeviceRow, {"fingerprint": fingerprint}, device)
            self._ids.find_or_make(sql, TargetRow, {"key": target.key}, {"text": canonical_json(asdict(target))})
            self._ids.find_or_make(sql, VersionsRow, {"key": setting.versions}, {"text": versions_text})
        return setting

    # Candidates --------------------------------------------------------------------------------

    @persistent
    def record_workload(self, key: str, workload_text: str, label: str) -> None:
        """Store a workload that has no candidate (yet), so that a choice may name it."""
        rest = {"text": workload_text, "label": label, "created_at": datetime.now(UTC)}
        with self._writing() as sql:
            self._ids.find_or_make(sql, WorkloadRow, {"key": key}, rest)

    def record_candidate(self, setting: Setting, outcome: CandidateOutcome, run_id: int | None = None) -> int:
        """Append one measurement; the candidate's number.

        A candidate is never doubled: measured again, it gets more samples, and its time is that of all
        trusted blocks together. "wrong" is final; other failures never erase a time.
        """
        return self._record(setting, outcome if outcome.uid else replace(outcome, uid=uuid.uuid4().hex), run_id)

    @persistent
    def _record(self, setting: Setting, outcome: CandidateOutcome, run_id: int | None) -> int:
        with self._writing() as sql:
            return candidates.record(sql, self._ids, setting, outcome, run_id)

    @persistent
    def doubt(self, uids: Sequence[str], reason: str) -> int:
        """Trust these measurements no more (they stay on record); how many candidates have another verdict."""
        with self._writing() as sql:
            return candidates.doubt(sql, uids, reason)

    @persistent
    def lookup(
        self, setting: Setting, workload_keys: Iterable[str], fits: lookups.Fits | None = None
    ) -> dict[str, BestSchedule]:
        """The first of each workload's `ranked` schedules."""
        with self._reading() as sql:
            return lookups.lookup(sql, setting, workload_keys, fits)

    @persistent
    def ranked(self, setting: Setting, keys: Iterable[str], fits: lookups.Fits | None = None) -> lookups.Ranked:
        """The best schedules of each workload that has one, best first; see `lookups.ranked`."""
        with self._reading() as sql:
            return lookups.ranked(sql, setting, keys, fits)

    @persistent
    def workload_texts(self, keys: Iterable[str]) -> dict[str, str]:
        """Text of each stored workload, by key."""
        with self._reading() as sql:
            return lookups.texts(sql, keys)

    @persistent
    def measured_schedules(self, setting: Setting, workload_key: str) -> tuple[MeasuredSchedule, ...]:
        """Every candidate of a workload in this setting, of any state and any versions, oldest first."""
        with self._reading() as sql:
            return lookups.measured(sql, setting, workload_key)

    @persistent
    def samples(self, candidate_id: int, run_id: int | None = None) -> tuple[SampleBlock, ...]:
        """All blocks of a candidate, oldest first; `run_id`: see `lookups.samples`."""
        with self._reading() as sql:
            return lookups.samples(sql, candidate_id, run_id)

    # Runs --------------------------------------------------------------------------------------

    def start_run(self, setting: Setting, run: RunStart) -> int:
        """Insert a run that this process owns; its number."""
        with self._writing() as sql:
            return runs.start(sql, self._ids, setting, run)

    @persistent
    def finish_run(self, run_id: int, state: str = "finished", summary: Mapping[str, Json] | None = None) -> None:
        """End a run as "finished", "interrupted" or "failed"."""
        with self._writing() as sql:
            runs.finish(sql, run_id, state, summary)

    @persistent
    def resume_run(self, run_id: int) -> None:
        """Let this process own a run that nobody works on any more."""
        with self._writing() as sql:
            runs.resume(sql, run_id)

    @persistent
    def release_dead(self) -> list[int]:
        """Mark runs whose process is gone "interrupted"; their numbers."""
        with self._writing() as sql:
            return runs.release_dead(sql)

    @persistent
    def interrupted_run(self, setting: Setting, model_sha256: str) -> RunInfo | None:
        """The run to resume for this model in this setting (call `release_dead` first)."""
        with self._reading() as sql:
            return runs.interrupted(sql, setting, model_sha256)

    @persistent
    def run(self, number: int | None = None, name: str | None = None) -> RunInfo | None:
        """The run with this number, else the newest one with this name, else the newest."""
        with self._reading() as sql:
            return runs.find(sql, number=number, name=name)

    @persistent
    def run_owner(self, run_id: int) -> Owner | None:
        """The process of this machine that works on a run now, if there is one."""
        with self._reading() as sql:
            return runs.owner(sql, run_id)

    @persistent
    def outcome_counts(self, run_id: int) -> dict[str, int]:
        """The number of candidates that a run measured, by the state that each came to last."""
        with self._reading() as sql:
            return runs.counts(sql, run_id)

    # Plans -------------------------------------------------------------------------------------

    @persistent
    def record_plan(self, graph_key: str, plan_key: str, plan: str, origin: str) -> None:
        """Store a plan of a graph (`plan`: its JSON text); stored before: no change."""
        with self._writing() as sql:
            plan_records.record_plan(sql, self._ids, graph_key, plan_key, plan, origin)

    def record_plan_measurement(self, run_id: int, outcome: PlanOutcome) -> None:
        """Append a whole-model time or failure in the run's setting."""
        self._record_whole(run_id, outcome if outcome.uid else replace(outcome, uid=uuid.uuid4().hex))

    @persistent
    def _record_whole(self, run_id: int, outcome: PlanOutcome) -> None:
        with self._writing() as sql:
            plan_records.record_measurement(sql, self._ids, run_id, outcome)

    @persistent
    def record_trial(self, run_id: int, trial: Trial) -> None:
        """Store a trial of the plan search; the same number again replaces it."""
        with self._writing() as sql:
            plan_records.record_trial(sql, self._ids, run_id, trial)

    @persistent
    def trials(self, run_id: int) -> tuple[Trial, ...]:
        """Trials of a run by number."""
        with self._reading() as sql:
            return runs.trials(sql, run_id)

    @persistent
    def record_choice(
        self,
        run_id: int,
        plan_key: str,
        groups: Sequence[ChosenGroup],
        *,
        median_us: float | None,
        trusted: bool,
        details: Mapping[str, Json] | None = None,
        limits: Mapping[str, Json] | None = None,
    ) -> int:
        """Append the plan that `compile` shall take from now on, with the `limits` of its schedules; its number."""
        verdict = {"median_us": median_us, "trusted": trusted, "details": dict(details or {}), "limits": limits}
        with self._writing() as sql:
            return plan_records.record_choice(sql, self._ids, run_id, plan_key, groups, verdict)

    @persistent
    def record_edges(self, run_id: int, plan_key: str, edges: Sequence[EdgeDecision]) -> None:
        """Store why each edge was fused or not under a plan."""
        with self._writing() as sql:
            plan_records.record_edges(sql, self._ids, run_id, plan_key, edges)

    @persistent
    def best_plan(self, setting: Setting, graph_key: str) -> PlanChoice | None:
        """The plan to take for a graph in this setting; see `PlanChoice`."""
        with self._reading() as sql:
            return plan_records.best_plan(sql, setting, graph_key)

    @persistent
    def limits(self, setting: Setting, graph_key: str) -> list[Mapping[str, Json]]:
        """Limits of schedules under which a graph was chosen a plan or measured whole in this setting, each once."""
        with self._reading() as sql:
            return plan_records.limits(sql, setting, graph_key)

    @persistent
    def plan(self, plan_key: str) -> str | None:
        """JSON text of a stored plan."""
        with self._reading() as sql:
            return plan_records.plan_text(sql, plan_key)

    # Jobs --------------------------------------------------------------------------------------

    @property
    def jobs(self) -> JobQueue:
        """The queue of jobs, whose leases are this process's."""
        return JobQueue(self)

    def reading(self) -> AbstractContextManager[Connection]:
        """A connection to ask through."""
        return self._reading()

    def writing(self) -> AbstractContextManager[Connection]:
        """One transaction: committed whole at the end, or not at all."""
        return self._writing()

    def schedules_elsewhere(self, setting: Setting, workload_keys: Iterable[str]) -> list[ForeignSchedule]:
        """Measured schedules of workloads on other devices, on as many threads; best first."""
        with self._reading() as sql:
            return transfers.elsewhere(sql, setting, workload_keys)

    def related_schedules(self, setting: Setting, operators: str, others: Iterable[str]) -> list[RelatedSchedule]:
        """The best schedule here of each other workload whose label starts with `operators`."""
        with self._reading() as sql:
            return transfers.related(sql, setting, operators, others)

    def foreign_plans(self, setting: Setting, graph_key: str) -> list[ForeignPlan]:
        """Plans chosen for a graph on other devices, the newest first."""
        with self._reading() as sql:
            return transfers.foreign_plans(sql, setting, graph_key)

    def forms_of_model(self, setting: Setting, model_sha256: str) -> list[str]:
        """Keys of the graphs that a model file became here, newest first."""
        with self._reading() as sql:
            return transfers.forms_of_model(sql, setting, model_sha256)

    # The whole ---------------------------------------------------------------------------------

    def table(self, view: str, run_id: int | None = None) -> Table:
        """Rows of one of `views.VIEWS`, all or those of one run."""
        with self._reading() as sql:
            return views.read(sql, view, run_id)

    def problems(self, *, content: bool = False) -> list[str]:
        """What SQLite's own check of the file finds; `content`: also what `flaws` finds; empty when sound."""
        with self._reading() as sql, sql.begin():
            return (flaws if content else damage_of)(sql) if self.location.is_sqlite else []

    def migrate(self) -> None:
        """Bring the schema to this version's (not when read-only), or say why that cannot be."""
        place = f"profiling database {self.location.text}"
        with self._reading() as sql:
            current = migration.is_current(sql)
        if not current and not self.read_only:
            with self._writing() as sql:
                migration.upgrade(sql, place)
        with self._reading() as sql:
            migration.refuse_unusable(sql, place)
        if self.location.path is not None and not self.read_only:
            with clear_errors(self.location.text):
                connection.use_write_ahead_log(self._engine, self._busy_timeout_s)

    @contextmanager
    def _reading(self) -> Iterator[Connection]:
        with clear_errors(self.location.text), connected(self._engine) as sql:
            yield sql

    @contextmanager
    def _writing(self) -> Iterator[Connection]:
        """One transaction: committed whole at the end, or not at all."""
        if self.read_only:
            raise DatabaseError(f"profiling database {self.location.text}: opened read-only; open it for writing")
        with self._one_writer:
            try:
                with clear_errors(self.location.text), connected(self._writer) as sql, sql.begin():
                    yield sql
            except BaseException:
                self._ids.rollback()
                raise
            self._ids.commit()
