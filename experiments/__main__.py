"""`python -m experiments` lists the experiments, `python -m experiments NAME ARGUMENTS` runs one."""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence

from experiments.index import EXPERIMENTS, INDEX, find, page


def main(arguments: Sequence[str]) -> int:
    """The exit code of the experiment named first; 0 for the list, 2 for a name that there is not."""
    if not arguments or arguments[0] in ("list", "-h", "--help"):
        print("\n".join(listing()))
        return 0
    name, *rest = arguments
    if name == "render":
        return render(rest)
    experiment = find(name)
    if experiment is None:
        print(f"experiment {name!r} is unknown; `python -m experiments` lists them", file=sys.stderr)
        return 2
    program, sys.argv[0] = sys.argv[0], f"experiments {name}"  # what `--help` calls itself
    previous = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
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
    return ["python -m experiments NAME [ARGUMENTS]", "", *lines, "", f"  {'render':{width}}  Writes the index."]


def render(arguments: Sequence[str]) -> int:
    """Write the index."""
    if arguments:
        print("render takes no arguments", file=sys.stderr)
        return 2
    INDEX.write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
