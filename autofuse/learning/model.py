"""The profitability model: how long a workload takes, and what fusing it gains, each with an interval or not at all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from autofuse.errors import InputError
from autofuse.learning.calibrated import COVERAGE, Calibrated, Lesson, learn
from autofuse.learning.features import FEATURES_VERSION, Machine, on_machine
from autofuse.learning.trees import Growth, Vector

if TYPE_CHECKING:
    import pandas as pd

    from autofuse.learning.dataset import Dataset

LEAST_ROWS = 40
"""Timed workloads, and decisions, below which nothing is learned."""
UNTRUSTED = 0.3
"""Weight of a time that is not trusted."""
WIDEST_TIME, WIDEST_GAIN = 2.0, 1.0
"""Half widths of intervals (in powers of two) beyond which the model abstains."""
TIME_GROWTH = Growth(trees=100, leaves=24, smallest=6, rate=0.12, columns=0.5)
GAIN_GROWTH = Growth(trees=150, leaves=24, smallest=6, rate=0.06, columns=0.25)
LARGEST_GAIN = 1.5
"""Gains beyond it, either way (powers of two), teach no more than this: the largest are failures of a schedule."""
SURE = 1.0
"""Deviations by which a gain must differ from none before it is judged as a decision; below, the fixed rule decides.

Of the decisions on networks held out of training, 1.4 % of those it makes are then more than 5 % slower than what the
rule chooses, and it makes a quarter of them; at half a deviation 3.2 % of half of them, without this 8 %
(experiments/profitability). Plans are changed by `advice.PROMISE`, of the deviations of all groups that change."""
DEVIATIONS = 1.645
"""Deviations in half an interval of 90 %."""


@dataclass(frozen=True)
class Estimate:
    """A predicted `value` with the ends of its interval; `abstains`: why it is not to be relied on ("": it is)."""

    value: float
    lo: float
    hi: float
    abstains: str = ""


@dataclass(frozen=True, eq=False)
class ProfitabilityModel:
    """The profitability model. `time`: log2 of a workload's microseconds; `gain`: log2 of apart over fused.

    `families`: classes of targets that were learned from. `about`: where the model comes from, as JSON.
    """

    time: Calibrated
    gain: Calibrated
    families: tuple[str, ...]
    about: Mapping[str, object] = field(default_factory=dict)

    def times(self, facts: Sequence[Mapping[str, float]], machine: Machine) -> list[Estimate]:
        """Microseconds of workloads on a machine, from their facts (see `autofuse.learning.features`)."""
        rows = [on_machine(one, machine) for one in facts]
        found = self._estimates(self.time, rows, machine, WIDEST_TIME)
        return [Estimate(2.0**one.value, 2.0**one.lo, 2.0**one.hi, one.abstains) for one in found]

    def gains(self, cuts: Sequence[Mapping[str, float]], machine: Machine) -> list[Estimate]:
        """log2 of what the parts take over what the group takes, from the features of cuts: above 0, fusing pays."""
        return self._estimates(self.gain, list(cuts), machine, WIDEST_GAIN)

    def refusal(self, machine: Machine) -> str:
        """Why the model says nothing about any group on a machine; "" when it does."""
        if machine.family not in self.families:
            return f"it was trained on {', '.join(self.families)}, not on {machine.family}"
        return ""

    def _estimates(
        self, learned: Calibrated, rows: Sequence[Mapping[str, float]], machine: Machine, widest: float
    ) -> list[Estimate]:
        if not rows:
            return []
        matrix = learned.matrix(rows)
        values, halves = learned.predict(matrix)
        refusal = self.refusal(machine)
        found = []
        for value, half, stranger in zip(values, halves, learned.strangers(matrix), strict=True):
            wide = f"its interval is wide: +-{half:.2f} powers of two" if half > widest else ""
            found.append(Estimate(float(value), float(value - half), float(value + half), refusal or stranger or wide))
        return found


def train(dataset: Dataset, seed: int = 0) -> ProfitabilityModel:
    """Learn from a dataset; InputError when it holds too little."""
    require_enough(dataset)
    return ProfitabilityModel(
        learn(time_lesson(dataset.rows), TIME_GROWTH, seed),
        learn(gain_lesson(dataset.decisions), GAIN_GROWTH, seed),
        tuple(sorted(set(dataset.rows["family"]))),
        _about(dataset, seed),
    )


def require_enough(dataset: Dataset) -> None:
    """InputError when a dataset holds too little to learn from."""
    rows, decisions = len(dataset.rows), len(dataset.decisions)
    if min(rows, decisions) < LEAST_ROWS:
        raise InputError(
            f"too little to learn from: {rows} timed workloads and {decisions} groups whose parts are timed too, at "
            f"least {LEAST_ROWS} of each are needed; tune more networks, or name more databases with --db"
        )


def time_lesson(rows: pd.DataFrame) -> Lesson:
    """log2 of the microseconds of each row, which the trees correct the roofline to."""
    wanted = np.log2(rows["median_us"].to_numpy(dtype="float64"))
    return _lesson(rows, wanted, "log_roofline_us")


def gain_lesson(decisions: pd.DataFrame) -> Lesson:
    """The gain of each decision, but for what is beyond `LARGEST_GAIN`."""
    gains = decisions["log_gain"].to_numpy(dtype="float64")
    return _lesson(decisions, np.clip(gains, -LARGEST_GAIN, LARGEST_GAIN), "")


def is_sure(gains: Vector, halves: Vector) -> NDArray[np.bool_]:
    """Which gains, given half the widths of their intervals, decisions may rest on."""
    return np.asarray(np.abs(gains) > SURE * halves / DEVIATIONS)


def _lesson(frame: pd.DataFrame, wanted: np.ndarray, offset: str) -> Lesson:
    from autofuse.learning.dataset import FEATURE, feature_columns

    columns = feature_columns(frame)
    names = tuple(column.removeprefix(FEATURE) for column in columns)
    weights = np.where(frame["trusted"].to_numpy(dtype=bool), 1.0, UNTRUSTED)
    networks = [frozenset(text.split(",")) for text in frame["networks"]]
    return Lesson(names, offset, frame[columns].to_numpy(dtype="float64"), wanted, weights, networks)


def _about(dataset: Dataset, seed: int) -> dict[str, object]:
    rows = dataset.rows
    networks = sorted({name for text in rows["networks"] for name in str(text).split(",") if name})
    return {
        "features_version": FEATURES_VERSION,
        "rows": len(rows),
        "decisions": len(dataset.decisions),
        "trusted_share": float(rows["trusted"].mean()),
        "unfit": dataset.unfit,
        "networks": networks,
        "devices": sorted({str(name) for name in rows["device"]}),
        "threads": sorted({int(count) for count in rows["threads"]}),
        "coverage": COVERAGE,
        "seed": seed,
    }
