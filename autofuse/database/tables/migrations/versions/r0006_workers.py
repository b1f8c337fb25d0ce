"""What works for a job is a worker: `af_board` becomes `af_worker`, with all its rows."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "r0006"
down_revision = "r0005"
branch_labels = None
depends_on = None

OLD, NEW = "af_board", "af_worker"
ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """To this revision."""
    _move(OLD, NEW)


def downgrade() -> None:
    """Back to the revision before."""
    _move(NEW, OLD)


def _move(old: str, new: str) -> None:
    """Makes the table again under another name; a rename would leave constraints and the index with the former one.

    Numbers are given anew: nothing refers to them, and a sequence that counts them begins at 1.
    """
    table = op.create_table(
        new,
        sa.Column("id", ID, nullable=False),
        sa.Column("job_id", ID, nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("device", sa.Text(), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("beat", sa.Float()),
        sa.Column("note", sa.Text(), nullable=False),
        sa.Column("measured", sa.Integer(), nullable=False),
        sa.Column("owner_host", sa.Text()),
        sa.Column("owner_pid", sa.Integer()),
        sa.Column("owner_boot_id", sa.Text()),
        sa.Column("owner_started", sa.Float()),
        sa.PrimaryKeyConstraint("id", name=op.f(f"pk_{new}")),
        sa.ForeignKeyConstraint(["job_id"], ["af_job.id"], name=op.f(f"fk_{new}_job_id")),
        sa.CheckConstraint("state IN ('working', 'lost', 'left')", name=op.f(f"ck_{new}_state")),
    )
    names = ", ".join(column.name for column in table.c if column.name != "id")
    op.execute(f"INSERT INTO {new} ({names}) SELECT {names} FROM {old} ORDER BY id")
    op.drop_table(old)
    op.create_index(op.f(f"ix_{new}_job_id"), new, ["job_id"])
