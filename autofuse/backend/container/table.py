"""The description of a library once more, as lines that a C program reads with `sscanf`; see `capi/autofuse.c`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autofuse.backend.container.metadata import Metadata, OpenSpec, Program, TensorSpec
from autofuse.backend.container.open_spec import AxisSpec, SizeSpec
from autofuse.device.cpu_features import system_name
from autofuse.errors import InputError
from autofuse.values.names import BFLOAT16

TABLE_FORMAT, TABLE_OF_PARTS = 1, 2
"""A C program reads the first; it refuses the second, of a model that ONNX Runtime has a part in."""
DLPACK_CODES = {"i": 0, "u": 1, "f": 2, "b": 6}
"""numpy's kind letters -> `DLDataTypeCode`."""


def table_texts(metadata: Metadata, offsets: Sequence[int]) -> tuple[str, ...]:
    """The tables that a library may have: that of now, and of before tables had open sizes."""
    return table_text(metadata, offsets), table_text(metadata, offsets, open_sizes=False)


def table_text(metadata: Metadata, offsets: Sequence[int], *, open_sizes: bool = True) -> str:
    """One record a line; `offsets`: where each weight starts in the file (bytes).

    `feature NAME` as Linux calls what the CPU must have, `weight CODE BITS RANK SIZE... OFFSET`, `input CODE BITS RANK
    SIZE... NAME` (`output` too), and for each program `program ENTRY INPUTS OUTPUTS WEIGHTS` before its inputs, outputs
    and `uses POSITION` a weight. Then, where sizes are open, `size LOW HIGH NAME` for each (`stepped LOW HIGH STEP
    NAME` where it has a step), `open PORT AXIS SIZE FACTOR MORE PER TIMES` for each extent that follows one (of inputs,
    then outputs; see `AxisSpec`, TIMES -1 for none; before it `further PORT AXIS SIZE FACTOR MORE PER SHIFT ADDS` for
    each part that goes on from the first), `cache INPUT` for one that is extended in place, and `most
    PRODUCT` where calls whose open sizes have a larger product go to a later program. Who does not know these lines
    passes over them, and runs the program at the largest sizes, or the first one at all. bfloat16 passes as uint16.
    """
    lines = [
        f"autofuse {TABLE_FORMAT if metadata.parts is None else TABLE_OF_PARTS}",
        f"architecture {metadata.architecture}",
        f"threads {metadata.threads}",
        *(f"feature {system_name(name)}" for name in metadata.cpu_features),
        f"weights {len(metadata.weights)}",
        *(f"weight {_type(spec)} {offset}" for spec, offset in zip(metadata.weights, offsets, strict=True)),
        f"programs {len(metadata.programs)}",
    ]
    for program in metadata.programs:
        counts = f"{len(program.inputs)} {len(program.outputs)} {len(program.weights)}"
        lines.append(f"program {program.entry} {counts}")
        lines += [f"input {_type(spec)} {_name(spec)}" for spec in program.inputs]
        lines += [f"output {_type(spec)} {_name(spec)}" for spec in program.outputs]
        lines += [f"uses {position}" for position in program.weights]
        lines += [] if program.opened is None or not open_sizes else _open_lines(program, program.opened)
    return "\n".join(lines) + "\n"


def _open_lines(program: Program, opened: OpenSpec) -> list[str]:
    names = [spec.name for spec in program.inputs]
    return [
        *map(_size_line, opened.sizes),
        *(line for port, axes in enumerate(opened.extents) for one in axes for line in _extent_lines(port, one)),
        *(f"cache {names.index(name)}" for name in opened.kept),
        *([] if program.most is None else [f"most {program.most}"]),
    ]


def _extent_lines(port: int, one: AxisSpec) -> list[str]:
    further = [
        f"further {port} {one.axis} {more.size} {more.factor} {more.more} {more.per} {more.shift} {int(more.adds)}"
        for more in one.further
    ]
    times = _number(one.times)
    return [
        *further,
        f"open {port} {one.axis} {one.size} {one.factor} {one.more} {one.per} {times} {one.shift}",
    ]


def _number(size: int | None) -> int:
    return -1 if size is None else size


def _size_line(size: SizeSpec) -> str:
    name = " ".join(size.name.split()) or "-"
    if size.step > 1:
        return f"stepped {size.low} {size.high} {size.step} {name}"
    return f"size {size.low} {size.high} {name}"


def _type(spec: TensorSpec) -> str:
    dtype = np.dtype(np.uint16 if spec.dtype == BFLOAT16 else spec.dtype)
    if dtype.kind not in DLPACK_CODES:
        raise InputError(f"{spec.name!r}: dtype {spec.dtype} has no DLPack code; allowed kinds: integers, floats, bool")
    sizes = " ".join(map(str, (len(spec.shape), *spec.shape)))
    return f"{DLPACK_CODES[dtype.kind]} {dtype.itemsize * 8} {sizes}"


def _name(spec: TensorSpec) -> str:
    return " ".join(spec.name.split()) or "-"
