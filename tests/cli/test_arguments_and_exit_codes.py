"""The command line as users and scripts meet it: help, arguments, one message, an exit code."""

from __future__ import annotations

import errno
import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest
from typer.testing import CliRunner, Result

from autofuse import api, errors
from autofuse.cli.main import app

VERBS = [
    ["doctor"],
    ["device", "list"],
    ["device", "show"],
    ["device", "probe"],
    ["inspect"],
    ["tune"],
    ["status"],
    ["quantize"],
    ["compile"],
    ["run"],
    ["bench"],
    ["plan", "show"],
    ["plan", "diff"],
    ["plan", "export"],
    ["plan", "pareto"],
    ["explain"],
    ["report"],
    ["db", "info"],
    ["db", "check"],
]


def call(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.mark.parametrize(
    ("verb", "argument"), [(("tune",), "MODEL"), (("db", "merge"), "SOURCE"), (("db", "export"), "FOLDER")]
)
def test_usage_names_an_argument_once(verb: tuple[str, ...], argument: str) -> None:
    usage = call(*verb, "--help").output.strip().splitlines()[0]
    assert argument in usage and "[[" not in usage and "......" not in usage.replace("{", "").replace("}", "")


def refuse(error: BaseException) -> Callable[..., Any]:
    def fail(*_arguments: object, **_named: object) -> None:
        raise error

    return fail


@pytest.mark.parametrize("verb", VERBS, ids=" ".join)
def test_every_verb_has_help_and_answers_in_json_too(verb: list[str]) -> None:
    result = call(*verb, "--help")
    assert result.exit_code == 0
    assert "--format" in result.stdout


@pytest.mark.parametrize("verb", ["tune", "compile", "bench"])
def test_the_measuring_and_building_verbs_share_their_flags(verb: str) -> None:
    text = call(verb, "--help").stdout
    assert all(flag in text for flag in ("--db", "--threads", "--device", "--shape"))
    assert ("--on-miss" in text) == (verb != "tune")


@pytest.mark.parametrize("verb", [["status"], ["report"], ["db", "info"], ["db", "check"], ["doctor"], ["explain"]])
def test_verbs_that_touch_the_database_take_its_place(verb: list[str]) -> None:
    assert "--db" in call(*verb, "--help").stdout


def test_help_is_there_in_half_a_second() -> None:
    """CPU time of one start, the best of several: what a clock shows when nothing else runs on the machine."""
    best = float("inf")
    for _ in range(10):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-m", "autofuse", "--help"], check=True, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        best = min(best, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        if best < 0.5:
            return
    pytest.fail(f"`autofuse --help` takes {best:.2f} s")


def test_help_loads_no_heavy_library() -> None:
    program = (
        "import sys, autofuse.cli.main\n"
        "heavy = {'tvm', 'numpy', 'onnx', 'onnxruntime', 'pandas', 'sqlalchemy', 'optuna', 'pydantic', 'scipy'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"


def test_the_version_is_that_of_the_package() -> None:
    import autofuse

    assert call("--version").stdout.strip() == f"autofuse {autofuse.__version__}"


@pytest.mark.parametrize(
    "arguments", [["tune"], ["nothing"], ["tune", "m.onnx", "--trials", "0"], ["bench", "--on-miss", "x"]]
)
def test_wrong_usage_exits_with_two(arguments: list[str]) -> None:
    assert call(*arguments).exit_code == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["tune", "m.onnx", "--budget", "10x"], "--budget: got '10x', allowed: a duration such as"),
        (["tune", "m.onnx", "--shape", "x=a"], "--shape: sizes of 'x': got 'a', allowed: positive integers"),
        (["tune", "m.onnx", "--space", "huge"], "--space: 'huge' is unknown; allowed: default"),
        (["tune", "m.onnx", "--pareto", "--run", "night"], "--pareto: not for a job"),
        (["bench", "m.onnx", "--against", "torch"], "--against: got 'torch', allowed: onnxruntime, tvm-untuned, none"),
        (["bench", "m.onnx", "--budget", "0"], "--budget: got '0', allowed: a duration above zero"),
        (["inspect", "absent.onnx"], "absent.onnx"),
        (["device", "show", "toaster"], "--device: 'toaster' is unknown; allowed: local, apple-m1"),
        (["status", "--db", "absent.db"], "absent.db: no such file"),
        (["db", "check", "--db", "absent.db"], "absent.db: no such file"),
    ],
)
def test_bad_arguments_get_one_message_and_a_code(
    arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = call(*arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith("autofuse: ")
    assert message in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.InputError("say what"), 2),
        (errors.DatabaseError("say what"), 2),
        (errors.StrictMissError("say what"), 3),
        (errors.WrongResultError("say what"), 4),
        (errors.PlanError("say what"), 6),
        (errors.DeviceError("say what"), 75),
    ],
)
def test_our_own_errors_are_one_message_with_their_exit_code(
    error: errors.AutofuseError, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api, "bench", refuse(error))
    result = call("bench", "m.onnx", "--format", "json")
    assert (result.exit_code, result.stdout, result.stderr) == (code, "", "autofuse: say what\n")


@pytest.mark.parametrize(
    ("number", "message"),
    [
        (errno.ENOSPC, "autofuse: the disk is full (/data/x): free some space and run the same command again"),
        (errno.EROFS, "autofuse: no permission (/data/x): Read-only file system; choose another path"),
        (errno.EIO, "autofuse: the system refused (/data/x): Input/output error"),
    ],
)
def test_what_the_system_refuses_is_said_plainly(number: int, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "compile", refuse(OSError(number, os.strerror(number), "/data/x")))
    result = call("compile", "m.onnx", "-o", "m.so")
    assert result.exit_code == 2
    assert result.stderr.startswith(message)


def test_an_interrupt_says_that_nothing_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    for verb, words in (("tune", "what was measured is recorded"), ("bench", "autofuse: interrupted\n")):
        monkeypatch.setattr(api, verb, refuse(KeyboardInterrupt()))
        result = call(verb, "m.onnx")
        assert result.exit_code == 130
        assert words in result.stderr


def test_inspect_shows_a_small_model(tmp_path: Path) -> None:
    path = tmp_path / "small.onnx"
    value = onnx.helper.make_tensor_value_info
    nodes = [
        onnx.helper.make_node("Relu", ["x"], ["y"], name="r"),
        onnx.helper.make_node("Exp", ["y"], ["z"], name="e"),
    ]
    kind = onnx.TensorProto.FLOAT
    graph = onnx.helper.make_graph(nodes, "g", [value("x", kind, ["n", 4])], [value("z", kind, ["n", 4])])
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)]), path)

    refused = call("inspect", path)
    assert refused.exit_code == 2
    assert "--shape" in refused.stderr
    body = json.loads(call("inspect", path, "--shape", "x=2,4", "--format", "json").stdout)
    assert [row["name"] for row in body["operators"]] == ["r", "e"]
    text = call("inspect", path, "--shape", "x=2,4", "--operators").stdout
    assert "open decisions" in text
    assert "Relu" in text

    shown = json.loads(call("plan", "show", path, "--shape", "x=2,4", "--plan", "none", "--format", "json").stdout)
    assert sorted(shown["groups"]) == [["e"], ["r"]]
    stored = tmp_path / "plan.json"
    stored.write_text(json.dumps(shown), encoding="utf-8")
    same = call("plan", "diff", path, stored, "none", "--shape", "x=2,4")
    assert same.stdout == "the plans are the same\n"
    different = call("plan", "diff", path, "default", "none", "--shape", "x=2,4", "--format", "json")
    assert json.loads(different.stdout)["same"] is False
    edges = json.loads(call("explain", path, "--shape", "x=2,4", "--edge", "r,e", "--format", "json").stdout)["edges"]
    assert [(edge["producer"], edge["consumer"], edge["fused"]) for edge in edges] == [("r", "e", True)]
    unknown = call("explain", path, "--shape", "x=2,4", "--edge", "q")
    assert "the model has no operator 'q'" in unknown.stderr


def test_a_plan_file_of_another_model_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "one.onnx"
    value = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [4])
    result = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [4])
    graph = onnx.helper.make_graph([onnx.helper.make_node("Relu", ["x"], ["y"], name="r")], "g", [value], [result])
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)]), path)
    plan = tmp_path / "plan.json"
    plan.write_text('{"schema": 1, "folds": [], "groups": [["other"]]}', encoding="utf-8")
    refused = call("plan", "show", path, "--plan", plan)
    assert (refused.exit_code, str(plan) in refused.stderr, "'other'" in refused.stderr) == (6, True, True)
    missing = call("plan", "show", path, "--plan", "fastest")
    assert (
        "allowed: none, tvm-partition, dnnfusion, default, always, best, or the path of a plan file" in missing.stderr
    )
