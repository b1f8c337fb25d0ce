"""Models of ONNX Runtime's in which segments of ours are nodes, in bodies of If, Loop and Scan, too."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any

from autofuse.backend.compile.assemble import Assembly
from autofuse.backend.container.metadata import Metadata, Program
from autofuse.backend.epcontext.payload import Payload, write_payload
from autofuse.device.target import Target
from autofuse.errors import DeviceError
from autofuse.graph.model import Tensor
from autofuse.graph.parts.bodies import put_back
from autofuse.graph.parts.contexts import ContextNode, with_contexts
from autofuse.graph.parts.source import serialised
from autofuse.graph.submodel import OnnxModel
from autofuse.link.architecture import architecture_of
from autofuse.link.c_compiler import c_compiler
from autofuse.ort.provider import build
from autofuse.segments.choice import Choice, Piece
from autofuse.values.arguments import file_title
from autofuse.values.scratch import scratch_folder

SOURCE = "autofuse"
"""What the attribute `source` of our nodes says."""
_CODE = "ep_cache_context"
"""The attribute that has the code, or names its file."""
Attributes = Mapping[str, int | str | bytes]


def context_attributes(payload: Payload, metadata: Metadata, beside: str = "") -> Attributes:
    """The attributes that lead to the code of nodes; `beside`: its file beside the model ("": in the node itself)."""
    return {
        "source": SOURCE,
        "embed_mode": int(not beside),
        _CODE: beside or payload.path.read_bytes(),
        "ep_sdk_version": metadata.versions["autofuse"],
        "hardware_architecture": metadata.architecture,
        "notes": f"sha256 {payload.sha256}",
    }


def context_node(number: int, program: Program, context: Attributes, has_code: bool) -> ContextNode:
    """The node of a segment; one node of a model `has_code` of all."""
    held = {name: value for name, value in context.items() if name != _CODE or has_code}
    outputs = tuple(Tensor(spec.name, spec.shape, spec.dtype) for spec in program.outputs)
    name = f"{SOURCE}_segment{number}"
    attributes = {**held, "main_context": int(has_code), "partition_name": f"segment{number}"}
    return ContextNode(name, tuple(spec.name for spec in program.inputs), outputs, attributes)


def composed(choice: Choice, nodes: Iterator[ContextNode], notes: Mapping[str, str]) -> OnnxModel:
    """The model of a choice: its parts in their order, and bodies of theirs; `nodes`: those of all its segments."""
    order = [
        tuple(node.place for node in piece.nodes) if piece.graph is None else next(nodes) for piece in choice.pieces
    ]
    model = with_contexts(choice.source, order, notes)
    put_back(model, [(inside.body, composed(inside.choice, nodes, {})) for inside in choice.bodies])
    return model


def buildable(choice: Choice, target: Target) -> Choice:
    """The choice, without segments in bodies where no C compiler makes them."""
    if choice.bodies:
        try:
            c_compiler(architecture_of(target))
        except DeviceError as error:
            return choice.without_bodies(str(error))
    return choice


@dataclass
class BodyModels:
    """What writes the parts of the rest of a `choice` that have segments in bodies, instead of a library.

    `models`: those parts, by their position in the rest. `provider`: the library of the provider that runs them.
    """

    choice: Choice
    models: dict[int, bytes] = field(default_factory=dict)
    provider: bytes = b""

    def __call__(self, modules: Mapping[str, Any], assembly: Assembly, metadata: Metadata, _output: Path) -> None:
        """See the class; `modules` and errors: see `write_payload`."""
        with scratch_folder() as folder:
            title = file_title(Path(self.choice.source.name))
            payload = write_payload(modules, assembly, metadata, folder / "payload", title=title)
            context = context_attributes(payload, metadata)
            build.write_provider(folder / build.FILE, metadata.architecture)
            self.provider = (folder / build.FILE).read_bytes()
        nodes = iter([context_node(number, one, context, False) for number, one in enumerate(metadata.programs)])
        for number, piece in enumerate(self.choice.rest):
            if any(inside.body.node in piece.nodes for inside in self.choice.bodies):
                self.models[number] = self._model(piece, nodes, context)

    def _model(self, piece: Piece, nodes: Iterator[ContextNode], context: Attributes) -> bytes:
        """A part with its segments; their first has the code, for each part is a model of its own."""
        first = next(nodes)
        attributes = {**first.attributes, _CODE: context[_CODE], "main_context": 1}
        left = chain((replace(first, attributes=attributes),), nodes)
        model = OnnxModel()
        model.CopyFrom(piece.model)
        inside = [one for one in self.choice.bodies if one.body.node in piece.nodes]
        put_back(model, [(one.body, composed(one.choice, left, {})) for one in inside])
        return serialised(model)
