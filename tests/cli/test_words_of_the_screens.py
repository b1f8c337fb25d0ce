"""Each screen explains the words that stand on it, once, and ends with the command that comes next."""

from __future__ import annotations

import io
import shlex
from dataclasses import replace
from pathlib import Path

import pytest
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from autofuse import api
from autofuse.cli.main import app
from autofuse.cli.screens import next_steps
from autofuse.cli.screens.render import explained, records, show
from autofuse.cli.screens.tune_view import tune_text
from autofuse.search.progress import AskedQuestions, CompositionReport, FrontPoint, PlanTime, TuneResult
from autofuse.views.terms import TERMS

PLANS = {
    "none": PlanTime(64, 3000.0, 3100.0, 1.0, 1.0, 1.0, True, 4e-7),
    "search": PlanTime(29, 2500.0, 2480.0, 1.25, 1.21, 1.29, True, 3e-7, "", "faster"),
    "tvm-partition": PlanTime(38, None, problem="no time was left to build it"),
}
RESULT = TuneResult(
    "net", "net-1t", 7, "p.db", "local", 1, "finished", 65.0, 47, 2, 5, 12, "search", "ab" * 32, 29, PLANS,
    composition=CompositionReport(2510.0, 2500.0, 2400.0, 0.004, 29, 21, 0, 1, 0.1),
    questions=(AskedQuestions("schedules", 4, 31.0, 120.5), AskedQuestions("plans", 2, 9.0, 0.0)),
)  # fmt: skip


def printed(renderable: object, width: int = 150) -> str:
    screen = Console(file=io.StringIO(), width=width)
    screen.print(renderable)
    text = screen.file.getvalue()  # type: ignore[attr-defined]
    assert isinstance(text, str)
    return text


def words_of(text: str) -> list[str]:
    """The terms that are explained at the end of a screen."""
    return [line.partition(":")[0] for line in text.splitlines() if line.partition(":")[0] in TERMS]


def test_a_screen_explains_the_words_that_stand_on_it_and_no_others() -> None:
    shown = printed(explained(records([{"plan": "none", "trusted": True}])))
    assert words_of(shown) == ["trusted"]
    assert printed(explained(Text("sound"))).strip() == "sound"
    assert words_of(printed(explained(records([{"group": "Conv 1x8 #ab12", "tier": "hit"}])))) == ["tier", "#"]


def test_words_are_found_where_a_narrow_terminal_breaks_them() -> None:
    shown = printed(explained(records([{"largest error": 1, "sum of kernels": 1, "peak memory": 1}])), 24)
    assert "composed: " in shown and "peak memory: " in shown and "largest error: " in shown


def test_a_text_ends_with_the_next_command_and_json_does_not(capsys: pytest.CaptureFixture[str]) -> None:
    grid = Table.grid()
    grid.add_row("next autofuse report")
    show({"trusted": True}, "text", None, grid)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["trusted", "yes"] and lines[-1] == "next autofuse report"
    assert lines[2].startswith("trusted: ")
    show({"trusted": True}, "json", None, grid)
    assert "next" not in capsys.readouterr().out


def test_a_tuning_ends_with_its_choice_its_plans_and_their_words() -> None:
    shown = printed(explained(tune_text(RESULT)))
    lines = shown.splitlines()
    assert lines[0].strip() == "net on local, 1 thread: finished after 1 min 05 s"
    assert "plan search, 29 kernels: 2.480 ms, 1.25x (1.21-1.29) of no fusion" in lines[1]
    assert "2.500 ms at best, of all measured kernels, bound 2.400 ms, gap 0.40 %" in lines[2]
    assert "45 ok, 2 failed, 5 known already; 12 plans tried" in lines[3]
    assert " ".join(lines[4].split()) == "asked schedules 4x in 31 s (120.5 µs gained); plans 2x in 9 s"
    rows = [line.split()[0] for line in lines if line.startswith(("search ", "none ", "tvm-partition "))]
    assert rows == ["search", "none", "tvm-partition"], "the fastest first, what was not measured last"
    assert words_of(shown) == [
        "median", "ratio", "trusted", "composed", "bound", "gap", "no fusion", "search", "tvm-partition",
        "largest error", "known already", "regions",
    ]  # fmt: skip


def test_a_tuning_says_once_what_it_left_out_and_why_it_is_not_trusted() -> None:
    doubtful = replace(PLANS["search"], trusted=False, speedup=None, problem="the interval is 6.5 % of the median wide")
    left_out = ("plan none was not measured whole",)
    result = replace(RESULT, plans={"search": doubtful}, left_out=left_out, warning=f"no time: {left_out[0]}")
    shown = printed(tune_text(result))
    assert "2.480 ms (not trusted: the interval is 6.5 % of the median wide)" in shown
    assert shown.count(left_out[0]) == 1
    front = (FrontPoint(2500.0, 3 * 2**20, 29, "ab" * 32),)
    assert "3.0 MiB" in printed(tune_text(replace(RESULT, front=front)))


def steps(then: Table) -> list[str]:
    """The commands of a "next" list."""
    return [line.removeprefix("next").strip() for line in printed(then, 200).splitlines()]


def test_each_screen_names_commands_that_there_are() -> None:
    """As they are typed: each parses."""
    named = {"database": "p.db", "device": "zen3", "threads": 2}
    model = Path("net.onnx")
    lists = [
        next_steps.after_doctor({"rpc": "pi:9091", "rpc_key_file": "key"}),
        next_steps.after_diff(model, "best", named),
        next_steps.after_export(model, "none", named),
        next_steps.after_report("night", named),
        next_steps.after_report(None, {}),
        next_steps.after_appending([], named),
        next_steps.after_appending(["db", "merge", "other.db"], named),
        next_steps.after_writing_export("folder", signed=True),
        next_steps.after_pruning(["--max-size", "2G"], True, named),
        next_steps.after_pruning([], False, named),
        next_steps.after_checking(named),
        next_steps.after_database_info(3, named),
        next_steps.after_database_info(0, named),
        next_steps.after_migrating(named),
        next_steps.after_training("own.model"),
        next_steps.after_new_key("me"),
        next_steps.after_library_check("model.so", ["me.pub"]),
    ]
    for command in [command for then in lists for command in steps(then)]:
        words = shlex.split(command)
        assert words.pop(0) == "autofuse"
        verb = typer.main.get_command(app)
        while hasattr(verb, "commands"):
            verb = verb.commands[words.pop(0)]
        verb.make_context(verb.name, words).close()


def test_a_model_whose_name_is_no_text_is_named_as_a_shell_reads_it() -> None:
    named = {"database": "p.db", "threads": 1}
    assert steps(next_steps.after_compiling(Path("net\udcff.onnx"), "model.so", False, named)) == [
        "autofuse run model.so",
        r"autofuse bench $'net\377.onnx' --library model.so --threads 1 --db p.db",
    ]


def test_what_a_dry_run_would_do_is_the_next_command() -> None:
    assert steps(next_steps.after_appending(["db", "merge", "a b.db"], {"database": "p.db"})) == [
        "autofuse db merge 'a b.db' --db p.db"
    ]
    assert steps(next_steps.after_pruning(["--max-size", "2G"], True, {})) == ["autofuse db prune --max-size 2G"]


def test_what_was_tuned_elsewhere_is_compiled_for_there_and_no_key_is_told() -> None:
    named = {"rpc": "pi:9091", "rpc_key": "secret", "rpc_key_file": None, "database": "p.db"}
    first, _, third = steps(next_steps.after_tuning(Path("net.onnx"), named))
    assert first.startswith("autofuse compile net.onnx") and "--rpc pi:9091" in first and "--rpc pi:9091" in third
    assert "secret" not in first + third
    (_, tune) = steps(next_steps.after_doctor({"rpc_tracker": "rack:9190", "rpc_key_file": "key file"}))
    assert tune.endswith("--budget 10m --rpc-tracker rack:9190 --rpc-key-file 'key file'")


def test_what_cannot_be_measured_here_is_tuned_where_it_can_be(tmp_path: Path) -> None:
    model, named = Path("net.onnx"), {"device": "raspberry-pi-5", "database": "p.db"}
    tune = "autofuse tune net.onnx --budget 10m --device raspberry-pi-5 --db p.db --rpc HOST:PORT"
    assert steps(next_steps.after_inspecting(model, named)) == [tune]
    assert steps(next_steps.after_quantizing(model, named))[0] == tune
    assert steps(next_steps.after_compiling(model, "net.so", True, named)) == [
        tune,
        "autofuse bench net.onnx --library net.so --device raspberry-pi-5 --db p.db --rpc HOST:PORT",
    ]
    (tmp_path / "here.toml").write_text(api.device_probe().to_toml())
    here = {"device": str(tmp_path / "here.toml")}
    assert not any("--rpc" in step for step in steps(next_steps.after_compiling(model, "net.so", True, here)))
    reached = {"rpc": "pi:9091"}
    assert steps(next_steps.after_compiling(model, "net.so", False, reached)) == [
        "autofuse bench net.onnx --library net.so --rpc pi:9091"
    ]
