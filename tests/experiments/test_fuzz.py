"""A small share of the fuzzing: every target, some seeds; nothing may break, and the same seed does the same again."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

import autofuse.database.files.upkeep
import autofuse.graph.loading.load  # noqa: F401
from autofuse.cli.main import app
from experiments.fuzz import columns
from experiments.fuzz.contain import counted, outcomes
from experiments.fuzz.targets import TARGETS, attempts

SHARE = {
    "models": 60, "inspect": 5, "databases": 10, "columns": 8, "exports": 10, "shared": 6, "libraries": 20, "parts": 20,
    "parts-inspect": 6, "messages": 200, "sockets": 12, "commands": 20,
}  # fmt: skip


@pytest.mark.parametrize("name", TARGETS)
def test_damaged_input_is_taken_in_or_refused_with_a_message(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = list(outcomes(attempts(name, tmp_path, 0, SHARE[name])))
    assert [outcome.text for outcome in found if outcome.finding] == []
    assert counted(found)["refused"] > 0


@pytest.mark.parametrize(("name", "seed"), [("databases", 1015), ("databases", 1736)])
def test_what_was_found_once_is_mended(name: str, seed: int, tmp_path: Path) -> None:
    (found,) = outcomes(attempts(name, tmp_path, seed, 1))
    assert found.kind in ("accepted", "refused"), found.text


@pytest.mark.parametrize(
    ("table", "column", "value", "verb"),
    [
        ("af_task", "measured", b"\xff\x00", ("status",)),
        ("af_task", "measured", 1e308, ("status",)),
        ("af_job", "active_s", float("inf"), ("status",)),
        ("af_job", "settings", "[]", ("status",)),
        ("af_schedule", "text", "nonsense", ("db", "export", "--optuna", "new.log")),
        ("af_device", "facts", "[]", ("model", "eval")),
    ],
)
def test_a_verb_that_meets_a_damaged_row_names_it(
    table: str, column: str, value: object, verb: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    columns.prepare(tmp_path)
    assert columns._put(tmp_path / "sound.db", table, column, value)
    found = CliRunner().invoke(app, [*verb, "--db", "sound.db"])
    assert found.exit_code == 2, found.output
    assert "its content was changed by something else" in found.stderr and "autofuse db check" in found.stderr


def test_a_job_of_no_time_has_no_pace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    columns.prepare(tmp_path)
    assert columns._put(tmp_path / "sound.db", "af_job", "active_s", 5e-324)
    assert CliRunner().invoke(app, ["status", "--db", "sound.db"]).exit_code == 0


def test_the_same_seed_damages_in_the_same_way(tmp_path: Path) -> None:
    made = []
    for _ in range(2):
        (found,) = outcomes(attempts("models", tmp_path, 7, 1))
        made.append(((tmp_path / "damaged.onnx").read_bytes(), found.kind, found.text))
    assert made[0] == made[1]
