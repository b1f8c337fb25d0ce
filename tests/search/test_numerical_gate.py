"""A network that Winograd's rounding carries too far gets smaller tiles, or none; each kernel is right by itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import autofuse
from autofuse.compiler import CompileReport
from autofuse.database.database import open_database
from autofuse.environment.place import Place
from autofuse.environment.plan_evidence import known_limits
from autofuse.errors import WrongResultError
from autofuse.graph.key import graph_key
from autofuse.graph.loading.load import load
from autofuse.kernels.schedule.limits import winograd_tile
from autofuse.search.lab import revalidation
from autofuse.search.progress import SearchRequest, TuneResult
from autofuse.views.frames.lookups import lookups_of

SPACE = """
schema = 1
[schedule.contraction]
algorithm = ["direct", "winograd4", "winograd2"]
vectors = [1]
pixels = [4]
rows_per_task = [1]
panels_per_task = [1]
order = ["weights"]
pixel_rows = [1]
k_blocking = [1]
tiles = [6]
stage = ["chunk"]
"""
TILES_US = {4: 10.0, 2: 20.0, 0: 40.0}


class Sensitive:
    """Tunes and compiles a network whose libraries are right up to tiles of `allowed`."""

    def __init__(self, device: Any, monkeypatch: pytest.MonkeyPatch, model: Path, database: Path, space: Path) -> None:
        self.device, self.model, self.database, self.space = device, model, database, space
        self.allowed = 4
        self.taken: dict[str, int] = {}
        build = device.build

        def watched(model: Any, target: Any, threads: int, orders: Any, *rest: Any, **named: Any) -> dict[str, str]:
            self.taken = {order.name: max(map(winograd_tile, order.schedules.values())) for order in orders}
            made: dict[str, str] = build(model, target, threads, orders, *rest, **named)
            return made

        device.cost = lambda _workload, schedule: TILES_US[winograd_tile(schedule)]
        device.whole = lambda name, us: us if self.taken[name] <= self.allowed else "output 0: off"
        monkeypatch.setattr("autofuse.search.finals.finals.build_libraries", watched)

    def tune(self) -> TuneResult:
        from autofuse.search.tune import tune

        return tune(
            self.model, Place(str(self.database), threads=1), SearchRequest(space=str(self.space), trained="none")
        )

    def compile(self, plan: str = "best", **options: Any) -> CompileReport:
        """A dry run."""
        return autofuse.compile(self.model, dry_run=True, database=str(self.database), threads=1, plan=plan, **options)

    def tile(self) -> int:
        """The largest tiles with which the database knows the network to be right."""
        place = Place(str(self.database), "local", 1)
        with open_database(self.database) as base:
            setting = place.environment(base, measuring=False).setting
            return known_limits(base, setting, graph_key(load(self.model, {}))).winograd_tile

    def measured_tiles(self) -> set[int]:
        """Tiles of the candidates measured since this was asked last."""
        found = {winograd_tile(json.loads(schedule)) for _, schedule in self.device.measured}
        self.device.measured.clear()
        return found


@pytest.fixture
def network(device: Any, monkeypatch: pytest.MonkeyPatch, onnx_builder: Any, tmp_path: Path) -> Sensitive:
    b = onnx_builder()
    x = b.op("Relu", "relu", b.op("Conv", "first", "x", b.weights(32, 16, 3, 3), pads=[1, 1, 1, 1]))
    y = b.op("Conv", "second", x, b.weights(16, 32, 3, 3), pads=[1, 1, 1, 1])
    model = b.save(tmp_path / "net.onnx", {"x": [1, 16, 24, 24]}, [y])
    space = tmp_path / "space.toml"
    space.write_text(SPACE)
    return Sensitive(device, monkeypatch, model, tmp_path / "profile.db", space)


def largest(report: CompileReport) -> int:
    return max(winograd_tile(json.loads(group.schedule)) for group in report.groups)


def test_a_network_that_is_right_with_the_fastest_tiles_keeps_them(network: Sensitive) -> None:
    result = network.tune()
    assert network.tile() == 4 and "Winograd" not in result.warning
    assert largest(network.compile()) == 4


@pytest.mark.parametrize(("allowed", "said"), [(2, "tiles of 2x2 at most"), (0, "no such kernel")])
def test_a_network_that_magnifies_rounding_gets_the_largest_tiles_that_are_right(
    network: Sensitive, allowed: int, said: str
) -> None:
    network.allowed = allowed
    result = network.tune()
    assert set(network.taken.values()) == {allowed}
    assert network.tile() == allowed and said in result.warning
    for plan in ("best", "none", "default"):  # whatever is asked for: larger tiles are known to be wrong here
        assert largest(network.compile(plan)) == allowed
    assert largest(network.compile(weight_growth=1.0)) == 0
    assert network.compile(strict=True).hits == len(network.compile().groups)


def test_what_was_learned_holds_for_the_next_search(network: Sensitive) -> None:
    network.allowed = 2
    network.tune()
    assert network.measured_tiles() == {4, 2, 0}
    network.tune()
    assert network.tile() == 2
    assert 4 not in network.measured_tiles()
    assert 4 not in network.taken.values()


def test_a_network_that_is_wrong_with_no_tiles_at_all_is_refused(network: Sensitive) -> None:
    network.allowed = -1
    with pytest.raises(WrongResultError, match="no plan is right as a whole"):
        network.tune()
    assert set(network.taken.values()) == {0}


def test_a_network_that_was_never_right_leaves_no_limit_behind(network: Sensitive) -> None:
    """Something else is wrong with it, which may be mended."""
    network.allowed = -1
    with pytest.raises(WrongResultError):
        network.tune()
    assert network.tile() == 4


def test_the_report_and_a_revalidation_keep_to_the_limits(network: Sensitive) -> None:
    """The fastest schedule of each kernel is one that this network may not have."""
    network.allowed = 2
    network.tune()
    with open_database(network.database) as base:
        setting = Place(str(network.database), "local", 1).environment(base, measuring=False).setting
        again = [json.loads(winner.best.schedule) for winner in revalidation._winners(base, setting)]
        assert {winograd_tile(schedule) for schedule in again} == {2}
        shown = lookups_of(base)
        texts = {row["candidate_id"]: row["schedule"] for row in base.table("candidates").records()}
        taken = {winograd_tile(json.loads(str(texts[number]))) for number in shown["candidate_id"]}
        assert taken == {2} and set(shown["limits"]) == {'{"winograd_tile": 2}'}
