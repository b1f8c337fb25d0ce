"""Progress of a tuning run: a live view on a terminal, one line a minute elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime
from types import TracebackType
from typing import Protocol, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from autofuse.arguments import format_duration
from autofuse.cli.render import console, micros

LINE_EVERY_S = 60.0


class Progress(Protocol):
    """What a search tells after each candidate; times in seconds and microseconds.

    `phase`: what it is doing ("schedules", "plans", "confirming"); `note`: the thing at hand. `done` of `total`
    (None: unknown) candidates, of which `ok` and `failed` were measured now and `hits` were known already.
    `best_us` against `baseline_us` (the plan without fusion), `speedup` with its interval.
    """

    @property
    def phase(self) -> str: ...
    @property
    def note(self) -> str: ...
    @property
    def elapsed_s(self) -> float: ...
    @property
    def budget_s(self) -> float | None: ...
    @property
    def done(self) -> int: ...
    @property
    def total(self) -> int | None: ...
    @property
    def ok(self) -> int: ...
    @property
    def failed(self) -> int: ...
    @property
    def hits(self) -> int: ...
    @property
    def best_us(self) -> float | None: ...
    @property
    def baseline_us(self) -> float | None: ...
    @property
    def speedup_interval(self) -> tuple[float, float] | None: ...


def eta_s(progress: Progress, elapsed_s: float) -> float | None:
    """Seconds left: by the work that is known, and never beyond the budget; None when neither is known."""
    guesses = []
    if progress.budget_s is not None:
        guesses.append(max(0.0, progress.budget_s - elapsed_s))
    if progress.total and progress.done:
        guesses.append(max(0.0, elapsed_s / progress.done * (progress.total - progress.done)))
    return min(guesses, default=None)


def speedup_text(progress: Progress) -> str:
    """Best time, and what it gains over no fusion: "6.712 ms, 1.84x of no fusion (1.80-1.88)"."""
    if progress.best_us is None:
        return "nothing measured yet"
    text = micros(progress.best_us)
    if progress.baseline_us is not None and progress.best_us > 0:  # 0: a model that needs no kernel at all
        text += f", {progress.baseline_us / progress.best_us:.2f}x of no fusion"
        if progress.speedup_interval is not None:
            text += " ({:.2f}-{:.2f})".format(*progress.speedup_interval)
    return text


def line(progress: Progress, elapsed_s: float) -> str:
    """The whole state in one line of a log."""
    total = "" if progress.total is None else f"/{progress.total}"
    left = eta_s(progress, elapsed_s)
    parts = [
        f"{progress.phase} {progress.done}{total}",
        f"{progress.ok} ok, {progress.failed} failed, {progress.hits} known",
        f"best {speedup_text(progress)}",
        f"{_an_hour(progress, elapsed_s)} an hour",
        f"{format_duration(elapsed_s)} gone" + ("" if left is None else f", {format_duration(left)} left"),
    ]
    return "; ".join(parts) + (f": {progress.note}" if progress.note else "")


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
    """Shows progress while it is open; call it with each new state."""

    def __init__(self, screen: Console | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._state: Progress | None = None
        self._at = clock()
        super().__init__(screen, clock, self._render)  # which renders at once
        self._last_line: float | None = None
        self._last_phase = ""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, trace)
        if self._state is not None:
            self._print_line(self._state)

    def __call__(self, progress: Progress) -> None:
        """Take the newest state."""
        self._state, self._at = progress, self._clock()
        if self._screen.is_terminal:
            return
        due = self._last_line is None or self._at - self._last_line >= LINE_EVERY_S
        if due or progress.phase != self._last_phase:
            self._print_line(progress)

    def _print_line(self, progress: Progress) -> None:
        self._last_line, self._last_phase = self._clock(), progress.phase
        self._print(line(progress, self._elapsed(progress)))

    def _elapsed(self, progress: Progress) -> float:
        return progress.elapsed_s + max(0.0, self._clock() - self._at)

    def _render(self) -> RenderableType:
        progress = self._state
        if progress is None:
            return Text("reading the model and the database ...")
        elapsed = self._elapsed(progress)
        left = eta_s(progress, elapsed)
        share = 0.0 if left is None else elapsed / max(elapsed + left, 1e-9)
        grid = Table.grid(padding=(0, 2))
        total = "" if progress.total is None else f" of {progress.total}"
        grid.add_row(
            progress.phase, Text(f"{progress.done}{total}  {progress.note}", overflow="ellipsis", no_wrap=True)
        )
        grid.add_row("candidates", f"{progress.ok} ok, {progress.failed} failed, {progress.hits} known already")
        grid.add_row("best", Text(speedup_text(progress), style="bold"))
        remaining = "unknown" if left is None else format_duration(left)
        grid.add_row(
            "time", f"{format_duration(elapsed)} gone, {remaining} left, {_an_hour(progress, elapsed)} an hour"
        )
        return Group(ProgressBar(total=1.0, completed=min(share, 1.0), width=60), grid)
