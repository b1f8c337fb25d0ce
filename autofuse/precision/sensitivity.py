"""Sensitivity: what multiplying integers in some contractions does to a model's outputs, without writing models."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import pairwise

import numpy as np

from autofuse.graph.transform.quantize.probes import SWITCHES, switched
from autofuse.graph.transform.quantize.sites import Sites
from autofuse.precision.calibration import Calibration
from autofuse.precision.metrics import Metric, Outputs, mean_drop
from autofuse.precision.runs import Progress, outputs_of
from autofuse.precision.samples import Sample
from autofuse.values.statistics import MeanInterval

MOST_RUNS, FEWEST, MOST = 256, 2, 8
"""Runs of the model for the noises of all contractions; samples of each, which a large model has few of."""


class Sensitivity:
    """One model with a switch for each contraction, and the samples it is asked on."""

    def __init__(self, sites: Sites, calibration: Calibration, samples: Sequence[Sample], progress: Progress) -> None:
        self._names = [site.name for site in sites.usable]
        self._graph = switched(sites, calibration.ranges)
        self._reference, self._samples, self._progress = calibration.outputs, samples, progress

    def noises(self) -> dict[str, float]:
        """What each contraction alone adds to the outputs: squares of differences over squares of outputs.

        Such noises of independent roundings add up.
        """
        count = min(MOST, max(FEWEST, MOST_RUNS // len(self._names)), len(self._samples))
        places = range(0, len(self._samples), len(self._samples) // count)[:count]
        few, reference = ([found[place] for place in places] for found in (self._samples, self._reference))
        asked = [self._asked(sample, {name}) for name in self._names for sample in few]
        found = list(outputs_of(self._graph, asked, self._progress, "contractions tried"))
        ends = range(0, len(found) + 1, len(few))
        parts = [found[start:end] for start, end in pairwise(ends)]
        return {name: _noise(reference, part) for name, part in zip(self._names, parts, strict=True)}

    def drop(self, chosen: Collection[str], metric: Metric) -> MeanInterval:
        """The mean drop on the calibration samples when the `chosen` contractions multiply integers."""
        asked = [self._asked(sample, chosen) for sample in self._samples]
        found = outputs_of(self._graph, asked, self._progress, f"samples with {len(chosen)} in int8")
        triples = zip(self._reference, found, self._samples, strict=True)
        return mean_drop([drop for one in triples for drop in metric.drops(*one)])

    def _asked(self, sample: Sample, chosen: Collection[str]) -> Sample:
        return {**sample, SWITCHES: np.array([name in chosen for name in self._names])}


def _noise(reference: Sequence[Outputs], outputs: Sequence[Outputs]) -> float:
    """Mean over samples and outputs of the squared difference over the square of what was expected."""
    shares = []
    for before, after in zip(reference, outputs, strict=True):
        for name, array in before.items():
            wanted = array.astype(np.float64)
            size = float((wanted**2).sum())
            shares.append(float(((after[name].astype(np.float64) - wanted) ** 2).sum()) / (size or 1.0))
    return float(np.mean(shares))
