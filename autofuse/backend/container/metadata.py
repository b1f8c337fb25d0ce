"""What a library says about itself; it is read without loading any of its code."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache

import numpy as np
from pydantic import ConfigDict, TypeAdapter, ValidationError

from autofuse.errors import InputError

FORMAT = 2
DTYPES = frozenset(
    ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64")
)
"""Element types of tensors, by numpy's names."""
MAX_RANK = 64
"""As many axes as numpy's arrays may have."""
MAX_TENSOR_BYTES = 1 << 44
MAX_THREADS = 1 << 12
_EXACTLY = ConfigDict(extra="forbid", strict=True)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.]{0,62}")
_SYMBOL = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")


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


@dataclass(frozen=True)
class Program:
    """The model at one set of input shapes: `entry` is the function that computes it.

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


@dataclass(frozen=True)
class Metadata:
    """`versions`: of autofuse, tvm, tvm_ffi. `cpu_features`: in LLVM's spelling, what the code needs to run.

    `weights`: of all programs together, equal ones once. `programs`: at least one; all have the same inputs and
    outputs but for their shapes. Most libraries have a single one: the properties below are the first one's.
    """

    __pydantic_config__ = _EXACTLY

    versions: Mapping[str, str]
    architecture: str
    target: Mapping[str, int | str | tuple[str, ...] | None]
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
        """The metadata that `to_json` wrote; InputError naming `source` when it is anything else."""
        try:
            body = json.loads(text, parse_constant=_refused_number)
            found = body["format"]
            if found != FORMAT:
                raise InputError(f"{source}: library format {found!r}, this autofuse reads {FORMAT}: compile again")
            del body["format"]
            made = _adapter().validate_json(json.dumps(body))
        except InputError:
            raise
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            problem = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            problem = repr(error)[:200]
        else:
            problem = _nonsense(made)
            if not problem:
                return made
        raise InputError(f"{source}: the library's description is damaged: {problem}")


@cache
def _adapter() -> TypeAdapter[Metadata]:
    return TypeAdapter(Metadata)


def _refused_number(text: str) -> float:
    raise ValueError(f"{text} is no number of JSON")


def _nonsense(made: Metadata) -> str:
    """What cannot be, although each value is of its type; "" when nothing is wrong."""
    if not 1 <= made.threads <= MAX_THREADS:
        return f"threads: {made.threads}"
    for spec in made.weights:
        if problem := _tensor_problem(spec):
            return f"weight {spec.name!r:.60}: {problem}"
    if not made.programs:
        return "it has no programs"
    if len({program.entry for program in made.programs}) != len(made.programs):
        return "two programs have one name"
    for program in made.programs:
        if problem := _program_problem(program, made):
            return f"program {program.entry!r:.80}: {problem}"
    return ""


def _program_problem(program: Program, made: Metadata) -> str:
    if not _NAME.fullmatch(program.entry):
        return "that is no name of a function"
    for specs, first in ((program.inputs, made.inputs), (program.outputs, made.outputs)):
        if [(spec.name, spec.dtype) for spec in specs] != [(spec.name, spec.dtype) for spec in first]:
            return "its inputs and outputs are not those of the first program"
        for spec in specs:
            if problem := _tensor_problem(spec):
                return f"tensor {spec.name!r:.60}: {problem}"
    if len({spec.name for spec in program.inputs}) != len(program.inputs):
        return "two inputs have one name"
    if not all(0 <= place < len(made.weights) for place in program.weights):
        return "it takes a weight that is not there"
    if not all(0 <= place < len(program.outputs) for place in program.copied):
        return "it copies an output that is not there"
    wrong = [row.symbol for row in program.kernel_rows if not _SYMBOL.fullmatch(row.symbol)]
    if wrong:
        return f"kernel {wrong[0]!r:.60}: that is no name of a function"
    return next((problem for spec in program.inputs if (problem := _values_problem(spec))), "")


def _tensor_problem(spec: TensorSpec) -> str:
    if spec.dtype not in DTYPES:
        return f"dtype {spec.dtype!r:.40}; allowed: {', '.join(sorted(DTYPES))}"
    if len(spec.shape) > MAX_RANK or any(size < 0 for size in spec.shape):
        return f"shape {spec.shape!r:.60}"
    return "its size is impossible" if _bytes(spec.shape, spec.dtype) > MAX_TENSOR_BYTES else ""


def _values_problem(spec: InputSpec) -> str:
    """Rows of a table and example integers must fit the input's type."""
    given = [*(spec.example or ()), *(() if spec.table is None else (spec.table,))]
    if not given:
        return ""
    if not spec.dtype.startswith(("int", "uint")):
        return f"input {spec.name!r:.60}: it has no integers"
    if any(abs(value) >= 1 << 63 for value in given) or (spec.table or 0) < 0:
        return f"input {spec.name!r:.60}: {given!r:.60} are no values of an index"
    return "" if spec.example is None or spec.example[0] <= spec.example[1] else f"input {spec.name!r:.60}: {given}"


def _bytes(shape: Sequence[int], dtype: str) -> int:
    return math.prod(shape) * np.dtype(dtype).itemsize
