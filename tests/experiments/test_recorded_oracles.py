"""The recorded oracles that are shipped: they come in whole, are small, and hold eight networks to replay."""

from __future__ import annotations

from pathlib import Path

import pytest

from autofuse.database.database import open_database
from autofuse.database.files.upkeep import import_database
from autofuse.values.resources import data_path
from experiments.replay.recorded import read_oracles

MOST_BYTES = 2 << 20


@pytest.mark.long
def test_they_are_small_come_in_whole_and_answer_for_eight_networks(tmp_path: Path) -> None:
    folder = data_path("profiles") / "oracles"
    assert sum(path.stat().st_size for path in folder.iterdir()) < MOST_BYTES
    with open_database(tmp_path / "oracles.db") as base:
        assert import_database(base, folder).changes > 5000
        assert base.problems() == []
        oracles = list(read_oracles(base, tmp_path))
    assert len({one.network for one in oracles}) == 8
    for one in oracles:
        assert one.plans and 200 <= len(one.answers) <= 500 and one.cost_s > 100.0
        assert sum(answer.stored.median_us is not None for answer in one.answers.values()) > 0.9 * len(one.answers)
