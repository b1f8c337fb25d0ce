"""What a coordinator asks of the children that run, time and build whole networks, and what they answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from pydantic import PlainSerializer, PlainValidator

from autofuse.device.target import Target
from autofuse.measure.children.messages import Done, FilePath, Message, Request
from autofuse.values.arguments import Constant


def _constant(body: object) -> Constant:
    """The inverse of `Constant.to_json`; ValueError for what cannot come from it."""
    if isinstance(body, Constant):
        return body
    try:
        return Constant.from_json(body)  # type: ignore[arg-type]
    except (TypeError, KeyError) as error:
        raise ValueError("expected the value of an input") from error


ConstantValue = Annotated[Constant, PlainSerializer(Constant.to_json), PlainValidator(_constant)]
"""The value of an input in a message."""

# -- running. `name`: of the network, in a session that holds several


@dataclass(frozen=True)
class Loaded(Message):
    """Seconds of opening a network, and of its first run."""

    load_s: float
    first_s: float


@dataclass(frozen=True)
class LoadNetwork(Request[Loaded]):
    """Open a network on its inputs (.npy files by name) and run it once; `kind`: see `bench.Contender`."""

    kind: str
    path: FilePath
    target: Target
    threads: int
    inputs: Mapping[str, FilePath]
    name: str = ""


@dataclass(frozen=True)
class StartProbe(Request[Done]):
    """Become the clock probe of all cores."""

    target: Target
    threads: int


@dataclass(frozen=True)
class Compared(Message):
    """The largest relative error, and how the outputs differ beyond tolerance ("" when they do not)."""

    max_rel_error: float
    reason: str


@dataclass(frozen=True)
class CompareOutputs(Request[Compared]):
    """Compare the results of the last run with reference files, in the model's order of outputs."""

    expected: tuple[FilePath, ...]
    name: str = ""


@dataclass(frozen=True)
class Saved(Message):
    """Files (.npy) of results, in the model's order of outputs."""

    paths: tuple[FilePath, ...]


@dataclass(frozen=True)
class SaveOutputs(Request[Saved]):
    """Write the results of the last run into `folder`."""

    folder: FilePath
    name: str = ""


@dataclass(frozen=True)
class CallsTimed(Message):
    """Mean seconds of a call, and the part of the time that threads waited for a core."""

    seconds: float
    waited: float


@dataclass(frozen=True)
class TimeCalls(Request[CallsTimed]):
    """Time `calls` calls in a row, after one that warms the caches."""

    calls: int
    name: str = ""


@dataclass(frozen=True)
class CloseNetwork(Request[Done]):
    """Forget a network."""

    name: str


# -- building


@dataclass(frozen=True)
class LoadModel(Request[Done]):
    """Load an ONNX file, of which libraries are then built; `given`: of its inputs.

    `objects`: folder of the kernels that are compiled already, and of those that will be (None: there is none).
    """

    model: FilePath
    given: Mapping[str, tuple[int, ...] | ConstantValue]
    target: Target
    threads: int
    objects: FilePath | None = None


@dataclass(frozen=True)
class BuildLibrary(Request[Done]):
    """Build the library at `output` from a plan (its JSON text), with a schedule for each workload by its key."""

    plan: str
    schedules: Mapping[str, Mapping[str, int | str]]
    output: FilePath
