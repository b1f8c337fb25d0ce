"""A quantity that is predicted with an interval, which networks held out of training have shown to hold.

The trees are grown on every row. How wrong they are is learned from networks they did not see: folds of networks take
turns, further trees learn the size of those errors, and one factor gives the intervals their nominal coverage.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autofuse.errors import InputError
from autofuse.learning.trees import Forest, Growth, Matrix, Vector, grow

COVERAGE = 0.9
"""Share of the true values that intervals are made to hold."""
FOLDS = 4
MOST_JUDGED = 10_000
"""Rows that errors are learned from: more of them would say the same, and each costs four forests."""
_LEAST_ERROR = 1e-3
_SPREAD = Growth(trees=20, leaves=8, smallest=20, rate=0.15, columns=0.5)
_MARGIN, _SPAN_MARGIN = 1.0, 0.25
_EXACT = frozenset({"threads"})
"""Features that are unknown as soon as they leave the range of the training set."""

Networks = Sequence[frozenset[str]]
"""The networks that each row belongs to."""


@dataclass(frozen=True, eq=False)
class Calibrated:
    """A calibrated predictor: `names` of the features; `offset`: the feature that the trees correct ("": none).

    `factor` times what `spread` says is half the width of the interval. `low`, `high`: the range of each feature in
    training; `importances`: how much each explains.
    """

    names: tuple[str, ...]
    offset: str
    mean: Forest
    spread: Forest
    factor: float
    low: Vector
    high: Vector
    importances: Vector

    def predict(self, rows: Matrix) -> tuple[Vector, Vector]:
        """(value, half the width of its interval) for each row of features (shape [rows, names])."""
        half = self.factor * np.exp2(self.spread.predict(rows))
        return self.mean.predict(rows) + _offset(self.names, self.offset, rows), half

    def strangers(self, rows: Matrix) -> list[str]:
        """What makes each row unlike all that was learned from; "" for a row that is in range."""
        span = self.high - self.low
        margin = np.array([0.0 if name in _EXACT else _MARGIN for name in self.names])
        margin += np.where(margin > 0, _SPAN_MARGIN * span, 0.0)
        excess = np.maximum(rows - self.high, self.low - rows) - margin
        worst = excess.argmax(axis=1)
        return [
            f"{self.names[at]} is {row[at]:.3g}, in training {self.low[at]:.3g} to {self.high[at]:.3g}"
            if over > 0
            else ""
            for row, at, over in zip(rows, worst, excess.max(axis=1), strict=True)
        ]

    def matrix(self, rows: Sequence[Mapping[str, float]]) -> Matrix:
        """Rows of features by name, as a matrix of this order."""
        made = np.array([[row[name] for name in self.names] for row in rows], dtype="float64")
        return made.reshape(len(rows), len(self.names))

    def arrays(self, name: str) -> dict[str, NDArray[Any]]:
        """Everything that is an array, by name; see `from_parts`."""
        ranges = {f"{name}.low": self.low, f"{name}.high": self.high, f"{name}.importances": self.importances}
        return {**self.mean.arrays(f"{name}.mean"), **self.spread.arrays(f"{name}.spread"), **ranges}

    def about(self) -> dict[str, object]:
        """Rows without a group."""
        return {"names": list(self.names), "offset": self.offset, "factor": self.factor}

    @classmethod
    def from_parts(cls, name: str, arrays: Mapping[str, NDArray[Any]], about: Mapping[str, Any]) -> Calibrated:
        """The inverse of `arrays` and `about`; InputError for what does not fit together."""
        names, offset, factor = about.get("names"), about.get("offset"), about.get("factor")
        if not isinstance(names, list) or not names or not all(isinstance(one, str) for one in names):
            raise InputError(f"{name}: its features have no names")
        if not isinstance(offset, str) or (offset and offset not in names):
            raise InputError(f"{name}: its offset {offset!r} is none of its features")
        if not isinstance(factor, float) or not 0 < factor < 1e6:
            raise InputError(f"{name}: its factor {factor!r} is no number above 0")
        ranges = []
        for part in ("low", "high", "importances"):
            array = arrays.get(f"{name}.{part}")
            if (
                array is None
                or array.dtype != np.float64
                or array.shape != (len(names),)
                or not np.isfinite(array).all()
            ):
                raise InputError(f"{name}.{part} is missing, or no list of one number a feature")
            ranges.append(array)
        forests = [Forest.from_arrays(f"{name}.{part}", arrays, len(names)) for part in ("mean", "spread")]
        return cls(tuple(names), offset, forests[0], forests[1], factor, *ranges)


@dataclass(frozen=True, eq=False)
class Lesson:
    """A lesson: `rows` of features (shape [rows, names]), the `wanted` value of each, `weights`, `networks`."""

    names: tuple[str, ...]
    offset: str
    rows: Matrix
    wanted: Vector
    weights: Vector
    networks: Networks

    @property
    def corrections(self) -> Vector:
        """What the trees have to say: the wanted value less the feature that they correct."""
        return self.wanted - _offset(self.names, self.offset, self.rows)

    def only(self, chosen: NDArray[np.bool_]) -> Lesson:
        """The chosen rows."""
        kept = [networks for networks, here in zip(self.networks, chosen, strict=True) if here]
        return Lesson(
            self.names, self.offset, self.rows[chosen], self.wanted[chosen], self.weights[chosen], kept
        )  # fmt: skip


def learn(lesson: Lesson, growth: Growth, seed: int = 0) -> Calibrated:
    """Trees for a lesson, with intervals from networks held out."""
    mean, importances = grow(lesson.rows, lesson.corrections, lesson.weights, growth, seed)
    spread, factor = _learn_spread(_some(lesson, MOST_JUDGED, seed), growth, seed)
    low, high = lesson.rows.min(axis=0), lesson.rows.max(axis=0)
    return Calibrated(lesson.names, lesson.offset, mean, spread, factor, low, high, importances)


def _learn_spread(lesson: Lesson, growth: Growth, seed: int) -> tuple[Forest, float]:
    """The size of errors on networks held out, and the factor that gives the intervals their nominal coverage."""
    folds, corrections = folds_of(lesson.networks, FOLDS), lesson.corrections
    missed = np.abs(corrections - _held_out(lesson, corrections, folds, growth, seed))
    size = np.log2(np.maximum(missed, _LEAST_ERROR))
    expected = _held_out(lesson, size, folds, _SPREAD, seed)
    spread, _ = grow(lesson.rows, size, lesson.weights, _SPREAD, seed)
    return spread, max(float(np.quantile(missed / np.exp2(expected), COVERAGE)), 1e-6)


def _held_out(lesson: Lesson, wanted: Vector, folds: Sequence[Fold], growth: Growth, seed: int) -> Vector:
    """What trees say of each row that learned from other networks only."""
    said = np.zeros(len(wanted))
    for fold in folds:
        forest, _ = grow(lesson.rows[fold.train], wanted[fold.train], lesson.weights[fold.train], growth, seed)
        said[fold.test] = forest.predict(lesson.rows[fold.test])
    return said


def _some(lesson: Lesson, most: int, seed: int) -> Lesson:
    """At most so many rows of a lesson, drawn at random."""
    if len(lesson.wanted) <= most:
        return lesson
    chosen = np.zeros(len(lesson.wanted), dtype=bool)
    chosen[np.random.default_rng(seed).choice(len(chosen), most, replace=False)] = True
    return lesson.only(chosen)


@dataclass(frozen=True, eq=False)
class Fold:
    """A fold: rows to learn from and rows to be asked about (both as masks): no network is on both sides."""

    train: NDArray[np.bool_]
    test: NDArray[np.bool_]
    held_out: tuple[str, ...]


def folds_of(networks: Networks, most: int) -> list[Fold]:
    """Folds of whole networks, of about equal size; each row is tested once, in the fold of its first network.

    A row of several networks is learned from only where none of them is held out. Rows of one network alone are dealt
    out in turn: then the folds hold out rows of that network only.
    """
    names = [min(own, default="") for own in networks]
    count = {name: names.count(name) for name in dict.fromkeys(names)}
    if len(count) < 2:
        place = np.arange(len(names)) % max(2, min(most, len(names)))
        return [Fold(place != number, place == number, ()) for number in range(int(place.max(initial=0)) + 1)]
    sizes = [0] * min(most, len(count))
    fold_of: dict[str, int] = {}
    for name in sorted(count, key=lambda one: (-count[one], one)):
        fold_of[name] = sizes.index(min(sizes))
        sizes[fold_of[name]] += count[name]
    made = []
    for number in range(len(sizes)):
        held = frozenset(name for name, fold in fold_of.items() if fold == number)
        test = np.array([fold_of[name] == number for name in names])
        train = np.array(
            [not (own & held) and fold_of[name] != number for own, name in zip(networks, names, strict=True)]
        )
        made.append(Fold(train, test, tuple(sorted(held))))
    return [fold for fold in made if fold.train.any()]


def _offset(names: Sequence[str], offset: str, rows: Matrix) -> Vector:
    return rows[:, names.index(offset)] if offset else np.zeros(len(rows))
