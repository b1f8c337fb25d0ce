"""A model against ONNX Runtime alone: what their race is kept under, and what it says."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256

from autofuse.database.database import ProfilingDatabase
from autofuse.database.records import Setting
from autofuse.environment.outcomes import newest_race
from autofuse.graph.key import graph_key
from autofuse.graph.model import Graph
from autofuse.values.names import ONNX_RUNTIME
from autofuse.values.ratios import Ratio, Timed, compare, differs

ALONE = "alone"
"""Where the summary of a run has what its race said."""
OWN = "autofuse"
"""The name of our library in such a race."""
MARGIN = 0.02
"""ONNX Runtime runs the model where our library is slower by more than this part, beyond doubt."""


@dataclass(frozen=True)
class WhoRuns:
    """Who runs a model when it is compiled here: `side`, as the parts of a model name it; `reason`: why, in a line.

    `ratio`: ONNX Runtime's time over ours in their race, with its interval; None where there was none.
    """

    side: str
    reason: str
    ratio: float | None = None
    ci_lo: float | None = None
    ci_hi: float | None = None
    verdict: str = ""


def alone_key(graph: Graph, plan_key: str, digests: Iterable[str], onnxruntime: str | None) -> str:
    """What a race of a graph is kept under: changes with the plan, with the code of any of its kernels, and with the
    version of `onnxruntime`."""
    parts = [graph_key(graph), plan_key, f"onnxruntime={onnxruntime or ''}", *sorted(digests)]
    return sha256(" ".join(parts).encode()).hexdigest()


def newest_alone(base: ProfilingDatabase, setting: Setting, key: str) -> Ratio | None:
    """ONNX Runtime's time over ours in the newest race here; None where there was none, or one of them has no time."""
    return ratio_of(newest_race(base, setting, key), OWN)


def ratio_of(times: Mapping[str, Timed], own: str) -> Ratio | None:
    """ONNX Runtime's time over that of the contender called `own` in their race; None where one of them has no time."""
    both = own in times and ONNX_RUNTIME in times
    return compare(times[ONNX_RUNTIME], times[own]) if both else None


def is_slower(ratio: Ratio) -> bool:
    """Whether ours is slower by more than `MARGIN`, beyond doubt."""
    return ratio.trusted and ratio.hi is not None and ratio.hi < 1.0 and differs(ratio, MARGIN)


def told(ratio: Ratio, ours: str = "kernels of autofuse run the model") -> str:
    """What such a race said, and who runs the model for it, in a line. `ours`: who does unless we are slower."""
    if ratio.value is None:
        return f"ONNX Runtime alone was raced, and not compared ({ratio.verdict}): {ours}"
    return (
        f"{ratio.value:.3f}x as fast as ONNX Runtime alone ({ratio.lo:.3f}-{ratio.hi:.3f}, {ratio.verdict}): "
        f"{'ONNX Runtime runs the model' if is_slower(ratio) else ours}"
    )
