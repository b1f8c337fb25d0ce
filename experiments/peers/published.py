"""The tables of the page: rows as they are kept in `results/`, for three groups of rivals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from statistics import geometric_mean
from typing import Any

from experiments.peers.rivals import BASE, OWN, RIVALS
from experiments.peers.row import Ratio, Row
from experiments.records import Table, keep
from experiments.tables import head, line

PEERS = tuple(rival.name for rival in RIVALS.values() if rival.peer)
GROUPS = {
    "peers": (*(name for name in PEERS if name not in (BASE, "torch")), OWN),
    "peers.plans": ("torch", "autofuse:none", "autofuse:tvm", OWN),
    "peers.metaschedule": ("tvm", "metaschedule", OWN),
}
"""Of each table, the rivals whose speeds it shows. A run fills the tables whose first rival took part."""

DOUBTED, WORDS = "not trusted", {1: "one", 2: "two"}


@dataclass(frozen=True)
class Speed:
    """ONNX Runtime's time / the rival's, with the interval where it was written down; `problem`: why there is none."""

    ratio: float | None = None
    lo: float | None = None
    hi: float | None = None
    trusted: bool = False
    problem: str = ""


@dataclass(frozen=True)
class Published:
    """One network. `speeds`: of each rival; `best`: the fastest peer, `against`: its time / autofuse's.

    `best_of_limit`, `of_limit`: which part of the machine's limit the best peer and autofuse reach; `bound`: of what.
    """

    network: str
    threads: int
    speeds: dict[str, Speed]
    best: str = ""
    against: Speed | None = None
    best_of_limit: float | None = None
    of_limit: float | None = None
    bound: str = ""


def make(**cells: Any) -> Published:
    """A row as the results keep it."""
    speeds = {name: Speed(**speed) for name, speed in cells.pop("speeds").items()}
    against = cells.pop("against", None)
    return Published(**cells, speeds=speeds, against=Speed(**against) if against else None)


def published(row: Row, names: Sequence[str], best: str, shares: tuple[float | None, float | None]) -> Published:
    """What is kept of a finished row for the rivals of one table."""
    speeds = {}
    for name in names:
        if (entry := row.entries.get(name)) is not None:
            problem = "wrong" if entry.wrong else "cannot" if entry.error or entry.us is None else ""
            speeds[name] = Speed(problem=problem) if problem else _speed(row.ratio(BASE, name))
    against = row.ratio(best, OWN) if best else None
    bound = row.limit.bound if row.limit else ""
    return Published(row.network, row.threads, speeds, best, _speed(against) if against else None, *shares, bound)


def _speed(found: Ratio | None) -> Speed:
    return Speed(**asdict(found)) if found else Speed(problem="no ratio")


def keep_row(row: Row, best: str, shares: tuple[float | None, float | None]) -> None:
    """Keep a finished row in every table that it fills."""
    for table, names in zip(TABLES, GROUPS.values(), strict=True):
        if names[0] in row.entries:
            keep(table, [published(row, names, best, shares)])


def text(rows: Sequence[Published], names: Sequence[str]) -> str:
    """A table of the page; a column that no row fills is left out."""
    shown = [name for name in names if any(name in row.speeds for row in rows)]
    against = names == GROUPS["peers"]
    titles = ["network", "threads", *(RIVALS[name].title for name in shown)]
    lines = head([*titles, *(["autofuse / best peer", "of the limit: best peer, autofuse"] if against else [])])
    for row in rows:
        cells = [_cell(row.speeds.get(name), bold=against and name == row.best) for name in shown]
        lines.append(line([row.network, row.threads, *cells, *(_against(row) if against else [])]))
    for threads in dict.fromkeys(row.threads for row in rows):
        here = [row for row in rows if row.threads == threads]
        means = [_mean([row.speeds.get(name) for row in here], len(here)) for name in shown]
        last = [_mean([row.against for row in here], len(here)), ""] if against else []
        lines.append(line([f"geometric mean of {len(here)}", threads, *means, *last]))
    return "\n".join(lines) + "\n"


def _cell(speed: Speed | None, bold: bool) -> str:
    if speed is None or speed.ratio is None:
        return speed.problem if speed else ""
    interval = f" ({speed.lo:.2f}–{speed.hi:.2f})" if speed.lo is not None and speed.hi is not None else ""
    shown = f"{speed.ratio:.2f}{interval}{'' if speed.trusted else ' ?'}"
    return f"**{shown}**" if bold else shown


def _against(row: Published) -> list[str]:
    limit = ""
    if row.best_of_limit is not None and row.of_limit is not None:
        limit = f"{100 * row.best_of_limit:.0f} %, {100 * row.of_limit:.0f} % ({row.bound})"
    rival = f" against {RIVALS[row.best].title}" if row.best else ""
    return [_cell(row.against, bold=False) + rival, limit]


def _mean(speeds: Sequence[Speed | None], rows: int) -> str:
    known = [speed.ratio for speed in speeds if speed is not None and speed.ratio is not None]
    of = "" if len(known) == rows else f" (of {len(known)})"
    return f"{geometric_mean(known):.2f}{of}" if known else ""


def _place(row: Published) -> tuple[str, int]:
    return row.network, row.threads


def summary(rows: Sequence[Published]) -> str:
    """The README's table: a line a network, autofuse against its fastest peer by threads, trusted ratios alone.

    Nothing where no ratio is trusted. The means are of all rows: a choice of what happened to be quiet would flatter.
    """
    threads = sorted({row.threads for row in rows})
    at = {(row.network, row.threads): row for row in rows}
    lines = []
    for network in dict.fromkeys(row.network for row in rows):
        cells = [_trusted(at.get((network, count))) for count in threads]
        if set(cells) - {DOUBTED}:
            lines.append(line([network, *cells]))
    if not lines:
        return ""
    networks = len({row.network for row in rows})
    means = [_mean([row.against for row in rows if row.threads == count], networks) for count in threads]
    titles = ["network", *(f"{WORDS.get(count, count)} thread{'s' * (count > 1)}" for count in threads)]
    return (
        "\n".join([*head(titles), *lines, line([f"geometric mean of all {networks}, trusted or not", *means])]) + "\n"
    )


def _trusted(row: Published | None) -> str:
    if row is None or row.against is None or not row.against.trusted:
        return DOUBTED
    return f"{_cell(row.against, bold=False)} {RIVALS[row.best].title}"


TABLES = tuple(
    Table(name, make, ("network", "threads"), partial(text, names=names), _place) for name, names in GROUPS.items()
)
SUMMARY = Table("peers.summary", make, ("network", "threads"), summary, _place, kept_as="peers")
"""What the README shows of the first one."""
