"""Probing a machine takes a part of a budget at most: it is left out, and nothing fails, where that is too little."""

from __future__ import annotations

import pytest

from autofuse.database.database import ProfilingDatabase
from autofuse.environment import rates
from autofuse.environment.environment import Environment, environment_of
from autofuse.environment.rates import LEAST_PROBING_S, PROBING_SHARE, machine_rates
from autofuse.errors import DeviceError
from autofuse.measure.machine import LIMIT_S, MachineRates

FOUND = MachineRates(1, 100.0, 100.0, 50.0, 50.0, 10.0, 10.0)
Limits = list[float]


@pytest.fixture
def environment(database: ProfilingDatabase) -> Environment:
    return environment_of(database, "local", 1, measuring=False)


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch) -> Limits:
    """What each probing was allowed to take."""
    found: Limits = []

    def probe(_target: object, _threads: int, _l3_bytes: int, limit_s: float) -> MachineRates:
        found.append(limit_s)
        return FOUND

    monkeypatch.setattr(rates, "probe_machine", probe)
    monkeypatch.setattr(rates, "known_rates", lambda *_: {})
    return found


def test_a_budget_without_an_end_probes_as_long_as_it_takes(
    database: ProfilingDatabase, environment: Environment, limits: Limits
) -> None:
    found = machine_rates(database, environment)
    assert found is not None and found["gflops_1"] == 100.0 and limits == [LIMIT_S]


def test_a_long_budget_gives_a_part_of_itself(
    database: ProfilingDatabase, environment: Environment, limits: Limits
) -> None:
    assert machine_rates(database, environment, 60.0) is not None
    assert machine_rates(database, environment, 1e6) is not None
    assert limits == [pytest.approx(PROBING_SHARE * 60.0), LIMIT_S]


def test_a_short_budget_is_not_spent_on_probing(
    database: ProfilingDatabase, environment: Environment, limits: Limits
) -> None:
    assert machine_rates(database, environment, 0.99 * LEAST_PROBING_S / PROBING_SHARE) is None and not limits


def test_a_probing_that_ends_too_late_is_as_none(
    database: ProfilingDatabase, environment: Environment, limits: Limits, monkeypatch: pytest.MonkeyPatch
) -> None:
    def late(*_: object) -> MachineRates:
        raise DeviceError("cannot measure a machine's rates: no answer")

    monkeypatch.setattr(rates, "probe_machine", late)
    assert machine_rates(database, environment, 60.0) is None and not limits
