"""A compiled model as ONNX Runtime runs it: the model itself, in which nodes EPContext stand for our segments."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autofuse import __version__
from autofuse.backend.compile.assemble import Assembly
from autofuse.backend.container.metadata import Metadata, Program
from autofuse.backend.epcontext.payload import MAGIC, Payload, write_payload
from autofuse.errors import InputError
from autofuse.graph.model import Tensor
from autofuse.graph.parts.contexts import ContextNode, with_contexts
from autofuse.graph.parts.source import Source, read_source, serialised
from autofuse.ort.provider import build
from autofuse.segments.choice import Choice
from autofuse.values.arguments import Given, file_title
from autofuse.values.outputs import Inputs, Kind, check_output, has_mark, output_file
from autofuse.values.scratch import scratch_folder

SUFFIX, PAYLOAD_SUFFIX = ".onnx", ".segments"
SOURCE = "autofuse"
"""What the attribute `source` of our nodes says."""
MOST_EMBEDDED_BYTES = 1 << 30
"""A payload that is larger lies beside the model: an ONNX file ends at 2 GB."""
_VERSION = "autofuse.version"
"""A key of the model's metadata."""
MODEL = Kind("a model that autofuse compiled", lambda path: has_mark(path, _VERSION.encode()))
PAYLOAD = Kind("the code of a model that autofuse compiled", lambda path: has_mark(path, MAGIC, len(MAGIC)))


def check_model(output: Path, inputs: Inputs, architecture: str) -> None:
    """Refuse what could not be written in the end: the model, the files beside it, or for want of a C compiler."""
    if output.suffix != SUFFIX:
        raise InputError(f"--output: {str(output)!r}: --format ort writes a model: name it such as tuned{SUFFIX}")
    check_output(output, MODEL, inputs)
    check_output(_payload_path(output), PAYLOAD, {**inputs, "the model that is written": output})
    build.check_provider(provider_path(output), inputs, architecture)


def provider_path(output: Path) -> Path:
    """The provider's library that is written beside a model."""
    return output.with_name(build.FILE)


@dataclass
class OrtModel:
    """What writes the model; `model`: the one that was compiled, with what is `given` of its inputs.

    `choice`: its parts, None where our kernels run all of it. `sha256`: of the code, once it is written.
    """

    model: Path
    given: Given
    choice: Choice | None
    sha256: str = ""

    def __call__(self, modules: Mapping[str, Any], assembly: Assembly, metadata: Metadata, output: Path) -> None:
        """Write the model `output` with the provider beside it; `modules` and errors: see `write_payload`."""
        source = _whole(self.model, self.given) if self.choice is None else self.choice.source
        build.write_provider(provider_path(output), metadata.architecture)
        with scratch_folder() as folder:
            payload = write_payload(modules, assembly, metadata, folder / "payload", title=file_title(self.model))
            context = _context(payload, output, metadata)
        nodes = [_node(number, program, context) for number, program in enumerate(metadata.programs)]
        _write(source, _order(self.choice, nodes), output)
        self.sha256 = payload.sha256


def write_whole(choice: Choice, output: Path) -> None:
    """Write a model all of which ONNX Runtime runs."""
    _write(choice.source, [tuple(node.place for node in choice.source.nodes)], output)


def _whole(model: Path, given: Given) -> Source:
    """The source of a model of which no node is left: no types are needed."""
    return read_source(model, given, lambda _content: {})


def _payload_path(output: Path) -> Path:
    return output.with_suffix(PAYLOAD_SUFFIX)


def _context(payload: Payload, output: Path, metadata: Metadata) -> dict[str, int | str | bytes]:
    """The attributes that lead to the code: it stands in the first node, or in a file beside the model."""
    embedded = payload.size_bytes <= MOST_EMBEDDED_BYTES
    if not embedded:
        with output_file(_payload_path(output), PAYLOAD) as part:
            shutil.copyfile(payload.path, part)
    return {
        "source": SOURCE,
        "embed_mode": int(embedded),
        "ep_cache_context": payload.path.read_bytes() if embedded else _payload_path(output).name,
        "ep_sdk_version": metadata.versions["autofuse"],
        "hardware_architecture": metadata.architecture,
        "notes": f"sha256 {payload.sha256}",
    }


def _node(number: int, program: Program, context: Mapping[str, int | str | bytes]) -> ContextNode:
    """The node of a segment; the first has the code of all."""
    held = {name: value for name, value in context.items() if name != "ep_cache_context" or number == 0}
    outputs = tuple(Tensor(spec.name, spec.shape, spec.dtype) for spec in program.outputs)
    name = f"{SOURCE}_segment{number}"
    attributes = {**held, "main_context": int(number == 0), "partition_name": f"segment{number}"}
    return ContextNode(name, tuple(spec.name for spec in program.inputs), outputs, attributes)


def _order(choice: Choice | None, nodes: Sequence[ContextNode]) -> list[ContextNode | tuple[int, ...]]:
    """The parts of the model in their order."""
    if choice is None:
        return list(nodes)
    compiled = iter(nodes)
    return [
        tuple(node.place for node in piece.nodes) if piece.graph is None else next(compiled) for piece in choice.pieces
    ]


def _write(source: Source, order: Sequence[ContextNode | Sequence[int]], output: Path) -> None:
    content = serialised(with_contexts(source, order, {_VERSION: __version__}))
    with output_file(output, MODEL, parents=True) as part:
        part.write_bytes(content)
