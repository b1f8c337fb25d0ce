"""What a free-standing library says about itself: behind its code, where no loader looks, for `autofuse package`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ConfigDict, TypeAdapter, ValidationError

from autofuse.backend.container.container import FREESTANDING_MAGIC, FREESTANDING_TRAILER, freestanding_bytes
from autofuse.backend.container.metadata import InputSpec, Metadata, OpenSpec, TensorSpec
from autofuse.errors import InputError
from autofuse.values.outputs import Kind, refuse_pipe

FORMAT, FORMAT_OF_SIZES = 1, 3
"""Of a library of fixed sizes, with open sizes."""
_MOST_BYTES = 64 << 20
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
HEADER_MARK = b"compiled by autofuse"
"""Stands in the first line of each header."""


@dataclass(frozen=True)
class Shapes:
    """The model at one set of input shapes, or with an open size (`opened`): then at the largest one."""

    inputs: tuple[InputSpec, ...]
    outputs: tuple[TensorSpec, ...]
    opened: OpenSpec | None = None

    @property
    def kept(self) -> tuple[InputSpec, ...]:
        """Inputs that a session keeps between calls, in place of the caller."""
        names = self.opened.kept if self.opened else ()
        return tuple(spec for name in names for spec in self.inputs if spec.name == name)

    @property
    def given(self) -> tuple[InputSpec, ...]:
        """Inputs that a call gets."""
        return tuple(spec for spec in self.inputs if spec not in self.kept)


@dataclass(frozen=True)
class Description:
    """`name`: what the functions of the library begin with. `title`: of the model. `shapes`: at least one."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    name: str
    title: str
    version: str
    architecture: str
    mcpu: str
    cpu_features: tuple[str, ...]
    threads: int
    shapes: tuple[Shapes, ...]
    format: int = FORMAT


def describe(name: str, title: str, metadata: Metadata) -> Description:
    """The description of the library that `metadata` describes."""
    return Description(
        name=name,
        title=title,
        version=metadata.versions["autofuse"],
        architecture=metadata.architecture,
        mcpu=str(metadata.target["mcpu"]),
        cpu_features=metadata.cpu_features,
        threads=metadata.threads,
        shapes=tuple(Shapes(program.inputs, program.outputs, program.opened) for program in metadata.forms),
        format=FORMAT_OF_SIZES if any(program.opened for program in metadata.programs) else FORMAT,
    )


def network_name(output: Path) -> str:
    """What the functions of the library `output` begin with: "libresnet-50.so" makes resnet_50_run."""
    name = re.sub(r"[^A-Za-z0-9_]", "_", output.name.split(".")[0].removeprefix("lib")).strip("_")
    if not name:
        raise InputError(f"--output: {str(output)!r} names no function in C; name it such as libnet.so")
    return name if name[0].isalpha() else f"net_{name}"


def append(library: Path, description: Description) -> None:
    """Write the description behind the code of `library`, whose length is even then: so archives keep a member."""
    fixed: Any = {} if description.format == FORMAT_OF_SIZES else {"shapes": {"__all__": {"opened"}}}
    body = TypeAdapter(Description).dump_json(description, exclude=fixed)
    with library.open("ab") as file:
        body += b" " * ((file.tell() + len(body) + FREESTANDING_TRAILER.size) % 2)
        file.write(body + FREESTANDING_TRAILER.pack(FREESTANDING_MAGIC, len(body)))


def read(library: Path) -> Description:
    """The description of a free-standing library; InputError when it is none."""
    try:
        refuse_pipe(library)
        with library.open("rb") as file:
            length = freestanding_bytes(file)
            end = file.tell() - FREESTANDING_TRAILER.size
            if length is not None and length <= min(_MOST_BYTES, end):
                file.seek(end - length)
                return _checked(TypeAdapter(Description).validate_json(file.read(length)))
    except ValidationError as error:
        raise InputError(f"{library}: its description is damaged: make it again with `autofuse compile`") from error
    except OSError as error:
        raise InputError(f"{library}: cannot read the library: {error.strerror or error}") from error
    raise InputError(f"{library}: not a free-standing library, which `autofuse compile --format c` writes")


def _checked(found: Description) -> Description:
    if found.format not in (FORMAT, FORMAT_OF_SIZES) or not found.shapes or not _NAME.fullmatch(found.name):
        raise InputError(f"another autofuse wrote this library (format {found.format}): make it again")
    return found


def is_freestanding(path: Path) -> bool:
    """Whether a file ends as free-standing libraries do."""
    with path.open("rb") as file:
        return freestanding_bytes(file) is not None


FREESTANDING = Kind("a free-standing library of autofuse", is_freestanding)
HEADER = Kind("a header of autofuse", lambda path: HEADER_MARK in path.read_bytes()[:4096])


def tensors(shapes: Shapes, specs: Sequence[TensorSpec]) -> str:
    """Inputs or outputs for people: "x float32 1x3x224x224, y int64 1"; with open sizes "x float32 batch x 24"."""
    both = (*shapes.inputs, *shapes.outputs)
    opened = dict(zip(both, shapes.opened.texts(both), strict=True)) if shapes.opened else {}
    return ", ".join(f"{' '.join(one.name.split())} {one.dtype} {_sizes(opened.get(one, one.shape))}" for one in specs)


def _sizes(shape: Sequence[int | str]) -> str:
    between = " x " if any(isinstance(size, str) for size in shape) else "x"
    return between.join(map(str, shape)) or "1"
