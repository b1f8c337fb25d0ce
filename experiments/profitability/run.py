"""How good the profitability model is on what it never saw, beside the controls that it has to beat.

    python -m experiments profitability --db FILE [--models FOLDER] [--out FOLDER] [--folds 8]

`--db`: what `collect` made, or `autofuse db import` of the shipped export. Nothing is measured.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from autofuse.database.database import ProfilingDatabase, open_database
from autofuse.learning.dataset import Dataset, read_dataset
from experiments.catalogue import WRITTEN
from experiments.model_files import FOLDERS
from experiments.options import new_parser
from experiments.profitability import metrics, tables
from experiments.profitability.cases import Case, read_cases
from experiments.profitability.evaluate import Decided, Summary, Taken, auc_by_relation, contest, evaluate, summary
from experiments.profitability.judges import Judge, Learned, every_judge, fused_by_tvm
from experiments.profitability.plot import picture
from experiments.profitability.splits import EDGE, KINDS, splits
from experiments.profitability.tvm_rule import fused_by_tvm as asked_of_tvm
from experiments.records import keep
from experiments.tables import write, write_csv

TABLES = (tables.TABLE,)


def read(database: Path, models: Path) -> tuple[Dataset, list[Case], dict[str, bool]]:
    """Times and decisions, plans to choose from, and what TVM would do with each group of a decision."""
    data = read_dataset([database])
    with open_database(database, read_only=True) as base:
        cases = list(read_cases(base, models))
        tvm = asked_of_tvm(_texts(base, data))
    return data, cases, tvm


def _texts(base: ProfilingDatabase, data: Dataset) -> dict[str, str]:
    edges = data.decisions[data.decisions["cut"] == EDGE]
    return base.workload_texts(edges["workload"].unique())


def report(
    data: Dataset, cases: Sequence[Case], taken: Sequence[Taken], decided: Sequence[Decided], judges: Sequence[Judge]
) -> tuple[str, list[Summary]]:
    """The tables as one text, and their rows."""
    model = Learned.name
    rows = []
    parts = [describe(data, cases)]
    for kind in KINDS:
        own = [
            summary(kind, judge.name, taken, _find(decided, kind, judge.name))
            for judge in judges
            if _find(decided, kind, judge.name) or any((row.split, row.judge) == (kind, judge.name) for row in taken)
        ]
        if not own:
            continue
        rows += own
        parts.append(f"## With {tables.TITLES[kind]}\n")
        parts += [table for table in (tables.plans_table(own), tables.decisions_table(own)) if table]
        others = [contest(taken, kind, model, judge.name) for judge in judges if judge.name != model]
        bars = tables.bars(own[0]) if kind == "network" and own[0].judge == model else []
        parts.append(tables.verdict([one for one in others if one is not None], bars))
        if kind == "network":
            parts.append(_details(decided, kind, model))
    return "\n".join(parts), rows


def _details(decided: Sequence[Decided], kind: str, model: str) -> str:
    parts = ["### AUC by cell of the paper's table\n", tables.relations_table(auc_by_relation(decided, kind))]
    own = _find(decided, kind, model)
    if own is not None and own.opinion.half is not None:
        pays = (own.frame["log_gain"] > 0).to_numpy(dtype=bool)
        bins = metrics.reliability(own.opinion.probability, pays)
        parts += ["### Probabilities of the model\n", tables.reliability_table(bins)]
    return "\n".join(parts)


def _find(decided: Sequence[Decided], kind: str, judge: str) -> Decided | None:
    return next((one for one in decided if (one.split, one.judge) == (kind, judge)), None)


def describe(data: Dataset, cases: Sequence[Case]) -> str:
    """What there is to learn from, in a sentence."""
    rows, decisions = data.rows, data.decisions
    names = {name for text in rows["networks"] for name in str(text).split(",") if name}
    places = rows.groupby(["device", "threads"]).size()
    listed = ", ".join(
        f"{count} on {device} with {threads} thread(s)"
        for (device, threads), count in zip(places.index.tolist(), places, strict=True)
    )
    edges = decisions[decisions["cut"] == EDGE]
    pays = (edges["log_gain"] > 0).mean()
    plans = sum(len(case.times) for case in cases)
    return (
        f"{len(rows)} timed groups of {len(names)} networks ({listed}), {rows['trusted'].mean():.0%} of the times "
        f"trusted; {len(decisions)} ways to cut a group into timed parts, {len(edges)} of them along one edge "
        f"({pays:.0%} of these pay to be fused); {len(cases)} cases of choosing a plan, with {plans} plans.\n"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Write tables, CSV files and a picture; 0 when there was something to judge."""
    parser = new_parser(__doc__, out="out/profitability", seed=0)
    parser.add_argument("--db", type=Path, default=Path("out/profitability/times.db"))
    parser.add_argument("--models", type=Path, default=FOLDERS[WRITTEN], help="folder of the ONNX files")
    parser.add_argument("--folds", type=int, default=8, help="networks are held out in so many folds (0: one by one)")
    parser.add_argument("--splits", nargs="+", choices=KINDS, default=KINDS, help="what is held out (default: all)")
    options = parser.parse_args(arguments)
    data, cases, tvm = read(options.db, options.models)
    judges = every_judge(fused_by_tvm(tvm), options.seed)
    taken: list[Taken] = []
    decided: list[Decided] = []
    for kind in options.splits:
        more = evaluate(judges, splits(data, cases, kind, options.folds))
        taken += more[0]
        decided += more[1]
        print(f"{kind}: done", file=sys.stderr, flush=True)
    text, rows = report(data, cases, taken, decided, judges)
    write(options.out, rows, text)
    keep(tables.TABLE, rows)
    write_csv(options.out / "plans.csv", [asdict(row) for row in taken])
    held = [row for row in taken if row.split == "network"]
    if held:
        title = "Choosing a plan for networks that were held out"
        (options.out / "regret.svg").write_text(picture(held, title), encoding="utf-8")
    print(text)
    return 0 if rows else 1
