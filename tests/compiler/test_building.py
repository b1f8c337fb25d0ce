"""Building a library says how far it is, and gets by where a schedule's code is too long."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autofuse import api
from autofuse.backend.compile import function
from autofuse.backend.compile.function import LONG_VECTORS
from autofuse.backend.compile.host_cpu import local_device
from autofuse.cli.screens.compile_view import verb_progress
from autofuse.compiler.translation import Translation
from autofuse.errors import InputError
from autofuse.kernels.tir import emit
from experiments.fuzz.bombs import padded_window


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """One convolution of one dimension."""
    path = tmp_path / "window.onnx"
    path.write_bytes(padded_window("Conv", 9, 4, size=64).SerializeToString())
    return path


def test_a_compile_tells_how_many_kernels_are_done(model: Path, tmp_path: Path) -> None:
    told: list[tuple[str, int, int]] = []
    report = api.compile(
        model, tmp_path / "m.so", database=str(tmp_path / "a.db"), threads=1, progress=lambda *step: told.append(step)
    )
    kernels = report.kernels
    assert told == [
        ("reading the model", 0, 1),
        ("looking up its plan and schedules", 0, 1),
        *(("generating kernels", done, kernels) for done in range(kernels)),
        *(("translating kernels to machine code", done, kernels) for done in range(kernels + 1)),
        ("writing the library", 0, 1),
        ("writing the library", 1, 1),
    ]


def test_kernels_are_begun_while_others_are_looked_up(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[str] = []
    begin = function.Translator.begin

    def noted(translator: function.Translator, one: Any, code: str = "") -> Any:
        events.append("begun")
        return begin(translator, one, code)

    monkeypatch.setattr(function.Translator, "begin", noted)
    report = api.compile(
        model,
        tmp_path / "m.so",
        database=str(tmp_path / "a.db"),
        threads=1,
        progress=lambda *step: events.append(step[0]),
    )
    assert events[: events.index("generating kernels")].count("begun") == report.kernels


def test_progress_goes_to_stderr_line_by_line(capsys: pytest.CaptureFixture[str]) -> None:
    progress = verb_progress("compile")
    progress("generating kernels", 0, 3)
    progress("translating kernels to machine code", 3, 3)
    progress("writing the library", 0, 1)
    progress("writing the library", 1, 1)
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err == "compile: translating kernels to machine code (3)\ncompile: writing the library\n"


def test_long_code_is_translated_in_children_and_computes_the_same(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = np.random.default_rng(0).standard_normal((1, 4, 64)).astype(np.float32)
    told: list[tuple[str, int, int]] = []
    api.compile(model, tmp_path / "here.so", database=str(tmp_path / "a.db"), threads=1)
    monkeypatch.setattr(function, "LONG_VECTORS", 0)
    report = api.compile(
        model, tmp_path / "m.so", database=str(tmp_path / "a.db"), threads=1, progress=lambda *step: told.append(step)
    )
    assert [step[1:] for step in told if step[0] == "translating kernels of long code"] == [(0, 1), (1, 1)]
    expected = api.load(tmp_path / "here.so")({"x": x})[0]
    np.testing.assert_array_equal(api.load(tmp_path / "m.so")({"x": x})[0], expected)
    assert report.groups[0].tier == "rule"


def test_code_that_takes_too_long_to_translate_gives_way_to_the_simplest_schedule(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rule's kernel is given up after no processor time at all; the simplest one is short enough for no child."""
    asked: list[list[str]] = []

    def given_up(_self: object, functions: Mapping[str, Any], _told: object) -> tuple[dict[str, Any], dict[str, str]]:
        asked.append(list(functions))
        return {}, dict.fromkeys(functions, "it took more processor time than it may")

    monkeypatch.setattr(Translation, "__call__", given_up)
    before = api.compile(model, tmp_path / "short.so", database=str(tmp_path / "a.db"), threads=1)
    loops = function.vector_loops
    monkeypatch.setattr(function, "vector_loops", lambda one: LONG_VECTORS + 1 if loops(one) > 40 else 0)
    after = api.compile(model, tmp_path / "m.so", database=str(tmp_path / "a.db"), threads=1)
    assert len(asked) == 1 and len(asked[0]) == 1
    assert before.groups[0].schedule != after.groups[0].schedule
    monkeypatch.setattr(function, "LONG_VECTORS", -1)
    with pytest.raises(InputError, match="no kernel of Conv.* could be built: it took more .*--plan none"):
        api.compile(model, tmp_path / "n.so", database=str(tmp_path / "a.db"), threads=1)


@pytest.mark.long
def test_a_child_ends_what_takes_more_processor_time_than_it_may() -> None:
    from tests.backend.test_long_kernels import sums

    told: list[tuple[str, int, int]] = []
    long_one = sums(6_000, {function.SCHEDULED: True})
    long_name, short_name = (name.ljust(function.SYMBOL_LENGTH, "_") for name in ("long", "short"))
    ready, given_up = Translation(local_device().target(), cpu_s=1.0)(
        {long_name: long_one, short_name: sums(3, {})}, lambda *step: told.append(step)
    )
    assert given_up == {long_name: "it took more processor time than it may"}
    assert list(ready) == [short_name]
    assert told[-1] == ("translating kernels of long code", 2, 2)


def test_a_rule_whose_code_is_too_long_gives_way_to_the_simplest_schedule(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = np.random.default_rng(0).standard_normal((1, 4, 64)).astype(np.float32)
    before = api.compile(model, tmp_path / "long.so", database=str(tmp_path / "a.db"), threads=1)
    expected = api.load(tmp_path / "long.so")({"x": x})
    monkeypatch.setattr(emit, "MOST_STORES", 40)
    after = api.compile(model, tmp_path / "short.so", database=str(tmp_path / "a.db"), threads=1)
    assert before.groups[0].schedule != after.groups[0].schedule
    np.testing.assert_allclose(api.load(tmp_path / "short.so")({"x": x})[0], expected[0], rtol=1e-5)
