"""Durations, shapes and lists as users write them."""

from __future__ import annotations

import os
import subprocess
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autofuse.errors import InputError
from autofuse.values.arguments import (
    check_miss_policy,
    command_line,
    format_duration,
    parse_duration,
    parse_executor,
    parse_percent,
    parse_rivals,
    parse_shapes,
    parse_until,
)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("10m", 600), ("8h", 28800), ("1h30m", 5400), ("0.5h", 1800), ("45", 45), (2.5, 2.5), (" 10M ", 600)],
)
def test_durations_read_as_people_write_them(text: str | float, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "s", "10 minutes", "-5m", "0s", "1h30", "ten", "1e3", True, float("inf"), "0"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="--budget: got .*allowed: a duration"):
        parse_duration(text, "--budget")


@given(st.integers(1, 100_000))
def test_a_whole_number_of_seconds_means_the_same_with_any_unit(seconds: int) -> None:
    assert parse_duration(f"{seconds}s") == parse_duration(str(seconds)) == parse_duration(seconds) == seconds


def test_durations_print_in_two_units() -> None:
    assert [format_duration(s) for s in (0.2, 4, 125, 5400)] == ["0 s", "4 s", "2 min 05 s", "1 h 30 min"]


def test_until_is_the_next_such_time_of_the_day() -> None:
    evening = datetime(2026, 11, 21, 23, 10, tzinfo=timezone(timedelta(hours=2)))
    assert parse_until("06:30", evening) == datetime(2026, 11, 22, 4, 30, tzinfo=UTC).timestamp()
    assert parse_until("23:11", evening) == evening.timestamp() + 60
    assert parse_until("23:10", evening) == evening.timestamp() + 86400, "now is tomorrow"


@pytest.mark.parametrize("text", ["24:00", "6.30", "06:60", "0630", "", "tomorrow"])
def test_what_is_no_time_of_a_day_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="--until: got .*allowed: a time of the day such as 06:30"):
        parse_until(text, datetime(2026, 11, 21, tzinfo=UTC))


def test_percents_read_with_their_sign_and_without() -> None:
    assert parse_percent("0.5%", "--early-stopping") == parse_percent(0.5, "--early-stopping") == 0.005
    for text in ("0", "100", "-1", "much", "nan"):
        with pytest.raises(InputError, match="--early-stopping: got .*percent between 0 and 100"):
            parse_percent(text, "--early-stopping")


def test_an_executor_is_this_machine_or_a_dask_scheduler() -> None:
    assert parse_executor("local") is None
    assert parse_executor("dask://cluster.lan:8786") == "tcp://cluster.lan:8786"
    for text in ("dask://cluster", "ray://x:1", "tcp://x:1", ""):
        with pytest.raises(InputError, match="--executor: got .*allowed: local, or dask://HOST:PORT"):
            parse_executor(text)


def test_shapes_are_read_by_name() -> None:
    shapes = parse_shapes(["image=1,3,224,224", "ids=1x128", "scalar=", "a=b=2"])
    assert shapes == {"image": (1, 3, 224, 224), "ids": (1, 128), "scalar": (), "a=b": (2,)}


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["1,3"], "got '1,3', allowed: NAME=SIZES"),
        (["=1,3"], "allowed: NAME=SIZES"),
        (["x=1,0"], "sizes of 'x': got '1,0', allowed: positive integers"),
        (["x=1,-1"], "sizes of 'x'"),
        (["x=1,,2"], "sizes of 'x'"),
        (["x=batch,3"], "sizes of 'x': got 'batch,3'"),
        (["x=1", "x=2"], "input 'x' is given twice"),
    ],
)
def test_a_bad_shape_says_what_is_allowed(texts: list[str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse_shapes(texts)


def test_rivals_keep_their_order_and_stand_once() -> None:
    assert parse_rivals("tvm, onnxruntime,tvm-untuned") == ("tvm-untuned", "onnxruntime")
    with pytest.raises(InputError, match="--against: got 'torch', allowed: onnxruntime, tvm-untuned, none"):
        parse_rivals(["torch"])


def test_a_miss_policy_is_a_known_name() -> None:
    assert check_miss_policy("rule") == "rule"
    with pytest.raises(InputError, match="--on-miss: got 'guess', allowed: rule, model, none, fail"):
        check_miss_policy("guess")


@pytest.mark.parametrize(
    ("name", "typed"),
    [
        ("net.onnx", "net.onnx"),
        ("a net.onnx", "'a net.onnx'"),
        ("größe.onnx", "'größe.onnx'"),
        ("net\udcff.onnx", r"$'net\377.onnx'"),
        ("ein Maß\udcff1.onnx", r"$'ein Maß\3771.onnx'"),
        ("it's\\\udc80", r"$'it\'s\\\200'"),
        ("two\nlines\x1b[31m", r"$'two\012lines\033[31m'"),
        ("turned\u202e", r"$'turned\342\200\256'"),
        ("", "''"),
    ],
)
def test_a_name_in_a_command_can_be_pasted_into_a_shell(name: str, typed: str) -> None:
    assert command_line(["tune", name]) == f"tune {typed}"
    shown = subprocess.run(["bash", "-c", f"printf %s {typed}"], stdout=subprocess.PIPE, check=True)
    assert shown.stdout == os.fsencode(name)
