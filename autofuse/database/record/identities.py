"""Rows that are found by a key: made once, then remembered by number."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from sqlalchemy import Connection, bindparam, select

from autofuse.database.records import Setting
from autofuse.database.tables.columns import insert_unless_there
from autofuse.database.tables.schema import AnySelect, DeviceRow, NumberedRow, TargetRow, VersionsRow
from autofuse.errors import InputError

RowKey = tuple[type[NumberedRow], tuple[object, ...]]


@cache
def _find(row: type[NumberedRow], keys: tuple[str, ...]) -> AnySelect:
    columns = row.__table__.c
    return select(columns.id).where(*(columns[key] == bindparam(key) for key in keys))


class Identities:
    """The numbers of keyed rows. They are learned in a transaction, and kept only once it has been committed."""

    def __init__(self) -> None:
        self._kept: dict[RowKey, int] = {}
        self._learned: dict[RowKey, int] = {}

    def commit(self) -> None:
        """The transaction is safe: keep what it taught."""
        self._kept.update(self._learned)
        self._learned.clear()

    def rollback(self) -> None:
        """The transaction is gone, and with it the rows that it made."""
        self._learned.clear()

    def find(self, connection: Connection, row: type[NumberedRow], **keys: object) -> int | None:
        """Number of the row with these keys, or None."""
        name: RowKey = (row, tuple(keys.values()))
        known = self._kept.get(name) or self._learned.get(name)
        if known is None:
            known = connection.execute(_find(row, tuple(keys)), keys).scalar_one_or_none()
            if known is not None:
                self._learned[name] = known
        return known

    def find_or_make(
        self, connection: Connection, row: type[NumberedRow], keys: Mapping[str, object], rest: Mapping[str, Any]
    ) -> int:
        """Number of the row with these keys, inserted with `rest` where it is missing."""
        found = self.find(connection, row, **keys)
        if found is None:
            statement = insert_unless_there(connection.dialect.name, row)
            found = connection.execute(statement, {**keys, **rest}).scalar_one_or_none()
            if found is None:  # another process made it in between
                found = self.find(connection, row, **keys)
                assert found is not None, f"{row.__name__} vanished"
            else:
                self._learned[row, tuple(keys.values())] = found
        return found

    def setting_columns(self, connection: Connection, setting: Setting) -> dict[str, int]:
        """Column values of a setting that `ProfilingDatabase.setting` made; InputError for another one."""
        found = {
            "device_id": self.find(connection, DeviceRow, fingerprint=setting.device),
            "target_id": self.find(connection, TargetRow, key=setting.target),
            "versions_id": self.find(connection, VersionsRow, key=setting.versions),
        }
        columns = {name: number for name, number in found.items() if number is not None}
        if missing := found.keys() - columns.keys():
            raise InputError(
                f"setting has an unknown {sorted(missing)[0][:-3]}: make it with ProfilingDatabase.setting"
            )
        return {**columns, "threads": setting.threads}
