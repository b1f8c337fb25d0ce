"""Building whole libraries in disposable children: side by side, and no build can end the coordinator."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from autofuse.device.target import Target
from autofuse.errors import DeviceError
from autofuse.fusion.plan import FusionPlan
from autofuse.measure.children.codec import target_to_json
from autofuse.measure.children.messages import Message
from autofuse.measure.children.process import TICK_S, Child, Reply, available_cores, default_memory, poll
from autofuse.measure.measurement import Failure, Left, no_end

MODULE = "autofuse.measure.networks.library_builder"
LOAD_S, BUILD_S = 300.0, 600.0
START_ATTEMPTS = 2
NO_TIME = "no time was left to build it"


@dataclass(frozen=True)
class Model:
    """What a child loads: an ONNX file, with the sizes of its dynamic inputs."""

    path: Path
    shapes: Mapping[str, tuple[int, ...]]


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
    tell: Callable[[str], None],
    workers: int | None = None,
    left: Left = no_end,
) -> dict[str, str]:
    """Build all `orders`, in their order, `workers` at a time (None: one a core); why some failed, by name.

    `tell` is called with a word on what is built, several times a second. What is not built when no time is `left`
    is given up; each order after the first is begun only if it will be done by then, as builds have gone so far.
    DeviceError when the disk is full: no plan is at fault.
    """
    size = max(1, min(workers or available_cores(), len(orders)))
    hello = {
        "do": "hello",
        "model": str(model.path),
        "shapes": {name: list(shape) for name, shape in model.shapes.items()},
        "target": target_to_json(target),
        "threads": threads,
    }
    builders = _Builders(hello, default_memory(size), deque(orders), left)
    try:
        for _ in range(size):
            builders.start()
        while builders.building():
            if left() <= 0:
                builders.give_up()
                break
            tell("building " + ", ".join(f"plan {name}" for name in builders.names()))
            for child, reply in poll(builders.children, TICK_S):
                builders.take(child, reply)
    finally:
        for child in builders.children:
            child.kill()
    return builders.problems


class _Builders:
    """The children, what each builds (None: it still loads the model), and what failed."""

    def __init__(self, hello: Message, memory_bytes: int, waiting: deque[Order], left: Left) -> None:
        self._hello, self._memory, self._waiting, self._left = hello, memory_bytes, waiting, left
        self._orders: dict[Child, Order | None] = {}
        self._since: dict[Child, float] = {}
        self._slower = 1.0
        self._begun = False
        self._built: set[str] = set()
        self._failed_starts = 0
        self._killed: set[str] = set()
        self.problems: dict[str, str] = {}

    @property
    def children(self) -> list[Child]:
        return list(self._orders)

    def names(self) -> list[str]:
        """Of the libraries under way; of those that wait while the children start."""
        return [order.name for order in (*self._orders.values(), *self._waiting) if order is not None][
            : len(self._orders)
        ]

    def building(self) -> bool:
        return any(child.busy for child in self._orders)

    def start(self) -> None:
        child = Child(MODULE, self._memory, {}, ())
        child.request(self._hello, LOAD_S)
        self._orders[child] = None

    def take(self, child: Child, reply: Reply) -> None:
        """What a child's answer means, and its next order."""
        order = self._orders[child]
        if isinstance(reply, Failure) and reply.kind == "device_lost":
            raise DeviceError(f"whole plans cannot be built: {reply.message}")
        if isinstance(reply, Failure) and order is None:
            self._start_failed(child, reply)
            return
        if isinstance(reply, Failure) and order is not None:
            if child.killed and order.name not in self._killed:  # from outside: no plan need be at fault
                self._killed.add(order.name)
                self._waiting.append(order)
            else:
                self.problems[order.name] = reply.message
        elif order is not None:
            self._note_built(child, order)
        self._drop_late()
        if not child.alive:
            del self._orders[child]
            if self._waiting:
                self.start()
        elif self._waiting:
            self._hand_out(child, self._waiting.popleft())

    def _note_built(self, child: Child, order: Order) -> None:
        self._built.add(order.name)
        if order.expected_s:
            self._slower = max(self._slower, (time.monotonic() - self._since[child]) / order.expected_s)

    def _hand_out(self, child: Child, order: Order) -> None:
        self._orders[child], self._since[child], self._begun = order, time.monotonic(), True
        child.request(_message(order), BUILD_S, "build_error")

    def _drop_late(self) -> None:
        """Orders that would not be done in time are not begun; the very first one is, whatever is expected of it."""
        left_s = self._left()
        for order in list(self._waiting)[0 if self._begun else 1 :]:
            if order.expected_s * self._slower > left_s:
                self._waiting.remove(order)
                self.problems[order.name] = NO_TIME

    def give_up(self) -> None:
        """No time is left: what is not built stays so."""
        for order in (*self._orders.values(), *self._waiting):
            if order is not None and order.name not in self._built:
                self.problems[order.name] = NO_TIME

    def _start_failed(self, child: Child, failure: Failure) -> None:
        """The others go on; when there are none, nothing can be built."""
        child.kill()
        del self._orders[child]
        self._failed_starts += 1
        if not self._orders and self._failed_starts <= START_ATTEMPTS:
            self.start()
        elif not self._orders:
            self.problems |= {
                order.name: f"no process that builds starts: {failure.message}" for order in self._waiting
            }
            self._waiting.clear()


def _message(order: Order) -> Message:
    return {
        "do": "build",
        "plan": order.plan.to_json(),
        "schedules": {key: dict(schedule) for key, schedule in order.schedules.items()},
        "output": str(order.output),
    }
