"""The values that cross between processes, to JSON and back (the same for a database's rows)."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from autofuse.device.target import Target
from autofuse.measure.measurement import Case, Slice, Timing
from autofuse.measure.timing.sampling import SamplingPolicy
from autofuse.values.statistics import Interval


def target_to_json(target: Target) -> dict[str, Any]:
    """Fields of a target."""
    return asdict(target)


def target_from_json(body: Any) -> Target:
    """The inverse of `target_to_json`."""
    return Target(**{**body, "mattr": tuple(body["mattr"])})


def policy_to_json(policy: SamplingPolicy) -> dict[str, Any]:
    """Fields of a sampling policy."""
    return asdict(policy)


def policy_from_json(body: Any) -> SamplingPolicy:
    """The inverse of `policy_to_json`."""
    return SamplingPolicy(**body)


def case_to_json(case: Case) -> dict[str, Any]:
    """Paths of a case as text."""
    return {"inputs": [str(path) for path in case.inputs], "outputs": [str(path) for path in case.outputs]}


def case_from_json(body: Any) -> Case:
    """The inverse of `case_to_json`."""
    return Case(tuple(Path(path) for path in body["inputs"]), tuple(Path(path) for path in body["outputs"]))


def timing_to_json(timing: Timing) -> dict[str, Any]:
    """A timing with all its slices."""
    return asdict(timing)


def timing_from_json(body: Any) -> Timing:
    """The inverse of `timing_to_json`; KeyError or TypeError for something else."""
    slices = tuple(Slice(**piece) for piece in body["slices"])
    return Timing(**{**body, "us": Interval(**body["us"]), "slices": slices})
