"""A database server that restarts is waited for; nothing is recorded twice meanwhile."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import ParamSpec, TypeVar

from sqlalchemy import Connection, Engine, exc

from autofuse.errors import DatabaseError

PATIENCE_S = 120.0
"""Seconds that a server may be away, in which nothing but the connection is tried again."""
PAUSE_S = 0.5
ATTEMPTS = 5
"""Times that one change is tried when its connection breaks in the middle."""

P = ParamSpec("P")
T = TypeVar("T")


@contextmanager
def connected(engine: Engine, patience_s: float = PATIENCE_S) -> Iterator[Connection]:
    """A connection; that of a server is asked for again and again while it does not answer."""
    deadline = time.monotonic() + patience_s
    while True:
        try:
            connection = engine.connect()
            break
        except exc.OperationalError:
            if engine.dialect.name == "sqlite" or time.monotonic() > deadline:
                raise
            time.sleep(PAUSE_S)
    with connection:
        yield connection


def persistent(change: Callable[P, T]) -> Callable[P, T]:
    """Repeats a change whose connection broke: only for one that, done twice, is the same as done once."""

    @wraps(change)
    def again(*arguments: P.args, **named: P.kwargs) -> T:
        for _ in range(ATTEMPTS - 1):
            try:
                return change(*arguments, **named)
            except DatabaseError as error:
                if not _broken(error):
                    raise
                time.sleep(PAUSE_S)
        return change(*arguments, **named)

    return again


def _broken(error: DatabaseError) -> bool:
    """Whether the connection to a server broke, as when it restarts; what was under way may be tried again."""
    return isinstance(error.__cause__, exc.DBAPIError) and error.__cause__.connection_invalidated
