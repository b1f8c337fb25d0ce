"""What `compile` reads: the newest confirmed choice, else the best that is known."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from autofuse.database.database import ProfilingDatabase
from autofuse.database.records import (
    CandidateOutcome,
    ChosenGroup,
    EdgeDecision,
    PlanOutcome,
    RunStart,
    SampleBlock,
    Setting,
    Trial,
    content_key,
)
from autofuse.errors import InputError

Outcome = Callable[..., CandidateOutcome]
Settings = Callable[..., Setting]
Runs = Callable[..., RunStart]
GRAPH = content_key("graph of net")


def whole(plan: str | None, us: float, name: str = "search", trusted: bool = True) -> PlanOutcome:
    return PlanOutcome(
        name=name,
        series="s1",
        plan_key=plan,
        state="ok",
        median_us=us,
        ci_lo_us=us,
        ci_hi_us=us,
        trusted=trusted,
        blocks=(SampleBlock((us,), 1.0),),
    )


@pytest.fixture
def run(database: ProfilingDatabase, setting: Setting, make_run: Runs) -> int:
    number = database.start_run(setting, make_run())
    for plan in ("p1", "p2", "p3"):
        database.record_plan(GRAPH, plan, f'{{"plan": "{plan}"}}', "search")
    return number


def test_nothing_is_known_of_an_unknown_graph(database: ProfilingDatabase, setting: Setting, run: int) -> None:
    assert database.best_plan(setting, content_key("another graph")) is None
    assert database.best_plan(setting, GRAPH) is None


def test_each_better_source_takes_over(
    database: ProfilingDatabase, setting: Setting, make_outcome: Outcome, run: int
) -> None:
    database.record_trial(run, Trial(number=0, answers={}, state="complete", plan_key="p1", composed_us=9.0))
    database.record_trial(run, Trial(number=1, answers={}, state="complete", plan_key="p2", composed_us=8.0))
    composed = database.best_plan(setting, GRAPH)
    assert composed is not None and (composed.plan_key, composed.source, composed.median_us) == ("p2", "composed", 8.0)

    database.record_plan_measurement(run, whole("p1", 20.0))
    database.record_plan_measurement(run, whole("p2", 10.0, trusted=False))
    database.record_plan_measurement(run, whole(None, 5.0, "onnxruntime"))
    measured = database.best_plan(setting, GRAPH)
    assert measured is not None and (measured.plan_key, measured.source, measured.trusted) == ("p1", "measured", True)

    candidate = database.record_candidate(setting, make_outcome(), run)
    database.record_workload(content_key("pool"), '"pool"', "pool")
    groups = (
        ChosenGroup(("conv1", "relu1"), content_key("conv"), candidate, 100.0),
        ChosenGroup(("pool1",), content_key("pool")),
    )
    database.record_choice(run, "p3", groups, median_us=30.0, trusted=True, details={"layouts": {"t": "c8"}})
    chosen = database.best_plan(setting, GRAPH)
    assert chosen is not None
    assert (chosen.plan_key, chosen.source, chosen.tier, chosen.run_id) == ("p3", "chosen", "exact", run)
    assert chosen.plan == '{"plan": "p3"}' == database.plan("p3")
    assert chosen.groups == groups and chosen.details == {"layouts": {"t": "c8"}}


def test_the_newest_choice_counts_trusted_before_untrusted_and_exact_before_stale(
    database: ProfilingDatabase, make_setting: Settings, setting: Setting, make_run: Runs, run: int
) -> None:
    database.record_choice(run, "p1", (), median_us=1.0, trusted=True)
    database.record_choice(run, "p2", (), median_us=2.0, trusted=True)
    assert database.best_plan(setting, GRAPH).plan_key == "p2"  # type: ignore[union-attr]
    database.record_choice(run, "p3", (), median_us=0.5, trusted=False)
    assert database.best_plan(setting, GRAPH).plan_key == "p2"  # type: ignore[union-attr]
    newer = make_setting(tvm="0.28")
    database.record_choice(database.start_run(newer, make_run()), "p1", (), median_us=9.0, trusted=True)
    assert database.best_plan(setting, GRAPH).plan_key == "p2"  # type: ignore[union-attr]
    latest = database.best_plan(newer, GRAPH)
    assert latest is not None and (latest.plan_key, latest.tier) == ("p1", "exact")
    oldest = database.best_plan(make_setting(tvm="0.29"), GRAPH)
    assert oldest is not None and (oldest.plan_key, oldest.tier) == ("p1", "stale")


@pytest.mark.parametrize("other", [{"device": "board"}, {"threads": 2}])
def test_a_plan_of_another_device_or_thread_count_is_a_miss(
    database: ProfilingDatabase, make_setting: Settings, run: int, other: dict[str, object]
) -> None:
    database.record_choice(run, "p1", (), median_us=1.0, trusted=True)
    assert database.best_plan(make_setting(**other), GRAPH) is None


def test_a_plan_is_stored_once_with_its_first_origin(database: ProfilingDatabase, run: int) -> None:
    database.record_plan(GRAPH, "p1", "{}", "dnnfusion")
    database.record_plan(content_key("g2"), "p1", "{}", "dnnfusion")
    assert [(row[1], row[3]) for row in database.table("plans").rows if row[1] == "p1"] == [
        ("p1", "search"),
        ("p1", "dnnfusion"),
    ]


def test_a_measurement_needs_its_plan_and_run(database: ProfilingDatabase, run: int) -> None:
    with pytest.raises(InputError, match="record_plan first"):
        database.record_plan_measurement(run, whole("p9", 1.0))
    with pytest.raises(InputError, match="no run 5000"):
        database.record_plan_measurement(5000, whole("p1", 1.0))
    with pytest.raises(InputError, match="record_workload first"):
        database.record_choice(run, "p1", [ChosenGroup(("a",), "?")], median_us=None, trusted=False)
    assert database.table("choices").rows == [] == database.table("plan_measurements").rows


def test_edges_are_replaced_by_what_the_run_says_last(database: ProfilingDatabase, run: int) -> None:
    database.record_edges(run, "p1", [EdgeDecision("a", "b", True, "chosen_measured", 3.5)])
    last = [EdgeDecision("a", "b", False, "measured_slower", -1.0), EdgeDecision("b", "c", False, "illegal_cycle")]
    database.record_edges(run, "p1", last)
    rows = database.table("edges", run).rows
    assert [row[2:7] for row in rows] == [
        ("a", "b", False, "measured_slower", -1.0),
        ("b", "c", False, "illegal_cycle", None),
    ]


def test_unknown_reasons_states_and_views_name_the_allowed_ones(database: ProfilingDatabase) -> None:
    with pytest.raises(InputError, match="within_noise"):
        EdgeDecision("a", "b", False, "because")
    with pytest.raises(InputError, match="complete"):
        Trial(number=0, answers={}, state="done")
    with pytest.raises(InputError, match="exactly when"):
        Trial(number=0, answers={}, state="complete")
    with pytest.raises(InputError, match="plan_measurements"):
        database.table("everything")


def test_values_that_json_cannot_hold_are_refused(database: ProfilingDatabase, run: int) -> None:
    with pytest.raises(InputError, match="JSON"):
        database.record_trial(run, Trial(number=0, answers={"x": float("nan")}, state="running"))
    assert database.trials(run) == ()
