"""The measurements that the shipped model can be trained from: they come in whole, and are of many networks."""

from __future__ import annotations

from pathlib import Path

import pytest

from autofuse.database.database import open_database
from autofuse.database.files.upkeep import import_database
from autofuse.values.resources import data_path

MOST_BYTES = 5 << 20


@pytest.mark.long
def test_it_is_small_comes_in_whole_and_is_of_twenty_networks(tmp_path: Path) -> None:
    folder = data_path("profiles") / "training"
    assert sum(path.stat().st_size for path in folder.iterdir()) < MOST_BYTES
    with open_database(tmp_path / "training.db") as base:
        assert import_database(base, folder).changes > 5000
        assert base.problems() == []
        runs = base.table("runs")
        places = {
            tuple(row[runs.columns.index(name)] for name in ("model_name", "device", "threads")) for row in runs.rows
        }
    assert len({network for network, _, _ in places}) >= 20
    assert len({device for _, device, _ in places}) == len({threads for _, _, threads in places}) == 2
