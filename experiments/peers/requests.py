"""What is asked of the child of a rival beside what every contender is asked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from autofuse.device.target import Target
from autofuse.measure.children.messages import Message, Request


@dataclass(frozen=True)
class RivalReady(Message):
    """The file that a rival is opened from, and what to know of it."""

    path: Path
    note: str


@dataclass(frozen=True)
class Prepare(Request[RivalReady]):
    """Make a rival's form of a model in `folder`; `inputs`: .npy files by name; `budget_s`: of what it may tune."""

    kind: str
    model: Path
    folder: Path
    threads: int
    inputs: Mapping[str, Path]
    target: Target
    budget_s: float
