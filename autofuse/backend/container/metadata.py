"""What a library says about itself; it is read without loading any of its code."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from autofuse.errors import InputError

FORMAT = 2


@dataclass(frozen=True)
class TensorSpec:
    """Name, shape (elements) and numpy dtype name of an input, an output or a weight."""

    name: str
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class InputSpec(TensorSpec):
    """`table`: rows of the table that the input indexes directly; its values must lie in -table ... table - 1.

    `example`: (least, greatest) integers of an input that is sure to be valid.
    """

    table: int | None = None
    example: tuple[int, int] | None = None


@dataclass(frozen=True)
class KernelRow:
    """One kernel: the symbol that is called, its workload and schedule, and where the schedule came from.

    `source`: what the tier leaves open, such as the workload of the nearest shape.
    """

    symbol: str
    label: str
    workload_key: str
    schedule: Mapping[str, int | str]
    tier: str
    source: str = ""


@dataclass(frozen=True)
class Program:
    """The model at one set of input shapes: `entry` is the function that computes it.

    `weights`: positions in `Metadata.weights`, in the order of the function's arguments after the inputs.
    `copied`: outputs (by position) that share their memory with an input, a weight or an earlier output.
    """

    entry: str
    plan_key: str
    inputs: tuple[InputSpec, ...]
    outputs: tuple[TensorSpec, ...]
    weights: tuple[int, ...]
    copied: tuple[int, ...]
    kernel_rows: tuple[KernelRow, ...]
    plan_tier: str = ""


@dataclass(frozen=True)
class Metadata:
    """`versions`: of autofuse, tvm, tvm_ffi. `cpu_features`: in LLVM's spelling, what the code needs to run.

    `weights`: of all programs together, equal ones once. `programs`: at least one; all have the same inputs and
    outputs but for their shapes. Most libraries have a single one: the properties below are the first one's.
    """

    versions: Mapping[str, str]
    architecture: str
    target: Mapping[str, Any]
    cpu_features: tuple[str, ...]
    threads: int
    weights: tuple[TensorSpec, ...]
    programs: tuple[Program, ...]

    @property
    def inputs(self) -> tuple[InputSpec, ...]:
        """Inputs of the first program."""
        return self.programs[0].inputs

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        """Outputs of the first program."""
        return self.programs[0].outputs

    @property
    def plan_key(self) -> str:
        """Key of the first program's fusion plan."""
        return self.programs[0].plan_key

    @property
    def kernel_rows(self) -> tuple[KernelRow, ...]:
        """Kernels of the first program."""
        return self.programs[0].kernel_rows

    @property
    def kernels(self) -> int:
        """Kernels that one call of the first program launches."""
        return len(self.kernel_rows)

    def to_json(self) -> str:
        """Text that `from_json` reads."""
        return json.dumps({"format": FORMAT, **asdict(self)}, sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str | bytes, source: str) -> Metadata:
        """The metadata that `to_json` wrote; InputError naming `source` when the text is something else."""
        try:
            body = json.loads(text)
            if body["format"] != FORMAT:
                raise InputError(
                    f"{source}: library format {body['format']!r}, this autofuse reads {FORMAT}: compile again"
                )
            made = cls(
                versions={str(key): str(value) for key, value in body["versions"].items()},
                architecture=str(body["architecture"]),
                target=dict(body["target"]),
                cpu_features=tuple(map(str, body["cpu_features"])),
                threads=int(body["threads"]),
                weights=tuple(TensorSpec(**_shaped(item)) for item in body["weights"]),
                programs=tuple(_program(item) for item in body["programs"]),
            )
            wanted = {position for program in made.programs for position in program.weights}
            if not made.programs or not wanted <= set(range(len(made.weights))):
                raise ValueError("programs")
            return made
        except InputError:
            raise
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InputError(f"{source}: the library's description is damaged: {error!r}") from error


def _program(body: Mapping[str, Any]) -> Program:
    return Program(
        entry=str(body["entry"]),
        plan_key=str(body["plan_key"]),
        inputs=tuple(InputSpec(**_shaped(_with_example(item))) for item in body["inputs"]),
        outputs=tuple(TensorSpec(**_shaped(item)) for item in body["outputs"]),
        weights=tuple(map(int, body["weights"])),
        copied=tuple(map(int, body["copied"])),
        kernel_rows=tuple(KernelRow(**row) for row in body["kernel_rows"]),
        plan_tier=str(body["plan_tier"]),
    )


def _shaped(item: Mapping[str, Any]) -> dict[str, Any]:
    return {**item, "shape": tuple(map(int, item["shape"]))}


def _with_example(item: Mapping[str, Any]) -> dict[str, Any]:
    given = item.get("example")
    return {**item, "example": None if given is None else (int(given[0]), int(given[1]))}
