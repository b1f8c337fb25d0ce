"""Calibration: the range of every tensor that may be bytes, from one pass over the calibration samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from autofuse.errors import InputError
from autofuse.graph.transform.quantize.levels import Range, rounded
from autofuse.graph.transform.quantize.probes import HIGHS, LOWS, PICKED, watched
from autofuse.graph.transform.quantize.sites import Sites
from autofuse.precision.metrics import Outputs
from autofuse.precision.runs import Progress, outputs_of
from autofuse.precision.samples import Sample

RULES = ("best", "min-max", "percentile")
"""Ranges of what was seen: of the least squared error among the others, from the least to the greatest number, or
without the outermost ones."""
PERCENTILES = (99.999, 99.99, 99.9)
"""Parts of the numbers of a tensor, in percent, within ranges that leave some out; "percentile" takes the second."""
MOST_KEPT = 1 << 18
"""Elements of a tensor that are looked at one by one."""


@dataclass(frozen=True)
class Calibration:
    """The ranges by tensor, and the float model's outputs for each calibration sample."""

    ranges: dict[str, Range]
    outputs: tuple[Outputs, ...]


def calibrate(sites: Sites, samples: Sequence[Sample], rule: str, progress: Progress) -> Calibration:
    """Run the float model once over the samples; `rule`: one of `RULES`."""
    if rule not in RULES:
        raise InputError(f"--ranges: got {rule!r:.60}, allowed: {', '.join(RULES)}")
    graph = sites.graph
    probe = watched(graph, sites.tensors)
    lows, highs, picked, outputs = [], [], [], []
    kept = max(1, MOST_KEPT // len(samples))
    for found in outputs_of(probe.graph, samples, progress, "calibrated"):
        lows.append(found[LOWS])
        highs.append(found[HIGHS])
        spans = zip(probe.starts, probe.starts[1:], strict=False)
        picked.append([found[PICKED][start:end][:kept] for start, end in spans])
        outputs.append({name: found[name] for name in graph.outputs})
    low, high = np.min(lows, axis=0), np.max(highs, axis=0)
    ranges = {}
    for number, name in enumerate(probe.tensors):
        if not np.isfinite([low[number], high[number]]).all():
            raise InputError(f"{graph.name}: tensor {name!r} reaches infinity on the calibration data; mend the model")
        whole = Range(float(low[number]), float(high[number]))
        ranges[name] = _range(whole, np.concatenate([one[number] for one in picked]), rule)
    return Calibration(ranges, tuple(outputs))


def _range(whole: Range, values: NDArray[np.float32], rule: str) -> Range:
    """The range of one tensor; `whole`: of all its numbers, `values`: some of them."""
    if rule == "min-max":
        return whole
    cut = [_within(whole, values, percent) for percent in PERCENTILES]
    if rule == "percentile":
        return cut[1]
    ends = np.array([whole.low, whole.high], np.float32)  # an outlier may be the very thing that matters
    seen = np.concatenate([values, ends])
    return min([whole, *cut], key=lambda span: float(((rounded(seen, span) - seen) ** 2).sum()))


def _within(whole: Range, values: NDArray[np.float32], percent: float) -> Range:
    low, high = np.percentile(values, [100 - percent, percent])
    return Range(max(whole.low, float(low)), min(whole.high, float(high)))
