"""Progress of a tuning run: a live view on a terminal, one line a minute elsewhere."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import cache
from types import TracebackType
from typing import TYPE_CHECKING, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from autofuse.cli.screens.render import console
from autofuse.errors import AutofuseError
from autofuse.values.arguments import format_duration, micros

if TYPE_CHECKING:
    from autofuse.api.results import Progress

LINE_EVERY_S = 60.0
WATCH_S = 1.0
"""Seconds between two looks at whether the line of the minute is due."""
LAST_FALLS = 4
"""Steps by which the best time fell that the live view names, beside the first."""
WORDS = "composed, no fusion, known already"
"""Words of the live view that it explains, in one line each."""
OPENING = "opening"
"""The first phase of a search: what is wrong in it is wrong with what was given."""
READING = "loading the compiler, reading the model and the database;"


def left_s(progress: Progress, waited_s: float) -> float | None:
    """Seconds until the end, `waited_s` after the search said so; None when there is no end to foresee."""
    return None if progress.left_s is None else max(0.0, progress.left_s - waited_s)


def best_text(progress: Progress, falls: Sequence[float] = ()) -> str:
    """The best time, and how it stands: "6.712 ms composed, 1.84x of no fusion, fell from 9 ms in 5 steps"."""
    from autofuse.values.ratios import expected_ratio  # late: it loads NumPy

    if progress.best_us is None:
        return "no plan has all its kernels measured yet"
    parts = [f"{micros(progress.best_us)} composed"]
    if progress.best_us > 0:  # 0: a model that needs no kernel at all
        for rival_us, rival in ((progress.baseline_us, "no fusion"), (progress.rival_us, "ONNX Runtime")):
            if (expected := expected_ratio(rival_us, progress.best_us)) is not None:
                parts.append(f"{expected:.2f}x of {rival}")
    if len(falls) > 1:
        steps = len(falls) - 1
        parts.append(f"fell from {micros(falls[0])} in {steps} step{'s' if steps > 1 else ''}")
    return ", ".join(parts)


def line(progress: Progress, waited_s: float = 0.0, falls: Sequence[float] = ()) -> str:
    """The whole state in one line of a log."""
    elapsed_s, left = progress.elapsed_s + waited_s, left_s(progress, waited_s)
    parts = [
        progress.where,
        _candidates(progress),
        f"best {best_text(progress, falls)}",
        f"{_an_hour(progress, elapsed_s)} an hour",
        f"{format_duration(elapsed_s)} gone, {_left_text(left)}",
    ]
    return "; ".join(parts) + (f": {progress.note}" if progress.note else "")


def last_line(progress: Progress, waited_s: float, falls: Sequence[float], stopped: bool) -> str:
    """How it ended, in one line of a log."""
    elapsed_s = progress.elapsed_s + waited_s
    parts = [
        f"stopped in {progress.where}" if stopped else "done",
        _candidates(progress),
        f"best {best_text(progress, falls)}",
        f"{format_duration(elapsed_s)} gone",
    ]
    return "; ".join(parts)


def _candidates(progress: Progress) -> str:
    total = "" if progress.total is None else f" (of {progress.total})"
    return f"candidates{total}: {progress.ok} ok, {progress.failed} failed, {progress.hits} known already"


def _left_text(left: float | None) -> str:
    return "no end set" if left is None else f"{format_duration(left)} left"


def _an_hour(progress: Progress, elapsed_s: float) -> int:
    measured = progress.ok + progress.failed
    return round(measured / elapsed_s * 3600) if elapsed_s > 0 else 0


class View:
    """A part of a terminal that is written anew while it is open; elsewhere, lines that say when."""

    def __init__(
        self, screen: Console | None, clock: Callable[[], float], render: Callable[[], RenderableType] | None = None
    ) -> None:
        self._screen, self._clock = screen or console(stderr=True), clock
        self._live = Live(get_renderable=render, console=self._screen, refresh_per_second=2, transient=True)

    def __enter__(self) -> Self:
        if self._screen.is_terminal:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._screen.is_terminal:
            self._live.stop()

    def _print(self, text: str) -> None:
        """One line, behind the time of day."""
        stamp = datetime.now().astimezone().strftime("%H:%M:%S")
        self._screen.print(Text(f"{stamp} {text}"), soft_wrap=True)


class TuneView(View):
    """Shows progress while it is open; call it with each new state.

    Elsewhere than on a terminal a line is written when a phase begins, and every minute, also while nothing comes.
    """

    def __init__(self, screen: Console | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._state: Progress | None = None
        self._at = self._began = clock()
        self._falls: list[float] = []
        super().__init__(screen, clock, self._render)  # which renders at once
        self._last_line = self._began
        self._last_phase = ""
        self._closed = threading.Event()

    def __enter__(self) -> Self:
        super().__enter__()
        if not self._screen.is_terminal:
            threading.Thread(target=self._watch, name="autofuse-progress", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closed.set()
        super().__exit__(kind, error, trace)
        refused = isinstance(error, AutofuseError) and self._last_phase == OPENING
        if self._state is not None and not refused:  # what is wrong with the input is told alone
            self._print(last_line(self._state, self._waited_s(), self._falls, stopped=kind is not None))

    def __call__(self, progress: Progress) -> None:
        """Take the newest state."""
        self._state, self._at = progress, self._clock()
        if progress.best_us is not None and (not self._falls or progress.best_us < self._falls[-1]):
            self._falls.append(progress.best_us)
        if not self._screen.is_terminal and progress.phase != self._last_phase:
            self._print_line()
        self.tick()

    def tick(self) -> None:
        """Writes the line of the minute when it is due."""
        if not self._screen.is_terminal and self._clock() - self._last_line >= LINE_EVERY_S:
            self._print_line()

    def _watch(self) -> None:
        while not self._closed.wait(WATCH_S):
            self.tick()

    def _print_line(self) -> None:
        self._last_line = self._clock()
        if self._state is None:
            self._print(f"{READING} {format_duration(self._last_line - self._began)} gone")
            return
        self._last_phase = self._state.phase
        self._print(line(self._state, self._waited_s(), self._falls))

    def _waited_s(self) -> float:
        return max(0.0, self._clock() - self._at)

    def _render(self) -> RenderableType:
        progress, waited_s = self._state, self._waited_s()
        if progress is None:
            return Text(f"{READING} {format_duration(self._clock() - self._began)} gone")
        elapsed, left = progress.elapsed_s + waited_s, left_s(progress, waited_s)
        share = 0.0 if left is None else elapsed / max(elapsed + left, 1e-9)
        grid = Table.grid(padding=(0, 2))
        grid.add_column(style="dim")
        grid.add_column(overflow="ellipsis", no_wrap=True)
        grid.add_row("doing", Text(progress.where + (f"  {progress.note}" if progress.note else "")))
        grid.add_row("best", Text(best_text(progress), style="bold"))
        if len(self._falls) > 1:
            grid.add_row("", Text(_falling(self._falls)))
        grid.add_row("measured", Text(f"{_candidates(progress)}; {_an_hour(progress, elapsed)} an hour"))
        grid.add_row("time", Text(f"{format_duration(elapsed)} gone, {_left_text(left)}"))
        bar = ProgressBar(total=1.0, completed=min(share, 1.0), width=60)
        return Group(bar, "", grid, Text(_words(), style="dim"))  # "": a bar does not end its line


@cache
def _words() -> str:
    from autofuse import api  # late: it loads NumPy

    return api.terms(WORDS)


def _falling(falls: Sequence[float]) -> str:
    """How the best time fell, the last steps one by one: "9.120 ms → ... → 7.010 ms → 6.712 ms"."""
    shown = [micros(us) for us in falls]
    if len(shown) > LAST_FALLS + 1:
        shown = [shown[0], "…", *shown[-LAST_FALLS:]]
    return " → ".join(shown)
