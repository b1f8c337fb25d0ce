"""What a runtime is asked to make ready, and its answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from autofuse.device.target import Target

Array = NDArray[np.generic]


@dataclass(frozen=True)
class Job:
    """One ONNX file for one rival. `folder`: its own, kept between runs. `inputs`: by name, in the model's order.

    `budget_s`: for a rival that tunes.
    """

    kind: str
    model: Path
    folder: Path
    threads: int
    inputs: Mapping[str, Array]
    target: Target
    budget_s: float


@dataclass(frozen=True)
class Ready:
    """`path`: what the network is opened from. `note`: how it was made, for the reader of the table."""

    path: Path
    note: str = ""


class UnsupportedError(Exception):
    """This rival cannot run this model, for the reason given."""
