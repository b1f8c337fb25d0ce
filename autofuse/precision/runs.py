"""Runs of a graph over many samples in ONNX Runtime, in parts, so that little stands on the disk at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from autofuse.graph.model import Graph
from autofuse.measure.checking.reference import run_references
from autofuse.precision.metrics import Outputs
from autofuse.precision.samples import Sample

Progress = Callable[[str, int, int], None]
"""Called with what is done, and how many of how many samples."""
AT_A_TIME = 64


def outputs_of(graph: Graph, samples: Sequence[Sample], progress: Progress, what: str) -> Iterator[Outputs]:
    """The outputs of a graph for each sample, in order."""
    done = 0
    for start in range(0, len(samples), AT_A_TIME):
        for found in run_references(graph, samples[start : start + AT_A_TIME]):
            done += 1
            progress(what, done, len(samples))
            yield found
