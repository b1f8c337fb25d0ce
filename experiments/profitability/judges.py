"""Who decides: the learned model, and the controls that it has to beat.

A judge learns from a dataset (or does not), says for each decision whether to fuse, and ranks the plans of a case.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import pandas as pd
from scipy.special import ndtr

from autofuse.graph.cost import group_cost
from autofuse.kernels.workload.as_graph import as_graph
from autofuse.kernels.workload.workload import Workload
from autofuse.learning.advice import PROMISE, Adviser, Guess
from autofuse.learning.dataset import Dataset
from autofuse.learning.features import Machine, on_machine
from autofuse.learning.model import (
    WIDEST_GAIN,
    Estimate,
    ProfitabilityModel,
    gain_lesson,
    is_sure,
    time_lesson,
    train,
)
from experiments.profitability.cases import Case
from experiments.profitability.metrics import Flags, Floats

BREAK = "break"
DEFAULT = "default"
"""The plan of autofuse's rule."""
RIDGE = 1.0
"""Weight of the penalty of the linear model, for features of unit variance."""
SIGMAS = 1.6449
"""Standard deviations in half of a normal distribution's 90 % interval."""


@dataclass(frozen=True, eq=False)
class Opinion:
    """What a judge says of decisions. `score`: higher, the rather fuse; `fuse`: its decisions.

    `gain`: predicted log2 of apart over fused, with `half` the width of its 90 % interval; None where a judge
    predicts none.
    """

    score: Floats
    fuse: Flags
    gain: Floats | None = None
    half: Floats | None = None

    @property
    def probability(self) -> Floats:
        """That fusing pays, as the interval of a normal distribution says."""
        assert self.gain is not None and self.half is not None
        return np.asarray(ndtr(self.gain / np.maximum(self.half / SIGMAS, 1e-9)))


class Judge:
    """The contract; a judge that cannot decide, or not rank this case, answers None."""

    name: str

    def fit(self, data: Dataset) -> None:
        """Learn from a dataset, anew."""

    def decide(self, decisions: pd.DataFrame) -> Opinion | None:
        """An opinion on each row of `Dataset.decisions`."""
        raise NotImplementedError

    def rank(self, case: Case) -> Floats | None:
        """A score for each plan of the case: the higher, the rather take it."""
        raise NotImplementedError


class Learned(Judge):
    """The product's model; where it is not sure, the paper's rule decides, and autofuse's chooses the plan."""

    name = "model"

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed
        self.model: ProfitabilityModel | None = None

    def fit(self, data: Dataset) -> None:
        self.model = train(data, self.seed)

    def decide(self, decisions: pd.DataFrame) -> Opinion:
        assert self.model is not None
        rows = gain_lesson(decisions).rows
        gain, half = self.model.gain.predict(rows)
        strange = np.array([bool(reason) for reason in self.model.gain.strangers(rows)], dtype=bool)
        silent = strange | (half > WIDEST_GAIN) | ~is_sure(gain, half)
        fuse = np.where(silent, allowed(decisions), gain > 0)
        return Opinion(gain, fuse, gain, half)

    def rank(self, case: Case) -> Floats | None:
        assert self.model is not None
        ruled = FixedPlan(DEFAULT, DEFAULT).rank(case)
        adviser = adviser_of(self.model, case)
        if ruled is None or adviser.refusal:
            return ruled
        guesses = guessed(adviser, case)
        us = np.array([one.us for one in guesses])
        changed = case.uses - case.uses[case.named[DEFAULT]]
        deviations = np.array([one.deviation_us for one in guesses])
        return np.asarray(-changed @ us - PROMISE * np.sqrt(changed**2 @ deviations**2))


def adviser_of(model: ProfitabilityModel | LinearModel, case: Case) -> Adviser:
    """The product's adviser on the machine of a case."""
    return Adviser(cast("ProfitabilityModel", model), case.where.target, case.where.facts, case.where.setting.threads)


def guessed(adviser: Adviser, case: Case) -> list[Guess]:
    """What an adviser says of each workload of a case."""
    guesses = adviser.guesses(case.workloads)
    return [guesses[workload.key] for workload in case.workloads]


def predicted_us(model: ProfitabilityModel | LinearModel, case: Case) -> Floats:
    """Microseconds of each plan, as the product's adviser predicts them from the model."""
    return np.asarray(case.uses @ np.array([one.us for one in guessed(adviser_of(model, case), case)]))


class Chance(Judge):
    """Everything is equal; half of the fusions are accepted."""

    name = "random"

    def __init__(self, seed: int = 0) -> None:
        self.random = np.random.default_rng(seed)

    def decide(self, decisions: pd.DataFrame) -> Opinion:
        return Opinion(np.zeros(len(decisions)), self.random.random(len(decisions)) < 0.5)

    def rank(self, case: Case) -> Floats:
        return np.zeros(len(case.uses))


class Constant(Judge):
    """Always fuse, or never: of plans that with the fewest, or with the most kernels."""

    def __init__(self, name: str, fuse: bool) -> None:
        self.name, self.fuse = name, fuse

    def decide(self, decisions: pd.DataFrame) -> Opinion:
        return Opinion(np.zeros(len(decisions)), np.full(len(decisions), self.fuse))

    def rank(self, case: Case) -> Floats:
        kernels = case.uses.sum(axis=1)
        return -kernels if self.fuse else kernels


class FixedPlan(Judge):
    """A rule that makes one plan of a network; the others come after it in any order.

    `decides`: what it says of decisions; None: nothing.
    """

    def __init__(self, name: str, plan: str, decides: Callable[[pd.DataFrame], Opinion] | None = None) -> None:
        self.name, self.plan, self.decides = name, plan, decides

    def decide(self, decisions: pd.DataFrame) -> Opinion | None:
        return None if self.decides is None else self.decides(decisions)

    def rank(self, case: Case) -> Floats | None:
        if self.plan not in case.named:
            return None
        return (np.arange(len(case.uses)) == case.named[self.plan]).astype(float)


def allowed(decisions: pd.DataFrame) -> Flags:
    """What the paper's table fuses, yellow cells accepted: all but the red ones."""
    return (decisions["colour"] != BREAK).to_numpy(dtype=bool)


def paper(decisions: pd.DataFrame) -> Opinion:
    """Green before yellow before red."""
    order = decisions["colour"].map({"through": 2.0, "depend": 1.0, BREAK: 0.0}).fillna(1.0)
    return Opinion(np.asarray(order, np.float64), allowed(decisions))


def fused_by_tvm(answers: Mapping[str, bool]) -> Callable[[pd.DataFrame], Opinion]:
    """TVM's FuseOps, given what it does with each workload (see `tvm_rule.fused_by_tvm`)."""

    def decide(decisions: pd.DataFrame) -> Opinion:
        fuse = np.array([answers[key] for key in decisions["workload"]], dtype=bool)
        return Opinion(fuse.astype(float), fuse)

    return decide


class BytesSaved(Judge):
    """Fuse where the share of the traffic that fusing saves is above a threshold, the best one of the training set."""

    name = "bytes saved"
    threshold = 0.0

    def fit(self, data: Dataset) -> None:
        share = data.decisions["f_cut_bytes_share"].to_numpy(dtype="float64")
        lost = np.log2((data.decisions["apart_us"] / data.decisions["fused_us"]).to_numpy(dtype="float64"))
        order = np.argsort(share, kind="stable")
        # Refusing the first k: what they would have gained is lost. The threshold lies where that is least.
        losses = np.concatenate([[0.0], np.cumsum(lost[order])])
        steps = np.concatenate([[True], share[order][1:] > share[order][:-1], [True]])
        count = int(np.where(steps, losses, np.inf).argmin())
        ranked = share[order]
        self.threshold = float(ranked[count]) if count < len(ranked) else float("inf")

    def decide(self, decisions: pd.DataFrame) -> Opinion:
        share = decisions["f_cut_bytes_share"].to_numpy(dtype="float64")
        return Opinion(share, share >= self.threshold)

    def rank(self, case: Case) -> Floats:
        return -case.uses @ np.array([_moved(workload) for workload in case.workloads])


def _moved(workload: Workload) -> float:
    """Bytes that a kernel reads and writes."""
    graph = as_graph(workload)
    cost = group_cost(graph, [operator.name for operator in graph.operators])
    return float(cost.bytes_read + cost.bytes_written)


class Linear(Judge):
    """Ridge regression on the model's own features; whole plans by the product's adviser, as for the model."""

    name = "linear"

    def fit(self, data: Dataset) -> None:
        self.model = LinearModel(data)

    def decide(self, decisions: pd.DataFrame) -> Opinion:
        gain = self.model.gain(gain_lesson(decisions).rows)
        return Opinion(gain, gain > 0, gain)

    def rank(self, case: Case) -> Floats:
        return -predicted_us(self.model, case)


class LinearModel:
    """Answers as `ProfitabilityModel` does, with lines where that has trees, and no intervals."""

    def __init__(self, data: Dataset) -> None:
        time, gain = time_lesson(data.rows), gain_lesson(data.decisions)
        self.time_names, self.gain_names = time.names, gain.names
        self.time, self.gain = ridge(time.rows, time.wanted), ridge(gain.rows, gain.wanted)

    def times(self, facts: Sequence[Mapping[str, float]], machine: Machine) -> list[Estimate]:
        """See `ProfitabilityModel`."""
        found = self.time(_rows([on_machine(one, machine) for one in facts], self.time_names))
        return [Estimate(2.0**value, 2.0**value, 2.0**value) for value in found]

    def gains(self, cuts: Sequence[Mapping[str, float]], machine: Machine) -> list[Estimate]:  # noqa: ARG002
        """See `ProfitabilityModel`."""
        return [Estimate(value, value, value) for value in self.gain(_rows(cuts, self.gain_names))]

    def refusal(self, machine: Machine) -> str:  # noqa: ARG002
        """See `ProfitabilityModel`."""
        return ""


def _rows(found: Sequence[Mapping[str, float]], names: Sequence[str]) -> Floats:
    return np.array([[row[name] for name in names] for row in found], dtype="float64").reshape(len(found), len(names))


def ridge(rows: Floats, wanted: Floats) -> Callable[[Floats], Floats]:
    """Least squares with a penalty, on standardised columns; what never varied counts for nothing.

    Answers stay within the range of `wanted`, widened by half: lines know no bounds.
    """
    mean, scale = rows.mean(axis=0), rows.std(axis=0)
    scale = np.where(scale > 1e-9, scale, np.inf)
    unit = (rows - mean) / scale
    weights = np.linalg.solve(unit.T @ unit + RIDGE * np.eye(unit.shape[1]), unit.T @ (wanted - wanted.mean()))
    low, high, offset = float(wanted.min()), float(wanted.max()), float(wanted.mean())
    wider = (high - low) / 2
    return lambda asked: np.clip((asked - mean) / scale @ weights + offset, low - wider, high + wider)


def _column(frame: pd.DataFrame, name: str) -> Floats:
    return frame[name].to_numpy(dtype="float64")


def noise_of(decisions: pd.DataFrame) -> Floats:
    """Half width of each gain's 95 % interval (log2), from the intervals of both times."""
    both = np.hypot(_column(decisions, "fused_rel_ci"), _column(decisions, "apart_rel_ci"))
    return np.log2(1.0 + both)


def every_judge(tvm: Callable[[pd.DataFrame], Opinion], seed: int = 0) -> list[Judge]:
    """The model first, then the controls."""
    return [
        Learned(seed),
        Linear(),
        BytesSaved(),
        FixedPlan("autofuse's rule", DEFAULT),
        FixedPlan("paper's rule", "dnnfusion", paper),
        FixedPlan("TVM's FuseOps", "tvm-partition", tvm),
        Constant("always fuse", True),
        Constant("never fuse", False),
        Chance(seed),
    ]
