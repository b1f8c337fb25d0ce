"""What a user is told of segments of rows, and of heads of open sizes: every verb says the same."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto
from typer.testing import CliRunner

from autofuse import api
from autofuse.cli.main import app
from autofuse.database.database import open_database
from autofuse.environment.place import Place
from autofuse.errors import InputError
from autofuse.graph.loading.given.sizes import open_sizes
from autofuse.opened.search.session import OpenSession
from autofuse.parted.session import open_session
from autofuse.search.progress import PartsForecast, SearchRequest
from autofuse.search.session import ModelSession
from tests.segments.models import model_of, normal, written
from tests.segments.test_parts_in_jobs import TOLD
from tests.segments.test_rows import ALONE, BODY, INTEGERS, PRODUCTS, WEIGHTS

pytestmark = pytest.mark.usefixtures("any_size")

LARGER = """
  shape = Shape (raw)
  ends = Slice (shape, two, four)
  real = Cast <to = 1> (ends)
  more = Mul (real, scale)
  whole = Cast <to = 7> (more)
  front = Slice (shape, none, two)
  target = Concat <axis = 0> (front, whole)
  x = Resize <mode = "linear"> (raw, , , target)
"""
SIZES = {"height": (8, 16, 8), "width": (8, 16, 8)}


def finder(resized: bool = False) -> ModelProto:
    """A detector of images of any size; `resized`: by ONNX Runtime, before it looks at them."""
    own = f"net (float[1,3,height,width] {'raw' if resized else 'x'}) => (float[n,6] y) {{{LARGER if resized else ''}"
    given: dict[str, Any] = {
        "wc": normal(16, 3, 3, 3), "channels": np.array([1]), "half": np.float32(0.5), "w": normal(16, 24),
        "b": normal(24), "v": normal(24, 6),
    }  # fmt: skip
    numbers: dict[str, Any] = {
        "none": np.array([0]),
        "two": np.array([2]),
        "four": np.array([4]),
        "scale": np.array([1.5, 1.5], np.float32),
    }
    return model_of(own + BODY, **given, **(numbers if resized else {}))


def products(folder: Path) -> Path:
    given: dict[str, Any] = {**INTEGERS, **WEIGHTS}
    return written(model_of(PRODUCTS, **given), folder)


def alone(folder: Path) -> Path:
    """A model with nothing of ours but a segment of rows."""
    return written(model_of(ALONE, zero=np.array([0]), w=WEIGHTS["w"], b=WEIGHTS["b"]), folder)


@pytest.mark.parametrize(
    "resized", [pytest.param(False, marks=pytest.mark.long), True], ids=["as they come", "resized first"]
)
def test_a_compile_and_a_check_say_the_same_sizes_and_kernels(tmp_path: Path, resized: bool) -> None:
    path, library = written(finder(resized), tmp_path), tmp_path / "model.so"
    report = api.compile(path, library, sizes=SIZES, threads=1, database=str(tmp_path / "a.db"))
    found = api.library_check(library)
    assert report.sizes == found.sizes == {"height": (8, 16), "width": (8, 16)}
    assert report.steps == found.steps == {"height": 8, "width": 8}
    assert report.kernels == found.kernels
    assert report.held_weights_bytes >= report.weights_bytes >= 4 * (16 * 3 * 9 + 16 * 24 + 24 + 24 * 6)
    assert any(group.source.startswith("up to 1024 rows; tile of 16 rows") for group in report.groups)
    text = CliRunner().invoke(app, ["library", "check", str(library)]).stdout
    assert "height 8 to 16 in steps of 8, width 8 to 16 in steps of 8" in text


def test_every_verb_shows_the_parts_that_a_compile_takes(tmp_path: Path) -> None:
    path, database = products(tmp_path), str(tmp_path / "a.db")
    compiled = api.compile(path, dry_run=True, database=database)
    assert compiled.parts[-1].kinds.startswith("up to 40 rows: ") and compiled.parts[-1].side == "autofuse"
    seen = api.inspect(path, database=database)
    assert seen.parts == api.explain(path, database=database).parts == compiled.parts  # type: ignore[union-attr]
    assert seen.runs is not None and seen.runs.side == "autofuse and ONNX Runtime"
    assert api.plan_show(path, database=database).parts == compiled.parts  # type: ignore[union-attr]
    screen = CliRunner().invoke(app, ["explain", str(path), "--db", database])
    assert screen.exit_code == 0 and "up to 40 rows: " in screen.stdout


@pytest.mark.parametrize("make", [products, alone])
def test_a_dry_run_gives_segments_of_rows_their_share(tmp_path: Path, make: object) -> None:
    path = make(tmp_path)  # type: ignore[operator]
    found = api.tune(path, dry_run=True, budget="10m", database=str(tmp_path / "a.db"), threads=1).forecast
    assert isinstance(found, PartsForecast)
    (rows,) = found.rows
    given = [rows.budget_s, *(one.budget_s for one in found.segments)]
    assert sum(seconds or 0.0 for seconds in given) + found.race_s == pytest.approx(600, abs=5)
    screen = CliRunner().invoke(app, ["tune", str(path), "--dry-run", "--db", str(tmp_path / "a.db"), "-n", "1"])
    assert screen.exit_code == 0, screen.stderr
    assert f"{rows.what}, in kernels of autofuse: " in " ".join(screen.stdout.split())


@pytest.mark.long
def test_a_dry_run_gives_a_head_and_its_rows_their_share(tmp_path: Path) -> None:
    path, given = written(finder(), tmp_path), {"database": str(tmp_path / "a.db"), "threads": 1}
    found = api.tune(path, sizes=SIZES, dry_run=True, budget="10m", **given).forecast  # type: ignore[arg-type]
    assert isinstance(found, PartsForecast)
    ((head,), (rows,)) = found.segments, found.rows
    assert head.sizes == ("height=8:16:8", "width=8:16:8") and head.workloads > 0
    assert (head.budget_s or 0.0) + (rows.budget_s or 0.0) + found.race_s == pytest.approx(600, abs=5)


def opened_in_a_job(stack: ExitStack, path: Path, request: SearchRequest) -> Any:
    base = stack.enter_context(open_database(str(path.with_suffix(".db"))))
    return stack.enter_context(open_session(path, base, Place(str(path.with_suffix(".db")), threads=1), request))


@pytest.mark.parametrize(("make", "kinds"), [(alone, [OpenSession]), (products, [ModelSession, OpenSession])])
def test_a_job_searches_segments_of_rows(tmp_path: Path, make: Any, kinds: list[type]) -> None:
    with ExitStack() as stack:
        session = opened_in_a_job(stack, make(tmp_path), SearchRequest())
        assert [type(one) for one in session.sessions] == kinds
        assert not session.ready()
        sizes = [size.typed for one in session.sessions if isinstance(one, OpenSession) for size in one.race.sizes]
    assert sizes in (["rows=1:60"], ["rows=1:40"])


@pytest.mark.parametrize("resized", [pytest.param(False, marks=pytest.mark.long), True])
def test_a_job_searches_a_head_and_its_rows(tmp_path: Path, resized: bool) -> None:
    asked = SearchRequest(sizes=open_sizes(SIZES))
    with ExitStack() as stack:
        session = opened_in_a_job(stack, written(finder(resized), tmp_path), asked)
        assert [type(one) for one in session.sessions] == [OpenSession, OpenSession]
        head, rows = session.sessions
        assert head.model.name == "model.onnx" and [size.name for size in rows.race.sizes] == ["rows"]
        result = session.together([TOLD, TOLD], None)
    assert result.sizes == ("height=8:16:8", "width=8:16:8") and result.parts


@pytest.mark.long
def test_a_head_is_timed_at_sizes_of_its_range(tmp_path: Path) -> None:
    path, library, database = written(finder(), tmp_path), tmp_path / "model.so", str(tmp_path / "a.db")
    api.compile(path, library, sizes=SIZES, threads=1, database=database)
    given = {"sizes": SIZES, "threads": 1, "database": database, "budget": "2s", "against": "onnxruntime"}
    found = api.bench(path, library=library, **given)  # type: ignore[arg-type]
    assert (found.name, list(found.sizes)) == ("height x width", ["8x8", "16x16"])  # type: ignore[union-attr]
    assert all(one.max_rel_error < 1e-5 and one.autofuse_us > 0 for one in found.sizes.values())  # type: ignore[union-attr]
    assert set(found.mix) == {"onnxruntime"}  # type: ignore[union-attr]
    with pytest.raises(InputError, match="takes height 8 to 16 in steps of 8, asked was height 8 to 32"):
        api.bench(path, library=library, **{**given, "sizes": {**SIZES, "height": (8, 32, 8)}})  # type: ignore[arg-type]


@pytest.mark.parametrize("verb", [api.tune, api.bench])
def test_a_refused_head_is_told_with_all_reasons(tmp_path: Path, verb: object) -> None:
    text = """net (float[1,3,height,width] x) => (int64[2,n] k) {
      c = Conv <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (x, wc)
      s = CumSum (c, rows)
      d = Conv <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (s, wd)
      f = ReduceMax <keepdims = 0> (d, channels)
      k = NonZero (f)
    }"""
    weights: dict[str, Any] = {"wc": normal(4, 3, 3, 3), "wd": normal(4, 4, 3, 3)}
    path = written(model_of(text, **weights, rows=np.array(2), channels=np.array([0, 1])), tmp_path)
    with pytest.raises(InputError, match=r"NonZero.*; and of what stands before it: .*CumSum"):
        verb(path, sizes=SIZES, budget="2s", database=str(tmp_path / "a.db"), threads=1)  # type: ignore[operator]


@pytest.mark.long
def test_a_head_is_tuned_with_its_segments_of_rows(tmp_path: Path) -> None:
    path, database = written(finder(), tmp_path), str(tmp_path / "a.db")
    found = api.tune(path, sizes=SIZES, database=database, threads=1, trials=12)
    assert [part.side for part in found.parts] == ["autofuse", "ONNX Runtime", "autofuse"]
    assert {16, 4, 1} <= {tile.rows for tile in found.tiles} and any(tile.places for tile in found.tiles)
    assert all(tile.us is not None for tile in found.tiles)
    report = api.compile(path, dry_run=True, sizes=SIZES, database=database, threads=1)
    assert report.hits == len(report.groups)
