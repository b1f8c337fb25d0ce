"""Names that come from files of others: no control character of theirs reaches a terminal, no cell is a formula."""

from __future__ import annotations

import csv
import io
import json
import sqlite3
from pathlib import Path

import pytest
from rich.console import Console
from rich.text import Text
from typer.testing import CliRunner, Result

from autofuse.api.machine import Serving
from autofuse.cli.failures import say
from autofuse.cli.main import app
from autofuse.cli.screens.render import records, show
from autofuse.cli.terminal import SHOWN, Screen, printable
from autofuse.cli.verbs import serving
from autofuse.views.report.spreadsheet import cell
from tests.database.recorded import fill

EVIL = "\x1b]0;title\x07\x1b[2Jnet\r\x9b31m\x7f\u202egnp"
"""Sets the title, clears the screen, overwrites the line, colours (by eight bits), turns the writing."""
HIDDEN = "\x1b\x07\r\x9b\x7f\u202e"


def call(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database whose names are an attacker's, exported and imported as users do."""
    folder = tmp_path_factory.mktemp("evil")
    fill(folder / "theirs.db", 1, 3)
    with sqlite3.connect(folder / "theirs.db") as raw:
        raw.execute("UPDATE af_run SET model_name = ?, name = ?", (EVIL, "=HYPERLINK(1)"))
        raw.execute("UPDATE af_device SET name = ?", (EVIL,))
        raw.execute("UPDATE af_workload SET label = ?", ("=cmd|' /C calc'!A0" + EVIL,))
    raw.close()
    assert call("db", "export", folder / "export", "--db", folder / "theirs.db").exit_code == 0
    assert call("db", "import", folder / "export", "--db", folder / "own.db").exit_code == 0
    return folder / "own.db"


@pytest.mark.parametrize(
    "verb",
    [
        ("status",),
        ("db", "info"),
        ("db", "check"),
        ("report",),
        ("report", "--frame", "runs"),
        ("report", "--frame", "runs", "--format", "csv"),
        ("report", "--frame", "candidates"),
        ("report", "--frame", "devices"),
        ("report", "--format", "json"),
        ("compare", "1", "2"),
        ("report", "--run", "no\x1b[2Jsuch"),
    ],
)
def test_no_verb_lets_control_characters_of_names_through(database: Path, verb: tuple[str, ...]) -> None:
    for form in ((), ("--format", "json")) if verb[-1] not in ("csv", "json") else ((),):
        done = call(*verb, *form, "--db", database)
        shown = done.stdout + done.stderr
        assert shown.strip()
        assert [letter for letter in HIDDEN if letter in shown] == [], verb
        assert not done.exception or isinstance(done.exception, SystemExit)


def test_json_keeps_names_that_need_no_hiding(capsys: pytest.CaptureFixture[str]) -> None:
    show({"name": "größer 日本\t1\n2 \x1b[0m"}, "json")
    assert json.loads(capsys.readouterr().out) == {"name": "größer 日本\t1\n2 \x1b[0m"}


def test_tables_and_live_views_keep_their_own_colours() -> None:
    stream = io.StringIO()
    screen = Screen(file=stream, force_terminal=True, color_system="standard", width=60)
    screen.print(Text(EVIL, style="red"), records([{"a": EVIL}]))
    shown = stream.getvalue()
    assert "\x1b[31m" in shown, "rich's own"
    assert "\x1b]" not in shown and "\x1b[2J" not in shown and "\x9b" not in shown and "\u202e" not in shown
    assert isinstance(screen, Console)


def test_messages_are_made_printable(capsys: pytest.CaptureFixture[str]) -> None:
    say(f"autofuse: {EVIL}: no such model")
    assert not set(HIDDEN) & set(capsys.readouterr().err)
    assert printable("a\tb\nc") == "a\tb\nc"
    assert printable("\x1b[0m") == f"{SHOWN}[0m"


@pytest.mark.parametrize("text", ["=1+1", "+cmd", "-cmd", "@SUM(A1)", "\tx", "\rx", "\n=1", "＝1"])
def test_a_text_that_begins_a_formula_gets_an_apostrophe(text: str) -> None:
    assert cell(text) == f"'{text}"


@pytest.mark.parametrize("value", [-1.5, 0, None, True, "-1.5", "+2e-3", "-7", "net-2t", "a=b", ""])
def test_numbers_and_other_texts_stay_as_they_are(value: object) -> None:
    assert cell(value) is value


def test_no_cell_of_a_report_begins_a_formula(database: Path, tmp_path: Path) -> None:
    assert call("report", "--output", tmp_path / "report", "--db", database).exit_code == 0
    files = sorted((tmp_path / "report").glob("*.csv"))
    texts = [file.read_text(encoding="utf-8") for file in files]
    texts.append(call("report", "--frame", "candidates", "--format", "csv", "--db", database).stdout)
    cells = [entry for text in texts for row in csv.reader(io.StringIO(text)) for entry in row]
    assert any(entry.startswith("'=cmd|") for entry in cells)
    for entry in cells:
        if entry[:1] in tuple("=+-@\t\r"):
            float(entry)


def test_a_server_tells_a_command_that_keeps_its_key_out_of_the_list_of_processes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    serving._tell(Serving("127.0.0.1", 9091, "made", "", "", ""))
    assert "AUTOFUSE_RPC_KEY=made autofuse doctor --rpc HOST:9091\n" in capsys.readouterr().out
    serving._tell(Serving("127.0.0.1", 9091, "", "file", "", ""))
    assert "autofuse doctor --rpc HOST:9091, with the same key\n" in capsys.readouterr().out


def test_a_server_tells_no_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    serving._tell(Serving(EVIL, 9091, EVIL, EVIL, EVIL, EVIL))
    assert not set(HIDDEN) & set(capsys.readouterr().out)


@pytest.mark.parametrize(
    "words", [[EVIL], ["inspect", "a", EVIL], ["inspect", f"--{EVIL}"], ["tune", "a", "--seed", EVIL]]
)
def test_usage_errors_tell_no_control_characters(words: list[str]) -> None:
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 2
    assert not set(HIDDEN) & set(result.stderr)
