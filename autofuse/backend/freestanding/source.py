"""The C source of one network: its header, its tables, its weights; the runtime beside them is the same for all."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from autofuse.backend.container.metadata import InputSpec, TensorSpec
from autofuse.backend.container.open_spec import AxisSpec, FurtherSpec, SizeSpec
from autofuse.backend.container.table import DLPACK_CODES
from autofuse.backend.freestanding.description import Description, Shapes, tensors
from autofuse.backend.freestanding.tables import Tables
from autofuse.values.names import numpy_dtype

SOURCES = Path(__file__).parent / "sources"
"""The runtime, and the templates of what is written for each network."""

FUNCTIONS = ("create", "destroy", "run", "input", "output", "threads", "error")
"""What a library exports, each with the network's name in front."""
OPEN_FUNCTIONS = ("open_size", "set_size", "size", "input_now", "output_now", "cache", "cache_memory")
"""What one with open sizes exports besides."""


def filled(template: str, values: dict[str, str]) -> str:
    """The text of a template, each @NAME@ replaced."""
    text = (SOURCES / template).read_text(encoding="utf-8")
    for name, value in values.items():
        text = text.replace(f"@{name}@", value)
    return text


def header(description: Description) -> str:
    """The header of a library: `net.h` for the name "net"."""
    lines = []
    for number, shapes in enumerate(description.shapes):
        set_of = f" (shapes {number})" if len(description.shapes) > 1 else ""
        lines.append(f"   Inputs{set_of}: {tensors(shapes, shapes.given) or 'none'}.")
        lines.append(f"   Outputs: {tensors(shapes, shapes.outputs)}.")
        lines += [f"   Open size: {size.name}, {size}." for size in _ranges(shapes)]
        lines += [f"   Caches that a session keeps: {tensors(shapes, shapes.kept)}."] if shapes.kept else []
    return filled(
        "network.h",
        {
            "TITLE": _commented(description.title),
            "VERSION": description.version,
            "TARGET": _commented(description.mcpu),
            "DESCRIPTION": _commented("\n".join(lines)),
            "NAME": description.name,
            "GUARD": f"AUTOFUSE_NETWORK_{description.name.upper()}_H",
            "SHAPES": str(len(description.shapes)),
            "OPEN": filled("open.h", {"NAME": description.name}) if is_open(description) else "",
        },
    )


def is_open(description: Description) -> bool:
    """Whether a library has open sizes."""
    return any(shapes.opened for shapes in description.shapes)


def example_sizes(description: Description) -> str:
    """What the example of a package says of open sizes: the smallest, so that it runs in any case."""
    name = description.name
    return "".join(
        f'  if ({name}_set_size(session, {_text(size.name)}, {size.low})) return failed("set_size"); /* {size} */\n'
        for size in _ranges(description.shapes[0])
    )


def _ranges(shapes: Shapes) -> Sequence[SizeSpec]:
    return shapes.opened.sizes if shapes.opened else ()


def names(description: Description) -> str:
    """The file that gives the runtime's functions their prefix."""
    return f'#include "{description.name}.h"\n#define AF(name) {description.name}_##name\n'


def texts(description: Description, programs: Sequence[Tables]) -> dict[str, str]:
    """The files that the runtime includes, and the tables of the network, by name."""
    return {
        f"{description.name}.h": header(description),
        "names.h": names(description),
        "network.c": network(description, programs),
    }


def exported(description: Description) -> list[str]:
    """The functions of a library."""
    names = (*FUNCTIONS, *OPEN_FUNCTIONS) if is_open(description) else FUNCTIONS
    return [f"{description.name}_{name}" for name in names]


def exports(description: Description) -> str:
    """The linker's script: what others see of a library."""
    functions = "".join(f"    {name};\n" for name in exported(description))
    return f"{{\n  global:\n{functions}  local:\n    *;\n}};\n"


def network(description: Description, programs: Sequence[Tables]) -> str:
    """The tables of a network."""
    kernels = {symbol: number for number, symbol in enumerate(dict.fromkeys(_symbols(programs)))}
    extents = _Extents()
    parts = ['#include "runtime.h"\n', _shapes_text(description), _kernels_text(kernels)]
    both = [*enumerate(zip(description.shapes, programs, strict=True))]
    parts += [_program_text(number, shapes, tables, kernels, extents) for number, (shapes, tables) in both]
    parts.append(_table("int64_t", "extents", [str(extent) for extent in extents.all]))
    entries = [_entry(number, shapes, tables) for number, (shapes, tables) in both]
    parts.append(_table("af_program", "programs", entries))
    features = [*map(_text, description.cpu_features), "NULL"]
    parts.append(_table("char *const", "features", features))
    tables_of_all = "programs, kernels, extents, features"
    parts.append(f"const af_network AF(network) = {{{len(programs)}, {description.threads}, {tables_of_all}}};\n")
    return "\n".join(parts)


def weights(description: Description, file: Path) -> str:
    """Assembly that takes the bytes of `file` into the library."""
    symbol = f"{description.name}_weights"
    return "\n".join(
        [
            '.section .rodata.weights,"a",%progbits',
            ".balign 4096",
            f".globl {symbol}",
            f".hidden {symbol}",
            f"{symbol}:",
            f'.incbin "{file.name}"',
            ".balign 64",
            '.section .note.GNU-stack,"",%progbits',
            "",
        ]
    )


class _Extents:
    """The extents of all shapes of rows, each shape once."""

    def __init__(self) -> None:
        self.all: list[int] = []
        self._first: dict[tuple[int, ...], int] = {}

    def first(self, shape: tuple[int, ...]) -> int:
        """Where a shape begins among them."""
        if shape not in self._first:
            self._first[shape] = len(self.all)
            self.all += shape
        return self._first[shape]


def _shapes_text(description: Description) -> str:
    """The shapes that callers are told."""
    found = {spec.shape for shapes in description.shapes for spec in (*shapes.inputs, *shapes.outputs)}
    lines = [f"static const int64_t {_shape(s)}[] = {{{', '.join(map(str, s)) or '1'}}};" for s in sorted(found)]
    return "\n".join(lines) + "\n"


def _symbols(programs: Sequence[Tables]) -> Iterator[str]:
    return (symbol for tables in programs for symbol, _ in tables.steps)


def _kernels_text(kernels: Iterable[str]) -> str:
    own = "".join(f"int __tvm_ffi_{symbol}(void *, af_value *, int32_t, af_value *);\n" for symbol in kernels)
    return own + "\n" + _table("af_kernel", "kernels", [f"__tvm_ffi_{symbol}" for symbol in kernels])


def _program_text(number: int, shapes: Shapes, tables: Tables, kernels: Mapping[str, int], extents: _Extents) -> str:
    values = [str(row) for _, arguments in tables.steps for row in arguments]
    steps, first = [], 0
    for symbol, arguments in tables.steps:
        steps.append(f"{{{kernels[symbol]}, {first}, {len(arguments)}}}")
        first += len(arguments)
    rows = [
        f"{{{row.place}, {len(row.shape)}, {_code(row.dtype)}, {extents.first(row.shape)}, {row.offset}}}"
        for row in tables.rows
    ]
    copies = [f"{{{output}, {place}, {offset}}}" for output, place, offset in tables.copies]
    return "\n".join(
        _table(kind, f"{name}{number}", lines)
        for kind, name, lines in (
            ("AF(tensor)", "inputs", [_tensor(spec) for spec in shapes.given]),
            ("AF(tensor)", "outputs", [_tensor(spec) for spec in shapes.outputs]),
            ("af_index", "indexes", [_index(spec) for spec in shapes.given]),
            ("af_row", "rows", rows),
            ("uint32_t", "values", values),
            ("af_step", "steps", steps),
            ("af_copy", "copies", copies),
            ("af_plan", "plans", _plan_lines(tables)),
            ("af_range", "ranges", _range_lines(shapes)),
            ("af_extent", "extents", _extent_lines(shapes, tables)),
            ("AF(tensor)", "caches", [_tensor(spec) for spec in shapes.kept]),
            ("uint64_t", "kept", [str(offset) for offset in tables.kept]),
        )
    )


def _plan_lines(tables: Tables) -> list[str]:
    """Which calls belong to each plan, and the largest product of the open sizes for which it runs."""
    lines, step, copy = [], 0, 0
    for plan in tables.plans:
        most = "INT64_MAX" if plan.most is None else str(plan.most)
        lines.append(f"{{{most}, {step}, {len(plan.steps)}, {copy}, {len(plan.copies)}}}")
        step, copy = step + len(plan.steps), copy + len(plan.copies)
    return lines


def _range_lines(shapes: Shapes) -> list[str]:
    """The open sizes, and what a call adds to each: the new rows of caches that grow along it."""
    opened, added = shapes.opened, dict[int, int]()
    if opened is None:
        return []
    for spec, extents in zip(shapes.inputs, opened.extents, strict=False):
        added |= {one.size: one.more for one in extents if spec.name in opened.kept}
    ranges = enumerate(opened.sizes)
    return [
        f"{{{_text(one.name)}, {one.low}, {one.high}, {one.step}, {added.get(number, 0)}}}" for number, one in ranges
    ]


def _extent_lines(shapes: Shapes, tables: Tables) -> list[str]:
    """The extents that follow an open size: of rows, inputs, outputs, caches."""
    if shapes.opened is None:
        return []
    both = (*shapes.inputs, *shapes.outputs)
    known = dict(zip(both, shapes.opened.extents, strict=True))
    found = [
        *(row.open for row in tables.rows),
        *(known[spec] for spec in (*shapes.given, *shapes.outputs, *shapes.kept)),
    ]
    return [line for tensor, axes in enumerate(found) for one in axes for line in _parts_of_extent(tensor, one)]


def _parts_of_extent(tensor: int, one: AxisSpec) -> list[str]:
    """An extent, and before it what goes on from its first part."""
    parts: list[tuple[str, AxisSpec | FurtherSpec]] = [
        ("AF_ADDS" if more.adds else "AF_MULTIPLIES", more) for more in one.further
    ]
    parts.append(("AF_ALONE" if one.times is None else str(one.times), one))
    return [
        f"{{{tensor}, {one.axis}, {part.size}, {times}, {part.factor}, {part.more}, {part.per}, {part.shift}}}"
        for times, part in parts
    ]


def _entry(number: int, shapes: Shapes, tables: Tables) -> str:
    counts = (
        len(shapes.given), len(shapes.outputs), len(tables.rows), tables.bound,
        sum(len(arguments) for _, arguments in tables.steps),
    )  # fmt: skip
    names = (
        f"{name}{number}" for name in ("inputs", "outputs", "indexes", "rows", "values", "steps", "copies", "plans")
    )
    open_ones = (len(_ranges(shapes)), len(_extent_lines(shapes, tables)), len(shapes.kept))
    more = (f"{name}{number}" for name in ("ranges", "extents", "caches", "kept"))
    first = [*map(str, counts), *names, str(tables.arena_bytes)]
    return f"{{{', '.join([*first, *map(str, open_ones), *more, str(tables.kept_bytes)])}}}"


def _table(kind: str, name: str, lines: Sequence[str]) -> str:
    """A constant array; one without elements has an empty one, which C wants."""
    body = ",\n".join(f"  {line}" for line in lines) or "  {0}"
    return f"static const {kind} {name}[] = {{\n{body},\n}};\n"


def _tensor(spec: TensorSpec) -> str:
    size_bytes = math.prod(spec.shape) * numpy_dtype(spec.dtype).itemsize
    return f"{{{_text(spec.name)}, {_text(spec.dtype)}, {len(spec.shape)}, {_shape(spec.shape)}, {size_bytes}}}"


def _index(spec: InputSpec) -> str:
    """The table that an input indexes, where it does."""
    return "{0, 1}" if spec.table is None else f"{{{spec.table}, {numpy_dtype(spec.dtype).itemsize}}}"


def _shape(shape: Sequence[int]) -> str:
    return "_".join(["shape", *map(str, shape)])


def _code(dtype: str) -> str:
    known = np.dtype(dtype)
    return f"{DLPACK_CODES[known.kind]}, {known.itemsize * 8}"


def _text(text: str) -> str:
    """A string of C, byte by byte where it is not plain."""
    body = "".join(
        chr(byte) if 32 <= byte < 127 and byte not in b'"\\?' else f"\\{byte:03o}"
        for byte in text.encode("utf-8", "replace")
    )
    return f'"{body}"'


def _commented(text: str) -> str:
    """Text that cannot end the comment that it stands in."""
    return text.replace("*/", "* /").replace("/*", "/ *").replace("\\", "/")
