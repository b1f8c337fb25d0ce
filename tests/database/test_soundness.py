"""What `db check` finds: each kind of damage that SQLite itself lets pass is named, with its table and row."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from autofuse.cli.main import app
from autofuse.compiler.context import Context
from autofuse.database.database import open_database
from autofuse.errors import DatabaseError
from autofuse.views.frames.analysis import open_analysis
from tests.database.recorded import fill


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fill(tmp_path_factory.mktemp("sound") / "p.db", 1, 3)


def checked(path: Path) -> tuple[int, list[str]]:
    done = CliRunner().invoke(app, ["db", "check", "--db", str(path)])
    assert done.exception is None or isinstance(done.exception, SystemExit)
    lines = [line for line in (done.stdout + done.stderr).splitlines() if line and not line.startswith("next ")]
    return done.exit_code, [line.partition(".db: ")[2] for line in lines]


def test_a_sound_database_is_sound(sound: Path) -> None:
    assert checked(sound) == (0, ["sound"])


TRIGGER = "CREATE TRIGGER t AFTER INSERT ON af_run BEGIN DELETE FROM af_run; END"
DAMAGES: dict[str, tuple[str, str]] = {
    "a trigger": (TRIGGER, "it has a trigger 't' on 'af_run', which autofuse never makes"),
    "a view": ("CREATE VIEW v AS SELECT 1", "it has a view 'v', which autofuse never makes"),
    "a table of ours that is none": ("CREATE TABLE af_more (a)", "it has 'af_more', which autofuse never makes"),
    "an index less": ("DROP INDEX (index)", "is missing"),
    "text for an integer": ("UPDATE af_run SET seed = 'x' WHERE id = 1", "af_run row 1: column seed: expected an int"),
    "bytes for text": ("UPDATE af_run SET name = x'ff00' WHERE id = 1", "af_run row 1: column name: expected text"),
    "text for a time": (
        "UPDATE af_candidate SET build_s = 'long' WHERE id = 2",
        "af_candidate row 2: column build_s: expected a finite number",
    ),
    "an endless time": ("UPDATE af_candidate SET build_s = 9e999 WHERE id = 2", "column build_s: expected a finite"),
    "a number for a date": (
        "UPDATE af_run SET started_at = 5 WHERE id = 1",
        "af_run row 1: column started_at: expected a date such as",
    ),
    "a day that no month has": (
        "UPDATE af_run SET started_at = '2026-02-31 00:00:00.000000' WHERE id = 1",
        "column started_at: expected a date",
    ),
    "no JSON": ("UPDATE af_run SET budget = 'import os'", "af_run row 1: column budget: expected a JSON document"),
    "JSON of another shape": ("UPDATE af_device SET facts = '[]'", "af_device row 1: column facts: expected"),
    "another workload under a key": (
        """UPDATE af_workload SET text = '{"workload": "another"}' WHERE id = 1""",
        "is not the SHA-256 of its text; was it altered?",
    ),
    "another schedule under a key": (
        """UPDATE af_schedule SET text = '{"tile":2}' WHERE id = 1""",
        "is not the SHA-256 of its text; was it altered?",
    ),
    "a time beside a failure": (
        "UPDATE af_candidate SET failure = 'no' WHERE id = (SELECT MIN(id) FROM af_candidate WHERE state = 'ok')",
        "a time stands with its interval around it and no failure",
    ),
    "a time above its interval": (
        "UPDATE af_measurement SET median_us = 1e9 WHERE id = (SELECT MIN(id) FROM af_measurement WHERE state = 'ok')",
        "a time stands with its interval around it",
    ),
    "a trial that is complete without a time": (
        "UPDATE af_trial SET composed_us = NULL WHERE number = 1",
        "a trial has composed_us exactly when it is complete",
    ),
    "a state that is none": ("UPDATE af_run SET state = 'dreaming'", "column state: expected one of running, finished"),
    "a reason that is none": ("UPDATE af_edge SET reason = 'luck'", "column reason: expected one of illegal_cycle"),
    "a time of nothing": ("UPDATE af_choice SET median_us = 0", "column median_us: expected a number from 1e-09"),
    "a time without end": ("UPDATE af_choice SET median_us = 1e300", "column median_us: expected a number from"),
    "less than no threads": ("UPDATE af_run SET threads = 0", "column threads: expected a number from 1 to 65536"),
    "a date before all clocks": (
        "UPDATE af_run SET started_at = '0001-01-01 00:00:00.000000'",
        "column started_at: expected a date such as 2026-01-31 23:59:59.000000, from 1970",
    ),
    "a key that is no digest": ("UPDATE af_run SET model_sha256 = 'net.onnx'", "expected a SHA-256"),
    "a choice of a plan of another graph": (
        f"UPDATE af_choice SET graph_key = '{'0' * 64}'",
        "af_choice row 1: graph_key is not that of its plan",
    ),
    "a choice on another machine than its run": (
        "UPDATE af_choice SET threads = 2",
        "af_choice row 1: threads is not that of its run",
    ),
    "a candidate of another workload": (
        "UPDATE af_choice_group SET candidate_id = (SELECT c.id FROM af_candidate c "
        "WHERE c.workload_id <> af_choice_group.workload_id)",
        "af_choice_group row 1: its candidate is of another workload",
    ),
    "a plan under another key": (
        f"UPDATE af_plan SET key = '{'0' * 64}'",
        f"af_plan row 1: key '{'0' * 59}",
    ),
    "a plan that was edited": (
        """UPDATE af_plan SET text = replace(text, '"op"', '"another"')""",
        "af_plan row 1: plan: its key does not match its content",
    ),
    "no plan": ("UPDATE af_plan SET text = '{}'", "af_plan row 1: plan: "),
    "limits that are none": (
        """UPDATE af_choice SET limits = '{"groups": 3}'""",
        "af_choice row 1: limits: ",
    ),
    "the last number of all": (f"UPDATE af_edge SET id = {2**63 - 1}", "column id: expected a number from 1 to"),
    "a lease of nobody": ("UPDATE af_run SET owner_pid = 'me' WHERE id = 1", "af_run row 1: column owner_pid"),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_what_sqlite_lets_pass_is_named(name: str, sound: Path, tmp_path: Path) -> None:
    change, message = DAMAGES[name]
    path = Path(shutil.copy(sound, tmp_path / "p.db"))
    with sqlite3.connect(path) as raw:
        raw.execute("PRAGMA ignore_check_constraints = ON")
        if "(index)" in change:
            found = raw.execute("SELECT name FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL").fetchone()
            change = change.replace("(index)", found[0])
        raw.execute(change)
    raw.close()
    code, problems = checked(path)
    assert code == 1
    assert any(message in problem for problem in problems), problems


def test_many_unfit_values_are_told_in_few_lines(tmp_path: Path) -> None:
    path = fill(tmp_path / "p.db", 1)
    with sqlite3.connect(path) as raw:
        raw.execute("PRAGMA ignore_check_constraints = ON")
        raw.execute("UPDATE af_measurement SET build_s = 'long'")
    raw.close()
    code, problems = checked(path)
    assert code == 1
    assert len([problem for problem in problems if "build_s" in problem]) == 10
    assert "af_measurement: more values are unfit for their columns" in problems


def test_what_makes_a_report_fail_is_named(sound: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_analysis: object, run: object) -> str:
        raise KeyError(f"of run {run}")

    monkeypatch.setattr("autofuse.views.report.trial.render_html", fails)
    code, problems = checked(sound)
    assert code == 1
    assert problems[0] == "`report --run 1` fails: KeyError: 'of run 1'"


def test_a_reader_that_meets_an_unfit_value_says_which(sound: Path, tmp_path: Path) -> None:
    path = Path(shutil.copy(sound, tmp_path / "p.db"))
    with sqlite3.connect(path) as raw:
        raw.execute("PRAGMA ignore_check_constraints = ON")
        raw.execute("UPDATE af_plan_measurement SET max_rel_error = '=1+1'")
    raw.close()
    done = CliRunner().invoke(app, ["compare", "1", "1", "--db", str(path)])
    assert done.exit_code == 2, done.stderr
    assert "af_plan_measurement row 1: column max_rel_error: expected a finite number; got '=1+1'" in done.stderr


@pytest.mark.parametrize("way", [open_database, open_analysis, lambda path: Context(database=str(path))])
def test_whatever_fails_while_a_database_is_open_names_a_row_that_is_unfit(
    way: Callable[[Path], Any], sound: Path, tmp_path: Path
) -> None:
    path = Path(shutil.copy(sound, tmp_path / "p.db"))
    with sqlite3.connect(path) as raw:
        raw.execute("UPDATE af_run SET seed = 'x' WHERE id = 1")
    raw.close()
    with pytest.raises(DatabaseError, match="af_run row 1: column seed.*`autofuse db check`"), way(path) as opened:
        getattr(opened, "database", opened).table("plans")  # a context opens its database when it is asked
        raise TypeError("unsupported operand")
    with pytest.raises(TypeError), way(sound) as opened:
        getattr(opened, "database", opened).table("plans")
        raise TypeError("unsupported operand")
