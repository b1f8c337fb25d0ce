"""What verbs print: the bench object, tables with units, one line of progress."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from typer.testing import CliRunner

from autofuse import api
from autofuse.cli.live import TuneView, eta_s, line
from autofuse.cli.main import app
from autofuse.cli.render import cell, describe, heading, micros, plain, records, size


@dataclass(frozen=True)
class State:
    phase: str = "schedules"
    note: str = "Conv+Relu 1x64x56x56"
    elapsed_s: float = 120.0
    budget_s: float | None = 600.0
    done: int = 30
    total: int | None = 60
    ok: int = 28
    failed: int = 2
    hits: int = 5
    best_us: float | None = 6712.0
    baseline_us: float | None = 13424.0
    speedup_interval: tuple[float, float] | None = (1.9, 2.1)


class Colour(Enum):
    RED = "red"


@dataclass(frozen=True)
class Row:
    name: str
    median_us: float
    output_bytes: int = 0


@dataclass(frozen=True)
class Report:
    model: str
    elapsed_s: float
    rows: tuple[Row, ...] = ()
    counts: dict[str, int] = field(default_factory=dict)


def printed(renderable: Any) -> str:
    screen = Console(file=io.StringIO(), width=200)
    screen.print(renderable)
    text = screen.file.getvalue()  # type: ignore[attr-defined]
    assert isinstance(text, str)
    return text


def test_json_holds_only_json(tmp_path: Path) -> None:
    value = {
        "row": Row("a", 1.5),
        "set": {"b", "a"},
        "path": tmp_path,
        "enum": Colour.RED,
        "array": np.arange(3),
        "scalar": np.float32(2),
        "nan": float("nan"),
        "raw": b"\x01",
    }
    assert json.loads(json.dumps(plain(value), allow_nan=False)) == {
        "row": {"name": "a", "median_us": 1.5, "output_bytes": 0},
        "set": ["a", "b"],
        "path": str(tmp_path),
        "enum": "red",
        "array": [0, 1, 2],
        "scalar": 2.0,
        "nan": None,
        "raw": "01",
    }


def test_units_come_from_the_name_of_a_field() -> None:
    assert [heading(key) for key in ("median_us", "output_bytes", "elapsed_s", "best")] == [
        "median",
        "output",
        "elapsed",
        "best",
    ]
    shown = [cell("a_us", 812.4), cell("a_us", 6712.0), cell("a_us", 2.5e6), cell("x_bytes", 3.5 * 2**20)]
    assert shown == ["812.4 µs", "6.712 ms", "2.500 s", "3.5 MiB"]
    assert [cell("n", 12345), cell("seed", 12345), cell("r", 1.2345), cell("ok", True), cell("x", None)] == [
        "12,345",
        "12345",
        "1.234",
        "yes",
        "-",
    ]
    assert (micros(float("nan")), size(512)) == ("-", "512 B")


def test_a_report_is_laid_out_by_its_fields() -> None:
    report = Report("net", 90.0, (Row("a", 10.0, 2048), Row("b", 2000.0)), {"hit": 3})
    lines = [line.rstrip() for line in printed(describe(report)).splitlines()]
    assert lines[:2] == ["model    net", "elapsed  1 min 30 s"]
    assert "name    median   output" in lines
    assert "a      10.0 µs  2.0 KiB" in lines
    assert lines[-2:] == ["counts", "hit  3"]


def test_an_empty_table_prints_nothing_wrong() -> None:
    assert printed(records([])).strip() == ""


def test_bench_prints_the_agreed_object(monkeypatch: pytest.MonkeyPatch) -> None:
    rival = SimpleNamespace(median_us=150.0, ratio=1.5, ci_lo=1.4, ci_hi=1.6, trusted=True, note="not shown")
    report = SimpleNamespace(
        model="net.onnx",
        threads=2,
        device="local",
        autofuse_us=100.0,
        max_rel_error=2e-6,
        kernels=7,
        rivals={"onnxruntime": rival, "none": replace_namespace(rival, ratio=1.0, ci_lo=0.9, ci_hi=1.1)},
    )
    asked: dict[str, object] = {}

    def bench(model: Path, **named: object) -> object:
        asked.update(named, model=model)
        return report

    monkeypatch.setattr(api, "bench", bench)
    arguments = [
        "bench",
        "net.onnx",
        "--against",
        "onnxruntime,none",
        "--threads",
        "2",
        "--shape",
        "x=1,3",
        "--db",
        "p.db",
    ]
    result = CliRunner().invoke(app, [*arguments, "--format", "json"])
    assert json.loads(result.stdout) == {
        "model": "net.onnx",
        "threads": 2,
        "device": "local",
        "autofuse_us": 100.0,
        "max_rel_error": 2e-6,
        "kernels": 7,
        "rivals": {
            "onnxruntime": {"median_us": 150.0, "ratio": 1.5, "ci_lo": 1.4, "ci_hi": 1.6, "trusted": True},
            "none": {"median_us": 150.0, "ratio": 1.0, "ci_lo": 0.9, "ci_hi": 1.1, "trusted": True},
        },
    }
    assert asked == {
        "model": Path("net.onnx"),
        "library": None,
        "database": "p.db",
        "threads": 2,
        "device": "local",
        "rpc": None,
        "rpc_key": None,
        "rpc_tracker": None,
        "on_miss": "rule",
        "against": "onnxruntime,none",
        "budget": "60s",
        "shapes": {"x": (1, 3)},
    }
    text = CliRunner().invoke(app, arguments).stdout
    assert "autofuse is faster" in text
    assert "no difference" in text


def test_a_rival_that_cannot_run_says_why_and_is_null_in_json(monkeypatch: pytest.MonkeyPatch) -> None:
    failed = SimpleNamespace(median_us=None, ratio=None, ci_lo=None, ci_hi=None, trusted=False, error="no converter")
    facts = {"model": "net", "threads": 1, "device": "local", "autofuse_us": 9.0, "max_rel_error": 0.0, "kernels": 1}
    monkeypatch.setattr(api, "bench", lambda *_a, **_n: SimpleNamespace(**facts, rivals={"tvm": failed}))
    assert "not measured: no converter" in CliRunner().invoke(app, ["bench", "net.onnx"]).stdout
    body = json.loads(CliRunner().invoke(app, ["bench", "net.onnx", "--format", "json"]).stdout)
    assert body["rivals"]["tvm"] == {"median_us": None, "ratio": None, "ci_lo": None, "ci_hi": None, "trusted": False}


@dataclass(frozen=True)
class GroupLine:
    group: str
    tier: str
    us: float | None
    schedule: str = "{}"
    source: str = ""
    program: int = 0


@dataclass(frozen=True)
class Compiled:
    library: str
    hits: int
    size_bytes: int
    groups: tuple[GroupLine, ...]
    plans: tuple[object, ...] = ()


def test_compile_prints_hit_or_miss_for_each_group(monkeypatch: pytest.MonkeyPatch) -> None:
    groups = (GroupLine("Conv+Relu 1x8x4x4", "hit", 12.5), GroupLine("Gemm 1x10", "rule", None))
    asked: dict[str, object] = {}

    def compile_(model: Path, output: Path, **named: object) -> Compiled:
        asked.update(named, model=model, output=output)
        return Compiled("m.so", 1, 2048, groups)

    monkeypatch.setattr(api, "compile", compile_)
    arguments = ["compile", "m.onnx", "-o", "m.so", "--on-miss", "none", "--strict", "--plan", "tvm", "-n", "1"]
    lines = CliRunner().invoke(app, arguments).stdout.splitlines()
    assert lines[1].split() == ["Conv+Relu", "1x8x4x4", "hit", "12.5", "µs"]
    assert lines[2].split() == ["Gemm", "1x10", "rule", "-"]
    facts = [["library", "m.so"], ["size", "2.0", "KiB"], ["schedules", "1", "hit,", "1", "rule"]]
    assert [line.split() for line in lines[4:]] == facts
    assert asked == {
        "model": Path("m.onnx"),
        "output": Path("m.so"),
        "database": None,
        "threads": 1,
        "device": "local",
        "rpc": None,
        "rpc_key": None,
        "rpc_tracker": None,
        "on_miss": "none",
        "strict": True,
        "require_complete": False,
        "exact": False,
        "trained": None,
        "weight_growth": None,
        "shapes": [{}],
        "buckets": {},
        "plan": "tvm",
    }
    body = json.loads(CliRunner().invoke(app, [*arguments, "--format", "json"]).stdout)
    wanted = {"group": "Gemm 1x10", "tier": "rule", "us": None, "schedule": "{}", "source": "", "program": 0}
    assert body["groups"][1] == wanted


def test_tune_passes_its_flags_and_prints_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, object] = {}

    def tune(model: Path, *, progress: Any, **named: object) -> dict[str, object]:
        progress(State())
        asked.update(named, model=model)
        return {
            "run": "net-2t",
            "measured": 30,
            "plans": {"none": {"median_us": 13424.0}, "search": {"median_us": 6712.0}},
        }

    monkeypatch.setattr(api, "tune", tune)
    arguments = ["tune", "net.onnx", "--budget", "10m", "--trials", "30", "--seed", "3", "--space", "dnnfusion"]
    result = CliRunner().invoke(
        app, [*arguments, "--threads", "2", "--device", "zen3", "--db", "p.db", "--shape", "x=1"]
    )
    assert "28 ok, 2 failed" in result.stderr
    assert "search   6.712 ms" in result.stdout
    assert asked == {
        "model": Path("net.onnx"),
        "database": "p.db",
        "budget": "10m",
        "trials": 30,
        "threads": 2,
        "device": "zen3",
        "seed": 3,
        "space": "dnnfusion",
        "exact": False,
        "trained": None,
        "pareto": False,
        "rpc": None,
        "rpc_key": None,
        "rpc_tracker": None,
        "shapes": {"x": (1,)},
    }


def replace_namespace(value: SimpleNamespace, **changes: object) -> SimpleNamespace:
    return SimpleNamespace(**(vars(value) | changes))


def test_the_time_left_is_that_of_the_work_but_never_beyond_the_budget() -> None:
    assert eta_s(State(), 120.0) == 120.0
    assert eta_s(State(budget_s=180.0), 120.0) == 60.0
    assert eta_s(State(total=None), 120.0) == 480.0
    assert eta_s(State(total=None, budget_s=None), 120.0) is None
    assert eta_s(State(done=0, budget_s=None), 120.0) is None


def test_one_line_tells_the_whole_state() -> None:
    assert line(State(), 120.0) == (
        "schedules 30/60; 28 ok, 2 failed, 5 known; best 6.712 ms, 2.00x of no fusion (1.90-2.10); 900 an hour; "
        "2 min 00 s gone, 2 min 00 s left: Conv+Relu 1x64x56x56"
    )
    assert "best nothing measured yet" in line(State(best_us=None), 120.0)


def test_without_a_terminal_there_is_one_line_a_minute_and_one_at_the_end() -> None:
    now = 0.0
    screen = Console(file=io.StringIO(), force_terminal=False, width=1000)
    with TuneView(screen, clock=lambda: now) as view:
        for second in range(0, 130, 10):
            now = float(second)
            view(replace(State(), done=second, elapsed_s=now))
        view(replace(State(), phase="plans", done=130, elapsed_s=now))
    text = screen.file.getvalue()  # type: ignore[attr-defined]
    assert [part.split()[2].rstrip(";") for part in text.splitlines()] == [
        "0/60",
        "60/60",
        "120/60",
        "130/60",
        "130/60",
    ]


def test_on_a_terminal_the_view_shows_the_state_and_leaves_one_line() -> None:
    screen = Console(file=io.StringIO(), force_terminal=True, width=120)
    with TuneView(screen) as view:
        view(State())
        assert "28 ok, 2 failed, 5 known already" in printed(view._render())
    assert "best 6.712 ms" in screen.file.getvalue()  # type: ignore[attr-defined]
