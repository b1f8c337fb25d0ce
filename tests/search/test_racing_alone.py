"""The chosen plan is raced against ONNX Runtime alone at the end of a search, in time that is kept for it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from autofuse.database.database import open_database
from autofuse.environment.alone import OWN
from autofuse.search.budget.time_budget import ALONE_RACE_S, alone_race_seconds
from autofuse.search.progress import TuneResult
from autofuse.values.names import ONNX_RUNTIME
from tests.search.slow_device import World, put_in_place

Tune = Callable[..., TuneResult]


def raced(database: Path) -> list[str]:
    """Contenders of races of libraries with ONNX Runtime alone, as they are recorded."""
    with open_database(database, read_only=True) as base:
        rows = base.table("plan_measurements").records()
        keys = {row["graph_key"] for row in rows if row["name"] == ONNX_RUNTIME}
        return [str(row["name"]) for row in rows if row["graph_key"] in keys]


@pytest.mark.parametrize(
    ("alone_us", "who"),
    [(1.0, "ONNX Runtime runs the model"), (1e6, "kernels of autofuse run the model")],
    ids=["slower", "faster"],
)
def test_the_race_is_recorded_and_told(
    alone_us: float, who: str, run: Tune, device: Any, two_layers: Path, tmp_path: Path
) -> None:
    device.alone_us = alone_us
    result = run(two_layers, alone=True)
    assert device.raced[-2:] == [OWN, ONNX_RUNTIME] and raced(tmp_path / "profile.db") == [OWN, ONNX_RUNTIME]
    assert result.alone.endswith(who) and "x as fast as ONNX Runtime alone" in result.alone
    with open_database(tmp_path / "profile.db", read_only=True) as base:
        info = base.run(number=result.run_id)
        assert info is not None and (info.summary or {})["alone"] == result.alone


def test_nothing_is_raced_unless_it_is_wished(run: Tune, device: Any, two_layers: Path, tmp_path: Path) -> None:
    assert run(two_layers).alone == "" and raced(tmp_path / "profile.db") == []


def test_a_rival_that_computes_something_else_is_no_rival(
    run: Tune, device: Any, two_layers: Path, tmp_path: Path
) -> None:
    device.alone_us = "far off"
    assert run(two_layers, alone=True).alone == "not raced against ONNX Runtime alone: far off"
    assert raced(tmp_path / "profile.db") == []


def test_two_percent_of_a_budget_are_kept_and_no_more_than_needed() -> None:
    assert [alone_race_seconds(budget_s) for budget_s in (50.0, 600.0, None)] == [1.0, ALONE_RACE_S, ALONE_RACE_S]


@pytest.mark.parametrize("budget_s", [10.0, 60.0, 600.0])
@pytest.mark.parametrize("run_s", [2.0, 40.0], ids=["quick", "slow runs"])
def test_the_budget_is_kept_with_it(
    budget_s: float, run_s: float, run: Tune, two_layers: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where no time is left the race is not begun, and that is said."""
    world = World(run_s=run_s)
    put_in_place(world, monkeypatch)
    result = run(two_layers, budget_s=budget_s, alone=True)
    assert world.now <= 1.1 * budget_s + 10.0 and result.state == "finished"
    if budget_s == 10.0:
        assert result.alone in ("", "not raced against ONNX Runtime alone: no time was left")
    if budget_s == 600.0 and run_s == 2.0:
        assert "x as fast as ONNX Runtime alone" in result.alone
