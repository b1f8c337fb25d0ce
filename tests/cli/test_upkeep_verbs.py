"""`db merge|export|import|prune|migrate` and `compare` on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from autofuse.cli.main import app
from autofuse.errors import InputError
from autofuse.values.arguments import parse_size
from tests.database.recorded import fill


def call(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("sources")
    return [fill(folder / f"{seed}.db", seed, busy=False) for seed in (1, 2)]


def test_merge_tells_what_it_did_and_a_dry_run_what_it_would(sources: list[Path], tmp_path: Path) -> None:
    into = tmp_path / "all.db"
    dry = json.loads(call("db", "merge", *sources[:1], "--db", into, "--dry-run", "--format", "json").stdout)
    assert dry["merged"][0]["dry_run"] and not into.exists()
    text = call("db", "merge", *sources, "--db", into)
    assert text.exit_code == 0 and "were appended" in text.stdout and "measurement" in text.stdout
    assert call("db", "merge", *sources, "--db", into).stdout.count("nothing new") == 2
    bad = call("db", "merge", tmp_path / "absent.db", "--db", into)
    assert (bad.exit_code, "no such file" in bad.stderr) == (2, True)


def test_export_and_import_pass_a_database_on(sources: list[Path], tmp_path: Path) -> None:
    result = call("db", "export", tmp_path / "out", "--db", sources[0])
    assert result.exit_code == 0 and "rows" in result.stdout
    result = call("db", "import", tmp_path / "out", "--db", tmp_path / "q.db")
    assert result.exit_code == 0 and "were appended" in result.stdout
    assert "nothing new" in call("db", "import", tmp_path / "out", "--db", tmp_path / "q.db").stdout
    packed = json.loads(
        call("db", "export", tmp_path / "gz", "--compress", "--db", sources[0], "--format", "json").stdout
    )
    assert packed["bytes"] == sum(path.stat().st_size for path in (tmp_path / "gz").glob("*.gz"))
    nothing = call("db", "export", "--db", sources[0])
    assert (nothing.exit_code, "--optuna" in nothing.stderr) == (2, True)


def test_plan_searches_open_in_optuna(sources: list[Path], tmp_path: Path) -> None:
    import optuna
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    journal = tmp_path / "studies.journal"
    assert call("db", "export", "--optuna", journal, "--db", sources[0]).exit_code == 0
    study = optuna.load_study(study_name="1-run1", storage=JournalStorage(JournalFileBackend(str(journal))))
    assert [trial.value for trial in study.trials] == [9.0, 8.0, 11.0]
    assert (study.best_params, study.user_attrs["model_name"]) == ({"x": 1}, "net")
    again = call("db", "export", "--optuna", journal, "--db", sources[0])
    assert (again.exit_code, "exists already" in again.stderr) == (2, True)


def test_prune_and_migrate_say_what_they_did(sources: list[Path], tmp_path: Path) -> None:
    path = tmp_path / "p.db"
    path.write_bytes(sources[0].read_bytes())
    assert "say what may go" in call("db", "prune", "--db", path).stderr
    assert "removed nothing" in call("db", "prune", "--db", path, "--older-than", "90d").stdout
    body = json.loads(call("db", "prune", "--db", path, "--max-size", "1K", "--format", "json", "--dry-run").stdout)
    assert body["dry_run"] and not body["fits"] and body["removed"]["af_candidate"] > 0
    assert "would remove" in call("db", "prune", "--db", path, "--max-size", "1K", "--dry-run").stdout
    assert "already" in call("db", "migrate", "--db", path).stdout


def test_compare_gives_a_verdict_a_row(sources: list[Path], tmp_path: Path) -> None:
    into = tmp_path / "all.db"
    call("db", "merge", *sources, "--db", into)
    body = json.loads(call("compare", "run1", 2, "--db", into, "--format", "json").stdout)
    assert (body["a"]["name"], body["b"]["name"]) == ("run1", "run2")
    assert {row["kind"] for row in body["comparison"]} >= {"model"}
    assert sum(body["verdicts"].values()) == len(body["comparison"])
    text = call("compare", 1, 2, "--db", into)
    assert text.exit_code == 0 and "whole model net" in text.stdout and "B is" in text.stdout
    missing = call("compare", 1, "other", "--db", into)
    assert (missing.exit_code, "no run 'other'" in missing.stderr) == (2, True)


@pytest.mark.parametrize(("text", "size"), [("500M", 500 << 20), ("2g", 2 << 30), ("1.5 KiB", 1536), ("77", 77)])
def test_sizes(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "0", "-1", "big", "1T", "1e400"])
def test_sizes_that_are_none(text: str) -> None:
    with pytest.raises(InputError, match="--max-size: got"):
        parse_size(text, "--max-size")
