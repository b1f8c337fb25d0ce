"""Building whole libraries in disposable children: side by side, and no build can end the coordinator."""

from __future__ import annotations

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
from autofuse.measure.measurement import Failure

MODULE = "autofuse.measure.networks.library_builder"
LOAD_S, BUILD_S = 300.0, 600.0
START_ATTEMPTS = 2


@dataclass(frozen=True)
class Model:
    """What a child loads: an ONNX file, with the sizes of its dynamic inputs."""

    path: Path
    shapes: Mapping[str, tuple[int, ...]]


@dataclass(frozen=True)
class Order:
    """A library to be built: a plan, and the schedule of each of its workloads by key."""

    name: str
    plan: FusionPlan
    schedules: Mapping[str, Mapping[str, int | str]]
    output: Path


def build_libraries(
    model: Model,
    target: Target,
    threads: int,
    orders: Sequence[Order],
    between: Callable[[str], None],
    workers: int | None = None,
) -> dict[str, str]:
    """Build all `orders`, in their order, `workers` at a time (None: one a core); why some failed, by name.

    `between` is called with a word on what is built, several times a second; it may raise to end the builds.
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
    yard = _Yard(hello, default_memory(size), deque(orders))
    try:
        for _ in range(size):
            yard.start()
        while yard.building():
            between("building " + ", ".join(f"plan {name}" for name in yard.names()))
            for child, reply in poll(yard.children, TICK_S):
                yard.take(child, reply)
    finally:
        for child in yard.children:
            child.kill()
    return yard.problems


class _Yard:
    """The children, what each builds (None: it still loads the model), and what failed."""

    def __init__(self, hello: Message, memory_bytes: int, waiting: deque[Order]) -> None:
        self._hello, self._memory, self._waiting = hello, memory_bytes, waiting
        self._orders: dict[Child, Order | None] = {}
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
        if not child.alive:
            del self._orders[child]
            if self._waiting:
                self.start()
        elif self._waiting:
            self._orders[child] = self._waiting.popleft()
            child.request(_message(self._orders[child]), BUILD_S, "build_error")

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


def _message(order: Order | None) -> Message:
    assert order is not None
    return {
        "do": "build",
        "plan": order.plan.to_json(),
        "schedules": {key: dict(schedule) for key, schedule in order.schedules.items()},
        "output": str(order.output),
    }
