"""What a library says about itself; it is read without loading any of its code."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache

from pydantic import ConfigDict, TypeAdapter, ValidationError

from autofuse.backend.container.open_spec import OpenSpec as OpenSpec
from autofuse.backend.container.open_spec import part_text, without_nothing_further
from autofuse.backend.container.parts_spec import Parts as Parts
from autofuse.backend.container.parts_spec import PartSpec as PartSpec
from autofuse.backend.container.parts_spec import ValueSpec as ValueSpec
from autofuse.backend.container.program_spec import InputSpec as InputSpec
from autofuse.backend.container.program_spec import KernelRow as KernelRow
from autofuse.backend.container.program_spec import Program as Program
from autofuse.backend.container.program_spec import TensorSpec as TensorSpec
from autofuse.errors import InputError
from autofuse.graph.model import Origin
from autofuse.values.names import BFLOAT16, numpy_dtype

FORMAT, FORMAT_OF_PARTS, FORMAT_OF_BODIES, FORMAT_OF_SIZES, FORMAT_OF_PLANS, FORMAT_OF_HEADS = 2, 3, 5, 7, 8, 9
"""Of a library of our kernels alone, with a part of ONNX Runtime's, with segments in that part, with open sizes, with
several plans for parts of their range, with open sizes and a part of ONNX Runtime's."""
FORMAT_OF_ROWS = 10
"""Of one with segments of rows, whatever else it has."""
FORMATS = (
    FORMAT, FORMAT_OF_PARTS, FORMAT_OF_BODIES, FORMAT_OF_SIZES, FORMAT_OF_PLANS, FORMAT_OF_HEADS, FORMAT_OF_ROWS,
)  # fmt: skip
DTYPES = frozenset(
    ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64")
) | {BFLOAT16}
"""Element types of tensors, by the names of numpy and of ml_dtypes."""
MAX_RANK = 64
"""As many axes as numpy's arrays may have."""
MAX_TENSOR_BYTES = 1 << 44
MAX_THREADS = 1 << 12
MOST_PLANS = 3
"""Plans that a library of open sizes may have, each for a part of the range."""
_EXACTLY = ConfigDict(extra="forbid", strict=True)
_KINDS = {
    FORMAT_OF_SIZES: (FORMAT,), FORMAT_OF_PLANS: (FORMAT,), FORMAT_OF_HEADS: (FORMAT_OF_PARTS,),
    FORMAT_OF_ROWS: (FORMAT_OF_PARTS, FORMAT_OF_BODIES),
}  # fmt: skip
"""The formats without open sizes, which a description does not show at its top."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.]{0,62}")
_SYMBOL = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")


@dataclass(frozen=True)
class Metadata:
    """`versions`: of autofuse, tvm, tvm_ffi. `cpu_features`: in LLVM's spelling, what the code needs to run.

    `weights`: of all programs together, equal ones once. `programs`: at least one; all have the same inputs and
    outputs but for their shapes. Most libraries have a single one: the properties below are the first one's.

    `parts`: set where ONNX Runtime has a part in the model; then each program is one segment of it, there may be none,
    and `inputs` and `outputs` below are not the model's. Where sizes are open, all are plans of the only segment, but
    for the programs of segments of rows, which come last.

    `origin`: what the model's file says about the model; older libraries do not have it.
    """

    __pydantic_config__ = _EXACTLY

    versions: Mapping[str, str]
    architecture: str
    target: Mapping[str, int | str | tuple[str, ...] | None]
    cpu_features: tuple[str, ...]
    threads: int
    weights: tuple[TensorSpec, ...]
    programs: tuple[Program, ...]
    parts: Parts | None = None
    origin: Origin = field(default_factory=Origin)

    @property
    def main(self) -> tuple[Program, ...]:
        """The programs but for those of segments of rows."""
        rows = frozenset[int]() if self.parts is None else self.parts.of_rows
        return tuple(program for number, program in enumerate(self.programs) if number not in rows)

    @property
    def opened(self) -> OpenSpec | None:
        """The sizes that a caller may choose; None where there are none."""
        return next((program.opened for program in self.main), None)

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
        """Key of the first program's fusion plan; "" where there is no program."""
        return self.programs[0].plan_key if self.programs else ""

    @property
    def kernel_rows(self) -> tuple[KernelRow, ...]:
        """Kernels of the first program."""
        return self.programs[0].kernel_rows

    @property
    def kernels(self) -> int:
        """Kernels that one call launches: of the first program, or of all segments."""
        first = self.parts is None or self.opened is not None
        left_out = self.main[1:] if first else ()
        return sum(len(one.kernel_rows) for one in self.programs) - sum(len(one.kernel_rows) for one in left_out)

    @property
    def forms(self) -> tuple[Program, ...]:
        """The programs that take inputs of different shapes: one of several plans for the same open sizes."""
        return self.main[:1] if self.opened is not None else self.main

    @property
    def kernels_by_part(self) -> dict[str, int]:
        """Kernels of each plan by the part of the range that it answers; empty where there is one plan."""
        opened, programs = self.opened, self.main
        if opened is None or len(programs) < 2:
            return {}
        above, found = None, dict[str, int]()
        for program in programs:
            found[part_text(opened.names, above, program.most)] = len(program.kernel_rows)
            above = program.most
        return found

    @property
    def _format_of_sizes(self) -> int:
        """The format of a library with open sizes, or with segments of rows; 0 without."""
        if self.parts is not None and self.parts.of_rows:
            return FORMAT_OF_ROWS
        if not any(program.opened for program in self.programs) and not (self.parts and self.parts.sizes):
            return 0
        if self.parts is not None:
            return FORMAT_OF_HEADS
        return FORMAT_OF_PLANS if len(self.programs) > 1 else FORMAT_OF_SIZES

    def to_json(self) -> str:
        """Text that `from_json` reads."""
        body = asdict(self)
        found = FORMAT
        if self.parts is None:
            del body["parts"]
        elif self.parts.provider is None:
            found = FORMAT_OF_PARTS
            del body["parts"]["provider"]
        else:
            found = FORMAT_OF_BODIES
        if self.parts is not None and not self.parts.sizes:
            del body["parts"]["sizes"]
        for program in body["programs"]:
            for name in [name for name in ("opened", "most") if program[name] is None]:
                del program[name]
            without_nothing_further(program.get("opened"))
        found = self._format_of_sizes or found
        return json.dumps({"format": found, **body}, sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str | bytes, source: str) -> Metadata:
        """The metadata that `to_json` wrote; InputError naming `source` when it is anything else."""
        try:
            body = json.loads(text, parse_constant=_refused_number)
            found = body["format"]
            if found not in FORMATS or _format_of(body) not in _KINDS.get(found, (found,)):
                known = ", ".join(map(str, FORMATS))
                raise InputError(f"{source}: library format {found!r}, this autofuse reads {known}: compile again")
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
            if not problem and made._format_of_sizes != (found if found in _KINDS else 0):
                problem = f"format {found} and open sizes"
            if not problem:
                return made
        raise InputError(f"{source}: the library's description is damaged: {problem}")


@cache
def _adapter() -> TypeAdapter[Metadata]:
    return TypeAdapter(Metadata)


def _format_of(body: Mapping[str, Mapping[str, object]]) -> int:
    """The format whose fields a description has."""
    if "parts" not in body:
        return FORMAT
    return FORMAT_OF_BODIES if "provider" in body["parts"] else FORMAT_OF_PARTS


def _refused_number(text: str) -> float:
    raise ValueError(f"{text} is no number of JSON")


def _nonsense(made: Metadata) -> str:
    """What cannot be, although each value is of its type; "" when nothing is wrong."""
    if not 1 <= made.threads <= MAX_THREADS:
        return f"threads: {made.threads}"
    for spec in made.weights:
        if problem := _tensor_problem(spec):
            return f"weight {spec.name!r:.60}: {problem}"
    if not made.programs and made.parts is None:
        return "it has no programs"
    if len({program.entry for program in made.programs}) != len(made.programs):
        return "two programs have one name"
    for program in made.programs:
        if problem := _program_problem(program, made):
            return f"program {program.entry!r:.80}: {problem}"
    return "" if made.parts is None else _parts_problem(made.parts, made)


def _parts_problem(parts: Parts, made: Metadata) -> str:
    """Each part must be there, and take what the model's inputs or an earlier part gives."""
    known = {spec.name for spec in parts.inputs}
    if len(known) != len(parts.inputs):
        return "two inputs have one name"
    for number, part in enumerate(parts.order):
        if problem := _part_problem(part, made, known):
            return f"part {number}: {problem}"
        known |= set(part.outputs)
    if parts.provider is not None and not _is_file(parts.provider, made):
        return "its execution provider is not there"
    missing = [spec.name for spec in parts.outputs if spec.name not in known]
    return f"no part makes the output {missing[0]!r:.60}" if missing else ""


def _part_problem(part: PartSpec, made: Metadata, known: set[str]) -> str:
    if not set(part.inputs) <= known:
        return f"nothing gives it {min(set(part.inputs) - known)!r:.60}"
    handed_on = set(part.inputs) if part.program is None else set()
    if len(set(part.outputs)) != len(part.outputs) or known & set(part.outputs) - handed_on:
        return "a value is made twice"
    if part.program is None and part.model is None:
        return "it is neither a program nor a model"
    if part.model is not None and not _is_file(part.model, made):
        return "its model is not there"
    if part.program is None:
        return ""
    program = made.programs[part.program] if 0 <= part.program < len(made.programs) else None
    if program is None or (part.counts_rows and (program.opened is None or part.program < len(made.main))):
        return "its program is not there"
    names = tuple(spec.name for spec in program.inputs), tuple(spec.name for spec in program.outputs)
    return "" if names == (part.inputs, part.outputs) else "its program takes or makes other values"


def _is_file(place: int, made: Metadata) -> bool:
    """Whether the bytes of a file stand at this position of the weights."""
    spec = made.weights[place] if 0 <= place < len(made.weights) else None
    return spec is not None and spec.dtype == "uint8" and len(spec.shape) == 1


def _program_problem(program: Program, made: Metadata) -> str:
    if not _NAME.fullmatch(program.entry):
        return "that is no name of a function"
    for specs, first in ((program.inputs, made.inputs), (program.outputs, made.outputs)):
        alike = [(spec.name, spec.dtype) for spec in specs] == [(spec.name, spec.dtype) for spec in first]
        if made.parts is None and not alike:
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
    if problem := _open_problem(program, made):
        return problem
    wrong = [row.symbol for row in program.kernel_rows if not _SYMBOL.fullmatch(row.symbol)]
    if wrong:
        return f"kernel {wrong[0]!r:.60}: that is no name of a function"
    return next((problem for spec in program.inputs if (problem := _values_problem(spec))), "")


def _open_problem(program: Program, made: Metadata) -> str:
    """What is wrong with what a program says about open sizes."""
    if program.opened is None:
        return "" if program.most is None else "it has a part of a range, and no open sizes"
    if all(program is not other for other in made.main):
        problem = program.opened.problem(program.inputs, program.outputs)
        problem = problem or ("" if len(program.opened.sizes) == 1 and program.most is None else "more than rows")
    elif (made.parts is not None and made.parts.provider is not None) or any(
        other.opened != program.opened for other in made.main
    ):
        problem = "other programs do not leave the same ones open"
    else:
        problem = program.opened.problem(program.inputs, program.outputs) or _ranges_problem(made.main)
    return f"its open sizes: {problem}" if problem else ""


def _ranges_problem(programs: Sequence[Program]) -> str:
    """What is wrong with the parts of the range that programs answer; "" when nothing is."""
    ends = [program.most for program in programs[:-1]]
    known = [end for end in ends if end is not None]
    if len(programs) > MOST_PLANS or programs[-1].most is not None or len(known) < len(ends):
        return "the parts of the range are not one behind the other"
    return "" if known == sorted(set(known)) else "the parts of the range are not one behind the other"


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
    return math.prod(shape) * numpy_dtype(dtype).itemsize
