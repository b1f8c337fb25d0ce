"""The recorded oracles that are shipped: they come in whole, are small, and hold eight networks of three CPUs each."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from autofuse.database.database import open_database
from autofuse.database.files.upkeep import import_database
from autofuse.values.resources import data_path
from experiments.replay.recorded import read_oracles

MOST_BYTES = 4 << 20


@pytest.mark.long
def test_they_are_small_come_in_whole_and_answer_for_eight_networks_on_three_cpus(tmp_path: Path) -> None:
    folder = data_path("profiles") / "oracles"
    assert sum(path.stat().st_size for path in folder.iterdir()) < MOST_BYTES
    with open_database(tmp_path / "oracles.db") as base:
        assert import_database(base, folder).changes > 5000
        assert base.problems() == []
        oracles = list(read_oracles(base, tmp_path))
        runs = [json.dumps(run, default=str) for run in base.table("runs").records()]
    assert not any('"/' in run for run in runs), "no path of a machine"
    kinds = {one.where.setting.device for one in oracles}
    assert len(kinds) == 3 and len(oracles) == 24
    for one in oracles:
        assert one.plans and 200 <= len(one.answers) <= 1000 and one.cost_s > 100.0
        assert sum(answer.stored.median_us is not None for answer in one.answers.values()) > 0.9 * len(one.answers)
