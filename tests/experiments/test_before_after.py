"""Two checkouts compared, and budgets that are kept: what is measured of each, and what is said of it."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from autofuse.errors import InputError
from autofuse.measure.networks.bench import ContenderResult
from experiments import records
from experiments.before_after import run as before_after
from experiments.budget_kept import run as budget_kept
from experiments.index import ROOT

ROW = before_after.Row("net", 1, "aaaaaaaaaaaa", "bbbbbbbbbbbb")


def result(us: float, ratio: float, *, error: str = "") -> ContenderResult:
    return ContenderResult(us, ratio, ratio * 0.98, ratio * 1.02, True, error=error)


@pytest.fixture
def other(tmp_path: Path) -> Path:
    package = tmp_path / "other" / "autofuse"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "__main__.py").write_text(
        "import pathlib, sys, time\n"
        "end = time.process_time() + 0.3\n"
        "while time.process_time() < end: pass\n"
        "pathlib.Path(sys.argv[sys.argv.index('-o') + 1]).write_text(__file__)\n"
        "sys.exit('no such model' if 'lost' in sys.argv[2] else 0)\n"
    )
    return tmp_path / "other"


def test_a_checkout_compiles_with_its_own_package_and_its_processor_time_is_taken(other: Path, tmp_path: Path) -> None:
    checkout = before_after.checkout(str(other), tmp_path)
    seconds = before_after.compile_seconds(checkout, tmp_path / "net.onnx", tmp_path / "net.so", 1)
    assert 0.3 <= seconds < 60.0
    assert (tmp_path / "net.so").read_text() == str(other / "autofuse" / "__main__.py")


def test_a_compilation_that_fails_is_the_problem_of_its_row(other: Path, tmp_path: Path) -> None:
    checkout = before_after.checkout(str(other), tmp_path)
    row = before_after.measure(tmp_path / "lost.onnx", (checkout, checkout), 1, 1, 1.0, tmp_path)
    assert "compile ended with 1: no such model" in row.problem and row.problem in before_after.markdown([row])


def test_what_is_no_checkout_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="neither a folder with an autofuse package nor a commit"):
        before_after.checkout("--no-such-commit", tmp_path)
    (tmp_path / "autofuse").mkdir()
    (tmp_path / "autofuse" / "__init__.py").write_text("raise ImportError('of another Python')")
    with pytest.raises(InputError, match="of another Python"):
        before_after.environment(before_after.checkout(str(tmp_path), tmp_path))


def test_a_commit_is_unpacked_once(tmp_path: Path) -> None:
    if subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, check=False).returncode:
        pytest.skip("not a checkout of git")
    made = before_after.checkout("HEAD", tmp_path)
    assert made.folder == tmp_path / "checkouts" / made.commit and (made.folder / "autofuse" / "api").is_dir()
    (made.folder / "mark").touch()
    assert (before_after.checkout("HEAD", tmp_path).folder / "mark").exists()


def test_rounds_of_compiling_are_compared_one_by_one() -> None:
    row = before_after.with_compile_times(ROW, [10.0, 20.0, 10.0], [11.0, 20.0, 13.0])
    assert (row.compile_before_s, row.compile_after_s) == (10.0, 13.0)
    assert (row.compile_ratio, row.compile_lo, row.compile_hi) == (pytest.approx(1.1), 1.0, pytest.approx(1.3))
    assert "| 10.0, 13.0 | 1.10 (1.00-1.30, 3) |" in before_after.markdown([row])


def test_the_speed_is_the_time_before_over_the_time_after() -> None:
    row = before_after.raced(ROW, {"before": result(1000.0, 1.0), "after": result(800.0, 0.8)})
    assert row.speed == pytest.approx(1.25) and row.lo is not None and row.hi is not None and row.lo < 1.25 < row.hi
    assert "| 1.000, 0.800 | 1.250 (1.225-1.276) |" in before_after.markdown([row])
    lost = before_after.raced(ROW, {"before": result(1.0, 1.0), "after": result(1.0, 1.0, error="lost")})
    assert lost.problem == "after: lost"


def test_only_what_is_slower_beyond_its_interval_or_the_bar_is_said() -> None:
    kept = replace(ROW, speed=0.99, lo=0.95, hi=1.01, compile_ratio=1.09)
    assert not before_after.slower(kept)
    first, second = before_after.slower(replace(kept, hi=0.995, compile_ratio=1.11))
    assert "library is slower" in first and "1.11 times" in second


def test_a_tuning_is_held_against_its_budget_a_tenth_and_ten_seconds() -> None:
    assert budget_kept.limit(60.0) == pytest.approx(76.0)
    row = budget_kept.Row("net", 1, "60s", 75.0, 76.0, 40)
    assert row.kept and not replace(row, elapsed_s=77.0).kept and not replace(row, problem="lost").kept
    assert "| net | 1 | 60s | 75 | 76 | 40 | yes |" in budget_kept.markdown([row])
    assert "| NO |" in budget_kept.markdown([replace(row, elapsed_s=77.0)])


def test_candidates_are_those_of_the_tuning_or_of_all_tasks_of_a_job() -> None:
    assert budget_kept.candidates(json.dumps({"measured": 7})) == 7
    assert budget_kept.candidates(json.dumps({"tasks": [{"measured": 2}, {"measured": 3}]})) == 5
    assert budget_kept.candidates("not JSON") is None


@pytest.mark.long
def test_a_tuning_that_fails_is_a_row_with_its_reason(tmp_path: Path) -> None:
    (tmp_path / "broken.onnx").write_bytes(b"not a model")
    row = budget_kept.measure([tmp_path / "broken.onnx"], 1, "5s")
    assert not row.kept and row.problem.startswith("exit code ") and row.elapsed_s > 0


def test_more_cores_than_there_are_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        budget_kept.main([str(tmp_path), "--cores", "100000"])
    assert "this process may use" in capsys.readouterr().err


def test_a_record_keeps_no_folder_of_this_machine() -> None:
    shown = records.command(
        ["memory", f"{sys.prefix}/net.onnx={sys.prefix}/net.db", "--out", "/a b/c/", "out/x", "1/2"]
    )
    assert shown == "python -m experiments memory net.onnx=net.db --out c out/x 1/2"
