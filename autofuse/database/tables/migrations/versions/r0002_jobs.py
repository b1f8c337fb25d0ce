"""Jobs over many models and devices: what is to be tuned where, and who works on it."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.schema import SchemaItem

revision = "r0002"
down_revision = "r0001"
branch_labels = None
depends_on = None

ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
DOCUMENT = sa.JSON(none_as_null=True)


def upgrade() -> None:
    """To this revision."""
    _table(
        "af_job",
        sa.Column("name", sa.String(200), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("created_at", sa.DateTime(), nullable=False),
        sa.Column("finished_at", sa.DateTime()),
        sa.Column("active_s", sa.Float(), nullable=False),
        sa.Column("stop_asked", sa.Boolean(), nullable=False),
        sa.Column("settings", DOCUMENT, nullable=False),
        sa.Column("summary", DOCUMENT),
        _check("af_job", "state", "state IN ('running', 'finished', 'interrupted', 'failed')"),
        sa.UniqueConstraint("name", name=op.f("uq_af_job_name")),
    )
    _table(
        "af_task",
        sa.Column("job_id", ID, nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("model_sha256", sa.String(64), nullable=False),
        sa.Column("device", sa.Text(), nullable=False),
        sa.Column("phase", sa.String(16), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("beat", sa.Float()),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("spent_s", sa.Float(), nullable=False),
        sa.Column("reserve_s", sa.Float()),
        sa.Column("gain", sa.Float()),
        sa.Column("measured", sa.Integer(), nullable=False),
        sa.Column("failed", sa.Integer(), nullable=False),
        sa.Column("best_us", sa.Float()),
        sa.Column("baseline_us", sa.Float()),
        sa.Column("run_id", ID),
        sa.Column("failure", sa.Text()),
        sa.Column("result", DOCUMENT),
        *_owner(),
        sa.ForeignKeyConstraint(["job_id"], ["af_job.id"], name=op.f("fk_af_task_job_id")),
        sa.ForeignKeyConstraint(["run_id"], ["af_run.id"], name=op.f("fk_af_task_run_id")),
        _check("af_task", "state", "state IN ('queued', 'running', 'done', 'failed')"),
        _check("af_task", "phase", "phase IN ('search', 'confirm')"),
        sa.UniqueConstraint("job_id", "position", name=op.f("uq_af_task_job_id_position")),
    )
    op.create_index(op.f("ix_af_task_job_id_state_phase_device"), "af_task", ["job_id", "state", "phase", "device"])
    _table(
        "af_board",
        sa.Column("job_id", ID, nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("device", sa.Text(), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("beat", sa.Float()),
        sa.Column("note", sa.Text(), nullable=False),
        sa.Column("measured", sa.Integer(), nullable=False),
        *_owner(),
        sa.ForeignKeyConstraint(["job_id"], ["af_job.id"], name=op.f("fk_af_board_job_id")),
        _check("af_board", "state", "state IN ('working', 'lost', 'left')"),
    )
    op.create_index(op.f("ix_af_board_job_id"), "af_board", ["job_id"])


def downgrade() -> None:
    """Back to the revision before: jobs are forgotten, what they measured stays."""
    for name in ("af_board", "af_task", "af_job"):
        op.drop_table(name)


def _table(name: str, *items: SchemaItem) -> None:
    op.create_table(
        name, sa.Column("id", ID, nullable=False), *items, sa.PrimaryKeyConstraint("id", name=op.f(f"pk_{name}"))
    )


def _owner() -> list[SchemaItem]:
    return [
        sa.Column("owner_host", sa.Text()),
        sa.Column("owner_pid", sa.Integer()),
        sa.Column("owner_boot_id", sa.Text()),
        sa.Column("owner_started", sa.Float()),
    ]


def _check(table: str, name: str, rule: str) -> SchemaItem:
    return sa.CheckConstraint(rule, name=op.f(f"ck_{table}_{name}"))
