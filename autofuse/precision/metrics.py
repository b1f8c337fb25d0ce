"""Metrics: how much worse the outputs of a model have become, sample by sample."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autofuse.errors import InputError
from autofuse.precision.samples import Sample
from autofuse.values.statistics import MeanInterval, mean_interval

Array = NDArray[Any]
Outputs = Mapping[str, Array]
Score = Callable[[Outputs, Sample], float]
"""A metric of the user's: how good the outputs for one sample are; higher is better, such as 1.0 for a right answer."""
METRICS = ("cosine", "top1", "kl")
CONFIDENCE = 0.95
_CLASS_AXIS, _MAPS = 1, 4
"""Classes stand along the last axis; in maps, along the second of so many."""


@dataclass(frozen=True)
class Metric:
    """A metric by its name. `drops`: of one sample, from the outputs of the float model and of the other.

    `counts`: whether it is the part of the answers that changed, which only many samples can show to be small.
    """

    name: str
    meaning: str
    drops: Callable[[Outputs, Outputs, Sample], Sequence[float]]
    counts: bool = False


def metric_of(metric: str | Score) -> Metric:
    """The metric that is named, or the user's own."""
    if callable(metric):
        return _own(metric)
    known = {
        "cosine": Metric("cosine", "1 - cosine of the outputs", _cosine),
        "top1": Metric("top1", "part of the rows whose best class is another one", _top1, counts=True),
        "kl": Metric("kl", "Kullback-Leibler divergence of the classes, in nats", _kl),
    }
    if metric not in known:
        raise InputError(f"--metric: got {metric!r:.60}, allowed: {', '.join(METRICS)} (in Python also a function)")
    return known[metric]


def mean_drop(drops: Sequence[float]) -> MeanInterval:
    """The mean of drops with the bounds that it keeps, each with `CONFIDENCE`."""
    return mean_interval(drops, CONFIDENCE)


def _own(score: Score) -> Metric:
    name = getattr(score, "__name__", type(score).__name__)

    def drops(reference: Outputs, outputs: Outputs, sample: Sample) -> Sequence[float]:
        given = score(reference, sample), score(outputs, sample)
        try:
            before, after = map(float, given)
        except (TypeError, ValueError) as error:
            raise InputError(f"metric {name}: it gave {given!r:.100} for a sample; give two numbers") from error
        if not np.isfinite([before, after]).all():
            raise InputError(f"metric {name}: it gave {before} and {after} for a sample; give finite numbers")
        return [before - after]

    return Metric(name, "the user's score of the float model less that of the other", drops)


def _cosine(reference: Outputs, outputs: Outputs, _sample: Sample) -> Sequence[float]:
    return [float(np.mean([_one_cosine(array, outputs[name]) for name, array in reference.items()]))]


def _one_cosine(one: Array, other: Array) -> float:
    a, b = (array.astype(np.float64).ravel() for array in (one, other))
    norms = float(np.linalg.norm(a) * np.linalg.norm(b))
    if not norms:
        return 0.0 if np.array_equal(a, b) else 1.0
    return max(0.0, 1.0 - float(a @ b) / norms)


def _top1(reference: Outputs, outputs: Outputs, _sample: Sample) -> Sequence[float]:
    found: list[float] = []
    for name, array in _classes(reference, "top1").items():
        axis = _axis(array)
        found += (array.argmax(axis) != outputs[name].argmax(axis)).astype(float).reshape(-1).tolist()
    return found


def _kl(reference: Outputs, outputs: Outputs, _sample: Sample) -> Sequence[float]:
    found = []
    for name, array in _classes(reference, "kl").items():
        p, q = _logarithms(array), _logarithms(outputs[name])
        found.append(float((np.exp(p) * (p - q)).sum(_axis(array)).mean()))
    return [max(0.0, float(np.mean(found)))]


def _classes(reference: Outputs, metric: str) -> dict[str, Array]:
    """The outputs that have classes."""
    found = {name: a for name, a in reference.items() if a.dtype.kind == "f" and a.ndim and a.shape[_axis(a)] > 1}
    if not found:
        raise InputError(f"--metric {metric}: no output has classes along an axis; take --metric cosine")
    return found


def _axis(array: Array) -> int:
    return _CLASS_AXIS if array.ndim >= _MAPS else array.ndim - 1


def _logarithms(array: Array) -> NDArray[np.float64]:
    """Of probabilities, which the model gives itself or are its softmax."""
    exact, axis = array.astype(np.float64), _axis(array)
    if (exact >= 0).all() and np.allclose(exact.sum(axis), 1.0, atol=1e-3):
        return np.asarray(np.log(np.maximum(exact, 1e-12)))
    shifted = exact - exact.max(axis, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis, keepdims=True)))
