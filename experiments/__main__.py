"""`python -m experiments` lists the experiments, `python -m experiments NAME ARGUMENTS` runs one.

What a run measures goes to `experiments/results`, under this machine's kind; `--scratch` before the name keeps nothing.
`python -m experiments render` makes the index and the tables of all pages from there.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from experiments import records
from experiments.index import EXPERIMENTS, INDEX, PAGES, ROOT, find, page


def main(arguments: Sequence[str]) -> int:
    """The exit code of the experiment named first; 0 for the list, 2 for a name that there is not."""
    if not arguments or arguments[0] in ("list", "-h", "--help"):
        print("\n".join(listing()))
        return 0
    scratch = arguments[0] == "--scratch"
    name, *rest = arguments[scratch:] or [""]
    if name == "render":
        return render(rest)
    experiment = find(name)
    if experiment is None:
        print(f"experiment {name!r} is unknown; `python -m experiments` lists them", file=sys.stderr)
        return 2
    program, sys.argv[0] = sys.argv[0], f"experiments {name}"  # what `--help` calls itself
    previous = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        if scratch:
            return experiment.main()(rest)
        with records.running(records.command(arguments)):
            return experiment.main()(rest)
    except KeyboardInterrupt:
        print("interrupted; what was finished is kept where the experiment keeps results", file=sys.stderr)
        return 130
    finally:
        sys.argv[0] = program
        signal.signal(signal.SIGTERM, previous)


def listing() -> list[str]:
    """A line an experiment: its name and its question."""
    width = max(len(experiment.name) for experiment in EXPERIMENTS)
    lines = [f"  {experiment.name:{width}}  {experiment.question}" for experiment in EXPERIMENTS]
    return [
        "python -m experiments [--scratch] NAME [ARGUMENTS]",
        "",
        *lines,
        "",
        f"  {'render':{width}}  Writes the index, and the tables of all pages from results/.",
    ]


def all_tables() -> dict[str, records.Table[Any]]:
    """Every table that is kept, by its name."""
    modules = [import_module(experiment.home) for experiment in EXPERIMENTS if experiment.table]
    return {table.name: table for module in modules for table in getattr(module, "TABLES", ())}


def render(arguments: Sequence[str]) -> int:
    """Write the index, and every table of every page."""
    if arguments:
        print("render takes no arguments", file=sys.stderr)
        return 2
    INDEX.write_text(page(), encoding="utf-8")
    tables = all_tables()
    for path in (ROOT / name for name in PAGES):
        text = path.read_text(encoding="utf-8")
        path.write_text(records.rendered(text, tables), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
