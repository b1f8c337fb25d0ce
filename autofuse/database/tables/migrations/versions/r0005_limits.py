"""Limits of schedules stand beside the plan: they belong to what was chosen and measured, not to the partition.

An edge's `p_model`, which nothing ever wrote, goes.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "r0005"
down_revision = "r0004"
branch_labels = None
depends_on = None

LIMITED = ("af_choice", "af_plan_measurement")
"""Tables whose rows hold limits from this revision on."""
OLD, NEW = "winograd", "winograd_tile"
"""The limit's name in the text of a plan, and among the limits."""


def upgrade() -> None:
    """To this revision: a limit in a plan's text moves to the choices and times of that plan."""
    for table in LIMITED:
        op.add_column(table, sa.Column("limits", sa.JSON()))
    op.drop_column("af_edge", "p_model")
    for number, graph_key, body in _plans():
        if OLD not in body:
            continue
        limits = {NEW: body.pop(OLD)}
        for table in LIMITED:
            update = sa.text(f"UPDATE {table} SET limits = :limits WHERE plan_id = :plan")
            values = {"limits": limits, "plan": number}
            op.get_bind().execute(update.bindparams(sa.bindparam("limits", type_=sa.JSON())), values)
        key, text = _keyed(body)
        other = _scalar("SELECT id FROM af_plan WHERE graph_key = :graph AND key = :key", graph=graph_key, key=key)
        if other is None:
            _run("UPDATE af_plan SET key = :key, text = :text WHERE id = :id", key=key, text=text, id=number)
            continue
        # What was said of an edge under the limit came last: it was the choice.
        _run(
            "DELETE FROM af_edge WHERE plan_id = :other AND run_id IN "
            "(SELECT run_id FROM af_edge WHERE plan_id = :plan)",
            other=other, plan=number,
        )  # fmt: skip
        for table in (*LIMITED, "af_trial", "af_edge"):
            _run(f"UPDATE {table} SET plan_id = :other WHERE plan_id = :plan", other=other, plan=number)
        _run("DELETE FROM af_plan WHERE id = :id", id=number)


def downgrade() -> None:
    """Back to the revision before: a limit is a part of the plan again, which is another plan then."""
    op.add_column("af_edge", sa.Column("p_model", sa.Float()))
    texts = {number: (graph_key, body) for number, graph_key, body in _plans()}
    for table in LIMITED:
        rows = _rows(f"SELECT id, plan_id, limits FROM {table} WHERE limits IS NOT NULL AND plan_id IS NOT NULL")
        for number, plan, limits in rows:
            tile = (json.loads(limits) if isinstance(limits, str) else limits or {}).get(NEW)
            if tile is not None:
                limited = _limited_plan(plan, *texts[plan], tile)
                _run(f"UPDATE {table} SET plan_id = :limited WHERE id = :id", limited=limited, id=number)
                if table == "af_choice":
                    _run(
                        "UPDATE af_edge SET plan_id = :limited WHERE plan_id = :plan AND run_id = "
                        "(SELECT run_id FROM af_choice WHERE id = :id)",
                        limited=limited, plan=plan, id=number,
                    )  # fmt: skip
        op.drop_column(table, "limits")


def _limited_plan(plan: int, graph_key: str, body: dict[str, Any], tile: int) -> int:
    """Number of the plan that differs from `plan` by its limit alone."""
    groups = body.pop("groups")  # they came last
    key, text = _keyed({**body, OLD: tile, "groups": groups})
    body["groups"] = groups
    found = _scalar("SELECT id FROM af_plan WHERE graph_key = :graph AND key = :key", graph=graph_key, key=key)
    if found is None:
        _run(
            "INSERT INTO af_plan (key, graph_key, text, origin, created_at) "
            "SELECT :key, graph_key, :text, origin, created_at FROM af_plan WHERE id = :plan",
            key=key, text=text, plan=plan,
        )  # fmt: skip
        found = _scalar("SELECT id FROM af_plan WHERE graph_key = :graph AND key = :key", graph=graph_key, key=key)
    assert found is not None
    return found


def _plans() -> list[tuple[int, str, dict[str, Any]]]:
    """(id, graph, what stands in it) of every plan that is one."""
    found = []
    for number, graph_key, text in _rows("SELECT id, graph_key, text FROM af_plan ORDER BY id"):
        try:
            body = json.loads(text)
        except ValueError:
            continue
        if isinstance(body, dict) and "groups" in body:
            found.append((number, graph_key, body))
    return found


def _keyed(body: dict[str, Any]) -> tuple[str, str]:
    """(key, text) of a plan, as this revision's autofuse writes them."""
    canonical = {
        "folds": sorted(body.get("folds", [])),
        "groups": sorted(sorted(group) for group in body["groups"]),
        **{name: body[name] for name in ("copies", "rewrites", OLD) if body.get(name) not in (None, [])},
    }
    key = hashlib.sha256(json.dumps(canonical, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
    return key, json.dumps(body | {"key": key}, indent=1) + "\n"


def _run(statement: str, **values: object) -> None:
    op.get_bind().execute(sa.text(statement), values)


def _rows(query: str) -> list[Any]:
    return list(op.get_bind().execute(sa.text(query)).all())


def _scalar(query: str, **values: object) -> int | None:
    found = op.get_bind().execute(sa.text(query), values).scalar()
    return None if found is None else int(found)
