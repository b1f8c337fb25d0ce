"""Which operators of a model our kernels can run."""

from __future__ import annotations

from dataclasses import dataclass, field

from autofuse.errors import AutofuseError
from autofuse.graph.loading.load import from_model
from autofuse.graph.loading.simplify.microsoft.rules import is_replaced
from autofuse.graph.model import Graph
from autofuse.graph.parts.source import Node, Source
from autofuse.graph.submodel import OnnxModel
from autofuse.kernels.lowering.coverage import without_kernel

RANDOM = frozenset(
    ("Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike")
)
BODIES = "it has bodies of its own"
"""Why an If, a Loop or a Scan is in the rest; more is said of its bodies when they are known."""


ORIGINS = {
    "com.microsoft.nchwc": ", which ONNX Runtime's optimiser wrote for the CPU that it ran on; "
    "compile the model that it was made of",
}
"""What to know of a domain whose operators stay in ONNX Runtime."""


def unfit(source: Source, node: Node) -> str:
    """Why an operator cannot be in any segment, by its types alone; "" when it may be."""
    if why := unfit_at_any_size(source, node):
        return why
    for name in (*node.reads, *node.writes):
        if source.tensor_of(name) is None:
            return "a shape that depends on data"
        if 0 in (source.type_of(name).shape or ()):
            return "a tensor without elements"
    return ""


def unfit_at_any_size(source: Source, node: Node) -> str:
    """The same, whatever its sizes are."""
    if node.has_body:
        return BODIES
    if node.domain and not is_replaced(node.op_type, node.domain):
        return f"an operator of {node.domain}{ORIGINS.get(node.domain, '')}"
    if node.op_type in RANDOM:
        return "its results are random"
    for name in (*node.reads, *node.writes):
        if not source.dtype_of(name):
            return f"it takes or makes {source.type_of(name).text}, for which there are no kernels"
    return ""


@dataclass
class Coverage:
    """What is known so far: graphs of segments that are covered, and why operators are not, by their signature.

    `bare`: kernels must run without TVM's own runtime.
    """

    source: Source
    bare: bool = False
    _alone: dict[bytes, str] = field(default_factory=dict)

    def graph(self, model: OnnxModel) -> Graph | str:
        """The graph of a segment, or why it has none, or no kernels."""
        try:
            graph = from_model(model, model.graph.name)
        except AutofuseError as error:
            return str(error).removeprefix(f"{model.graph.name}: ")
        missing = without_kernel(graph, self.bare)
        if missing:
            name, reason = next(iter(missing.items()))
            kind = graph.by_name[name].op_type
            return f"{kind}: {reason.removeprefix(f'{kind}: ')}"
        return graph

    def alone(self, node: Node) -> str:
        """Why there is no kernel of one operator; "" when there is one."""
        key = self.source.signature(node)
        if key not in self._alone:
            found = self.graph(self.source.part([node.place], node.writes, "segment"))
            self._alone[key] = found if isinstance(found, str) else ""
        return self._alone[key]
