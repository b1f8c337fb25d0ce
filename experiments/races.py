"""Whole libraries of one model raced, each held against ONNX Runtime."""

from __future__ import annotations

from collections.abc import Sequence

from autofuse.device.target import Target
from autofuse.graph.inputs import generate_inputs
from autofuse.graph.model import Graph
from autofuse.measure.checking.reference import run_reference
from autofuse.measure.networks.bench import DEFAULT_POLICY, Contender, ContenderResult, bench_contenders
from autofuse.measure.networks.judgement import judged
from autofuse.measure.timing.race import InterleavingPolicy

NO_RATIO = "no ratio: too few rounds count, the machine is busy"


def race(
    graph: Graph,
    contenders: Sequence[Contender],
    threads: int,
    seconds: float,
    target: Target,
    seed: int = 0,
    policy: InterleavingPolicy = DEFAULT_POLICY,
) -> dict[str, ContenderResult]:
    """Every contender, checked as a tuning checks whole networks, and timed in turn on the same made-up inputs; ratios
    are to the first."""
    inputs = generate_inputs(graph, seed)
    reference = run_reference(graph, inputs)
    expected = [reference[name] for name in graph.outputs]
    raced = bench_contenders(contenders, inputs, threads, seconds, target=target, expected=expected, policy=policy)
    return judged(raced, graph, inputs)
