"""Building whole libraries in disposable children: side by side, and no build can end the coordinator."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from autofuse.device.target import Target
from autofuse.errors import DeviceError
from autofuse.fusion.plan import FusionPlan
from autofuse.graph.model import Graph
from autofuse.graph.own.bfloat16 import in_float32
from autofuse.graph.submodel import to_model
from autofuse.measure.children.pool import Answer, Call, Pool, Program
from autofuse.measure.children.process import available_cores
from autofuse.measure.measurement import Failure, Left, no_end
from autofuse.measure.networks.requests import BuildLibrary, LoadModel
from autofuse.values.arguments import Given

MODULE = "autofuse.measure.networks.library_builder"
LOAD_S, BUILD_S = 300.0, 600.0
NO_TIME = "no time was left to build it"


@dataclass(frozen=True)
class Model:
    """A model for children to load: an ONNX file, with what is given of its inputs."""

    path: Path
    given: Given

    def plain_file(self, graph: Graph, path: Path) -> Path:
        """What other engines run: the model's own file; where something is given of its inputs, `graph`, at `path`.

        A model that computes in bfloat16 is one of float32 for them, without a rounding: they have no kernels for it.
        """
        if not self.given and not graph.widened:
            return self.path
        if not path.exists():
            path.write_bytes(to_model(in_float32(graph) if graph.widened else graph).SerializeToString())
        return path


@dataclass(frozen=True)
class Order:
    """A library to be built: a plan, and the schedule of each of its workloads by key.

    `expected_s`: seconds that building it is expected to take; it is not begun when fewer are left.
    """

    name: str
    plan: FusionPlan
    schedules: Mapping[str, Mapping[str, int | str]]
    output: Path
    expected_s: float = 0.0


def build_libraries(
    model: Model,
    target: Target,
    threads: int,
    orders: Sequence[Order],
    tell: Callable[[str, int, int], None],
    workers: int | None = None,
    left: Left = no_end,
    objects: Path | None = None,
) -> dict[str, str]:
    """Build all `orders`, in their order, `workers` at a time (None: one a core); why some failed, by name.

    `objects`: folder of kernels that are compiled already; each further one is compiled once for all orders.

    `tell` is called several times a second: with a word on what is built, how many are done, and of how many. What is
    not built when no time is `left` is given up; each order after the first is begun only if it will be done by then,
    as builds have gone so far.
    DeviceError when the disk is full: no plan is at fault.
    """
    size = max(1, min(workers or available_cores(), len(orders)))
    hello = Call(LoadModel(model.path, dict(model.given), target, threads, objects), LOAD_S)
    builders = _Builders(Pool(Program(MODULE, hello, share=size).start, _build, size, "process that builds"), left)
    try:
        builders.pool.submit(orders)
        while not builders.pool.done:
            if left() <= 0:
                builders.give_up()
                break
            builders.drop_late()
            answers = builders.pool.step()
            building = "building " + ", ".join(f"plan {name}" for name in builders.names())
            tell(building, builders.done(), len(orders))
            for answer in answers:
                builders.take(answer)
    finally:
        builders.pool.close()
    return builders.problems


class _Builders:
    """The children, since when each builds, and what failed."""

    def __init__(self, pool: Pool[Order], left: Left) -> None:
        self.pool, self._left = pool, left
        self._since: dict[str, float] = {}
        self._slower = 1.0
        self._built = 0
        self.problems: dict[str, str] = {}

    def done(self) -> int:
        """How many are built, or never will be."""
        return self._built + len(self.problems)

    def names(self) -> list[str]:
        """Of the libraries under way; of those that wait while the children start."""
        waiting = [job.work for job in self.pool.waiting]
        return [order.name for order in (*self.pool.under_way(), *waiting)][: len(self.pool.members)]

    def take(self, answer: Answer[Order]) -> None:
        """What an answer means; DeviceError when no plan can be at fault."""
        order, reply = answer.work, answer.reply
        if isinstance(reply, Failure):
            if reply.kind == "device_lost" and answer.member is not None:
                raise DeviceError(f"whole plans cannot be built: {reply.message}")
            self.problems[order.name] = reply.message
        elif answer.member is not None:
            self._note_built(order)
            self.pool.finish(answer.member)

    def _note_built(self, order: Order) -> None:
        self._built += 1
        now = time.monotonic()
        took_s = now - self._since.setdefault(order.name, now)  # begun and done in one step: nobody saw it under way
        if order.expected_s:
            self._slower = max(self._slower, took_s / order.expected_s)

    def drop_late(self) -> None:
        """Orders that would not be done in time are not begun; the very first one is, whatever is expected of it."""
        for order in self.pool.under_way():
            self._since.setdefault(order.name, time.monotonic())
        left_s = self._left()
        for job in list(self.pool.waiting)[0 if self._since else 1 :]:
            if job.work.expected_s * self._slower > left_s:
                self.pool.waiting.remove(job)
                self.problems[job.work.name] = NO_TIME

    def give_up(self) -> None:
        """No time is left: what is not built stays so."""
        for order in (*self.pool.under_way(), *(job.work for job in self.pool.waiting)):
            self.problems[order.name] = NO_TIME


def _build(order: Order) -> Call:
    schedules = {key: dict(schedule) for key, schedule in order.schedules.items()}
    return Call(BuildLibrary(order.plan.to_json(), schedules, order.output), BUILD_S, "build_error")
