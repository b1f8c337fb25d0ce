"""What a tuning shows while it runs: one line a minute, or a view on a terminal, and how it ended."""

from __future__ import annotations

import io
import threading
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from autofuse.cli.screens.live import TuneView, best_text, line
from autofuse.errors import InputError
from autofuse.search.progress import Progress


def state(**changes: Any) -> Progress:
    known = Progress(
        "search", "Conv+Relu 1x64x56x56", 120.0, 600.0, 30, 60, 28, 2, 5, 6712.0, 13424.0, left_s=120.0,
        asking="schedules",
    )  # fmt: skip
    return replace(known, **changes)


def printed(renderable: Any) -> str:
    screen = Console(file=io.StringIO(), width=200)
    screen.print(renderable)
    text = screen.file.getvalue()  # type: ignore[attr-defined]
    assert isinstance(text, str)
    return text


def test_one_line_tells_the_whole_state() -> None:
    assert line(state()) == (
        "phase 3 of 4, search of schedules; candidates (of 60): 28 ok, 2 failed, 5 known already; "
        "best 6.712 ms composed, 2.00x of no fusion; 900 an hour; 2 min 00 s gone, 2 min 00 s left: "
        "Conv+Relu 1x64x56x56"
    )
    assert "best no plan has all its kernels measured yet" in line(state(best_us=None))
    assert "phase 2 of 4, baselines: 12 of 51; " in line(state(phase="baselines", asking="", part=(12, 51)))
    assert "2 min 05 s gone, 1 min 55 s left" in line(state(), waited_s=5.0)
    assert "2 min 00 s gone, no end set" in line(state(left_s=None))


def test_the_best_is_compared_with_onnxruntime_where_its_time_is_known() -> None:
    assert best_text(state(rival_us=8054.4)) == "6.712 ms composed, 2.00x of no fusion, 1.20x of ONNX Runtime"
    assert best_text(state(), [9120.0, 7010.0, 6712.0]).endswith(", fell from 9.120 ms in 2 steps")


def lines_of(screen: Console) -> list[str]:
    text = screen.file.getvalue()  # type: ignore[attr-defined]
    assert isinstance(text, str)
    return [part.partition(" ")[2] for part in text.splitlines()]


def test_without_a_terminal_there_is_one_line_a_minute_and_one_at_the_end() -> None:
    now = 0.0
    screen = Console(file=io.StringIO(), force_terminal=False, width=1000)
    with TuneView(screen, clock=lambda: now) as view:
        for second in range(0, 130, 10):
            now = float(second)
            view(state(part=(second, 200), elapsed_s=now))
        view(state(asking="plans", elapsed_s=now))
        for phase in ("confirming", "searching on", "confirming"):
            view(state(phase=phase, asking="", elapsed_s=now))
    assert [part.partition(";")[0] for part in lines_of(screen)] == [
        "phase 3 of 4, search of schedules: 0 of 200",
        "phase 3 of 4, search of schedules: 60 of 200",
        "phase 3 of 4, search of schedules: 120 of 200",
        "phase 4 of 4, confirming",
        "phase 4 of 4, searching on",
        "phase 4 of 4, confirming",
        "done",
    ]


def test_the_last_line_says_how_it_ended_and_promises_nothing_more() -> None:
    screen = Console(file=io.StringIO(), force_terminal=False, width=1000)
    with pytest.raises(KeyboardInterrupt), TuneView(screen, clock=lambda: 0.0) as view:
        view(state(asking="plans", part=(3, 8)))
        raise KeyboardInterrupt
    last = lines_of(screen)[-1]
    assert last.startswith("stopped in phase 3 of 4, search of plans: 3 of 8; candidates") and " left" not in last
    assert last.endswith("2.00x of no fusion; 2 min 00 s gone")


def test_what_is_wrong_with_the_input_is_told_alone() -> None:
    screen = Console(file=io.StringIO(), force_terminal=False, width=1000)
    with pytest.raises(InputError), TuneView(screen, clock=lambda: 0.0) as view:
        view(state(phase="opening", asking="", note="reading net.onnx"))
        raise InputError("net.onnx: cannot read the model")
    assert [part.partition(";")[0] for part in lines_of(screen)] == ["phase 1 of 4, opening"]


def test_no_minute_is_silent_while_nothing_is_told() -> None:
    now = 0.0
    screen = Console(file=io.StringIO(), force_terminal=False, width=1000)
    with TuneView(screen, clock=lambda: now) as view:
        for minute in (1, 2):
            now = 60.0 * minute
            view.tick()
        view(state(phase="opening", asking="", elapsed_s=130.0, left_s=470.0, note="reading net.onnx"))
        now += 60.0
        view.tick()
    lines = lines_of(screen)
    assert [part.split("; ")[-1] for part in lines[:2]] == ["1 min 00 s gone", "2 min 00 s gone"]
    assert lines[2].startswith("phase 1 of 4, opening; ") and "2 min 10 s gone" in lines[2]
    assert lines[3].endswith("3 min 10 s gone, 6 min 50 s left: reading net.onnx")


def test_the_line_of_the_minute_comes_without_anybody_asking(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autofuse.cli.screens.live.WATCH_S", 0.01)
    screen, told = Console(file=io.StringIO(), force_terminal=False, width=1000), threading.Event()
    times = iter(range(0, 10**6, 61))
    monkeypatch.setattr(TuneView, "_print", lambda *_: told.set())
    with TuneView(screen, clock=lambda: float(next(times))):
        assert told.wait(10.0)


def test_on_a_terminal_the_view_shows_the_state_and_leaves_one_line() -> None:
    screen = Console(file=io.StringIO(), force_terminal=True, width=120)
    with TuneView(screen) as view:
        assert "reading the model" in printed(view._render())
        for best_us in (9120.0, 8000.0, 9000.0, 7010.0, 6712.0):
            view(state(best_us=best_us, part=(3, 8)))
        shown = printed(view._render())
        for text in (
            "phase 3 of 4, search of schedules: 3 of 8",
            "28 ok, 2 failed, 5 known already",
            "6.712 ms composed, 2.00x of no fusion",
            "composed: the sum of a plan's kernels",
            "9.120 ms → 8.000 ms → 7.010 ms → 6.712 ms",
            "2 min 00 s left",
        ):
            assert text in shown
        assert "doing" not in shown.splitlines()[0], "the bar has its own line"
        assert shown.count("composed: ") == 1
    assert "best 6.712 ms" in screen.file.getvalue()  # type: ignore[attr-defined]
