"""Sensitivity: what narrow numbers in some contractions do to a model's outputs, without writing models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
    """One model with a switch for each contraction and precision, and the samples it is asked on."""

    def __init__(self, sites: Sites, calibration: Calibration, samples: Sequence[Sample], progress: Progress) -> None:
        self._options = sites.options
        self._graph = switched(sites, calibration.ranges)
        self._reference, self._samples, self._progress = calibration.outputs, samples, progress

    def noises(self) -> dict[tuple[str, str], float]:
        """What each contraction alone adds to the outputs in each precision: squares of differences over squares of
        outputs.

        Such noises of independent roundings add up.
        """
        count = min(MOST, max(FEWEST, MOST_RUNS // len(self._options)), len(self._samples))
        places = range(0, len(self._samples), len(self._samples) // count)[:count]
        few, reference = ([found[place] for place in places] for found in (self._samples, self._reference))
        asked = [self._asked(sample, dict([option])) for option in self._options for sample in few]
        found = list(outputs_of(self._graph, asked, self._progress, "contractions tried"))
        ends = range(0, len(found) + 1, len(few))
        parts = [found[start:end] for start, end in pairwise(ends)]
        return {option: _noise(reference, part) for option, part in zip(self._options, parts, strict=True)}

    def drop(self, chosen: Mapping[str, str], metric: Metric) -> MeanInterval:
        """The mean drop on the calibration samples when the `chosen` contractions have the precisions beside them."""
        asked = [self._asked(sample, chosen) for sample in self._samples]
        found = outputs_of(self._graph, asked, self._progress, f"samples with {len(chosen)} narrow")
        triples = zip(self._reference, found, self._samples, strict=True)
        return mean_drop([drop for one in triples for drop in metric.drops(*one)])

    def _asked(self, sample: Sample, chosen: Mapping[str, str]) -> Sample:
        return {**sample, SWITCHES: np.array([chosen.get(name) == precision for name, precision in self._options])}


def _noise(reference: Sequence[Outputs], outputs: Sequence[Outputs]) -> float:
    """Mean over samples and outputs of the squared difference over the square of what was expected."""
    shares = []
    for before, after in zip(reference, outputs, strict=True):
        for name, array in before.items():
            wanted = array.astype(np.float64)
            size = float((wanted**2).sum())
            shares.append(float(((after[name].astype(np.float64) - wanted) ** 2).sum()) / (size or 1.0))
    return float(np.mean(shares))
