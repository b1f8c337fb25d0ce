"""Measurements that a sentinel candidate cast doubt on afterwards."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "r0003"
down_revision = "r0002"
branch_labels = None
depends_on = None

ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """To this revision."""
    op.create_table(
        "af_doubt",
        sa.Column("id", ID, nullable=False),
        sa.Column("measurement_id", ID, nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(), nullable=False),
        sa.ForeignKeyConstraint(["measurement_id"], ["af_measurement.id"], name=op.f("fk_af_doubt_measurement_id")),
        sa.UniqueConstraint("measurement_id", name=op.f("uq_af_doubt_measurement_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_af_doubt")),
    )


def downgrade() -> None:
    """Back to the revision before: what was doubted is trusted again where it is measured anew."""
    op.drop_table("af_doubt")
