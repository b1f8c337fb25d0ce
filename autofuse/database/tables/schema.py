"""The tables, as SQLAlchemy maps them; `migrations` creates them, a test keeps the two equal.

Wide texts (workloads, schedules, targets, versions) stand once in a table of their own, so that a
candidate is a handful of integers and the indices that look-ups walk stay small.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    CheckConstraint,
    DateTime,
    Dialect,
    Float,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    Select,
    String,
    Text,
    TypeDecorator,
    UniqueConstraint,
    text,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from autofuse.database.records import FAILURES, OK, PENDING, RUN_STATES, TRIAL_STATES
from autofuse.database.tables.schedule_text import ScheduleText

PREFIX = "af_"
VERSION_TABLE = "af_alembic_version"
HEAD_REVISION = "r0006"


class UtcTime(TypeDecorator[datetime]):
    """An aware time, stored as naive UTC (SQLite keeps no zone)."""

    impl = DateTime
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:  # noqa: ARG002
        """See `TypeDecorator`."""
        return value and value.astimezone(UTC).replace(tzinfo=None)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:  # noqa: ARG002
        """See `TypeDecorator`."""
        return value and value.replace(tzinfo=UTC)


AnySelect = Select[*tuple[Any, ...]]
"""A query of whatever columns."""

# SQLite gives an INTEGER primary key its row id, PostgreSQL needs room beyond 2**31 rows.
Id = BigInteger().with_variant(Integer, "sqlite")
Sha = String(64)
Document = JSON(none_as_null=True)


def names_in_sql(values: tuple[str, ...]) -> str:
    """The values as a list in an SQL rule."""
    return ", ".join(f"'{value}'" for value in values)


NO_TIME = "median_us IS NULL AND ci_lo_us IS NULL AND ci_hi_us IS NULL AND trusted IS NULL"
HAS_TIME = "median_us > 0 AND ci_lo_us <= median_us AND median_us <= ci_hi_us AND trusted IS NOT NULL"
# A CHECK passes on NULL, so each time must be asked for by name.
WHOLE_TIME = f"median_us IS NOT NULL AND ci_lo_us IS NOT NULL AND ci_hi_us IS NOT NULL AND {HAS_TIME}"
TIME_OR_FAILURE = (
    f"(state = '{OK}' AND failure IS NULL AND {WHOLE_TIME})"
    f" OR (state IN ({names_in_sql(FAILURES)}) AND failure IS NOT NULL AND {NO_TIME})"
)
PENDING_STATE = f"(state IN ({names_in_sql(PENDING)}) AND failure IS NULL AND {NO_TIME})"


class Base(DeclarativeBase):
    """Tables of autofuse: names start with `af_`, constraints have names that migrations can use."""

    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "ck": "ck_%(table_name)s_%(constraint_name)s",
            "fk": "fk_%(table_name)s_%(column_0_name)s",
            "pk": "pk_%(table_name)s",
        }
    )


class NumberedRow(Base):
    """A row with a number of its own."""

    __abstract__ = True

    id: Mapped[int] = mapped_column(Id, primary_key=True, sort_order=-1)


class DeviceRow(NumberedRow):
    """A machine that was measured on, by the SHA-256 of what makes its times its own."""

    __tablename__ = "af_device"

    fingerprint: Mapped[str] = mapped_column(String(128), unique=True)
    name: Mapped[str] = mapped_column(Text)
    facts: Mapped[Any] = mapped_column(Document)
    created_at: Mapped[datetime] = mapped_column(UtcTime)


class TargetRow(NumberedRow):
    """A target that code was generated for (canonical JSON of `Target`)."""

    __tablename__ = "af_target"

    key: Mapped[str] = mapped_column(Sha, unique=True)
    text: Mapped[str] = mapped_column(Text)


class VersionsRow(NumberedRow):
    """A set of versions of everything that turns a schedule into machine code."""

    __tablename__ = "af_versions"

    key: Mapped[str] = mapped_column(Sha, unique=True)
    text: Mapped[str] = mapped_column(Text)


class WorkloadRow(NumberedRow):
    """A group of operators freed of its names (canonical JSON of `Workload`)."""

    __tablename__ = "af_workload"

    key: Mapped[str] = mapped_column(Sha, unique=True)
    text: Mapped[str] = mapped_column(Text)
    label: Mapped[str] = mapped_column(Text)
    created_at: Mapped[datetime] = mapped_column(UtcTime)


class ScheduleRow(NumberedRow):
    """A schedule (canonical JSON); many workloads share one."""

    __tablename__ = "af_schedule"

    key: Mapped[str] = mapped_column(Sha, unique=True)
    text: Mapped[str] = mapped_column(ScheduleText)


class CodeRow(NumberedRow):
    """Code that was built: `digest` is the SHA-256 of its text, its target and what made machine code of it.

    "kernels-7": code from before there were digests, under the version that people kept by hand; "": nobody knows.
    """

    __tablename__ = "af_code"

    digest: Mapped[str] = mapped_column(Sha, unique=True)


class SettingMixin:
    """The circumstances of a time, as four columns."""

    device_id: Mapped[int] = mapped_column(ForeignKey(DeviceRow.id))
    target_id: Mapped[int] = mapped_column(ForeignKey(TargetRow.id))
    threads: Mapped[int] = mapped_column(Integer)
    versions_id: Mapped[int] = mapped_column(ForeignKey(VersionsRow.id))


class OwnerMixin:
    """A lease: the process that works on the row. A reboot or its death frees it."""

    owner_host: Mapped[str | None] = mapped_column(Text)
    owner_pid: Mapped[int | None] = mapped_column(Integer)
    owner_boot_id: Mapped[str | None] = mapped_column(Text)
    owner_started: Mapped[float | None] = mapped_column(Float)


class TimingMixin:
    """Exactly one of a time (microseconds a call) and a failure."""

    state: Mapped[str] = mapped_column(String(16))
    failure: Mapped[str | None] = mapped_column(Text)
    median_us: Mapped[float | None] = mapped_column(Float)
    ci_lo_us: Mapped[float | None] = mapped_column(Float)
    ci_hi_us: Mapped[float | None] = mapped_column(Float)
    trusted: Mapped[bool | None] = mapped_column(Boolean)
    max_rel_error: Mapped[float | None] = mapped_column(Float)


class RunRow(SettingMixin, OwnerMixin, NumberedRow):
    """One tuning run of one model, with where it came from and how it ended."""

    __tablename__ = "af_run"

    name: Mapped[str] = mapped_column(Text)
    model_name: Mapped[str] = mapped_column(Text)
    model_sha256: Mapped[str] = mapped_column(Sha)
    graph_key: Mapped[str] = mapped_column(Sha)
    seed: Mapped[int] = mapped_column(BigInteger)
    state: Mapped[str] = mapped_column(String(16))
    started_at: Mapped[datetime] = mapped_column(UtcTime)
    finished_at: Mapped[datetime | None] = mapped_column(UtcTime)
    arguments: Mapped[Any] = mapped_column(Document)
    budget: Mapped[Any] = mapped_column(Document)
    provenance: Mapped[Any] = mapped_column(Document)
    summary: Mapped[Any | None] = mapped_column(Document)

    __table_args__ = (
        CheckConstraint(f"state IN ({names_in_sql(RUN_STATES)})", name="state"),
        CheckConstraint("threads > 0", name="threads"),
        Index(None, "model_sha256", "device_id", "threads"),
        Index(None, "name"),
    )


class CandidateRow(SettingMixin, TimingMixin, OwnerMixin, NumberedRow):
    """A schedule of a workload on a device as one code: its present verdict over all its measurements."""

    __tablename__ = "af_candidate"

    workload_id: Mapped[int] = mapped_column(ForeignKey(WorkloadRow.id))
    schedule_id: Mapped[int] = mapped_column(ForeignKey(ScheduleRow.id))
    code_id: Mapped[int] = mapped_column(ForeignKey(CodeRow.id))
    build_s: Mapped[float | None] = mapped_column(Float)
    created_at: Mapped[datetime] = mapped_column(UtcTime)
    updated_at: Mapped[datetime] = mapped_column(UtcTime)

    __table_args__ = (
        CheckConstraint(f"{TIME_OR_FAILURE} OR {PENDING_STATE}", name="time_or_failure"),
        CheckConstraint("threads > 0", name="threads"),
        UniqueConstraint(
            *("workload_id", "schedule_id", "device_id", "target_id", "threads", "versions_id", "code_id"),
            name="uq_af_candidate_identity",
        ),
        # What a look-up ranks by, so that it never leaves the index.
        Index(
            "ix_af_candidate_best",
            *("workload_id", "device_id", "target_id", "threads", "state", "trusted", "median_us"),
            *("versions_id", "schedule_id", "code_id", "created_at"),
        ),
        Index(
            "ix_af_candidate_pending",
            "state",
            sqlite_where=text(f"state IN ({names_in_sql(PENDING)})"),
            postgresql_where=text(f"state IN ({names_in_sql(PENDING)})"),
        ),
    )


class MeasurementRow(TimingMixin, NumberedRow):
    """One measurement of a candidate, never changed; its blocks stand in `SampleRow`."""

    __tablename__ = "af_measurement"

    candidate_id: Mapped[int] = mapped_column(ForeignKey(CandidateRow.id))
    run_id: Mapped[int | None] = mapped_column(ForeignKey(RunRow.id))
    uid: Mapped[str] = mapped_column(String(64), unique=True)
    build_s: Mapped[float | None] = mapped_column(Float)
    created_at: Mapped[datetime] = mapped_column(UtcTime)

    __table_args__ = (
        CheckConstraint(TIME_OR_FAILURE, name="time_or_failure"),
        Index(None, "candidate_id"),
        Index(None, "run_id", "state"),
    )


class DoubtRow(NumberedRow):
    """A measurement that is not trusted after all: the sentinel candidate beside it was slower than it should be."""

    __tablename__ = "af_doubt"

    measurement_id: Mapped[int] = mapped_column(ForeignKey(MeasurementRow.id), unique=True)
    reason: Mapped[str] = mapped_column(Text)
    created_at: Mapped[datetime] = mapped_column(UtcTime)


class SampleRow(Base):
    """One block of a measurement: `us` is a JSON list of microseconds a call (6 significant digits)."""

    __tablename__ = "af_sample"

    measurement_id: Mapped[int] = mapped_column(ForeignKey(MeasurementRow.id), primary_key=True)
    block: Mapped[int] = mapped_column(Integer, primary_key=True)
    us: Mapped[Any] = mapped_column(Document)
    clock_ratio: Mapped[float | None] = mapped_column(Float)
    flagged: Mapped[bool] = mapped_column(Boolean)

    # Clustered by its key: a tenth of a night's database would be a second index otherwise.
    __table_args__ = {"sqlite_with_rowid": False}  # noqa: RUF012 (SQLAlchemy's own form)


class PlanRow(NumberedRow):
    """A fusion plan of a graph (JSON text of `FusionPlan`); `origin`: who proposed it first."""

    __tablename__ = "af_plan"

    key: Mapped[str] = mapped_column(Sha)
    graph_key: Mapped[str] = mapped_column(Sha)
    text: Mapped[str] = mapped_column(Text)
    origin: Mapped[str] = mapped_column(Text)
    created_at: Mapped[datetime] = mapped_column(UtcTime)

    __table_args__ = (UniqueConstraint("graph_key", "key"),)


class PlanMeasurementRow(SettingMixin, TimingMixin, NumberedRow):
    """Whole-model time of a plan (or of a rival) under `limits`, a `ScheduleLimits`; `blocks` as in `SampleRow`."""

    __tablename__ = "af_plan_measurement"

    run_id: Mapped[int | None] = mapped_column(ForeignKey(RunRow.id))
    plan_id: Mapped[int | None] = mapped_column(ForeignKey(PlanRow.id))
    graph_key: Mapped[str] = mapped_column(Sha)
    name: Mapped[str] = mapped_column(Text)
    series: Mapped[str] = mapped_column(Text)
    uid: Mapped[str] = mapped_column(String(64), unique=True)
    blocks: Mapped[Any] = mapped_column(Document)
    limits: Mapped[Any | None] = mapped_column(Document)
    created_at: Mapped[datetime] = mapped_column(UtcTime)

    __table_args__ = (
        CheckConstraint(TIME_OR_FAILURE, name="time_or_failure"),
        Index(None, "graph_key", "device_id", "target_id", "threads"),
        Index(None, "run_id"),
    )


class TrialRow(NumberedRow):
    """A trial of a run's plan search."""

    __tablename__ = "af_trial"

    run_id: Mapped[int] = mapped_column(ForeignKey(RunRow.id))
    number: Mapped[int] = mapped_column(Integer)
    answers: Mapped[Any] = mapped_column(Document)
    plan_id: Mapped[int | None] = mapped_column(ForeignKey(PlanRow.id))
    composed_us: Mapped[float | None] = mapped_column(Float)
    state: Mapped[str] = mapped_column(String(16))
    created_at: Mapped[datetime] = mapped_column(UtcTime)

    __table_args__ = (
        UniqueConstraint("run_id", "number"),
        CheckConstraint(
            f"state IN ({names_in_sql(TRIAL_STATES)}) AND (state = 'complete') = (composed_us IS NOT NULL)",
            name="state",
        ),
    )


class ChoiceRow(SettingMixin, NumberedRow):
    """A run's final plan for its graph, device, target and threads: what `compile` reads. Never changed."""

    __tablename__ = "af_choice"

    run_id: Mapped[int] = mapped_column(ForeignKey(RunRow.id))
    plan_id: Mapped[int] = mapped_column(ForeignKey(PlanRow.id))
    graph_key: Mapped[str] = mapped_column(Sha)
    median_us: Mapped[float | None] = mapped_column(Float)
    trusted: Mapped[bool] = mapped_column(Boolean)
    details: Mapped[Any] = mapped_column(Document)
    limits: Mapped[Any | None] = mapped_column(Document)
    created_at: Mapped[datetime] = mapped_column(UtcTime)

    __table_args__ = (Index(None, "graph_key", "device_id", "target_id", "threads"), Index(None, "run_id"))


class ChoiceGroupRow(NumberedRow):
    """A group of a choice: its operators (JSON list of names), workload and measured candidate."""

    __tablename__ = "af_choice_group"

    choice_id: Mapped[int] = mapped_column(ForeignKey(ChoiceRow.id))
    position: Mapped[int] = mapped_column(Integer)
    workload_id: Mapped[int] = mapped_column(ForeignKey(WorkloadRow.id))
    candidate_id: Mapped[int | None] = mapped_column(ForeignKey(CandidateRow.id))
    us: Mapped[float | None] = mapped_column(Float)
    operators: Mapped[Any] = mapped_column(Document)

    __table_args__ = (UniqueConstraint("choice_id", "position"),)


class EdgeRow(NumberedRow):
    """An edge of the graph under a plan: fused or not, and why."""

    __tablename__ = "af_edge"

    run_id: Mapped[int] = mapped_column(ForeignKey(RunRow.id))
    plan_id: Mapped[int] = mapped_column(ForeignKey(PlanRow.id))
    producer: Mapped[str] = mapped_column(Text)
    consumer: Mapped[str] = mapped_column(Text)
    fused: Mapped[bool] = mapped_column(Boolean)
    reason: Mapped[str] = mapped_column(String(32))
    gain_us: Mapped[float | None] = mapped_column(Float)

    __table_args__ = (UniqueConstraint("run_id", "plan_id", "producer", "consumer"),)
