"""Tiles of few rows read the weights that those of many rows have packed, so that a library holds them once."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from autofuse import api
from autofuse.backend.library.compiled import Library
from autofuse.compiler.report import CompileReport
from autofuse.database.database import ProfilingDatabase, open_database
from autofuse.database.records import Candidate, CandidateOutcome
from autofuse.environment.environment import environment_of
from autofuse.graph.loading.load import load
from autofuse.kernels.schedule.knobs import packing
from autofuse.kernels.workload.workload import Workload, bind_workload
from tests.compiler.open_sizes.models import built, check, weight, write

WIDE = """
rows (float[batch, 512] x) => (float[batch, 512] y) {
  a = Gemm (x, w, b)
  r = Relu (a)
  y = MatMul (r, v)
}"""
WIDE_WEIGHTS = {"w": weight(512, 2048), "b": weight(2048), "v": weight(2048, 512)}
ALONE = """
rows (float[batch, 512] x) => (float[batch, 2048] y) {
  y = MatMul (x, w)
}"""
ALONE_WEIGHTS = {"w": weight(512, 2048)}
SMALL = """
rows (float[batch, 64] x) => (float[batch, 80] y) {
  y = MatMul (x, w)
}"""
SIZES = {"batch": (1, 64)}
TWO_VECTORS: Mapping[str, int | str] = {"contraction.vectors": 2, "contraction.pixels": 2}
SIX_ROWS: Mapping[str, int | str] = {"contraction.vectors": 1, "contraction.pixels": 6}
FOUR_VECTORS: Mapping[str, int | str] = {"contraction.vectors": 4, "contraction.pixels": 2}


def packings(report: CompileReport) -> list[dict[str, int | str]]:
    """How each tile packs its weights, those of the most rows first."""
    return [packing(json.loads(group.schedule)) for group in report.groups]


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("alone") / "alone.onnx", ALONE, ALONE_WEIGHTS)


@pytest.mark.long
def test_a_library_holds_large_weights_once(tmp_path: Path) -> None:
    model = write(tmp_path / "wide.onnx", WIDE, WIDE_WEIGHTS)
    library = built(model, "batch", 1, 64)
    assert model.with_suffix(".so").stat().st_size < 1.2 * model.stat().st_size
    check(model, library, "batch", (1, 3, 4, 5, 16, 23, 64))


def test_tiles_of_small_weights_pack_them_as_suits_each(tmp_path: Path) -> None:
    """Nobody waits for what lies in the second cache."""
    model = write(tmp_path / "small.onnx", SMALL, {"w": weight(64, 80)})
    base = str(tmp_path / "a.db")
    report = api.compile(model, database=base, threads=1, dry_run=True, sizes=SIZES)
    for group, rows in zip(report.groups, (16, 4, 1), strict=True):
        fixed = api.compile(model, database=base, threads=1, dry_run=True, shapes={"x": (rows, 64)}, plan="none")
        assert json.loads(group.schedule) == json.loads(fixed.groups[0].schedule)


def measured(model: Path, base: Path, times: Sequence[tuple[int, Mapping[str, int | str], float]]) -> None:
    """Times of schedules of tiles of so many rows."""
    with open_database(base) as database:
        environment = environment_of(database, "local", 1, measuring=False)
        for rows, schedule, us in times:
            workload = tile(model, rows)
            code = environment.codes.now(workload, schedule)
            candidate = Candidate(workload.key, workload.text, workload.label, json.dumps(dict(schedule)), code)
            outcome = CandidateOutcome(
                state="ok", median_us=us, ci_lo_us=us, ci_hi_us=us, trusted=True, candidate=candidate
            )
            database.record_candidate(environment.setting, outcome)


def tile(model: Path, rows: int) -> Workload:
    graph = load(model, {"x": (rows, 512)})
    return bind_workload(graph, [operator.name for operator in graph.operators], {}).workload


@pytest.mark.parametrize(("shared_us", "wanted"), [(109.0, FOUR_VECTORS), (111.0, TWO_VECTORS)])
def test_a_tile_gives_up_a_tenth_of_its_measured_time_and_no_more(
    alone: Path, tmp_path: Path, shared_us: float, wanted: Mapping[str, int | str]
) -> None:
    base = tmp_path / "known.db"
    own = [(16, FOUR_VECTORS, 90.0), (4, TWO_VECTORS, 100.0), (4, FOUR_VECTORS, shared_us), (1, FOUR_VECTORS, 80.0)]
    measured(alone, base, own)
    report = api.compile(alone, database=str(base), threads=1, dry_run=True, sizes=SIZES)
    assert {group.tier for group in report.groups} == {"hit (tile)"}
    assert packings(report) == [packing(FOUR_VECTORS), packing(wanted), packing(FOUR_VECTORS)]


def test_what_was_not_measured_is_packed_as_the_first_tile_was(alone: Path, tmp_path: Path) -> None:
    base = tmp_path / "known.db"
    measured(alone, base, [(16, TWO_VECTORS, 90.0)])
    report = api.compile(alone, database=str(base), threads=1, dry_run=True, sizes=SIZES)
    assert packings(report) == [packing(TWO_VECTORS)] * 3


def test_tiles_are_chosen_by_their_times_where_all_were_measured(alone: Path, tmp_path: Path) -> None:
    """6 rows take 38 us, on the line from 4 to 16 rows: for a row that is more than a tile of 4 takes."""
    base, path = tmp_path / "known.db", tmp_path / "timed.so"
    measured(alone, base, [(16, SIX_ROWS, 118.0), (4, SIX_ROWS, 22.0)])
    untimed = api.compile(alone, database=str(base), threads=1, dry_run=True, sizes=SIZES)
    ruled = "tiles of 6 rows, the last ones of 5, 4, 2, 1, by rule"
    assert untimed.groups[0].source == f"tile of 16 rows; {ruled}"
    measured(alone, base, [(1, SIX_ROWS, 20.0)])
    timed = api.compile(alone, path, database=str(base), threads=1, sizes=SIZES)
    chosen = "tiles of 4 for 3 or more, 2 for 2 or more, 1 rows, as measured"
    assert timed.groups[0].source == f"tile of 16 rows; {chosen}"
    library = api.load(path)
    assert isinstance(library, Library)
    assert library.metadata.kernel_rows[0].source == chosen
    check(alone, library, "batch", (1, 2, 3, 5, 7, 16, 29, 64))


def test_the_measured_schedules_of_all_tiles_are_looked_up_at_once(
    alone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One look-up for what is fastest, one more for what packs as the first tile does."""
    base, asked = tmp_path / "known.db", list[list[str]]()
    own = [(16, FOUR_VECTORS, 90.0), *((rows, TWO_VECTORS, 90.0) for rows in (4, 1))]
    measured(alone, base, [*own, *((rows, FOUR_VECTORS, 95.0) for rows in (4, 1))])
    ranked = ProfilingDatabase.ranked

    def counted(self: ProfilingDatabase, setting: Any, keys: Any, fits: Any = None) -> Any:
        asked.append(list(keys))
        return ranked(self, setting, keys, fits)

    monkeypatch.setattr(ProfilingDatabase, "ranked", counted)
    report = api.compile(alone, database=str(base), threads=1, dry_run=True, sizes=SIZES)
    assert packings(report) == [packing(FOUR_VECTORS)] * 3
    assert [len(keys) for keys in asked] == [3, 2]


@pytest.mark.long
def test_a_search_tries_the_packing_of_the_first_tile(alone: Path, tmp_path: Path) -> None:
    base = tmp_path / "tuned.db"
    api.tune(alone, sizes=SIZES, trials=12, threads=1, database=str(base))
    with open_database(base) as database:
        setting = environment_of(database, "local", 1, measuring=False).setting
        ranked = database.ranked(setting, [tile(alone, rows).key for rows in (16, 4, 1)])
    first, *others = [[json.loads(row.schedule) for row in rows] for rows in ranked.values()]
    tried = [packing(schedule) for schedule in first]
    for rows in others:
        assert any(packing(schedule) in tried for schedule in rows)
