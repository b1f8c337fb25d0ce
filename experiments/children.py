"""Child processes that work on one item after another, so that a crash or a hang costs an item and not the run."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from typing import Any, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

START_SECONDS = 60.0
"""What the first item of a child may take besides: it imports TVM."""
TIME_OUT = "time-out"
"""How the text of a child that was killed begins; that of one that died begins with "crash"."""
ITEMS_A_CHILD = 200
"""Then a new child starts fresh, so that nothing piles up."""
SPAWN = multiprocessing.get_context("spawn")


class LostError(Exception):
    """A child that died or was killed; the text says which."""


class Child:
    """A process that calls `work` on what it is sent."""

    def __init__(self, work: Callable[[Any], Any]) -> None:
        self._here, there = SPAWN.Pipe()
        self._process = SPAWN.Process(target=_serve, args=(work, there), daemon=True)
        self._process.start()
        there.close()
        self.served = 0

    def run(self, item: Any, limit_s: float) -> Any:
        """What `work` returns; LostError after a crash or `limit_s` seconds, and the child is dead then."""
        extra = 0.0 if self.served else START_SECONDS
        self.served += 1
        self._here.send(item)
        try:
            if self._here.poll(limit_s + extra):
                return self._here.recv()
        except (EOFError, ConnectionError):
            self._process.join()
            self.served = ITEMS_A_CHILD
            raise LostError(f"crash: the process ended with {self._process.exitcode}") from None
        self.close()
        raise LostError(f"{TIME_OUT}: killed after {limit_s:.0f} s")

    def close(self) -> None:
        """End the process."""
        self.served = ITEMS_A_CHILD
        self._here.close()
        self._process.kill()
        self._process.join()


def _serve(work: Callable[[Any], Any], there: Connection) -> None:
    while True:
        try:
            item = there.recv()
        except EOFError:
            return
        there.send(work(item))


def results_of(
    work: Callable[[Item], Result], items: Iterable[Item], limit_s: float, lost: Callable[[Item, str], Result]
) -> Iterator[Result]:
    """work(item) of each item in turn, or lost(item, reason) where the child died."""
    child: Child | None = None
    for item in items:
        if child is None or child.served >= ITEMS_A_CHILD:
            if child is not None:
                child.close()
            child = Child(work)
        try:
            yield child.run(item, limit_s)
        except LostError as error:
            yield lost(item, str(error))
    if child is not None:
        child.close()


def each_result(
    work: Callable[[Item], Result],
    items: Sequence[Item],
    limit_s: float,
    lost: Callable[[Item, str], Result],
    take: Callable[[Result], None],
    processes: int = 1,
) -> None:
    """Hands work(item) of every item to `take`, from `processes` children at a time, so in no order."""

    def share(first: int) -> None:
        for result in results_of(work, items[first::processes], limit_s, lost):
            take(result)

    with ThreadPoolExecutor(processes) as pool:
        list(pool.map(share, range(processes)))
