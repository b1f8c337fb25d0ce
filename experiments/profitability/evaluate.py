"""Every judge on every split: how the plans that it takes compare with the best, and how its decisions came out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from experiments.profitability import metrics
from experiments.profitability.judges import Judge, Opinion, allowed, noise_of
from experiments.profitability.splits import Split

RESAMPLES = 2000


@dataclass(frozen=True)
class Taken:
    """What a judge's choice of a plan cost in one case: regrets over the best of its `plans`."""

    split: str
    held: str
    judge: str
    network: str
    device: str
    threads: int
    plans: int
    regret1: float
    regret5: float


@dataclass(frozen=True, eq=False)
class Decided:
    """The decisions of a judge on all splits of one kind, with what was measured."""

    split: str
    judge: str
    frame: pd.DataFrame
    opinion: Opinion


def evaluate(judges: Sequence[Judge], splits: Iterable[Split]) -> tuple[list[Taken], list[Decided]]:
    """Fit each judge to each split's training set, and ask it about the rest."""
    taken: list[Taken] = []
    asked: dict[tuple[str, str], list[tuple[pd.DataFrame, Opinion]]] = {}
    for split in splits:
        for judge in judges:
            judge.fit(split.train)
            opinion = judge.decide(split.test) if len(split.test) else None
            if opinion is not None:
                asked.setdefault((split.kind, judge.name), []).append((split.test, opinion))
            taken += _taken(judge, split)
    return taken, [Decided(*name, *_joined(parts)) for name, parts in asked.items()]


def _taken(judge: Judge, split: Split) -> list[Taken]:
    found = []
    for case in split.cases:
        scores, times = judge.rank(case), case.times
        if scores is not None:
            regrets = (metrics.regret(scores, times, count) for count in (1, 5))
            where = case.network, case.where.device, case.where.setting.threads, len(times)
            found.append(Taken(split.kind, split.held, judge.name, *where, *regrets))
    return found


def _joined(parts: Sequence[tuple[pd.DataFrame, Opinion]]) -> tuple[pd.DataFrame, Opinion]:
    def whole(name: str) -> Any:
        values = [getattr(opinion, name) for _, opinion in parts]
        return None if values[0] is None else np.concatenate(values)

    frame = pd.concat([frame for frame, _ in parts], ignore_index=True)
    return frame, Opinion(whole("score"), whole("fuse"), whole("gain"), whole("half"))


@dataclass(frozen=True)
class Summary:
    """A judge on all splits of a kind; shares and regrets as parts of 1, NaN where there is nothing to say.

    `cases`: of choosing a plan, with the regrets over them. `decisions`: on edges; `harm` (against the paper's rule),
    `lost`, `missed`, `cost`, `auc`: see `metrics`. `coverage`: of its 90 % intervals; `calibration`: mean error of its
    probabilities.
    """

    split: str
    judge: str
    cases: int
    regret1_median: float
    regret1_mean: float
    regret1_p90: float
    regret1_max: float
    regret5_median: float
    regret5_p90: float
    decisions: int
    accepted: int
    harm: float
    lost: float
    missed: float
    cost: float
    auc: float
    coverage: float
    calibration: float


def summary(split: str, judge: str, taken: Iterable[Taken], decided: Decided | None) -> Summary:
    """What one judge's choices on the splits of one kind come to."""
    own = [row for row in taken if (row.split, row.judge) == (split, judge)]
    first, fifth = (np.array([getattr(row, name) for row in own] or [np.nan]) for name in ("regret1", "regret5"))
    plans: tuple[Any, ...] = (
        len(own),
        float(np.median(first)),
        float(first.mean()),
        float(np.quantile(first, 0.9)),
        float(first.max()),
        float(np.median(fifth)),
        float(np.quantile(fifth, 0.9)),
    )
    nothing: tuple[Any, ...] = (0, 0, *[float("nan")] * 7)
    return Summary(split, judge, *plans, *(nothing if decided is None else _decisions(decided)))


def _decisions(decided: Decided) -> tuple[Any, ...]:
    frame, opinion = decided.frame, decided.opinion
    gain = frame["log_gain"].to_numpy(dtype="float64")
    noise = noise_of(frame)
    fused, apart = (frame[name].to_numpy(dtype="float64") for name in ("fused_us", "apart_us"))
    covered = error = float("nan")
    if opinion.gain is not None and opinion.half is not None:
        covered = metrics.coverage(gain, opinion.gain - opinion.half, opinion.gain + opinion.half)
        error = metrics.calibration_error(metrics.reliability(opinion.probability, gain > 0))
    return (
        len(frame),
        int(opinion.fuse.sum()),
        metrics.harm(opinion.fuse, allowed(frame), gain, noise),
        metrics.lost(opinion.fuse, gain, noise),
        metrics.missed(opinion.fuse, gain, noise),
        metrics.cost_of_decisions(opinion.fuse, fused, apart),
        metrics.auc(opinion.score, gain > 0),
        covered,
        error,
    )


def auc_by_relation(decided: Iterable[Decided], split: str) -> pd.DataFrame:
    """A row a cell of the paper's table: decisions, the share that pays, and each judge's AUC there."""
    columns: dict[str, pd.Series[float]] = {}
    for one in decided:
        if one.split != split:
            continue
        pays = (one.frame["log_gain"] > 0).to_numpy(dtype=bool)
        cells = one.frame["relation"].to_numpy()
        named = {str(cell): cells == cell for cell in sorted(set(cells))}
        if not columns:
            columns["decisions"] = pd.Series({cell: float(here.sum()) for cell, here in named.items()})
            columns["pays"] = pd.Series({cell: float(pays[here].mean()) for cell, here in named.items()})
        columns[one.judge] = pd.Series(
            {cell: metrics.auc(one.opinion.score[here], pays[here]) for cell, here in named.items()}
        )
    return pd.DataFrame(columns)


@dataclass(frozen=True)
class Contest:
    """The model's regret@1 minus a control's, mean over the cases that both chose in, with its 95 % interval."""

    control: str
    cases: int
    difference: float
    lo: float
    hi: float

    @property
    def verdict(self) -> str:
        """Of the model against the control; a difference that chance can explain is none."""
        if self.hi < 0:
            return "better"
        return "worse" if self.lo > 0 else "no difference"


def contest(taken: Iterable[Taken], split: str, model: str, control: str, seed: int = 0) -> Contest | None:
    """The model against a control, case by case; networks are resampled whole. None without a common case."""
    rows = [row for row in taken if row.split == split]
    of = {(row.judge, row.network, row.device, row.threads): row.regret1 for row in rows}
    by_network: dict[str, list[float]] = {}
    for row in rows:
        other = of.get((control, row.network, row.device, row.threads))
        if row.judge == model and other is not None:
            by_network.setdefault(row.network, []).append(row.regret1 - other)
    if not by_network:
        return None
    sums = np.array([(sum(values), len(values)) for values in by_network.values()])
    picks = np.random.default_rng(seed).integers(len(sums), size=(RESAMPLES, len(sums)))
    totals = sums[picks].sum(axis=1)
    lo, hi = np.quantile(totals[:, 0] / totals[:, 1], [0.025, 0.975])
    return Contest(control, int(sums[:, 1].sum()), float(sums[:, 0].sum() / sums[:, 1].sum()), float(lo), float(hi))
