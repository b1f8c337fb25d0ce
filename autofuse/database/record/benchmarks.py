"""Recording what `bench` measured: whole-model times of a compiled library and its rivals, which belong to no run."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection

from autofuse.database.record.identities import Identities
from autofuse.database.records import PlanOutcome, Setting
from autofuse.database.tables.columns import insert_unless_there, packed_blocks, timing_columns
from autofuse.database.tables.schema import PlanMeasurementRow, PlanRow


def record_benchmark(connection: Connection, setting: Setting, graph_key: str, outcomes: Sequence[PlanOutcome]) -> None:
    """Append the times of one race, its first contender first; a plan that is not stored is left unnamed.

    `setting`: one that this database made. The report of every run of this graph and setting shows them.
    """
    named = [replace(one, uid=one.uid or uuid.uuid4().hex) for one in outcomes]
    ids = Identities()
    here = ids.setting_columns(connection, setting)
    for one in named:
        values = {**_values(connection, ids, graph_key, one), **here}
        connection.execute(insert_unless_there(connection.dialect.name, PlanMeasurementRow), values)


def _values(connection: Connection, ids: Identities, graph_key: str, outcome: PlanOutcome) -> Mapping[str, Any]:
    key = outcome.plan_key
    plan_id = None if key is None else ids.find(connection, PlanRow, graph_key=graph_key, key=key)
    return {
        **timing_columns(outcome),
        "run_id": None,
        "plan_id": plan_id,
        "graph_key": graph_key,
        "name": outcome.name,
        "series": outcome.series,
        "uid": outcome.uid,
        "blocks": packed_blocks(outcome.blocks),
        "created_at": datetime.now(UTC),
    }
