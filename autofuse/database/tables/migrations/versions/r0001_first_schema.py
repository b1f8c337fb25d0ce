"""First schema: devices, workloads, candidates with their measurements, plans, runs, choices."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.schema import SchemaItem

revision = "r0001"
down_revision = None
branch_labels = None
depends_on = None

ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
SHA = sa.String(64)
DOCUMENT = sa.JSON(none_as_null=True)

NO_TIME = "median_us IS NULL AND ci_lo_us IS NULL AND ci_hi_us IS NULL AND trusted IS NULL"
WHOLE_TIME = (
    "median_us IS NOT NULL AND ci_lo_us IS NOT NULL AND ci_hi_us IS NOT NULL AND "
    "median_us > 0 AND ci_lo_us <= median_us AND median_us <= ci_hi_us AND trusted IS NOT NULL"
)
TIME_OR_FAILURE = (
    f"(state = 'ok' AND failure IS NULL AND {WHOLE_TIME}) OR (state IN ('build_error', 'run_error', 'timeout', "
    f"'wrong', 'out_of_memory', 'device_lost', 'pruned') AND failure IS NOT NULL AND {NO_TIME})"
)
PENDING = "state IN ('queued', 'building', 'running')"

TABLES = (
    *("af_device", "af_target", "af_versions", "af_workload", "af_schedule", "af_run", "af_candidate"),
    *("af_measurement", "af_sample", "af_plan", "af_plan_measurement", "af_trial", "af_choice"),
    *("af_choice_group", "af_edge"),
)


def upgrade() -> None:
    """To this revision."""
    _dimensions()
    _runs()
    _candidates()
    _measurements()
    _plans()
    _choices()


def downgrade() -> None:
    """Back to an empty database: every recorded row is lost."""
    for name in reversed(TABLES):
        op.drop_table(name)


def _dimensions() -> None:
    _table(
        "af_device",
        sa.Column("fingerprint", sa.String(128), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("facts", DOCUMENT, nullable=False),
        sa.Column("created_at", sa.DateTime(), nullable=False),
        _unique("af_device", "fingerprint"),
    )
    for name in ("af_target", "af_versions", "af_schedule"):
        _table(
            name,
            sa.Column("key", SHA, nullable=False),
            sa.Column("text", sa.Text(), nullable=False),
            _unique(name, "key"),
        )
    _table(
        "af_workload",
        sa.Column("key", SHA, nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("label", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(), nullable=False),
        _unique("af_workload", "key"),
    )


def _runs() -> None:
    _table(
        "af_run",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("model_name", sa.Text(), nullable=False),
        sa.Column("model_sha256", SHA, nullable=False),
        sa.Column("graph_key", SHA, nullable=False),
        sa.Column("seed", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("started_at", sa.DateTime(), nullable=False),
        sa.Column("finished_at", sa.DateTime()),
        sa.Column("arguments", DOCUMENT, nullable=False),
        sa.Column("budget", DOCUMENT, nullable=False),
        sa.Column("provenance", DOCUMENT, nullable=False),
        sa.Column("summary", DOCUMENT),
        *_setting("af_run"),
        *_owner(),
        _check("af_run", "state", "state IN ('running', 'finished', 'interrupted', 'failed')"),
        _check("af_run", "threads", "threads > 0"),
    )
    _index("af_run", "model_sha256", "device_id", "threads")
    _index("af_run", "name")


def _candidates() -> None:
    name = "af_candidate"
    identity = ("workload_id", "schedule_id", "device_id", "target_id", "threads", "versions_id")
    ranked = ("workload_id", "device_id", "target_id", "threads", "state", "trusted", "median_us")
    _table(
        name,
        *_reference(name, "workload_id", "af_workload"),
        *_reference(name, "schedule_id", "af_schedule"),
        sa.Column("build_s", sa.Float()),
        sa.Column("created_at", sa.DateTime(), nullable=False),
        sa.Column("updated_at", sa.DateTime(), nullable=False),
        *_setting(name),
        *_timing(),
        *_owner(),
        _check(name, "time_or_failure", f"{TIME_OR_FAILURE} OR ({PENDING} AND failure IS NULL AND {NO_TIME})"),
        _check(name, "threads", "threads > 0"),
        sa.UniqueConstraint(*identity, name=op.f("uq_af_candidate_identity")),
    )
    op.create_index("ix_af_candidate_best", name, [*ranked, "versions_id", "schedule_id"])
    pending = sa.text(PENDING)
    op.create_index("ix_af_candidate_pending", name, ["state"], sqlite_where=pending, postgresql_where=pending)


def _measurements() -> None:
    name = "af_measurement"
    _table(
        name,
        *_reference(name, "candidate_id", "af_candidate"),
        *_reference(name, "run_id", "af_run", nullable=True),
        sa.Column("uid", sa.String(64), nullable=False),
        sa.Column("build_s", sa.Float()),
        sa.Column("created_at", sa.DateTime(), nullable=False),
        *_timing(),
        _check(name, "time_or_failure", TIME_OR_FAILURE),
        _unique(name, "uid"),
    )
    _index(name, "candidate_id")
    _index(name, "run_id", "state")
    op.create_table(
        "af_sample",
        *_reference("af_sample", "measurement_id", "af_measurement"),
        sa.Column("block", sa.Integer(), nullable=False),
        sa.Column("us", DOCUMENT, nullable=False),
        sa.Column("clock_ratio", sa.Float()),
        sa.Column("flagged", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("measurement_id", "block", name=op.f("pk_af_sample")),
        sqlite_with_rowid=False,
    )


def _plans() -> None:
    _table(
        "af_plan",
        sa.Column("key", SHA, nullable=False),
        sa.Column("graph_key", SHA, nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("origin", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(), nullable=False),
        _unique("af_plan", "graph_key", "key"),
    )
    name = "af_plan_measurement"
    _table(
        name,
        *_reference(name, "run_id", "af_run", nullable=True),
        *_reference(name, "plan_id", "af_plan", nullable=True),
        sa.Column("graph_key", SHA, nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("series", sa.Text(), nullable=False),
        sa.Column("uid", sa.String(64), nullable=False),
        sa.Column("blocks", DOCUMENT, nullable=False),
        sa.Column("created_at", sa.DateTime(), nullable=False),
        *_setting(name),
        *_timing(),
        _check(name, "time_or_failure", TIME_OR_FAILURE),
        _unique(name, "uid"),
    )
    _index(name, "graph_key", "device_id", "target_id", "threads")
    _index(name, "run_id")
    states = "state IN ('running', 'complete', 'pruned', 'fail') AND (state = 'complete') = (composed_us IS NOT NULL)"
    _table(
        "af_trial",
        *_reference("af_trial", "run_id", "af_run"),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("answers", DOCUMENT, nullable=False),
        *_reference("af_trial", "plan_id", "af_plan", nullable=True),
        sa.Column("composed_us", sa.Float()),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("created_at", sa.DateTime(), nullable=False),
        _unique("af_trial", "run_id", "number"),
        _check("af_trial", "state", states),
    )


def _choices() -> None:
    name = "af_choice"
    _table(
        name,
        *_reference(name, "run_id", "af_run"),
        *_reference(name, "plan_id", "af_plan"),
        sa.Column("graph_key", SHA, nullable=False),
        sa.Column("median_us", sa.Float()),
        sa.Column("trusted", sa.Boolean(), nullable=False),
        sa.Column("details", DOCUMENT, nullable=False),
        sa.Column("created_at", sa.DateTime(), nullable=False),
        *_setting(name),
    )
    _index(name, "graph_key", "device_id", "target_id", "threads")
    _index(name, "run_id")
    name = "af_choice_group"
    _table(
        name,
        *_reference(name, "choice_id", "af_choice"),
        sa.Column("position", sa.Integer(), nullable=False),
        *_reference(name, "workload_id", "af_workload"),
        *_reference(name, "candidate_id", "af_candidate", nullable=True),
        sa.Column("us", sa.Float()),
        sa.Column("operators", DOCUMENT, nullable=False),
        _unique(name, "choice_id", "position"),
    )
    _table(
        "af_edge",
        *_reference("af_edge", "run_id", "af_run"),
        *_reference("af_edge", "plan_id", "af_plan"),
        sa.Column("producer", sa.Text(), nullable=False),
        sa.Column("consumer", sa.Text(), nullable=False),
        sa.Column("fused", sa.Boolean(), nullable=False),
        sa.Column("reason", sa.String(32), nullable=False),
        sa.Column("gain_us", sa.Float()),
        sa.Column("p_model", sa.Float()),
        _unique("af_edge", "run_id", "plan_id", "producer", "consumer"),
    )


def _table(name: str, *items: SchemaItem) -> None:
    key = sa.PrimaryKeyConstraint("id", name=op.f(f"pk_{name}"))
    op.create_table(name, sa.Column("id", ID, nullable=False), *items, key)


def _reference(table: str, column: str, other: str, nullable: bool = False) -> list[SchemaItem]:
    constraint = sa.ForeignKeyConstraint([column], [f"{other}.id"], name=op.f(f"fk_{table}_{column}"))
    return [sa.Column(column, ID, nullable=nullable), constraint]


def _setting(table: str) -> list[SchemaItem]:
    return [
        *_reference(table, "device_id", "af_device"),
        *_reference(table, "target_id", "af_target"),
        sa.Column("threads", sa.Integer(), nullable=False),
        *_reference(table, "versions_id", "af_versions"),
    ]


def _timing() -> list[SchemaItem]:
    return [
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("failure", sa.Text()),
        sa.Column("median_us", sa.Float()),
        sa.Column("ci_lo_us", sa.Float()),
        sa.Column("ci_hi_us", sa.Float()),
        sa.Column("trusted", sa.Boolean()),
        sa.Column("max_rel_error", sa.Float()),
    ]


def _owner() -> list[SchemaItem]:
    return [
        sa.Column("owner_host", sa.Text()),
        sa.Column("owner_pid", sa.Integer()),
        sa.Column("owner_boot_id", sa.Text()),
        sa.Column("owner_started", sa.Float()),
    ]


def _unique(table: str, *columns: str) -> SchemaItem:
    return sa.UniqueConstraint(*columns, name=op.f(f"uq_{table}_{'_'.join(columns)}"))


def _check(table: str, name: str, rule: str) -> SchemaItem:
    return sa.CheckConstraint(rule, name=op.f(f"ck_{table}_{name}"))


def _index(table: str, *columns: str) -> None:
    op.create_index(op.f(f"ix_{table}_{'_'.join(columns)}"), table, list(columns))
