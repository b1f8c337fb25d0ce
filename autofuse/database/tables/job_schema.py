"""The tables of jobs: what is to be tuned where, who works on it, and who has died meanwhile.

They say how the work stands, not what was measured: a lost row costs time and no result. Times in seconds since 1970
are taken from the database's clock, so that machines with different clocks agree on which lease has expired.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import Boolean, CheckConstraint, Float, ForeignKey, Index, Integer, String, Text, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from autofuse.database.job_records import JOB_STATES, PHASES, TASK_STATES, WORKER_STATES
from autofuse.database.tables.schema import Document, NumberedRow, OwnerMixin, RunRow, Sha, UtcTime, names_in_sql


class JobRow(NumberedRow):
    """A job: models and devices, a budget, and how it ended. `active_s`: seconds of its budget that are spent."""

    __tablename__ = "af_job"

    name: Mapped[str] = mapped_column(String(200), unique=True)
    state: Mapped[str] = mapped_column(String(16))
    created_at: Mapped[datetime] = mapped_column(UtcTime)
    finished_at: Mapped[datetime | None] = mapped_column(UtcTime)
    active_s: Mapped[float] = mapped_column(Float)
    stop_asked: Mapped[bool] = mapped_column(Boolean)
    settings: Mapped[Any] = mapped_column(Document)
    summary: Mapped[Any | None] = mapped_column(Document)

    __table_args__ = (CheckConstraint(f"state IN ({names_in_sql(JOB_STATES)})", name="state"),)


class TaskRow(OwnerMixin, NumberedRow):
    """A model on a device, as part of a job. `beat`: the last sign of life of its owner (seconds since 1970).

    `gain`: part of the model's time that an hour more is expected to save (NULL: not begun). `reserve_s`: seconds that
    its confirmation will take. `attempts`: searches that died with it.
    """

    __tablename__ = "af_task"

    job_id: Mapped[int] = mapped_column(ForeignKey("af_job.id"))
    position: Mapped[int] = mapped_column(Integer)
    model: Mapped[str] = mapped_column(Text)
    model_sha256: Mapped[str] = mapped_column(Sha)
    device: Mapped[str] = mapped_column(Text)
    phase: Mapped[str] = mapped_column(String(16))
    state: Mapped[str] = mapped_column(String(16))
    beat: Mapped[float | None] = mapped_column(Float)
    attempts: Mapped[int] = mapped_column(Integer)
    spent_s: Mapped[float] = mapped_column(Float)
    reserve_s: Mapped[float | None] = mapped_column(Float)
    gain: Mapped[float | None] = mapped_column(Float)
    measured: Mapped[int] = mapped_column(Integer)
    failed: Mapped[int] = mapped_column(Integer)
    best_us: Mapped[float | None] = mapped_column(Float)
    baseline_us: Mapped[float | None] = mapped_column(Float)
    run_id: Mapped[int | None] = mapped_column(ForeignKey(RunRow.id))
    failure: Mapped[str | None] = mapped_column(Text)
    result: Mapped[Any | None] = mapped_column(Document)

    __table_args__ = (
        CheckConstraint(f"state IN ({names_in_sql(TASK_STATES)})", name="state"),
        CheckConstraint(f"phase IN ({names_in_sql(PHASES)})", name="phase"),
        UniqueConstraint("job_id", "position"),
        Index(None, "job_id", "state", "phase", "device"),
    )


class WorkerRow(OwnerMixin, NumberedRow):
    """A worker, one device that measures for a job: the coordinator that drives it, and what it is doing."""

    __tablename__ = "af_worker"

    job_id: Mapped[int] = mapped_column(ForeignKey("af_job.id"))
    name: Mapped[str] = mapped_column(Text)
    device: Mapped[str] = mapped_column(Text)
    state: Mapped[str] = mapped_column(String(16))
    beat: Mapped[float | None] = mapped_column(Float)
    note: Mapped[str] = mapped_column(Text)
    measured: Mapped[int] = mapped_column(Integer)

    __table_args__ = (
        CheckConstraint(f"state IN ({names_in_sql(WORKER_STATES)})", name="state"),
        Index(None, "job_id"),
    )
