"""What a library says about its programs: the functions that compute the model, what they take, make and launch."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pydantic import ConfigDict

from autofuse.backend.container.open_spec import OpenSpec

_EXACTLY = ConfigDict(extra="forbid", strict=True)


@dataclass(frozen=True)
class TensorSpec:
    """Name, shape (elements) and numpy dtype name of an input, an output or a weight."""

    __pydantic_config__ = _EXACTLY

    name: str
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class InputSpec(TensorSpec):
    """`table`: rows of the table that the input indexes directly; its values must lie in -table ... table - 1.

    `example`: (least, greatest) integers of an input that is sure to be valid.
    """

    __pydantic_config__ = _EXACTLY

    table: int | None = None
    example: tuple[int, int] | None = None


@dataclass(frozen=True)
class KernelRow:
    """One kernel: the symbol that is called, its workload and schedule, and where the schedule came from.

    `source`: what the tier leaves open, such as the workload of the nearest shape.
    """

    __pydantic_config__ = _EXACTLY

    symbol: str
    label: str
    workload_key: str
    schedule: Mapping[str, int | str]
    tier: str
    source: str = ""


def looker(entry: str) -> str:
    """The function beside `entry` that takes the same arguments and does nothing but fail where their number, a shape
    or a type is another. Kernels do not look, so that whoever loads a library calls it once. There is none beside an
    entry that takes open sizes, which looks at its inputs on every run, see `weight_looker`, and none in older
    libraries, whose kernels look."""
    return f"looks_{entry}"


def weight_looker(entry: str) -> str:
    """The same beside an entry that takes open sizes: it takes its weights alone. None in older libraries, whose
    entries look at these on every run, too."""
    return f"looks_at_weights_of_{entry}"


@dataclass(frozen=True)
class Program:
    """The model at one set of input shapes: `entry` is the function that computes it.

    `opened`: set where it takes any of a range of sizes. Then there may be several programs, each of another plan and
    right at all sizes: a call goes to the first one whose `most` is not less than the product of its open sizes; the
    last one has None. `parallel`: a kernel may use several threads (older: unsaid).
    `weights`: positions in `Metadata.weights`, in the order of the function's arguments after the inputs.
    `copied`: outputs (by position) that share their memory with an input, a weight or an earlier output.
    """

    __pydantic_config__ = _EXACTLY

    entry: str
    plan_key: str
    inputs: tuple[InputSpec, ...]
    outputs: tuple[TensorSpec, ...]
    weights: tuple[int, ...]
    copied: tuple[int, ...]
    kernel_rows: tuple[KernelRow, ...]
    plan_tier: str = ""
    opened: OpenSpec | None = None
    parallel: bool = True
    most: int | None = None

    @property
    def looker(self) -> str:
        """The function that says whether the code takes such inputs and weights; see `looker`."""
        return looker(self.entry)

    @property
    def weight_looker(self) -> str:
        """The function that says whether code of open sizes takes such weights; see `weight_looker`."""
        return weight_looker(self.entry)

    def answers(self, values: Sequence[int]) -> bool:
        """Whether calls of such open sizes go to this program, where they go to none before it."""
        return self.most is None or math.prod(values) <= self.most
