"""What others shared of kernels: worth a measurement, never taken unmeasured, and harmless when it lies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from autofuse import api
from autofuse.backend.compile.host_cpu import device_named
from autofuse.database.database import open_database
from autofuse.environment.place import Place
from autofuse.environment.space import load_space
from autofuse.graph.loading.load import load
from autofuse.kernels.workload.workload import bind_workload
from autofuse.search.lab.priors import shared_priors
from autofuse.search.lab.revalidation import revalidate
from autofuse.search.schedules.evidence import HINTS
from autofuse.search.schedules.schedule_search import WorkloadSearch


@pytest.fixture
def poisoned(run: Any, device: Any, two_layers: Path, tmp_path: Path) -> Path:
    """A database with rows that a liar shared: the worst schedules of each kernel have the best times."""
    honest = device.cost
    device.cost = lambda workload, schedule: 1000.0 / honest(workload, schedule)
    run(two_layers, database=str(tmp_path / "liar.db"))
    device.cost = honest
    device.measured.clear()
    api.db_export(tmp_path / "share", database=str(tmp_path / "liar.db"), share=True)
    api.db_import(tmp_path / "share", database=str(tmp_path / "poisoned.db"))
    return tmp_path / "poisoned.db"


def tried(device: Any) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for key, schedule in device.measured:
        found.setdefault(key, []).append(schedule)
    return found


def test_a_lie_never_stands_before_the_rules_own_schedule(
    run: Any, device: Any, two_layers: Path, tmp_path: Path, poisoned: Path
) -> None:
    with_lies = run(two_layers, database=str(poisoned), trials=1)
    first = {key: schedules[0] for key, schedules in tried(device).items()}
    device.measured.clear()
    without = run(two_layers, database=str(tmp_path / "clean.db"), trials=1)
    assert first == {key: schedules[0] for key, schedules in tried(device).items()}
    assert with_lies.plans[with_lies.chosen].composed_us == without.plans[without.chosen].composed_us


@pytest.mark.long
def test_lies_cost_a_few_measurements_and_change_no_answer(
    run: Any, device: Any, two_layers: Path, tmp_path: Path, poisoned: Path
) -> None:
    with_lies = run(two_layers, database=str(poisoned))
    order = tried(device)
    device.measured.clear()
    without = run(two_layers, database=str(tmp_path / "clean.db"))
    assert with_lies.hits == 0, "a shared time is not taken for a known one"
    assert with_lies.plans[with_lies.chosen].composed_us == without.plans[without.chosen].composed_us
    assert with_lies.measured <= without.measured + HINTS * len(order)


def test_a_shared_schedule_is_tried_after_the_rules_first_guess(two_layers: Path, space: Path) -> None:
    graph, target = load(two_layers, {}), device_named("local").target()
    workload = bind_workload(graph, [graph.operators[0].name], {})
    search = WorkloadSearch.create(workload, graph, target, load_space(str(space), target.isa).schedule, 0)
    (guess, *_), last = search.guesses(), list(search._every())[-1]
    search.hint(last)
    search.hint({"contraction.vectors": 2**20, "no.knob": 1})
    asked = [search.ask(), search.ask()]
    assert asked == [guess, last]


def test_nothing_shared_is_compiled_unmeasured(two_layers: Path, poisoned: Path) -> None:
    report = api.compile(two_layers, dry_run=True, database=str(poisoned), threads=1)
    assert {group.tier for group in report.groups} == {"rule"}


def test_priors_are_what_nobody_measured_here(run: Any, device: Any, two_layers: Path, poisoned: Path) -> None:
    def priors() -> set[str]:
        with open_database(poisoned) as base:
            return {one.key for one in shared_priors(base, Place(threads=1).environment(base, measuring=False))}

    before = priors()
    assert before
    run(two_layers, database=str(poisoned))
    assert priors() < before or not priors()


@pytest.mark.slow
def test_revalidating_measures_the_heaviest_prior_beside_the_rules_own_schedule(
    two_layers: Path, tmp_path: Path, run: Any, device: Any
) -> None:
    run(two_layers, database=str(tmp_path / "giver.db"))
    api.db_export(tmp_path / "share", database=str(tmp_path / "giver.db"), share=True)
    with open_database(tmp_path / "taker.db") as base:
        pass
    api.db_import(tmp_path / "share", database=str(tmp_path / "taker.db"))
    with open_database(tmp_path / "taker.db") as base:
        place = Place(threads=1)
        first = shared_priors(base, place.environment(base, measuring=False))[0]
        (done,) = revalidate(base, 1, place)
        assert (done.workload_key, done.verdict) == (first.key, "holds")
        assert done.new_us is not None and done.note.startswith("shared by others; here ")
        known = base.measured_schedules(place.environment(base, measuring=False).setting, first.key)
        assert 1 <= len(known) <= 2 and all(row.state == "ok" for row in known)
        assert first.key not in {
            one.key
            for one in shared_priors(base, place.environment(base, measuring=False))
            if one.schedule == first.schedule
        }
