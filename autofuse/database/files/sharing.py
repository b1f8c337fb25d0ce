"""What may be shared of a profiling database: times of kernels on kinds of CPU, and nothing that names anybody.

A kernel is known by its operators and shapes, a device by its hardware. Names of models, runs, hosts and users, plans
(which name a model's operators), jobs, messages and failures stay out. Devices of shared rows have a fingerprint that
no device ever has: nothing takes their times for its own, and they are priors only (`tables.columns.is_shared`).
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Mapping

from autofuse.database.content.values import parse_document
from autofuse.database.records import OK
from autofuse.database.tables.columns import SHARED

NAME = "shared"
HARDWARE = (
    "cpu", "mcpu", "architecture", "mtriple", "mattr", "lanes", "registers", "features", "cores", "caches",
)  # fmt: skip
"""Facts of a device that are shared: those that its fingerprint is made of."""
_NAMED_CPU = "profile"
"""Key under which a CPU is the name of its profile, which somebody gave it."""
_OTHERS = (
    "af_worker", "af_task", "af_job", "af_edge", "af_choice_group", "af_choice", "af_trial", "af_plan_measurement",
    "af_plan",
)  # fmt: skip
_UNUSED = {
    "af_workload": "workload_id", "af_schedule": "schedule_id", "af_code": "code_id", "af_versions": "versions_id",
    "af_target": "target_id", "af_device": "device_id",
}  # fmt: skip


def all_shared(connection: sqlite3.Connection) -> bool:
    """Whether a database holds shared rows alone."""
    prints = [str(text) for (text,) in connection.execute("SELECT fingerprint FROM af_device")]
    return bool(prints) and all(text.startswith(SHARED) for text in prints)


def keep_shareable(connection: sqlite3.Connection, *, own_only: bool) -> None:
    """Reduce a database, which must be a copy, to what may be shared.

    `own_only`: without rows that others shared: only who measured a time passes it on.
    """
    connection.execute("PRAGMA foreign_keys = OFF")
    for table in _OTHERS:
        connection.execute(f"DELETE FROM {table}")
    connection.execute("UPDATE af_measurement SET run_id = NULL")
    connection.execute("DELETE FROM af_run")
    if own_only:
        theirs = "SELECT id FROM af_device WHERE substr(fingerprint, 1, ?) = ?"
        connection.execute(f"DELETE FROM af_candidate WHERE device_id IN ({theirs})", (len(SHARED), SHARED))
    connection.execute("DELETE FROM af_candidate WHERE state != ?", (OK,))
    connection.execute(
        "DELETE FROM af_measurement WHERE state != ? OR candidate_id NOT IN (SELECT id FROM af_candidate)", (OK,)
    )
    for table in ("af_sample", "af_doubt"):
        connection.execute(f"DELETE FROM {table} WHERE measurement_id NOT IN (SELECT id FROM af_measurement)")
    connection.execute("UPDATE af_doubt SET reason = 'doubted'")
    _name_measurements(connection)
    for number, fingerprint, facts in connection.execute("SELECT id, fingerprint, facts FROM af_device").fetchall():
        row = (_renamed(str(fingerprint)), NAME, json.dumps(_hardware(facts)), number)
        connection.execute("UPDATE af_device SET fingerprint = ?, name = ?, facts = ? WHERE id = ?", row)
    for table, column in _UNUSED.items():
        connection.execute(f"DELETE FROM {table} WHERE id NOT IN (SELECT {column} FROM af_candidate)")


def _name_measurements(connection: sqlite3.Connection) -> None:
    """Measurements get other names than they have at home, so that a copy that comes back is no second measurement of
    one candidate; those that are shared already keep theirs."""
    rows = connection.execute(
        "SELECT m.id, m.uid FROM af_measurement m JOIN af_candidate c ON c.id = m.candidate_id"
        " JOIN af_device d ON d.id = c.device_id WHERE substr(d.fingerprint, 1, ?) != ?",
        (len(SHARED), SHARED),
    ).fetchall()
    named = [(hashlib.sha256(f"{SHARED}{uid}".encode()).hexdigest(), number) for number, uid in rows]
    connection.executemany("UPDATE af_measurement SET uid = ? WHERE id = ?", named)


def _renamed(fingerprint: str) -> str:
    if fingerprint.startswith(SHARED):
        return fingerprint
    return SHARED + hashlib.sha256(fingerprint.encode()).hexdigest()


def _hardware(facts: object) -> Mapping[str, object]:
    """The facts of a device that describe its hardware alone."""
    found = parse_document(str(facts))
    if not isinstance(found, dict):
        return {}
    kept = {name: found[name] for name in HARDWARE if name in found}
    if isinstance(kept.get("cpu"), dict) and _NAMED_CPU in kept["cpu"]:
        kept["cpu"] = {}
    return kept
