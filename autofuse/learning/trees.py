"""Boosted regression trees as plain arrays: grown by scikit-learn, kept and asked without it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autofuse.errors import InputError

Matrix = NDArray[np.float64]
Vector = NDArray[np.float64]
ROWS_AT_ONCE = 2048
MOST_NODES = 4_000_000
ROWS_FOR_THREADS = 30_000
BINS = 64
"""Values of a feature that a split may lie between, at most."""

_DTYPES: Mapping[str, str] = {
    "base": "float64", "roots": "int32", "feature": "int32", "threshold": "float64", "left": "int32",
    "right": "int32", "value": "float64",
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Forest:
    """A forest: the sum of `base` (one number) and of one value from each tree.

    Nodes of all trees stand in one list; `roots`: where each tree begins. A node sends a row whose `feature` is at
    most `threshold` to `left`, others to `right`: both are later in the list, but for a leaf, which stays where it is
    and has a `value`.
    """

    base: NDArray[np.float64]
    roots: NDArray[np.int32]
    feature: NDArray[np.int32]
    threshold: NDArray[np.float64]
    left: NDArray[np.int32]
    right: NDArray[np.int32]
    value: NDArray[np.float64]

    def predict(self, rows: Matrix) -> NDArray[np.float64]:
        """One number for each row of features (shape [rows, features])."""
        found = np.empty(len(rows))
        for start in range(0, len(rows), ROWS_AT_ONCE):
            found[start : start + ROWS_AT_ONCE] = self._predict(rows[start : start + ROWS_AT_ONCE])
        return found

    def _predict(self, rows: Matrix) -> NDArray[np.float64]:
        at = np.broadcast_to(self.roots, (len(rows), len(self.roots)))
        number = np.arange(len(rows))[:, None]
        while True:
            values = rows[number, self.feature[at]]
            after = np.where(values <= self.threshold[at], self.left[at], self.right[at])
            if np.array_equal(after, at):
                return np.asarray(self.base[0] + self.value[at].sum(axis=1))
            at = after

    def arrays(self, name: str) -> dict[str, NDArray[Any]]:
        """The forest's arrays by name, each after `name` and a dot."""
        return {f"{name}.{field.name}": getattr(self, field.name) for field in fields(self)}

    @classmethod
    def from_arrays(cls, name: str, arrays: Mapping[str, NDArray[Any]], features: int) -> Forest:
        """The inverse of `arrays`, for trees over so many features; InputError for arrays that are no forest."""
        found = {}
        for part, dtype in _DTYPES.items():
            array = arrays.get(f"{name}.{part}")
            if array is None or array.ndim != 1 or array.dtype != np.dtype(dtype) or len(array) > MOST_NODES:
                raise InputError(f"{name}.{part} is missing, or no list of {dtype}")
            found[part] = array
        forest = cls(**found)
        forest._check(name, features)
        return forest

    def _check(self, name: str, features: int) -> None:
        count = len(self.feature)
        here = np.arange(count)
        lists = (self.threshold, self.left, self.right, self.value)
        whole = len(self.base) == 1 and all(len(one) == count for one in lists)
        numbers = (self.base, self.threshold, self.value)
        if not whole or not all(np.isfinite(one).all() for one in numbers):
            raise InputError(f"{name}: its lists have different lengths, or hold what is no number")
        leaf = (self.left == here) & (self.right == here)
        inside = (self.left > here) & (self.right > here) & (self.left < count) & (self.right < count)
        rooted = bool(((self.roots >= 0) & (self.roots < count)).all())
        known = bool(((self.feature >= 0) & (self.feature < features)).all())
        if not rooted or not known or not bool((leaf | inside).all()):
            raise InputError(f"{name}: its nodes name features or nodes that are not there")


@dataclass(frozen=True)
class Growth:
    """The settings by which trees are grown: `trees` of at most `leaves` leaves with at least `smallest` rows each.

    `rate`: share of its step that each takes; `columns`: share of the features that each node may split by.
    """

    trees: int
    leaves: int
    smallest: int
    rate: float
    columns: float


def grow(
    rows: Matrix, wanted: Vector, weights: Vector, growth: Growth, seed: int
) -> tuple[Forest, NDArray[np.float64]]:
    """A forest for `rows` (shape [rows, features]), and how much each feature explains (sums to 1).

    `wanted`, `weights`: the number to predict and its weight, for each row.
    """
    from sklearn.ensemble import HistGradientBoostingRegressor
    from threadpoolctl import threadpool_limits

    # With weights the learner looks for its bins by a sort for every bin, which takes longer than all else: it is
    # given the numbers of bins that are made here, and its thresholds between numbers become those between values.
    edges = [_edges(column) for column in rows.T]
    codes = np.column_stack([np.searchsorted(*pair) for pair in zip(edges, rows.T, strict=True)])
    learner = HistGradientBoostingRegressor(
        max_bins=BINS,
        max_iter=growth.trees,
        max_leaf_nodes=growth.leaves,
        min_samples_leaf=growth.smallest,
        learning_rate=growth.rate,
        max_features=growth.columns,
        l2_regularization=1.0,
        early_stopping=False,
        random_state=seed,
    )
    # Threads that wait for each other at every node gain nothing on few rows, and lose all on a busy machine.
    with threadpool_limits(limits=1 if len(rows) < ROWS_FOR_THREADS else None, user_api="openmp"):
        learner.fit(codes, wanted, sample_weight=weights)
        first = learner.predict(codes[:1])
    # The nodes are no public interface: a test compares what these arrays say with what the learner says.
    trees = [stage[0].nodes for stage in learner._predictors]
    forest = _joined(trees, edges)
    gains = np.zeros(rows.shape[1])
    for nodes in trees:
        inner = nodes["is_leaf"] == 0
        np.add.at(gains, nodes["feature_idx"][inner], np.maximum(nodes["gain"][inner], 0.0))
    base = first - forest.predict(rows[:1])
    shares = gains / gains.sum() if gains.sum() > 0 else gains
    return replace(forest, base=np.asarray(base, dtype="float64")), shares


def _edges(column: Vector) -> Vector:
    """The thresholds that a feature may be split at: between its values, or between those at equal ranks."""
    values = np.unique(column)
    if len(values) > BINS:
        values = np.unique(np.quantile(column, np.linspace(0, 1, BINS), method="nearest"))
    return np.asarray((values[1:] + values[:-1]) / 2)


def _joined(trees: list[NDArray[Any]], edges: Sequence[Vector]) -> Forest:
    """The trees of a learner of bins in one list of nodes; `edges`: between the bins of each feature."""
    starts = np.cumsum([0, *(len(nodes) for nodes in trees)])
    leaf = np.concatenate([nodes["is_leaf"] != 0 for nodes in trees])
    here = np.arange(starts[-1])
    shift = np.repeat(starts[:-1], [len(nodes) for nodes in trees])
    left, right = (
        np.concatenate([nodes[side] for nodes in trees]).astype("int64") + shift for side in ("left", "right")
    )
    # A row is in one of the first n bins where its value is at most the n-th edge.
    flat, first = np.concatenate([*edges, [0.0]]), np.cumsum([0, *map(len, edges)])
    feature = np.where(leaf, 0, np.concatenate([nodes["feature_idx"] for nodes in trees]))
    bins = np.where(leaf, 0.0, np.concatenate([nodes["num_threshold"] for nodes in trees]))
    threshold = flat[np.where(leaf, -1, first[feature] + bins.astype("int64"))]
    return Forest(
        base=np.zeros(1),
        roots=starts[:-1].astype("int32"),
        feature=feature.astype("int32"),
        threshold=threshold.astype("float64"),
        left=np.where(leaf, here, left).astype("int32"),
        right=np.where(leaf, here, right).astype("int32"),
        value=np.where(leaf, np.concatenate([nodes["value"] for nodes in trees]), 0.0).astype("float64"),
    )
