"""What tuning a range costs: `python -m experiments open_sizes.tuning bert_base --threads 1 --trials 60`.

Each network is tuned at one size, the largest, with so many candidates, and over its whole range with twice as many,
each from an empty database. Counted is how many kernels, or tiles, must have a time at all, and after how many
candidates those of the chosen plan together came within 2 % of what they took in the end.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import autofuse
from autofuse import api
from autofuse.errors import AutofuseError
from autofuse.graph.loading.given.sizes import parse_sizes
from experiments import tables
from experiments.open_sizes.cases import CASES, ends, title
from experiments.open_sizes.run import Network, made
from experiments.options import count, new_parser
from experiments.records import Table, keep

NEAR = 1.02
"""What is called near: so many times what it took in the end."""
BAR = 2.0
"""A range may take so many times the candidates of one size."""


@dataclass(frozen=True)
class Row:
    """One tuning. `scope`: the one size, or the range. `kernels`: distinct kernels, or tiles, of the chosen plan.
    `measured`: candidates, `near`: those after which the plan was near its end; None where none had a time. `untimed`:
    kernels all of whose candidates failed, which are left out.
    `plans`: that were tried. `chosen`: the plan's name. `problem`: why there is nothing.
    """

    network: str
    threads: int
    scope: str
    one: bool
    kernels: int = 0
    measured: int = 0
    near: int | None = None
    plans: int = 0
    chosen: str = ""
    untimed: int = 0
    problem: str = ""


def near_end(measured: Sequence[tuple[str, float | None]], weights: Mapping[str, float]) -> int | None:
    """After how many candidates (workload key, microseconds or None) the weighted best times are near those in the end;
    None where none has a time. A workload that never has one is left out."""
    timed = {key for key, us in measured if us is not None and key in weights}
    best: dict[str, float] = {}
    sums: list[float] = []
    for key, us in measured:
        if us is not None and key in timed:
            best[key] = min(us, best.get(key, us))
        whole = len(best) == len(timed)
        sums.append(sum(weights[one] * best[one] for one in best) if whole else float("inf"))
    if not timed:
        return None
    return next(number for number, us in enumerate(sums, 1) if us <= NEAR * sums[-1])


def candidates_of(database: Path) -> list[tuple[str, float | None]]:
    """Every measurement of a database, in order: the workload's key, and its time."""
    with autofuse.open(str(database)) as af:
        keys = dict(zip(af.candidates["candidate_id"], af.candidates["workload_key"], strict=True))
        rows = af.measurements.sort_values("measurement_id")
        pairs = zip(rows["candidate_id"], rows["median_us"], strict=True)
        return [(keys[number], float(us) if us == us and us is not None else None) for number, us in pairs]


def tuned(network: Network, blank: Row, trials: int, **form: Any) -> Row:
    """A tuning from an empty database."""
    database = network.folder / f"{network.name}-{network.threads}-{'one' if blank.one else 'range'}.db"
    for path in database.parent.glob(f"{database.name}*"):
        path.unlink()
    found = api.tune(network.model, database=str(database), trials=trials, threads=network.threads, **form)
    if blank.one:
        with autofuse.open(str(database)) as af:
            weights = {key: float(times) for key, times in Counter(af.groups["workload_key"]).items()}
    else:
        weights = {tile.workload_key: tile.runs for tile in found.tiles}
    measured = candidates_of(database)
    untimed = len(weights.keys() - {key for key, us in measured if us is not None})
    return replace(
        blank, kernels=len(weights), measured=found.measured, near=near_end(measured, weights),
        plans=found.plan_trials, chosen=found.chosen, untimed=untimed,
    )  # fmt: skip


def measured(network: Network, trials: int) -> list[Row]:
    """One size, then the range."""
    point = ends(network.ranges)[1]
    one = Row(network.name, network.threads, title(point), True)
    whole = Row(network.name, network.threads, network.texts, False)
    forms: list[tuple[Row, int, dict[str, Any]]] = [
        (one, trials, {"shapes": network.form(point)}),
        (whole, int(BAR * trials), {"sizes": parse_sizes([network.texts])}),
    ]
    rows = []
    for blank, most, form in forms:
        try:
            rows.append(tuned(network, blank, most, **form))
        except AutofuseError as error:
            rows.append(replace(blank, problem=str(error)))
    return rows


def published(rows: Sequence[Row]) -> str:
    """A line for each tuning, and what the range took of one size."""
    titles = ("network", "threads", "sizes", "kernels or tiles", "candidates", "near the end after", "plans tried")
    lines = tables.head((*titles, "plan", "of one size"))
    near = {(row.network, row.threads): row.near for row in rows if row.one}
    for row in rows:
        base = near.get((row.network, row.threads))
        ratio = "" if row.one or not base or row.near is None else f"{row.near / base:.2f}"
        kernels = f"{row.kernels} ({row.untimed} failed)" if row.untimed else row.kernels
        shown = [kernels, row.measured, row.near or "never", row.plans, row.problem[:80] or row.chosen, ratio]
        lines.append(tables.line([row.network, row.threads, row.scope, *shown]))
    return "\n".join(lines) + "\n"


TABLES = (Table("open_sizes.tuning", Row, ("network", "threads"), published, lambda row: (row.network, row.threads)),)


def main(arguments: Sequence[str] | None = None) -> int:
    """Every network in turn; 1 when one cannot be tuned."""
    parser = new_parser(__doc__, out="out/open_sizes", threads="1")
    parser.add_argument("models", nargs="+", metavar="MODEL", help=f"of {', '.join(CASES)}, or an ONNX file")
    parser.add_argument("--sizes", default="", metavar="NAME=LOW:HIGH,...", help="ranges in place of a network's own")
    text = "candidates at one size; twice as many over the range (default: 60)"
    parser.add_argument("--trials", type=count, default=60, metavar="N", help=text)
    options = parser.parse_args(arguments)
    out: Path = options.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    rows: list[Row] = []
    for name in options.models:
        for threads in options.threads:
            found = measured(made(name, options.sizes, threads, out), options.trials)
            keep(TABLES[0], found)
            rows += found
    text = published(rows)
    print(text)
    tables.write(out / "tuning", rows, text)
    for row in rows:
        if row.problem:
            print(f"{row.network} {row.scope}: {row.problem}", file=sys.stderr)
    return int(any(row.problem for row in rows))
