"""Boosted regression trees as plain arrays: grown by LightGBM, kept and asked without it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autofuse.errors import DeviceError, InputError

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

    `wanted`, `weights`: the number to predict and its weight, for each row. DeviceError where LightGBM cannot be
    loaded.
    """
    lightgbm = _lightgbm()
    settings = {
        "objective": "regression",
        "verbosity": -1,
        "seed": seed,
        "deterministic": True,
        "force_col_wise": True,
        "num_leaves": growth.leaves,
        "min_data_in_leaf": growth.smallest,
        "learning_rate": growth.rate,
        "feature_fraction_bynode": growth.columns,
        "lambda_l2": 1.0,
        "min_sum_hessian_in_leaf": 0.0,
        "max_bin": BINS,
        "min_data_in_bin": 1,
        "use_missing": False,
        "feature_pre_filter": False,
        # Threads that wait for each other at every node gain nothing on few rows, and lose all on a busy machine.
        "num_threads": 1 if len(rows) < ROWS_FOR_THREADS else 0,
    }
    learner = lightgbm.train(settings, lightgbm.Dataset(rows, wanted, weight=weights), growth.trees)
    gains = learner.feature_importance("gain")
    shares = gains / gains.sum() if gains.sum() > 0 else gains
    return _joined([_Tree.of(tree["tree_structure"]) for tree in learner.dump_model()["tree_info"]]), shares


def _lightgbm() -> Any:
    try:
        import lightgbm
    except OSError as error:  # its library asks for the system's OpenMP, which comes with gcc
        raise DeviceError(f"LightGBM, which grows the model's trees, cannot be loaded: {error}") from error
    return lightgbm


@dataclass(frozen=True)
class _Tree:
    """The nodes of one tree, as lists; each node stands before those below it."""

    feature: list[int]
    threshold: list[float]
    left: list[int]
    right: list[int]
    value: list[float]

    @classmethod
    def of(cls, root: Mapping[str, Any]) -> _Tree:
        """A tree of LightGBM's JSON (its documentation: `Booster.dump_model`)."""
        tree = cls([], [], [], [], [])
        pending: list[tuple[Mapping[str, Any], list[int] | None, int]] = [(root, None, 0)]
        while pending:
            node, side, parent = pending.pop()
            here = len(tree.value)
            if side is not None:
                side[parent] = here
            split = "split_feature" in node
            tree.feature.append(node["split_feature"] if split else 0)
            tree.threshold.append(node["threshold"] if split else 0.0)
            tree.value.append(0.0 if split else node["leaf_value"])
            tree.left.append(here)
            tree.right.append(here)
            if split:
                pending += [(node["right_child"], tree.right, here), (node["left_child"], tree.left, here)]
        return tree


def _joined(trees: Sequence[_Tree]) -> Forest:
    """The trees in one list of nodes; the first of them holds the mean, so that the base is 0."""
    starts = np.cumsum([0, *(len(tree.value) for tree in trees)])
    shift = np.repeat(starts[:-1], np.diff(starts))

    def listed(part: str, dtype: str) -> NDArray[Any]:
        return np.array([item for tree in trees for item in getattr(tree, part)], dtype=dtype)

    return Forest(
        base=np.zeros(1),
        roots=starts[:-1].astype("int32"),
        feature=listed("feature", "int32"),
        threshold=listed("threshold", "float64"),
        left=(listed("left", "int64") + shift).astype("int32"),
        right=(listed("right", "int64") + shift).astype("int32"),
        value=listed("value", "float64"),
    )
