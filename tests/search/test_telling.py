"""What a search tells while it runs: phases in their order, an end that counts the finalists, known rivals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from autofuse.database.database import open_database
from autofuse.database.records import PlanOutcome
from autofuse.search.progress import PHASES, Progress
from autofuse.search.standing.telling import until_the_end


def told(run: Any, model: Path, **changes: Any) -> list[Progress]:
    states: list[Progress] = []
    run(model, progress=states.append, **changes)
    return states


def test_the_phases_are_told_in_their_order_from_the_opening_on(run: Any, device: Any, two_layers: Path) -> None:
    states = told(run, two_layers)
    phases = list(dict.fromkeys(state.phase for state in states))
    assert phases == [phase for phase in PHASES if phase in phases]
    assert phases[:2] == ["opening", "baselines"] and phases[-1] == "confirming"
    assert states[0].note == "reading two_layers.onnx"


def test_the_baselines_count_their_workloads(run: Any, device: Any, two_layers: Path) -> None:
    parts = [state.part for state in told(run, two_layers) if state.phase == "baselines" and state.part]
    assert parts and all(0 <= done <= total for done, total in parts)
    assert [done for done, _ in parts] == sorted(done for done, _ in parts)


def test_the_finalists_are_counted_while_they_are_built(run: Any, device: Any, two_layers: Path) -> None:
    states = [state for state in told(run, two_layers) if state.phase == "confirming"]
    parts = [state.part for state in states if state.note.startswith("building plan ")]
    assert len(parts) > 1 and parts == [(number, len(parts)) for number in range(len(parts))]
    assert {state.part for state in states if state.note == "measuring whole networks"} == {None}


def test_the_end_counts_building_and_measuring_the_finalists(run: Any, device: Any, two_layers: Path) -> None:
    states = told(run, two_layers, budget_s=3000.0)
    left = [state.left_s for state in states]
    assert left[0] == pytest.approx(3000.0, abs=1.0)
    before, at_last = [next(s for s in states if s.phase == phase) for phase in ("search", "confirming")]
    assert before.left_s is not None and at_last.left_s is not None
    assert before.elapsed_s + before.left_s == pytest.approx(3000.0, abs=1.0)
    assert 90.0 <= at_last.left_s < 150.0, "three hundredths of the budget measure the finalists where all is quiet"


def test_without_a_limit_no_end_is_made_up(run: Any, device: Any, two_layers: Path) -> None:
    assert all(state.left_s is None for state in told(run, two_layers) if state.phase != "confirming")


@pytest.mark.parametrize(
    ("left_s", "trials", "end_s"),
    [
        (100.0, None, 100.0),
        (100.0, 10, 50.0),
        (100.0, 1000, 100.0),
        (None, 10, 50.0),
        (None, None, None),
        (20.0, None, 30.0),
    ],
)
def test_the_time_left_is_that_of_the_work_and_never_less_than_the_finalists_take(
    left_s: float | None, trials: int | None, end_s: float | None
) -> None:
    assert until_the_end(left_s, trials, 30.0, 2.0) == end_s


def test_onnxruntimes_time_is_told_once_it_was_measured_here(
    run: Any, device: Any, two_layers: Path, tmp_path: Path
) -> None:
    assert {state.rival_us for state in told(run, two_layers)} == {None}
    with open_database(tmp_path / "profile.db") as base:
        (info,) = [base.run()]
        assert info is not None
        outcome = PlanOutcome(
            state="ok", median_us=77.0, ci_lo_us=76.0, ci_hi_us=78.0, trusted=True, name="onnxruntime", series="bench"
        )
        base.record_plan_measurement(info.id, outcome)
    assert told(run, two_layers)[-1].rival_us == 77.0
