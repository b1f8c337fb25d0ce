"""The search of a model with open sizes as a job has it: in slices, stopped, gone on with, concluded."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from autofuse.compiler.open_sizes.plans import RangedPlan
from autofuse.database.database import open_database
from autofuse.environment.place import Place
from autofuse.graph.loading.given.sizes import open_sizes
from autofuse.opened.row_tiles import RowModel
from autofuse.opened.search.opening import open_session
from autofuse.opened.search.session import OpenSession
from autofuse.search.budget.budget import Budget
from autofuse.search.progress import SearchRequest
from tests.compiler.open_sizes.models import PERCEPTRON, PERCEPTRON_WEIGHTS, write
from tests.search.conftest import SyntheticDevice

SIZES = open_sizes(["batch=1:5"])
Opened = Callable[[], AbstractContextManager[OpenSession]]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write(tmp_path / "rows.onnx", PERCEPTRON, PERCEPTRON_WEIGHTS)


@pytest.fixture
def opened(device: SyntheticDevice, space: Path, model: Path, monkeypatch: pytest.MonkeyPatch) -> Opened:
    """`with opened() as session`: a kernel costs the same whatever it holds, so that fusing more pays."""

    def written(self: RowModel, chosen: Sequence[RangedPlan], output: Path) -> None:
        output.write_text(str(sum(10.0 * tile.runs for tile in self.tiled(chosen[0].found).tiles)))

    device.cost = lambda _workload, _schedule: 10.0
    monkeypatch.setattr("autofuse.opened.search.opening.open_runner", device)
    monkeypatch.setattr(RowModel, "write", written)

    @contextmanager
    def call() -> Iterator[OpenSession]:
        place, request = Place(str(model.with_suffix(".db")), threads=1), SearchRequest(space=str(space), sizes=SIZES)
        with open_database(place.database) as base, open_session(model, base, place, request) as session:
            yield session

    return call


def state_of(model: Path, run: int) -> str:
    with open_database(model.with_suffix(".db"), read_only=True) as base:
        found = base.run(run)
        assert found is not None
        return found.state


def test_slices_come_to_what_one_search_does_and_a_stopped_one_goes_on(
    opened: Opened, device: SyntheticDevice, model: Path
) -> None:
    with opened() as session:
        assert not session.ready() and session.ahead() == () and session.least_s() == 0.0
        assert not session.advance(Budget(), trials=1)
        assert session.ready() and session.best_us() is not None, "first times come in any case"
        assert 0.0 < sum(one.share for one in session.ahead()) <= 1.0
        run, tried = session.run_id, session.run.tried
        stopped = Budget(over=lambda: True, stop=lambda: True)
        assert session.conclude(stopped) is None
    assert state_of(model, run) == "interrupted"
    device.measured.clear()
    with opened() as session:
        assert session.run_id == run and session.run.tried >= tried and session.ready()
        assert session.counts.measured == 0 and session.counts.hits > 0
        while not session.advance(Budget(), trials=8):
            session.release()
        known = len(device.measured)
        assert session.advance(Budget()) and len(device.measured) == known, "nothing is left"
        assert 0.0 < session.least_s() < session.reserve(race_s=50.0)() <= 60.0
        assert session.reserve(allowed_s=1.0)() == 1.0
        result = session.conclude(Budget(), race_s=10.0)
    assert result is not None and state_of(model, run) == "finished"
    assert (result.chosen, result.sizes, result.run_id) == ("search", ("batch=1:5",), run)
    assert result.decision is not None and result.decision.verdict == "faster"


def test_other_ranges_are_another_run(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened() as session:
        run = session.run_id
    monkeypatch.setattr(f"{__name__}.SIZES", open_sizes(["batch=1:4"]))
    with opened() as session:
        assert session.run_id != run
