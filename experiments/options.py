"""The options that experiments have in common: each is spelled, typed and explained once."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from autofuse.errors import InputError
from autofuse.values.arguments import parse_duration


def duration(text: str) -> float:
    """Seconds of "90s" or "2m"."""
    try:
        return parse_duration(text)
    except InputError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def counts(text: str) -> list[int]:
    """Numbers above zero, separated by commas, each once."""
    try:
        found = [int(part) for part in text.split(",")]
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no list of numbers such as 1,2") from error
    if min(found) < 1:
        raise argparse.ArgumentTypeError(f"{min(found)} is not above zero")
    return list(dict.fromkeys(found))


def count(text: str) -> int:
    """A number above zero."""
    one, *more = counts(text)
    if more:
        raise argparse.ArgumentTypeError(f"{text!r} is more than one number")
    return one


def listed(text: str) -> list[str]:
    """Texts separated by commas."""
    return [part.strip() for part in text.split(",")]


def durations(text: str) -> list[str]:
    """Texts of durations, separated by commas."""
    for part in text.split(","):
        duration(part)
    return text.split(",")


def one_of(*allowed: str) -> Names:
    """A type of option: names out of these, separated by commas."""
    return Names(allowed)


class Names:
    """Splits a list of names, each once; a name that is not allowed is refused."""

    def __init__(self, allowed: Sequence[str]) -> None:
        self.allowed = tuple(allowed)

    def __call__(self, text: str) -> list[str]:
        names = [name.strip() for name in text.split(",")]
        for name in names:
            if name not in self.allowed:
                raise argparse.ArgumentTypeError(f"{name!r} is not one of {', '.join(self.allowed)}")
        return list(dict.fromkeys(names))


def new_parser(
    description: str | None,
    *,
    out: Path | str | None = None,
    threads: int | str | None = None,
    budget: str | None = None,
    bench: str | None = None,
    seed: int | None = None,
    processes: int | None = None,
    time: str | None = None,
) -> argparse.ArgumentParser:
    """A parser with the common options that have a default here.

    `threads`: a number, or a text such as "1,2" where an experiment takes several numbers in turn.
    """
    made = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = made.add_argument
    if isinstance(threads, str):
        add("--threads", type=counts, default=counts(threads), metavar="N,N", help=_help("numbers of threads", threads))
    elif threads is not None:
        add("--threads", type=count, default=threads, metavar="N", help=_help("threads that run a model", threads))
    if budget is not None:
        text = _help("time for tuning, of each row", budget or "not tuned")
        add("--budget", type=duration, default=duration(budget) if budget else 0.0, metavar="DURATION", help=text)
    if bench is not None:
        text = _help("time of each comparison", bench)
        add("--bench", type=duration, default=duration(bench), metavar="DURATION", help=text)
    if seed is not None:
        add("--seed", type=int, default=seed, help=_help("of what is drawn at random", seed))
    if processes is not None:
        add("--processes", type=count, default=processes, metavar="N", help=_help("children at a time", processes))
    if time is not None:
        add("--time", type=duration, default=duration(time), metavar="DURATION", help=_help("longest wall time", time))
    if out is not None:
        add("--out", type=Path, default=Path(out), metavar="FOLDER", help=_help("folder of all files written", out))
    return made


def _help(text: str, default: object) -> str:
    shown = default if not isinstance(default, Path) else default.name
    return f"{text} (default: {shown})"
