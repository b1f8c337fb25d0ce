"""What verbs print: the bench object, tables with units, the commands that come next."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest
from rich.console import Console
from typer.testing import CliRunner

from autofuse import api
from autofuse.cli.main import app
from autofuse.cli.screens.next_steps import (
    after_compiling,
    after_inspecting,
    after_job,
    after_status,
    after_tuning,
)
from autofuse.cli.screens.render import cell, describe, heading, plain, records
from autofuse.search.progress import PlanTime, Progress, TuneResult
from autofuse.values.arguments import micros, size


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
    assert (heading("seconds"), cell("seconds", 11.831)) == ("time", "11.83 s")
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
    rival = SimpleNamespace(
        median_us=150.0,
        ratio=1.5,
        ci_lo=1.4,
        ci_hi=1.6,
        trusted=True,
        note="not shown",
        autofuse_us=100.0,
        verdict="faster",
        error="",
    )
    report = SimpleNamespace(
        model="net.onnx",
        threads=2,
        device="local",
        autofuse_us=100.0,
        max_rel_error=2e-6,
        kernels=7,
        recorded=True,
        rivals={
            "onnxruntime": rival,
            "none": replace_namespace(rival, ratio=1.0, ci_lo=0.9, ci_hi=1.1, verdict="no difference"),
        },
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
    beside = {"autofuse_us": 100.0, "verdict": "faster", "error": ""}
    assert json.loads(result.stdout) == {
        "model": "net.onnx",
        "threads": 2,
        "device": "local",
        "autofuse_us": 100.0,
        "max_rel_error": 2e-6,
        "kernels": 7,
        "rivals": {
            "onnxruntime": {"median_us": 150.0, "ratio": 1.5, "ci_lo": 1.4, "ci_hi": 1.6, "trusted": True, **beside},
            "none": {
                "median_us": 150.0,
                "ratio": 1.0,
                "ci_lo": 0.9,
                "ci_hi": 1.1,
                "trusted": True,
                **beside,
                "verdict": "no difference",
            },
        },
    }
    assert asked == {
        "model": Path("net.onnx"),
        "sizes": [],
        "trust": (),
        "library": None,
        "database": "p.db",
        "threads": 2,
        "device": "local",
        "rpc": None,
        "rpc_key": None,
        "rpc_key_file": None,
        "rpc_tracker": None,
        "on_miss": "rule",
        "against": "onnxruntime,none",
        "budget": "60s",
        "shapes": {"x": (1, 3)},
        "constants": {},
    }
    text = CliRunner().invoke(app, arguments).stdout
    assert "autofuse is faster" in text
    assert "no difference" in text


def test_a_rival_that_cannot_run_says_why_and_is_null_in_json(monkeypatch: pytest.MonkeyPatch) -> None:
    failed = SimpleNamespace(
        median_us=None,
        ratio=None,
        ci_lo=None,
        ci_hi=None,
        trusted=False,
        error="no converter",
        autofuse_us=None,
        verdict="",
    )
    facts = {"model": "net", "threads": 1, "device": "local", "autofuse_us": 9.0, "max_rel_error": 0.0, "kernels": 1}
    facts["recorded"] = False
    monkeypatch.setattr(api, "bench", lambda *_a, **_n: SimpleNamespace(**facts, rivals={"tvm": failed}))
    assert "not measured: no converter" in CliRunner().invoke(app, ["bench", "net.onnx"]).stdout
    body = json.loads(CliRunner().invoke(app, ["bench", "net.onnx", "--format", "json"]).stdout)
    missing = dict.fromkeys(("median_us", "ratio", "ci_lo", "ci_hi", "autofuse_us"))
    assert body["rivals"]["tvm"] == {**missing, "trusted": False, "verdict": "", "error": "no converter"}


@dataclass(frozen=True)
class GroupLine:
    group: str
    tier: str
    us: float | None
    schedule: str = "{}"
    source: str = ""
    program: int = 0
    trusted: bool | None = None


@dataclass(frozen=True)
class Compiled:
    library: str
    hits: int
    size_bytes: int
    groups: tuple[GroupLine, ...]
    plans: tuple[object, ...] = ()
    warning: str = ""
    parts: tuple[object, ...] = ()
    rest: tuple[object, ...] = ()
    header: str = ""
    provider: str = ""
    sha256: str = ""
    sizes: dict[str, tuple[int, int]] = field(default_factory=dict)
    images: bool = False
    untuned: ClassVar[bool] = False


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
    assert [line.split() for line in lines[4:7]] == facts
    assert [line.partition(":")[0] for line in lines if line.startswith("tier: how it is known")] == ["tier"]
    assert lines[-2:] == ["next  autofuse run m.so", "      autofuse bench m.onnx --library m.so --threads 1"]
    assert callable(asked.pop("progress"))
    assert asked == {
        "dry_run": False,
        "model": Path("m.onnx"),
        "output": Path("m.so"),
        "sign": None,
        "database": None,
        "threads": 1,
        "device": "local",
        "rpc": None,
        "rpc_key": None,
        "rpc_key_file": None,
        "rpc_tracker": None,
        "on_miss": "none",
        "strict": True,
        "require_complete": False,
        "exact": False,
        "trained": None,
        "weight_growth": None,
        "shapes": [{}],
        "constants": {},
        "buckets": {},
        "sizes": [],
        "caches": [],
        "plan": "tvm",
        "format": None,
    }
    body = json.loads(CliRunner().invoke(app, [*arguments, "--format", "json"]).stdout)
    wanted = {
        "group": "Gemm 1x10",
        "tier": "rule",
        "us": None,
        "schedule": "{}",
        "source": "",
        "program": 0,
        "trusted": None,
    }
    assert body["groups"][1] == wanted


def test_tune_passes_its_flags_and_prints_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, object] = {}

    def tune(model: Path, *, progress: Any, stop: Any, **named: object) -> TuneResult:
        progress(Progress("search", "Conv", 120.0, 600.0, 30, 60, 28, 2, 5, 6712.0, 13424.0, left_s=120.0))
        asked.update(named, model=model)
        plans = {"none": PlanTime(9, None, 13424.0), "search": PlanTime(4, 6700.0, 6712.0)}
        return TuneResult(
            "net", "net-2t", 1, "p.db", "zen3", 2, "finished", 60.0, 30, 2, 5, 3, "search", "ab" * 32, 4, plans
        )

    monkeypatch.setattr(api, "tune", tune)
    arguments = ["tune", "net.onnx", "--budget", "10m", "--trials", "30", "--seed", "3", "--space", "dnnfusion"]
    result = CliRunner().invoke(
        app, [*arguments, "--threads", "2", "--device", "zen3", "--db", "p.db", "--shape", "x=1"]
    )
    assert "28 ok, 2 failed" in result.stderr
    rows = [line.split() for line in result.stdout.splitlines()]
    assert ["search", "4", "6.700", "ms", "6.712", "ms", "-", "no", "-"] in rows
    assert "autofuse compile net.onnx -o net.so --device zen3 --threads 2 --shape x=1 --db p.db" in result.stdout
    assert asked == {
        "model": Path("net.onnx"),
        "database": "p.db",
        "budget": "10m",
        "trials": 30,
        "trace": None,
        "threads": 2,
        "device": "zen3",
        "seed": 3,
        "space": "dnnfusion",
        "exact": False,
        "trained": None,
        "pareto": False,
        "rpc": None,
        "rpc_key": None,
        "rpc_key_file": None,
        "rpc_tracker": None,
        "shapes": {"x": (1,)},
        "constants": {},
        "sizes": [],
    }


def replace_namespace(value: SimpleNamespace, **changes: object) -> SimpleNamespace:
    return SimpleNamespace(**(vars(value) | changes))


def test_a_run_ends_with_the_commands_that_come_next() -> None:
    inputs = {"shapes": {"x": (1, 3)}, "constants": {"axes": "[0,2]"}}
    named = {"database": "my db", "threads": 2, "device": "zen3", **inputs}
    lines = [text.split() for text in printed(after_tuning(Path("net.onnx"), named)).splitlines()]
    assert lines[0][:2] == ["next", "autofuse"]
    place = "--device zen3 --threads 2 --shape x=1,3 --constant 'axes=[0,2]' --db 'my db'"
    assert " ".join(lines[0][2:]) == f"compile net.onnx -o net.so {place}"
    assert " ".join(lines[1]) == "autofuse report --db 'my db' --html net.html"
    assert " ".join(lines[2]) == f"autofuse bench net.onnx --against onnxruntime,none {place}"
    looked = printed(after_inspecting(Path("net.onnx"), {"shapes": {"x": (1, 3)}, "space": None}))
    assert looked.split() == ["next", "autofuse", "tune", "net.onnx", "--budget", "10m", "--shape", "x=1,3"]
    compiled = printed(after_compiling(Path("net.onnx"), "n.so", False, {"device": "local"}))
    assert "autofuse run n.so" in compiled and "autofuse bench net.onnx --library n.so" in compiled
    assert "autofuse tune net.onnx" in printed(after_compiling(Path("net.onnx"), "", True, {"device": "local"}))
    assert after_status("3", "failed", {}) is None
    assert "autofuse stop --run 3 --db p.db" in printed(after_status("3", "running", {"database": "p.db"}))
    sizes = {"a": ("batch=1:8",)}
    job = printed(after_job([(Path(f"{name}.onnx"), "local", sizes.get(name, ())) for name in "abcde"], "night", {}))
    assert "autofuse compile a.onnx -o a.so --sizes batch=1:8" in job
    assert "autofuse report --run night --html night.html" in job and "autofuse compile a.onnx -o a.so" in job
    assert "compile e.onnx" not in job and "and so on for 2 more" in job


def test_a_gap_is_a_part_in_percent() -> None:
    assert (cell("gap", 0.0), cell("gap", 3.179)) == ("0.00 %", "317.90 %")


def test_a_device_shows_the_rates_that_were_probed_and_no_others() -> None:
    for name, known in (("emeraldrapids", True), ("raspberry-pi-4", False)):
        shown = CliRunner().invoke(app, ["device", "show", name])
        assert shown.exit_code == 0 and ("\ndivide gflops 1  4.8" in shown.stdout) is known
        assert "gflops 1    0" not in shown.stdout and ("\nrates\n" in shown.stdout) is known
