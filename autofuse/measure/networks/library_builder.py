"""The child that builds whole libraries: `python -m autofuse.measure.networks.library_builder`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from autofuse.device.target import Target
from autofuse.errors import AutofuseError
from autofuse.fusion.plan import FusionPlan
from autofuse.graph.loading.load import load
from autofuse.graph.model import Graph
from autofuse.measure.children.child import Handler, RefusedError, serve
from autofuse.measure.children.codec import target_from_json
from autofuse.measure.children.messages import Message


class LibrarySession:
    """One model, loaded once, for one target."""

    def __init__(self) -> None:
        self._graph: Graph | None = None
        self._target: Target | None = None
        self._threads = 1

    def handlers(self) -> Mapping[str, Handler]:
        """Requests by name."""
        return {"hello": self.hello, "build": self.build}

    def hello(self, request: Message) -> Message:
        """Load the model."""
        shapes: Any = request["shapes"]
        self._target, self._threads = target_from_json(request["target"]), int(str(request["threads"]))
        self._graph = load(Path(str(request["model"])), {name: tuple(shape) for name, shape in shapes.items()})
        return {}

    def build(self, request: Message) -> Message:
        """A plan with a schedule for each workload -> the library at `output`."""
        from autofuse.backend.compile.realise import build_library
        from autofuse.kernels.lowering.lower import lower

        assert self._graph is not None and self._target is not None
        schedules: Any = request["schedules"]
        try:
            plan = FusionPlan.from_json(str(request["plan"]))
            lowered = lower(self._graph, plan, self._target, [group.operators for group in plan.groups])
            output = Path(str(request["output"]))
            build_library(lowered, schedules, self._target, self._threads, output, plan_key=plan.key)
        except AutofuseError as error:
            raise RefusedError("build_error", str(error)) from error
        return {}


def main() -> None:
    """Serve one coordinator until it goes away."""
    serve(LibrarySession().handlers())


if __name__ == "__main__":
    main()
