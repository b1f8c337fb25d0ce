"""Plans, their whole-model times, trials, choices and edge decisions."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, case, delete, insert, select

from autofuse.database.record import runs
from autofuse.database.record.identities import Identities
from autofuse.database.records import (
    EXACT,
    OK,
    STALE,
    ChosenGroup,
    EdgeDecision,
    Json,
    PlanChoice,
    PlanOutcome,
    Setting,
    Trial,
    canonical_json,
)
from autofuse.database.tables.columns import insert_unless_there, packed_blocks, timing_columns
from autofuse.database.tables.schema import (
    AnySelect,
    ChoiceGroupRow,
    ChoiceRow,
    DeviceRow,
    EdgeRow,
    PlanMeasurementRow,
    PlanRow,
    RunRow,
    SettingMixin,
    TargetRow,
    TrialRow,
    VersionsRow,
    WorkloadRow,
)
from autofuse.errors import InputError
from autofuse.values.names import plan_name


def record_plan(connection: Connection, ids: Identities, graph_key: str, key: str, plan: str, origin: str) -> int:
    """Store a plan of a graph once; its number."""
    rest = {"text": plan, "origin": origin, "created_at": datetime.now(UTC)}
    return ids.find_or_make(connection, PlanRow, {"graph_key": graph_key, "key": key}, rest)


def record_measurement(connection: Connection, ids: Identities, run_id: int, outcome: PlanOutcome) -> None:
    """Append a whole-model time or failure; a `uid` seen before changes nothing."""
    run = runs.require(connection, run_id)
    plan_id = None if outcome.plan_key is None else _plan_id(connection, ids, run.graph_key, outcome.plan_key)
    values = {
        **timing_columns(outcome),
        **ids.setting_columns(connection, run.setting),
        "run_id": run_id,
        "plan_id": plan_id,
        "graph_key": run.graph_key,
        "name": outcome.name,
        "series": outcome.series,
        "uid": outcome.uid or uuid.uuid4().hex,
        "blocks": packed_blocks(outcome.blocks),
        "limits": dict(outcome.limits) or None,
        "created_at": datetime.now(UTC),
    }
    connection.execute(insert_unless_there(connection.dialect.name, PlanMeasurementRow), values)


def record_trial(connection: Connection, ids: Identities, run_id: int, trial: Trial) -> None:
    """Store a trial of a run; one stored before under this number is replaced."""
    graph_key = runs.require(connection, run_id).graph_key
    plan_id = None if trial.plan_key is None else _plan_id(connection, ids, graph_key, trial.plan_key)
    canonical_json(trial.answers)
    connection.execute(delete(TrialRow).where(TrialRow.run_id == run_id, TrialRow.number == trial.number))
    values = {
        "run_id": run_id,
        "number": trial.number,
        "answers": dict(trial.answers),
        "plan_id": plan_id,
        "composed_us": trial.composed_us,
        "state": trial.state,
        "created_at": datetime.now(UTC),
    }
    connection.execute(insert(TrialRow).values(**values))


def record_choice(
    connection: Connection,
    ids: Identities,
    run_id: int,
    plan_key: str,
    groups: Sequence[ChosenGroup],
    verdict: Mapping[str, Json],
) -> int:
    """Append a run's choice with its groups; its number. `verdict`: its columns `median_us` to `limits`."""
    run = runs.require(connection, run_id)
    canonical_json(dict(verdict))
    values = {
        **ids.setting_columns(connection, run.setting),
        "run_id": run_id,
        "plan_id": _plan_id(connection, ids, run.graph_key, plan_key),
        "graph_key": run.graph_key,
        **verdict,
        "created_at": datetime.now(UTC),
    }
    choice_id = connection.execute(insert(ChoiceRow).values(**values).returning(ChoiceRow.id)).scalar_one()
    rows = [
        {
            "choice_id": choice_id,
            "position": position,
            "workload_id": _workload_id(connection, ids, group.workload_key),
            "candidate_id": group.candidate_id,
            "us": group.us,
            "operators": list(group.operators),
        }
        for position, group in enumerate(groups)
    ]
    if rows:
        connection.execute(insert(ChoiceGroupRow), rows)
    return choice_id


def record_edges(
    connection: Connection, ids: Identities, run_id: int, plan_key: str, edges: Sequence[EdgeDecision]
) -> None:
    """Store why each edge was fused or not under a plan, in place of what the run said before."""
    plan_id = _plan_id(connection, ids, runs.require(connection, run_id).graph_key, plan_key)
    connection.execute(delete(EdgeRow).where(EdgeRow.run_id == run_id, EdgeRow.plan_id == plan_id))
    rows = [
        {
            "run_id": run_id,
            "plan_id": plan_id,
            "producer": edge.producer,
            "consumer": edge.consumer,
            "fused": edge.fused,
            "reason": edge.reason,
            "gain_us": edge.gain_us,
        }
        for edge in edges
    ]
    if rows:
        connection.execute(insert(EdgeRow), rows)


def best_plan(connection: Connection, setting: Setting, graph_key: str) -> PlanChoice | None:
    """What is known best for a graph here; see `PlanChoice` for the three sources.

    Each source ranks trusted before untrusted, then the versions asked for before others. Then: the
    newest choice (each run confirms its choice against the one before, interleaved), the lowest median.
    """
    return _chosen(connection, setting, graph_key) or _known(connection, setting, graph_key)


def limits(connection: Connection, setting: Setting, graph_key: str) -> list[Mapping[str, Json]]:
    """Limits of schedules that choices and whole-model times of a graph here were made under, each once.

    Times alone count, not failures: a network that is wrong under every limit is so for another reason.
    """
    chosen = _at(select(ChoiceRow.limits), ChoiceRow, setting).where(ChoiceRow.graph_key == graph_key)
    row = PlanMeasurementRow
    timed = _at(select(row.limits), row, setting).where(row.graph_key == graph_key, row.state == OK)
    found = [one for query in (chosen, timed) for one in connection.execute(query).scalars() if one]
    return list({canonical_json(one): one for one in found}.values())


def every_plan(connection: Connection) -> list[tuple[int, str, str]]:
    """Number, key and JSON text of all plans."""
    return [
        (number, key, text) for number, key, text in connection.execute(select(PlanRow.id, PlanRow.key, PlanRow.text))
    ]


def every_limits(connection: Connection) -> list[tuple[str, int, Mapping[str, Json]]]:
    """Table, number and limits of schedules of every row that has some."""
    return [
        (row.__tablename__, number, body)
        for row in (ChoiceRow, PlanMeasurementRow)
        for number, body in connection.execute(select(row.id, row.limits).where(row.limits.is_not(None)))
    ]


def plan_text(connection: Connection, key: str) -> str | None:
    """JSON text of a plan by its key, whatever its graph."""
    return connection.execute(select(PlanRow.text).where(PlanRow.key == key).limit(1)).scalar_one_or_none()


def _chosen(connection: Connection, setting: Setting, graph_key: str) -> PlanChoice | None:
    exact = _exact(setting)
    query = _at(
        select(ChoiceRow.id, *_PLAN, ChoiceRow.run_id, ChoiceRow.median_us, ChoiceRow.trusted, ChoiceRow.details)
        .add_columns(exact.label("exact"))
        .join(PlanRow, PlanRow.id == ChoiceRow.plan_id),
        ChoiceRow,
        setting,
    ).where(ChoiceRow.graph_key == graph_key)
    newest = (ChoiceRow.created_at.desc(), ChoiceRow.id.desc())
    query = query.order_by(ChoiceRow.trusted.desc(), exact.desc(), *newest).limit(1)
    found = connection.execute(query).mappings().first()
    if found is None:
        return None
    groups = (
        select(ChoiceGroupRow.operators, WorkloadRow.key, ChoiceGroupRow.candidate_id, ChoiceGroupRow.us)
        .join(WorkloadRow, WorkloadRow.id == ChoiceGroupRow.workload_id)
        .where(ChoiceGroupRow.choice_id == found["id"])
        .order_by(ChoiceGroupRow.position)
    )
    return _choice(
        found,
        source="chosen",
        trusted=found["trusted"],
        groups=tuple(ChosenGroup(tuple(names), *rest) for names, *rest in connection.execute(groups)),
        details=found["details"],
    )


def _known(connection: Connection, setting: Setting, graph_key: str) -> PlanChoice | None:
    """Best plan without a choice: measured whole, else composed."""
    exact = _exact(setting)
    row = PlanMeasurementRow
    measured = _at(
        select(*_PLAN, row.run_id, row.median_us, row.trusted, exact.label("exact")).join(
            PlanRow, PlanRow.id == row.plan_id
        ),
        row,
        setting,
    ).where(row.graph_key == graph_key, row.state == OK)
    order = (row.trusted.desc(), exact.desc(), row.median_us, PlanRow.key)
    found = connection.execute(measured.order_by(*order).limit(1)).mappings().first()
    if found is not None:
        return _choice(found, source="measured", trusted=found["trusted"])
    composed = _at(
        select(*_PLAN, TrialRow.run_id, TrialRow.composed_us.label("median_us"), exact.label("exact"))
        .join(PlanRow, PlanRow.id == TrialRow.plan_id)
        .join(RunRow, RunRow.id == TrialRow.run_id),
        RunRow,
        setting,
    ).where(RunRow.graph_key == graph_key, TrialRow.composed_us.is_not(None))
    best = composed.order_by(exact.desc(), TrialRow.composed_us, PlanRow.key).limit(1)
    found = connection.execute(best).mappings().first()
    return None if found is None else _choice(found, source="composed", trusted=None)


_PLAN = (PlanRow.key.label("plan_key"), PlanRow.text.label("plan"), PlanRow.origin)


def _choice(
    row: Mapping[Any, Any],
    *,
    source: str,
    trusted: bool | None,
    groups: tuple[ChosenGroup, ...] = (),
    details: Mapping[str, Json] | None = None,
) -> PlanChoice:
    return PlanChoice(
        plan_key=row["plan_key"],
        plan=row["plan"],
        origin=plan_name(row["origin"]),
        source=source,
        tier=EXACT if row["exact"] else STALE,
        run_id=row["run_id"],
        median_us=row["median_us"],
        trusted=trusted,
        groups=groups,
        details=details or {},
    )


def _exact(setting: Setting) -> ColumnElement[int]:
    return case((VersionsRow.key == setting.versions, 1), else_=0)


def _at(query: AnySelect, row: type[SettingMixin], setting: Setting) -> AnySelect:
    """`query`, kept to rows of this device, target and threads."""
    return (
        query.join(DeviceRow, DeviceRow.id == row.device_id)
        .join(TargetRow, TargetRow.id == row.target_id)
        .join(VersionsRow, VersionsRow.id == row.versions_id)
        .where(DeviceRow.fingerprint == setting.device, TargetRow.key == setting.target)
        .where(row.threads == setting.threads)
    )


def _plan_id(connection: Connection, ids: Identities, graph_key: str, key: str) -> int:
    found = ids.find(connection, PlanRow, graph_key=graph_key, key=key)
    if found is None:
        raise InputError(f"plan {key[:12]} of graph {graph_key[:12]} is not stored: call record_plan first")
    return found


def _workload_id(connection: Connection, ids: Identities, key: str) -> int:
    found = ids.find(connection, WorkloadRow, key=key)
    if found is None:
        raise InputError(f"workload {key[:12]} is not stored: call record_workload first")
    return found
