"""The column type of schedules."""

from __future__ import annotations

from sqlalchemy import Dialect, Text, TypeDecorator

from autofuse.values.names import current_schedule


class ScheduleText(TypeDecorator[str]):
    """Canonical JSON of a schedule, stored as it was written; its knobs are read under today's names."""

    impl = Text
    cache_ok = True

    def process_result_value(self, value: str | None, dialect: Dialect) -> str | None:  # noqa: ARG002
        """See `TypeDecorator`."""
        return value and current_schedule(value)
