"""The rates of a device: probed once, kept in runs and in profiles, printed for others to compile for it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from autofuse.cli.main import app
from autofuse.database.database import open_database
from autofuse.database.records import RunStart
from autofuse.device.profile import ProbedRates, load_profile
from autofuse.device.rates import CoreRates
from autofuse.environment.environment import environment_of
from autofuse.environment.rates import RATES, core_rates, machine_rates

RATE_OF_TESTS = 50.0
"""What every probe of a test finds, see `conftest.no_probing`."""


def test_a_profile_is_printed_with_its_rates(tmp_path: Path) -> None:
    for option in ([], ["--rates"]):
        done = CliRunner().invoke(app, ["device", "probe", *option])
        assert done.exit_code == 0, done.stderr
        path = tmp_path / "board.toml"
        path.write_text(done.stdout, encoding="utf-8")
        rates = load_profile(path).rates
        assert (rates is not None) == bool(option)
    assert rates is not None and rates.gflops_1 == RATE_OF_TESTS


def test_rates_are_those_of_the_newest_run_then_of_the_profile_then_probed(tmp_path: Path) -> None:
    with open_database(tmp_path / "times.db") as base:
        environment = environment_of(base, "local", 1, measuring=False)
        probed = machine_rates(base, environment)
        assert probed is not None and probed["gflops_1"] == RATE_OF_TESTS
        profile = environment.profile.model_copy(update={"rates": ProbedRates(threads=1, gflops_1=70.0)})
        described = replace(environment, profile=profile)
        found = machine_rates(base, described)
        assert found is not None and found["gflops_1"] == pytest.approx(70.0)
        other = replace(described, profile=profile.model_copy(update={"rates": ProbedRates(threads=2, gflops_1=7.0)}))
        found = machine_rates(base, other)
        assert found is not None and found["gflops_1"] == RATE_OF_TESTS, "those of another number of threads"
        for rate in (80.0, 90.0):
            start = RunStart(
                name=f"run {rate}", model_name="m", model_sha256="0" * 64, graph_key="0" * 64, seed=0,
                provenance={RATES: {"gflops_1": rate}},
            )  # fmt: skip
            base.finish_run(base.start_run(environment.setting, start))
        assert machine_rates(base, described) == {"gflops_1": 90.0}


def test_a_core_that_nobody_probed_is_known_by_the_shipped_profile_of_its_kind_or_else_as_usual(tmp_path: Path) -> None:
    with open_database(tmp_path / "times.db") as base:
        environment = environment_of(base, "local", 1, measuring=False)

        def rates_of(core: str, lanes: int = 16) -> CoreRates:
            return core_rates(base, replace(environment, target=replace(environment.target, mcpu=core, lanes=lanes)))

        slow, fast = rates_of("emeraldrapids"), rates_of("znver5")
        assert slow.l3_gbs / slow.gflops < 0.5 * fast.l3_gbs / fast.gflops
        assert rates_of("sierraforest", 8) == CoreRates.usual(8)
        profile = environment.profile.model_copy(update={"rates": ProbedRates(threads=1, gflops_1=70.0, l3_gbs_1=20.0)})
        assert core_rates(base, replace(environment, profile=profile)) == CoreRates(70.0, 20.0)
