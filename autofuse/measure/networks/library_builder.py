"""The child that builds whole libraries: `python -m autofuse.measure.networks.library_builder`."""

from __future__ import annotations

from pathlib import Path

from autofuse.device.target import Target
from autofuse.errors import AutofuseError
from autofuse.fusion.plan import FusionPlan
from autofuse.graph.loading.load import load
from autofuse.graph.model import Graph
from autofuse.measure.children.child import Handlers, RefusedError, serve
from autofuse.measure.children.messages import Done
from autofuse.measure.networks.requests import BuildLibrary, LoadModel


class LibrarySession:
    """One model, loaded once, for one target."""

    def __init__(self) -> None:
        self._graph: Graph | None = None
        self._target: Target | None = None
        self._threads = 1
        self._objects: Path | None = None

    def handlers(self) -> Handlers:
        """What it does, by the kind of request."""
        return {LoadModel: self.load, BuildLibrary: self.build}

    def load(self, request: LoadModel) -> Done:
        """Load the model."""
        self._target, self._threads, self._objects = request.target, request.threads, request.objects
        self._graph = load(request.model, request.given)
        return Done()

    def build(self, request: BuildLibrary) -> Done:
        """A plan with a schedule for each workload -> the library at `output`."""
        from autofuse.backend.compile.objects import KernelObjects, user_objects
        from autofuse.backend.compile.realise import build_library
        from autofuse.kernels.lowering.lower import lower

        assert self._graph is not None and self._target is not None
        try:
            plan = FusionPlan.from_json(request.plan)
            lowered = lower(self._graph, plan, self._target, [group.operators for group in plan.groups])
            objects = None if self._objects is None else KernelObjects(self._objects, self._target)
            kept = user_objects(self._target)
            build_library(
                lowered, request.schedules, self._target, self._threads, request.output, plan_key=plan.key,
                objects=objects, kept=kept,
            )  # fmt: skip
            kept.bound()
        except AutofuseError as error:
            raise RefusedError("build_error", str(error)) from error
        return Done()


def main() -> None:
    """Serve one coordinator until it goes away."""
    serve(LibrarySession().handlers())


if __name__ == "__main__":
    main()
