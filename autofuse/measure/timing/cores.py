"""Cores apart: one core times while the others build; processes are moved by their ids (Linux)."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass


@dataclass(frozen=True)
class Cores:
    """The cores that the processes of one device may use, in order: the first one times."""

    usable: tuple[int, ...]

    @classmethod
    def of(cls, cpus: Sequence[int] = ()) -> Cores:
        """These CPUs (none named: those that this process may use); none where the system moves no process."""
        if not hasattr(os, "sched_setaffinity"):
            return cls(())
        return cls(tuple(sorted(cpus or os.sched_getaffinity(0))))

    def keep_apart(self, timing: int, others: Iterable[int]) -> None:
        """The process `timing` gets the first core, and `others` stay away from it. A process that is gone is fine."""
        for process in others:
            _move(process, self.usable[1:])
        _move(timing, self.usable[:1])

    @contextmanager
    def elsewhere(self) -> Iterator[None]:
        """This thread, and the processes that it starts, stay away from the first core meanwhile."""
        before = os.sched_getaffinity(0)
        _move(0, self.usable[1:])
        try:
            yield
        finally:
            _move(0, tuple(before))

    def free(self, processes: Iterable[int]) -> None:
        """These processes may use all cores again."""
        for process in processes:
            _move(process, self.usable)


def _move(process: int, cores: Sequence[int]) -> None:
    with suppress(OSError):
        os.sched_setaffinity(process, cores)
