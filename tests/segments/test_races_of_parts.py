"""Models in parts are raced with ONNX Runtime alone, and a compile takes what was faster."""

from __future__ import annotations

import uuid
from pathlib import Path

import onnxruntime
import pytest

import autofuse
from autofuse.compiler.parts.rest import SEGMENTS, parts_key
from autofuse.database.database import open_database
from autofuse.database.record.benchmarks import record_benchmark
from autofuse.database.records import PlanOutcome, SampleBlock
from autofuse.environment.alone import WhoRuns
from autofuse.environment.place import Place
from autofuse.errors import InputError
from autofuse.measure.networks.judgement import CHAOTIC, WHOLE_LIMIT
from autofuse.parted import race
from autofuse.segments.read import read_choice
from autofuse.values.names import ONNX_RUNTIME
from tests.segments.models import detector, model_of, pooled, written
from tests.segments.test_rows import INTEGERS, PRODUCTS, WEIGHTS

pytestmark = pytest.mark.usefixtures("any_size")


RACE = "0.667x as fast as ONNX Runtime alone (0.667-0.667, slower): ONNX Runtime runs the model"


def sides(path: Path, database: str) -> list[str]:
    """Where the parts of a model run, as a compile says it."""
    report = autofuse.compile(path, database=database, threads=1, dry_run=True)
    return [part.side for part in report.parts]


def record(path: Path, database: str, segments_us: float, alone_us: float, blocks: int = 8) -> None:
    """A race of the model that ended so."""
    place = Place(database, threads=1)
    series = uuid.uuid4().hex
    outcomes = [
        PlanOutcome(
            state="ok",
            name=name,
            series=series,
            median_us=us,
            ci_lo_us=us,
            ci_hi_us=us,
            trusted=True,
            blocks=(SampleBlock((us,), 1.0, False),) * blocks,
        )
        for name, us in ((SEGMENTS, segments_us), (ONNX_RUNTIME, alone_us))
    ]
    with open_database(database) as base:
        setting = place.environment(base, measuring=False).setting
        with base.writing() as sql:
            record_benchmark(sql, setting, parts_key(read_choice(path, {}), onnxruntime.__version__), outcomes)


def test_the_newest_race_says_whether_segments_are_taken(tmp_path: Path) -> None:
    path, database = written(pooled(), tmp_path), str(tmp_path / "times.db")
    in_parts = ["autofuse", "ONNX Runtime", "autofuse"]
    assert sides(path, database) == in_parts
    record(path, database, segments_us=30, alone_us=20)
    assert sides(path, database) == ["ONNX Runtime"]
    report = autofuse.compile(path, database=database, threads=1, dry_run=True)
    assert f"measured: {RACE}" in {row.reason for row in report.rest}
    runs = autofuse.inspect(path, database=database, threads=1).runs
    assert runs == WhoRuns("ONNX Runtime", RACE, 20 / 30, 20 / 30, 20 / 30, "slower")
    record(path, database, segments_us=15, alone_us=20)
    assert sides(path, database) == in_parts
    runs = autofuse.inspect(path, database=database, threads=1).runs
    assert runs is not None and (runs.side, runs.ratio) == ("autofuse and ONNX Runtime", 20 / 15)


def test_the_newest_race_says_whether_segments_of_rows_are_taken(tmp_path: Path) -> None:
    """Also where there is no other segment."""
    text = PRODUCTS.replace("over = Greater (p, half)", "").replace("float[60] p", "bool[60] over")
    path, database = written(model_of(text, **INTEGERS, **WEIGHTS), tmp_path), str(tmp_path / "times.db")
    assert sides(path, database) == ["ONNX Runtime", "autofuse"]
    record(path, database, segments_us=30, alone_us=20)
    assert sides(path, database) == ["ONNX Runtime"]


def test_a_race_of_too_few_good_blocks_takes_no_segment_away(tmp_path: Path) -> None:
    path, database = written(pooled(), tmp_path), str(tmp_path / "times.db")
    record(path, database, segments_us=30, alone_us=20, blocks=1)
    assert len(sides(path, database)) == 3
    runs = autofuse.inspect(path, database=database, threads=1).runs
    assert runs is not None and (runs.ratio, runs.verdict) == (None, "too few good blocks")


def test_a_race_of_another_model_says_nothing(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    database = str(tmp_path / "times.db")
    record(written(detector(), tmp_path / "other"), database, segments_us=30, alone_us=20)
    assert len(sides(written(pooled(), tmp_path), database)) == 3


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.usefixtures("counted_rounds")
def test_tune_searches_each_segment_then_races_whole_models(tmp_path: Path) -> None:
    path, database = written(pooled(), tmp_path), str(tmp_path / "times.db")
    told: list[str] = []
    result = autofuse.tune(path, database=database, threads=1, trials=1, progress=lambda one: told.append(one.phase))
    assert set(result.plans) == {SEGMENTS, ONNX_RUNTIME} and result.measured >= 2 and told
    assert all(result.plans[name].median_us is not None for name in (SEGMENTS, ONNX_RUNTIME))
    assert result.chosen in result.plans and "raced whole" in result.warning
    assert (len(sides(path, database)) == 3) == (result.chosen == SEGMENTS)


@pytest.mark.usefixtures("counted_rounds")
def test_bench_compares_what_ships_with_onnx_runtime(tmp_path: Path) -> None:
    path = written(pooled(), tmp_path)
    report = autofuse.bench(path, database=str(tmp_path / "no.db"), threads=1, budget=3, against="onnxruntime")
    assert report.kernels == 2 and report.max_rel_error < 1e-5
    assert report.rivals[ONNX_RUNTIME].median_us is not None and not report.recorded


def test_a_model_without_segments_is_not_tuned_and_says_why(tmp_path: Path) -> None:
    path = written(model_of("net (float[2,8] x) => (int64[2,n] y) { y = NonZero (x) }"), tmp_path)
    with pytest.raises(InputError, match=r"nothing to tune: 1 NonZero \(a shape that depends on data"):
        autofuse.tune(path, database=str(tmp_path / "times.db"), trials=1)


@pytest.mark.parametrize(("slope", "least"), [(1.0, WHOLE_LIMIT), (3e4, 2 * WHOLE_LIMIT)])
def test_a_model_in_parts_is_held_to_onnx_runtime_as_closely_as_that_to_itself(
    slope: float, least: float, tmp_path: Path
) -> None:
    text = f"net (float[4,64] x) => (float[4,64] y, int64[2,n] z) <float k = {{{slope}}}>"
    path = written(model_of(f"{text} {{ scaled = Mul (x, k) y = Sin (scaled) z = NonZero (y) }}"), tmp_path)
    choice = read_choice(path, {})
    autofuse.compile(path, tmp_path / "model.so", database=str(tmp_path / "no.db"), threads=1)
    task = race.task_of(choice, tmp_path / "model.so", tmp_path)
    found = race._limit(choice, task)
    assert least <= found <= (WHOLE_LIMIT if slope == 1.0 else CHAOTIC)
