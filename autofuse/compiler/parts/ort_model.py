"""A compiled model as ONNX Runtime runs it: the model itself, in which nodes EPContext stand for our segments."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autofuse import __version__
from autofuse.backend.compile.assemble import Assembly
from autofuse.backend.container.container import ORT_MODEL
from autofuse.backend.container.metadata import Metadata, Program
from autofuse.backend.epcontext.payload import MAGIC, Payload, write_payload
from autofuse.compiler.parts.bodies import Attributes, composed, context_attributes, context_node
from autofuse.errors import InputError
from autofuse.graph.parts.contexts import ContextNode, with_contexts, with_shapes
from autofuse.graph.parts.source import Source, read_source, serialised
from autofuse.graph.submodel import OnnxModel
from autofuse.ort.provider import build
from autofuse.segments.choice import Choice
from autofuse.values.arguments import Given, file_title
from autofuse.values.outputs import Inputs, Kind, all_or_none, check_output, has_mark, has_metadata, output_file
from autofuse.values.scratch import scratch_folder

SUFFIX, PAYLOAD_SUFFIX = ".onnx", ".segments"
MOST_EMBEDDED_BYTES = 1 << 30
"""A payload that is larger lies beside the model: an ONNX file ends at 2 GB."""
_NOTES = {ORT_MODEL: __version__}
MODEL = Kind("a model that autofuse compiled", lambda path: has_metadata(path, ORT_MODEL))
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
        with all_or_none([], [provider_path(output), _payload_path(output), output]):
            build.write_provider(provider_path(output), metadata.architecture)
            with scratch_folder() as folder:
                payload = write_payload(modules, assembly, metadata, folder / "payload", title=file_title(self.model))
                context = _context(payload, output, metadata)
            programs = enumerate(metadata.forms)
            nodes = [context_node(number, program, context, number == 0) for number, program in programs]
            _write(self._composed(nodes, metadata.programs), output)
        self.sha256 = payload.sha256

    def _composed(self, nodes: Sequence[ContextNode], programs: Sequence[Program]) -> OnnxModel:
        if self.choice is not None:
            return composed(self.choice, iter(nodes), _NOTES)
        opened = programs[0].opened
        if opened is None:
            return with_contexts(_whole(self.model, self.given), nodes, _NOTES)
        specs = (*programs[0].inputs, *programs[0].outputs)
        shapes = zip(specs, opened.texts(specs), strict=True)
        made = with_contexts(_whole(self.model, self.given, open_sizes=True), nodes, _NOTES)
        return with_shapes(made, {spec.name: (spec.dtype, shape) for spec, shape in shapes})


def write_whole(choice: Choice, output: Path) -> None:
    """Write a model all of which ONNX Runtime runs."""
    _write(with_contexts(choice.source, [tuple(node.place for node in choice.source.nodes)], _NOTES), output)


def _whole(model: Path, given: Given, *, open_sizes: bool = False) -> Source:
    """The source of a model of which no node is left: no types are needed."""
    return read_source(model, given, lambda _content: {}, open_sizes=open_sizes)


def _payload_path(output: Path) -> Path:
    return output.with_suffix(PAYLOAD_SUFFIX)


def _context(payload: Payload, output: Path, metadata: Metadata) -> Attributes:
    """The attributes that lead to the code: it stands in the first node, or in a file beside the model."""
    if payload.size_bytes <= MOST_EMBEDDED_BYTES:
        return context_attributes(payload, metadata)
    with output_file(_payload_path(output), PAYLOAD) as part:
        shutil.copyfile(payload.path, part)
    return context_attributes(payload, metadata, beside=_payload_path(output).name)


def _write(model: OnnxModel, output: Path) -> None:
    content = serialised(model)
    with output_file(output, MODEL, parents=True) as part:
        part.write_bytes(content)
