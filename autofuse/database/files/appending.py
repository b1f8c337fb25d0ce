"""The database that others are appended to: one that is not there yet comes into being whole, or not at all."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from autofuse.database import connection
from autofuse.database.database import ProfilingDatabase, open_database
from autofuse.values.outputs import Kind, all_or_none, output_file

_DATABASE = Kind("a profiling database")


@contextmanager
def open_to_append(path_or_url: str | None, dry_run: bool) -> Iterator[ProfilingDatabase]:
    """A database to be appended to. A file that does not exist is made beside its place, and stands there once the
    block ends: after an error nothing does, nor after a dry run, which uses one in memory.

    InputError where somebody else made the file meanwhile: theirs is never replaced.
    """
    location = connection.locate(path_or_url)
    if location.path is None or location.path.exists():
        with open_database(location) as there:
            yield there
    elif dry_run:
        with open_database(replace(location, path=None)) as empty:
            yield empty
    else:
        with all_or_none([location.path.parent]):
            connection.prepare_file(location, read_only=False)
            with (
                output_file(location.path, _DATABASE, option="--db") as part,
                open_database(replace(location, path=part)) as new,
            ):
                yield new
