"""Predictions of gains are judged by regret, harm, ranking and calibration, on networks that were not learned from.

Anything that gives each decision a number can be judged: a model, a fixed rule, a guess.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from autofuse.errors import InputError
from autofuse.learning.calibrated import Calibrated, Lesson, folds_of, learn
from autofuse.learning.model import (
    GAIN_GROWTH,
    TIME_GROWTH,
    ProfitabilityModel,
    gain_lesson,
    is_sure,
    require_enough,
    time_lesson,
)
from autofuse.learning.trees import Vector

if TYPE_CHECKING:
    import pandas as pd

    from autofuse.learning.dataset import Dataset

HARM = 0.05
"""A choice does harm when it takes so much longer than what the fixed rule chooses."""
MOST_FOLDS = 5
_FEWEST_IN_CELL = 5


@dataclass(frozen=True)
class Judgement:
    """The outcome of the choices; times are compared as measured.

    `regret1`, `regret5`: median over the sites of how much slower the predicted best, or the best of the five best,
    is than the best known form (0.03: three per cent), with `_mean` and `_p90`. `answered`: share of decisions that
    rest on a prediction: it is sure enough, of something like what was learned from. `harm`: share of those in which
    the choice is more than `HARM` slower than the paper's rule's (fuse unless red).
    `right`: share whose faster form was chosen. `auc`: how well the numbers rank fused against apart, by relation cell
    ("all": everything); 0.5 is chance. `gain_coverage`, `time_coverage`: share of the true values inside their
    interval. `time_error`: median of how far off predicted times are (0.1: ten per cent).
    """

    decisions: int
    sites: int
    networks: tuple[str, ...]
    answered: float
    regret1: float
    regret1_mean: float
    regret1_p90: float
    regret5: float
    regret5_p90: float
    harm: float
    right: float
    auc: Mapping[str, float] = field(default_factory=dict)
    gain_coverage: float | None = None
    time_coverage: float | None = None
    time_error: float | None = None


@dataclass(frozen=True, eq=False)
class Predicted:
    """A number for each decision (log2 of apart over fused) with half the width of its interval.

    `answered`: of which decisions it says anything.
    """

    gains: Vector
    halves: Vector | None = None
    answered: NDArray[np.bool_] | None = None


def judge(decisions: pd.DataFrame, predicted: Predicted) -> Judgement:
    """What choosing by `predicted` comes to on the decisions of `Dataset.decisions`."""
    frame = decisions[["site", "fused_us", "apart_us", "log_gain", "relation", "colour", "networks"]].copy()
    frame["predicted"] = predicted.gains
    answered = _answered(predicted)
    first, fifth = _regrets(frame, 1), _regrets(frame, 5)
    chosen = np.where(frame["predicted"] > 0, frame["fused_us"], frame["apart_us"])
    ruled = np.where(frame["colour"] != "break", frame["fused_us"], frame["apart_us"])
    best = np.minimum(frame["fused_us"], frame["apart_us"])
    harmed = (chosen > ruled * (1 + HARM))[answered]
    names = sorted({name for text in frame["networks"] for name in str(text).split(",")})
    covered = None
    if predicted.halves is not None:
        covered = float((np.abs(frame["log_gain"] - frame["predicted"]) <= predicted.halves).mean())
    return Judgement(
        decisions=len(frame),
        sites=int(frame["site"].nunique()),
        networks=tuple(names),
        answered=float(answered.mean()),
        regret1=float(np.median(first)),
        regret1_mean=float(first.mean()),
        regret1_p90=float(np.quantile(first, 0.9)),
        regret5=float(np.median(fifth)),
        regret5_p90=float(np.quantile(fifth, 0.9)),
        harm=float(harmed.mean()) if len(harmed) else 0.0,
        right=float((chosen == best).mean()),
        auc={"all": _auc(frame), **{str(cell): _auc(part) for cell, part in frame.groupby("relation")}},
        gain_coverage=covered,
    )


def _answered(predicted: Predicted) -> NDArray[np.bool_]:
    """The decisions that are made by what was predicted; the fixed rule makes the others."""
    known = np.ones(len(predicted.gains), bool) if predicted.answered is None else predicted.answered
    return known if predicted.halves is None else known & is_sure(predicted.gains, predicted.halves)


def judge_model(model: ProfitabilityModel, dataset: Dataset) -> Judgement:
    """A trained model on the networks of a dataset that it was not trained on; InputError where there is none."""
    known = set(model.about.get("networks", ()))  # type: ignore[call-overload]
    rows, decisions = (_unknown(frame, known) for frame in (dataset.rows, dataset.decisions))
    if not len(decisions):
        raise InputError(
            "the model was trained on every network of these databases: name others with --db, or leave the model out "
            "to judge by holding out networks in turn"
        )
    gain = _asked(model.gain, gain_lesson(decisions))
    time = _asked(model.time, time_lesson(rows))
    return _with_times(judge(decisions, gain), rows, time)


def cross_judge(dataset: Dataset, seed: int = 0) -> Judgement:
    """Models trained on some networks, judged on the others, in turn; InputError where there is too little."""
    require_enough(dataset)
    found = []
    for frame, lesson, growth in (
        (dataset.decisions, gain_lesson(dataset.decisions), GAIN_GROWTH),
        (dataset.rows, time_lesson(dataset.rows), TIME_GROWTH),
    ):
        values, halves, answered = np.zeros(len(frame)), np.zeros(len(frame)), np.zeros(len(frame), bool)
        for fold in folds_of(lesson.networks, MOST_FOLDS):
            learned = learn(lesson.only(fold.train), growth, seed)
            part = _asked(learned, lesson.only(fold.test))
            assert part.halves is not None and part.answered is not None
            values[fold.test], halves[fold.test], answered[fold.test] = part.gains, part.halves, part.answered
        found.append(Predicted(values, halves, answered))
    return _with_times(judge(dataset.decisions, found[0]), dataset.rows, found[1])


def _asked(learned: Calibrated, lesson: Lesson) -> Predicted:
    """What is learned says of a lesson, which may know features that came later."""
    rows = lesson.rows[:, [lesson.names.index(name) for name in learned.names]]
    values, halves = learned.predict(rows)
    answered = np.array([not stranger for stranger in learned.strangers(rows)], dtype=bool)
    return Predicted(values, halves, answered)


def _with_times(judged: Judgement, rows: pd.DataFrame, times: Predicted) -> Judgement:
    true = np.log2(rows["median_us"].to_numpy(dtype="float64"))
    off = np.abs(true - times.gains)
    assert times.halves is not None
    return replace(
        judged,
        time_coverage=float((off <= times.halves).mean()),
        time_error=float(np.median(np.exp2(off)) - 1),
    )


def _unknown(frame: pd.DataFrame, known: set[str]) -> pd.DataFrame:
    """Rows none of whose networks is known."""
    kept = [not known & set(str(text).split(",")) for text in frame["networks"]]
    return frame[kept]


def _regrets(frame: pd.DataFrame, count: int) -> Vector:
    """Slowdown of each site: its best form among the `count` that look best, against its best form of all."""
    found = []
    for _, site in frame.groupby("site"):
        us = np.array([site["fused_us"].iloc[0], *site["apart_us"]])
        looks = np.array([0.0, *site["predicted"]])
        order = np.argsort(looks, kind="stable")
        found.append(us[order[:count]].min() / us.min() - 1)
    return np.array(found)


def _auc(frame: pd.DataFrame) -> float:
    """Chance that a decision in which fusing pays has a larger number than one in which it does not; NaN: unknown."""
    pays = (frame["log_gain"] > 0).to_numpy()
    yes, no = int(pays.sum()), int((~pays).sum())
    if min(yes, no) < _FEWEST_IN_CELL:
        return float("nan")
    ranks = frame["predicted"].rank().to_numpy(dtype="float64")
    return float((ranks[pays].sum() - yes * (yes + 1) / 2) / (yes * no))
