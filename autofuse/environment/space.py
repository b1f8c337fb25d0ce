"""Search spaces: readable TOML files that say which fusion decisions are open and which knob values are tried."""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from autofuse.errors import InputError
from autofuse.fusion.space import KINDS, FusionSpace
from autofuse.values.names import FORMER_KNOBS
from autofuse.values.outputs import read_text
from autofuse.values.resources import named_files

SCHEMA = 1
FOLDER = "search_spaces"
DEFAULT = "default"
ISAS = ("avx512", "avx2", "neon", "generic")
"""Target classes that may override values; see `autofuse.device.target.Target.isa`."""

OTHER = "other"
"""In the row of a knob: the target classes that it does not name."""

KnobValue = int | str
Schedules = Mapping[str, Mapping[str, tuple[KnobValue, ...]]]


@dataclass(frozen=True)
class SearchSpace:
    """A search space for one target class.

    `schedule`: family -> knob -> the values tried; the first is the default. A family or knob that the file
    leaves out is absent: its declaration in the kernel family applies.
    """

    name: str
    isa: str
    fusion: FusionSpace
    schedule: Schedules = field(default_factory=dict, hash=False)

    @property
    def key(self) -> str:
        """SHA-256 of the canonical text, whatever the file was called."""
        body = {
            "fusion": [sorted(self.fusion.decide), self.fusion.max_group_operators],
            "schedule": {
                family: {knob: list(v) for knob, v in knobs.items()} for family, knobs in self.schedule.items()
            },
        }
        return hashlib.sha256(json.dumps(body, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def shipped_spaces() -> dict[str, Path]:
    """Files of the search spaces that come with autofuse, by name."""
    return named_files(FOLDER)


def load_space(
    space: str | Path | None, isa: str, declared: Mapping[str, Collection[str]] | None = None
) -> SearchSpace:
    """The space called `space` (a shipped name, or the path of a .toml file; None: "default") for one target class.

    `declared`: family -> its knobs; a file that names anything else is refused (None: not checked). InputError
    names the file, the key, the bad value and what is allowed.
    """
    path = _find(space)
    body = _read(path)
    reader = _Reader(path)
    reader.keys(body, "", ("schema", "description", "fusion", "schedule"))
    if body.get("schema") != SCHEMA:
        raise reader.error("schema", body.get("schema"), str(SCHEMA))
    if not isinstance(body.get("description", ""), str):
        raise reader.error("description", body["description"], "a text")
    if isa not in ISAS:
        raise InputError(f"target class {isa!r} is unknown; allowed: {', '.join(ISAS)}")
    return SearchSpace(
        name=path.stem,
        isa=isa,
        fusion=_fusion(reader, reader.table(body, "fusion")),
        schedule=_schedule(reader, _with_current_names(reader, reader.table(body, "schedule")), isa, declared),
    )


@dataclass(frozen=True)
class _Reader:
    """A reader of one file; every refusal names the file and the key."""

    path: Path

    def error(self, key: str, value: object, allowed: str) -> InputError:
        return InputError(f"{self.path}: key {key!r}: got {value!r}, allowed: {allowed}")

    def keys(self, table: Mapping[str, object], prefix: str, allowed: Collection[str]) -> None:
        for key in table:
            if key not in allowed:
                raise InputError(f"{self.path}: key {prefix + key!r} is unknown, allowed: {', '.join(allowed)}")

    def table(self, body: Mapping[str, object], key: str, prefix: str = "") -> Mapping[str, object]:
        value = body.get(key, {})
        if not isinstance(value, dict):
            raise self.error(prefix + key, value, "a table")
        return value

    def values(self, key: str, value: object) -> tuple[KnobValue, ...]:
        """A list of distinct integers, or of distinct texts."""
        if not isinstance(value, list) or not value:
            raise self.error(key, value, "a list with at least one value (the first is the default)")
        for item in value:
            if isinstance(item, bool) or not isinstance(item, int | str):
                raise self.error(key, item, "integers or texts")
            if type(item) is not type(value[0]):
                raise self.error(key, item, f"values of one type (the first is {value[0]!r})")
        for item in value:
            if value.count(item) > 1:
                raise self.error(key, item, "each value once")
        return tuple(value)


def _find(space: str | Path | None) -> Path:
    name = str(space or DEFAULT)
    if name.endswith(".toml"):
        return Path(name)
    shipped = shipped_spaces()
    if name not in shipped:
        raise InputError(f"--space: {name!r} is unknown; allowed: {', '.join(shipped)}, or the path of a .toml file")
    return shipped[name]


def _read(path: Path) -> Mapping[str, object]:
    try:
        return tomllib.loads(read_text(path))
    except OSError as error:
        raise InputError(f"{path}: cannot read the search space: {error.strerror}") from error
    except (ValueError, RecursionError) as error:  # no TOML, no text, or beyond what Python reads
        raise InputError(f"{path}: not a TOML file: {error}") from error


def _fusion(reader: _Reader, table: Mapping[str, object]) -> FusionSpace:
    reader.keys(table, "fusion.", ("decide", "max_group_operators"))
    default = FusionSpace()
    decide = table.get("decide", list(default.decide))
    if not isinstance(decide, list):
        raise reader.error("fusion.decide", decide, f"a list of {', '.join(KINDS)}")
    for kind in decide:
        if kind not in KINDS:
            raise reader.error("fusion.decide", kind, ", ".join(KINDS))
        if decide.count(kind) > 1:
            raise reader.error("fusion.decide", kind, "each kind once")
    limit = table.get("max_group_operators", default.max_group_operators)
    if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
        raise reader.error("fusion.max_group_operators", limit, "an integer from 1")
    return FusionSpace(tuple(decide), limit)


def _schedule(
    reader: _Reader, table: Mapping[str, object], isa: str, declared: Mapping[str, Collection[str]] | None
) -> Schedules:
    if declared is not None:
        reader.keys(table, "schedule.", sorted(declared))
    return {
        family: _family(reader, reader.table(table, family, "schedule."), family, isa, (declared or {}).get(family))
        for family in table
    }


def _with_current_names(reader: _Reader, table: Mapping[str, object]) -> Mapping[str, object]:
    """The table of all families, its knobs under today's names: spaces of earlier versions use former ones."""
    known = {family for family in table if any(name.startswith(f"{family}.") for name in FORMER_KNOBS)}
    found: dict[str, Any] = {family: rows for family, rows in table.items() if family not in known}
    seen: dict[tuple[str, ...], str] = {}
    for family in sorted(known):
        for place, value in _rows(reader.table(table, family, "schedule.")):
            former = f"{family}.{place[-1]}"
            now, knob = FORMER_KNOBS.get(former, former).split(".", 1)
            path = (now, *place[:-1], knob)
            if path in seen:
                pair = " and ".join(f"'schedule.{name}'" for name in sorted((seen[path], f"{now}.{knob}")))
                raise InputError(f"{reader.path}: keys {pair} are one knob: leave one of them out")
            seen[path] = former
            rows = found.setdefault(now, {})
            for part in path[1:-1]:
                rows = rows.setdefault(part, {})
            rows[knob] = value
    return found


def _rows(table: Mapping[str, object]) -> Iterator[tuple[tuple[str, ...], object]]:
    """(its name, or its target class and name; the value) of each row of a family."""
    for name, row in table.items():
        if name in ISAS and isinstance(row, dict):
            yield from (((name, knob), value) for knob, value in row.items())
        else:
            yield (name,), row


def _family(
    reader: _Reader, table: Mapping[str, object], family: str, isa: str, knobs: Collection[str] | None
) -> Mapping[str, tuple[KnobValue, ...]]:
    """The values of each knob for `isa`; those for the other target classes are checked too.

    A row is a list, or a table of lists by target class (`OTHER`: those it does not name). A table that is called as a
    target class has rows of its own, which go before the others.
    """
    prefix = f"schedule.{family}."
    merged: dict[str, tuple[KnobValue, ...]] = {}
    of_isa: dict[str, tuple[KnobValue, ...]] = {}
    for name, row in table.items():
        if isinstance(row, dict) and (name in ISAS or name not in (knobs or table)):
            reader.keys({name: row}, prefix, (*ISAS, *sorted(knobs or ())))
            if knobs is not None:
                reader.keys(row, f"{prefix}{name}.", sorted(knobs))
            values = {knob: reader.values(f"{prefix}{name}.{knob}", value) for knob, value in row.items()}
            of_isa |= values if name == isa else {}
            continue
        if knobs is not None:
            reader.keys({name: row}, prefix, sorted(knobs))
        chosen = _row(reader, row, prefix + name, isa)
        merged |= {name: chosen} if chosen else {}
    return merged | of_isa


def _row(reader: _Reader, row: object, key: str, isa: str) -> tuple[KnobValue, ...]:
    """The values of one row for `isa`; empty where it says nothing about that."""
    if not isinstance(row, dict):
        return reader.values(key, row)
    reader.keys(row, f"{key}.", (*ISAS, OTHER))
    values = {name: reader.values(f"{key}.{name}", value) for name, value in row.items()}
    return values.get(isa, values.get(OTHER, ()))
