"""A candidate's code: a time belongs to what was timed, not to a version that people remember to raise."""

from __future__ import annotations

import hashlib
import json

import sqlalchemy as sa
from alembic import op

revision = "r0004"
down_revision = "r0003"
branch_labels = None
depends_on = None

ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
CANDIDATE = "af_candidate"
OLD_IDENTITY = ("workload_id", "schedule_id", "device_id", "target_id", "threads", "versions_id")
IDENTITY = "uq_af_candidate_identity"
RANKED = ("workload_id", "device_id", "target_id", "threads", "state", "trusted", "median_us")
SETTINGS = ("af_run", CANDIDATE, "af_plan_measurement", "af_choice")
BY_HAND = "kernels"
"""The version in `af_versions` that people had to raise whenever kernels came out as other code."""

NO_TIME = "median_us IS NULL AND ci_lo_us IS NULL AND ci_hi_us IS NULL AND trusted IS NULL"
WHOLE_TIME = (
    "median_us IS NOT NULL AND ci_lo_us IS NOT NULL AND ci_hi_us IS NOT NULL AND median_us > 0 AND "
    "ci_lo_us <= median_us AND median_us <= ci_hi_us AND trusted IS NOT NULL"
)
FAILED = "'build_error', 'run_error', 'timeout', 'wrong', 'out_of_memory', 'device_lost', 'pruned'"
PENDING = "state IN ('queued', 'building', 'running')"
STATES = (
    f"(state = 'ok' AND failure IS NULL AND {WHOLE_TIME}) OR (state IN ({FAILED}) AND failure IS NOT NULL AND "
    f"{NO_TIME}) OR ({PENDING} AND failure IS NULL AND {NO_TIME})"
)


def upgrade() -> None:
    """To this revision: older candidates are of code that has no digest, so that none of them is a hit."""
    op.create_table(
        "af_code",
        sa.Column("id", ID, nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.UniqueConstraint("digest", name=op.f("uq_af_code_digest")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_af_code")),
    )
    codes = _codes_by_hand()
    if op.get_bind().dialect.name == "sqlite":
        _rebuild((*OLD_IDENTITY, "code_id"), codes)
    else:
        op.add_column(CANDIDATE, sa.Column("code_id", ID))
        _assign(codes)
        op.alter_column(CANDIDATE, "code_id", nullable=False)
        op.create_foreign_key(op.f("fk_af_candidate_code_id"), CANDIDATE, "af_code", ["code_id"], ["id"])
        _replace_identity((*OLD_IDENTITY, "code_id"))
    _replace_versions()


def downgrade() -> None:
    """Back to the revision before: each code becomes a version kept by hand, so that no two candidates are one."""
    _restore_versions()
    if op.get_bind().dialect.name == "sqlite":
        _rebuild(OLD_IDENTITY, None)
    else:
        _replace_identity(OLD_IDENTITY)
        op.drop_constraint(op.f("fk_af_candidate_code_id"), CANDIDATE, type_="foreignkey")
        op.drop_column(CANDIDATE, "code_id")
    op.drop_table("af_code")


# Versions ----------------------------------------------------------------------------------------


def _versions() -> dict[int, dict[str, str]]:
    rows = op.get_bind().execute(sa.text("SELECT id, text FROM af_versions ORDER BY id"))
    return {row.id: json.loads(row.text) for row in rows}


def _codes_by_hand() -> dict[int, int]:
    """Number of the code of each versions' candidates: "kernels-7", or "" where even that is not known."""
    connection, numbers, found = op.get_bind(), dict[str, int](), {}
    for versions, body in _versions().items():
        digest = _digest(body[BY_HAND]) if BY_HAND in body else ""
        if digest not in numbers:
            numbers[digest] = len(numbers) + 1
            connection.execute(
                sa.text("INSERT INTO af_code (id, digest) VALUES (:id, :digest)"),
                {"id": numbers[digest], "digest": digest},
            )
        found[versions] = numbers[digest]
    if connection.dialect.name == "postgresql" and numbers:
        connection.execute(
            sa.text("SELECT setval(pg_get_serial_sequence('af_code', 'id'), :last)"), {"last": len(numbers)}
        )
    return found


def _by_hand(digest: str) -> str:
    """The version that stands for a code before this revision."""
    return digest.removeprefix(f"{BY_HAND}-")


def _digest(version: str) -> str:
    """The digest that a version kept by hand stands for; a whole digest where a database came back from here."""
    return version if len(version) == 64 else f"{BY_HAND}-{version}"[:63]


def _assign(codes: dict[int, int]) -> None:
    for versions, code in codes.items():
        op.get_bind().execute(
            sa.text(f"UPDATE {CANDIDATE} SET code_id = :code WHERE versions_id = :versions"),
            {"code": code, "versions": versions},
        )


def _replace_versions() -> None:
    """The same versions without the one kept by hand."""
    connection = op.get_bind()
    for number, body in _versions().items():
        if BY_HAND not in body:
            continue
        key, text = _keyed({name: value for name, value in body.items() if name != BY_HAND})
        found = connection.execute(sa.text("SELECT id FROM af_versions WHERE key = :key"), {"key": key}).scalar()
        if found is None:
            connection.execute(
                sa.text("UPDATE af_versions SET key = :key, text = :text WHERE id = :id"),
                {"key": key, "text": text, "id": number},
            )
            continue
        for table in SETTINGS:
            connection.execute(
                sa.text(f"UPDATE {table} SET versions_id = :found WHERE versions_id = :old"),
                {"found": found, "old": number},
            )
        connection.execute(sa.text("DELETE FROM af_versions WHERE id = :id"), {"id": number})


def _restore_versions() -> None:
    connection, known = op.get_bind(), _versions()
    used = connection.execute(
        sa.text(
            f"SELECT DISTINCT c.versions_id, c.code_id, k.digest FROM {CANDIDATE} c JOIN af_code k ON k.id = c.code_id "
            "WHERE k.digest <> ''"
        )
    ).all()
    for versions, code, digest in used:
        key, text = _keyed(known[versions] | {BY_HAND: _by_hand(digest)})
        connection.execute(
            sa.text("INSERT INTO af_versions (key, text) VALUES (:key, :text) ON CONFLICT DO NOTHING"),
            {"key": key, "text": text},
        )
        connection.execute(
            sa.text(
                f"UPDATE {CANDIDATE} SET versions_id = (SELECT id FROM af_versions WHERE key = :key) "
                "WHERE versions_id = :versions AND code_id = :code"
            ),
            {"key": key, "versions": versions, "code": code},
        )


def _keyed(versions: dict[str, str]) -> tuple[str, str]:
    """(key, text) of versions, as the database keeps them."""
    text = json.dumps(versions, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest(), text


# Candidates --------------------------------------------------------------------------------------


def _replace_identity(identity: tuple[str, ...]) -> None:
    op.drop_constraint(op.f(IDENTITY), CANDIDATE, type_="unique")
    op.create_unique_constraint(op.f(IDENTITY), CANDIDATE, list(identity))
    op.drop_index("ix_af_candidate_best", CANDIDATE)
    _index_best(identity)


def _index_best(identity: tuple[str, ...]) -> None:
    further = ("code_id", "created_at") if "code_id" in identity else ()
    op.create_index("ix_af_candidate_best", CANDIDATE, [*RANKED, "versions_id", "schedule_id", *further])


def _rebuild(identity: tuple[str, ...], codes: dict[int, int] | None) -> None:
    """SQLite changes no constraint of a table that is there: all rows move into a new one.

    Rows of other tables name no candidate meanwhile, which must hold again only when the transaction ends. The index
    on choices is for that check alone: it is made for each row that comes back.
    """
    op.execute("PRAGMA defer_foreign_keys = ON")
    op.execute(f"CREATE TEMP TABLE moved AS SELECT * FROM {CANDIDATE}")
    op.drop_table(CANDIDATE)
    op.create_table(CANDIDATE, *_columns(identity))
    _index_best(identity)
    pending = sa.text(PENDING)
    op.create_index("ix_af_candidate_pending", CANDIDATE, ["state"], sqlite_where=pending)
    op.create_index("ix_moved", "af_choice_group", ["candidate_id"])
    kept = [column.name for column in _columns(identity) if isinstance(column, sa.Column) and column.name != "code_id"]
    names = ", ".join(map(str, kept))
    if codes is None:
        op.execute(f"INSERT INTO {CANDIDATE} ({names}) SELECT {names} FROM moved")
    else:
        for versions, code in codes.items():
            op.execute(
                f"INSERT INTO {CANDIDATE} ({names}, code_id) SELECT {names}, {code} FROM moved "
                f"WHERE versions_id = {versions}"
            )
    op.drop_index("ix_moved", "af_choice_group")
    op.execute("DROP TABLE temp.moved")


def _columns(identity: tuple[str, ...]) -> list[sa.schema.SchemaItem]:
    """Columns and constraints of the table of candidates."""
    references = {
        "workload_id": "af_workload", "schedule_id": "af_schedule", "code_id": "af_code", "device_id": "af_device",
        "target_id": "af_target", "versions_id": "af_versions",
    }  # fmt: skip
    referring = [name for name in references if name in identity]
    return [
        sa.Column("id", ID, nullable=False),
        *(sa.Column(name, ID, nullable=False) for name in referring),
        sa.Column("build_s", sa.Float()),
        sa.Column("created_at", sa.DateTime(), nullable=False),
        sa.Column("updated_at", sa.DateTime(), nullable=False),
        sa.Column("threads", sa.Integer(), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("failure", sa.Text()),
        *(sa.Column(name, sa.Float()) for name in ("median_us", "ci_lo_us", "ci_hi_us")),
        sa.Column("trusted", sa.Boolean()),
        sa.Column("max_rel_error", sa.Float()),
        sa.Column("owner_host", sa.Text()),
        sa.Column("owner_pid", sa.Integer()),
        sa.Column("owner_boot_id", sa.Text()),
        sa.Column("owner_started", sa.Float()),
        *(
            sa.ForeignKeyConstraint([name], [f"{references[name]}.id"], name=op.f(f"fk_{CANDIDATE}_{name}"))
            for name in referring
        ),
        sa.CheckConstraint(STATES, name=op.f(f"ck_{CANDIDATE}_time_or_failure")),
        sa.CheckConstraint("threads > 0", name=op.f(f"ck_{CANDIDATE}_threads")),
        sa.UniqueConstraint(*identity, name=op.f(IDENTITY)),
        sa.PrimaryKeyConstraint("id", name=op.f(f"pk_{CANDIDATE}")),
    ]
