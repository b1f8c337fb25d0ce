"""The winners that a checkout brings are sound, name nobody, and are priors of several kinds of CPU."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from autofuse import api
from autofuse.database.database import open_database
from autofuse.values.resources import data_path

WINNERS = data_path("profiles") / "winners"

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("winners") / "profile.db"
    assert api.db_import(WINNERS, database=str(path)).priors
    return path


def test_they_are_sound_and_shared_by_devices_that_nobody_has(imported: Path) -> None:
    assert api.db_check(str(imported)).ok
    with open_database(imported, read_only=True) as database:
        devices = database.table("devices").records()
    assert all(str(row["fingerprint"]).startswith("shared:") and row["name"] == "shared" for row in devices)
    assert {"znver3", "znver4", "znver5", "emeraldrapids"} <= {str(row["facts"]["mcpu"]) for row in devices}


def test_each_kernel_has_one_schedule_on_each_device(imported: Path) -> None:
    """It may have been timed as the code of several checkouts."""
    place, counts = "workload_id, device_id, target_id, threads", []
    with closing(sqlite3.connect(imported)) as connection:
        for columns in (place, f"{place}, schedule_id"):
            text = f"SELECT COUNT(*) FROM (SELECT DISTINCT {columns} FROM af_candidate)"
            counts.append(connection.execute(text).fetchone()[0])
    assert counts[0] == counts[1] > 1000
