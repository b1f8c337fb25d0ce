"""What is found about a network at one size, and over all of them; and the tables of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from statistics import geometric_mean

from experiments import tables
from experiments.records import Table

OWN, FIXED = "autofuse", "fixed"
"""The open library; and the one that is compiled for just this size."""
PEERS = ("onnxruntime", "openvino")
"""Engines that run the dynamic model."""
TITLES = {"onnxruntime": "ONNX Runtime", "openvino": "OpenVINO", FIXED: "autofuse, this size alone"}
BARS = {"mix": 1.15, "fixed": 0.95, "first": 1.2, "memory": 1.0}
"""The mix must be so much faster than the best peer, each size so fast as its own library, a first call and the memory
no more than so many times the second call and ONNX Runtime's memory."""


@dataclass(frozen=True)
class Row:
    """One engine at one size. `drawn`: whether it is one of the mix, not an end of the range. `ratio`: its time / that
    of the open library, with its interval; `error`: the largest against ONNX Runtime, as a part of an output's range;
    `problem`: why something is missing.
    """

    network: str
    threads: int
    sizes: str
    size: str
    drawn: bool
    engine: str
    us: float | None = None
    ratio: float | None = None
    lo: float | None = None
    hi: float | None = None
    trusted: bool = False
    error: float | None = None
    problem: str = ""


@dataclass(frozen=True)
class Calls:
    """One engine that is called at all sizes in one process. `running_mib`, `peak_mib`: the most memory while running,
    and of loading, too. `first`: the median over sizes never seen of the first call's time over the second's, `worst`:
    the largest, at `worst_size`. `again`: as `first`, when all sizes came before. `pages`: the median of those that a
    first call touches and a second does not.
    """

    network: str
    threads: int
    engine: str
    running_mib: float
    peak_mib: float
    first: float
    worst: float
    worst_size: str
    again: float
    pages: float


def best_peer(rows: Iterable[Row]) -> Row | None:
    """Of the engines at one size, the fastest peer; None where a peer that runs has no ratio, or none runs."""
    peers = [row for row in rows if row.engine in PEERS and (row.us is not None or not row.problem)]
    if not peers or any(row.ratio is None for row in peers):
        return None
    return min(peers, key=lambda row: row.ratio or 0.0)


def by_size(rows: Iterable[Row]) -> list[dict[str, Row]]:
    """The engines of each size, by name."""
    return [{row.engine: row for row in group} for _, group in groupby(rows, key=lambda row: row.size)]


def published(rows: Sequence[Row]) -> str:
    """What the networks are like over all sizes, then each size by itself."""
    networks = [list(group) for _, group in groupby(rows, key=lambda row: (row.network, row.threads))]
    titles = ["network", "threads", "sizes", "mix: best peer's time / ours", "least, at", "largest error"]
    lines = tables.head([*titles, "least of the fixed libraries' times / ours, at"])
    lines += [_summary(group) for group in networks]
    head = ["network", "threads", "size", "us", *(TITLES[engine] for engine in (*PEERS, FIXED))]
    lines += ["", "The same at each size; a star marks the ends of the range, which are not part of the mix.", ""]
    lines += tables.head([*head])
    for group in networks:
        lines += [_line(engines) for engines in by_size(group)]
    return "\n".join(lines) + "\n"


def _summary(rows: Sequence[Row]) -> str:
    sizes = by_size(rows)
    mixed = [engines for engines in sizes if engines[OWN].drawn]
    best = [row for row in (best_peer(engines.values()) for engines in mixed) if row and row.ratio]
    mix = least = ""
    if best:
        doubt = "" if all(row.trusted for row in best) else " ?"
        mix = f"{geometric_mean(row.ratio or 1.0 for row in best):.2f} ({len(best)} of {len(mixed)} sizes){doubt}"
        least = _least(best)
    fixed = [engines[FIXED] for engines in sizes if FIXED in engines and engines[FIXED].ratio is not None]
    errors = [row.error for row in rows if row.engine == OWN and row.error is not None]
    wrong = sum(bool(engines[OWN].problem) for engines in sizes)
    shown = (f"{max(errors):.0e}" if errors else "") + (f"; {wrong} sizes have problems" if wrong else "")
    return tables.line([rows[0].network, rows[0].threads, rows[0].sizes, mix, least, shown, _least(fixed)])


def _least(rows: Sequence[Row]) -> str:
    if not rows:
        return ""
    least = min(rows, key=lambda row: row.ratio or 0.0)
    return f"{tables.ratio(least.ratio, least.lo, least.hi, least.trusted)}, {least.size}"


def _line(engines: dict[str, Row]) -> str:
    own = engines[OWN]
    cells = [_cell(engines.get(engine)) for engine in (*PEERS, FIXED)]
    ours = own.problem.splitlines()[0][:80] if own.problem else f"{own.us or 0:.1f}"
    return tables.line([own.network, own.threads, own.size + ("" if own.drawn else " *"), ours, *cells])


def _cell(row: Row | None) -> str:
    if row is None:
        return ""
    return tables.ratio(row.ratio, row.lo, row.hi, row.trusted) or (row.problem.splitlines() or [""])[0][:80]


def published_calls(rows: Sequence[Calls]) -> str:
    """A line a network: memory, and what a size costs that was never seen."""
    titles = ("network", "threads", "memory: peak, running, MiB", "ONNX Runtime's", "peak / ONNX Runtime's")
    lines = tables.head((*titles, "first call / second: median, worst at; at known sizes; pages", "ONNX Runtime's"))
    for (network, threads), group in groupby(rows, key=lambda row: (row.network, row.threads)):
        found = {row.engine: row for row in group}
        own, theirs = found.get(OWN), found.get("onnxruntime")
        both = f"{own.peak_mib / theirs.peak_mib:.2f}" if own and theirs else ""
        cells = [_memory(own), _memory(theirs), both, _first(own), _first(theirs)]
        lines.append(tables.line([network, threads, *cells]))
    return "\n".join(lines) + "\n"


def _memory(row: Calls | None) -> str:
    return f"{row.peak_mib:.0f}, {row.running_mib:.0f}" if row else ""


def _first(row: Calls | None) -> str:
    if row is None:
        return ""
    return f"{row.first:.2f}, {row.worst:.2f} at {row.worst_size}; {row.again:.2f}; {row.pages:.0f}"


SIZES = Table("open_sizes", Row, ("network", "threads"), published, lambda row: (row.network, row.threads))
CALLS = Table(
    "open_sizes.calls", Calls, ("network", "threads"), published_calls, lambda row: (row.network, row.threads)
)
