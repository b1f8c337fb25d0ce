"""Values of columns that come from outside: what each may be, looked at without running anything."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import cache, partial
from typing import Any, NamedTuple

from sqlalchemy import JSON, BigInteger, Boolean, Column, DateTime, Float, Integer, String, TypeDecorator

from autofuse.database.job_records import JOB_STATES, PHASES, TASK_STATES, WORKER_STATES
from autofuse.database.records import FAILURES, OK, PENDING, REASONS, RUN_STATES, TRIAL_STATES
from autofuse.errors import InputError

MAX_TEXT = 16 << 20
"""Characters of one value, at most."""
FIRST_YEAR, LAST_YEAR = 1970, 2199
"""Dates that a clock shows and every library can hold."""
DIGEST_LENGTH = 64
_HEXADECIMAL = re.compile(r"[0-9a-f]{64}")
Raw = str | int | float | None
"""A value as SQLite stores it: dates as ISO text, documents as JSON text, booleans as 0 and 1."""

Check = Callable[[object], Raw]
Shape = Callable[[object], bool]


class UnfitValueError(ValueError):
    """A value that its column must not hold; the text says why."""


class ColumnCheck(NamedTuple):
    """The check of a column: `value` takes one value; `plain`: whether many are seen to be fit at one look (False:
    perhaps)."""

    value: Check
    plain: Callable[[Sequence[Any]], bool]


def check_of(table: str, column: Column[object]) -> ColumnCheck:
    kind = column.type.impl_instance if isinstance(column.type, TypeDecorator) else column.type
    shape = _SHAPES.get((table, column.name))
    if isinstance(kind, JSON) or shape:
        found = ColumnCheck(_document_check(shape), _plain_times if shape is _times else _never)
    elif isinstance(kind, Boolean):
        found = ColumnCheck(_boolean, _plain_booleans)
    elif isinstance(kind, DateTime):
        found = ColumnCheck(_date, _plain_dates)
    elif isinstance(kind, Integer):
        found = ColumnCheck(_integer, _plain_integers)
        if column.name == "id":  # room above the last one
            found = _bounded(found, 1, 2**53)
        elif not isinstance(kind, BigInteger):
            found = _bounded(found, *_bounds(column))
    elif isinstance(kind, Float):
        found = _bounded(ColumnCheck(_number, _plain_numbers), *_bounds(column))
    elif words := _WORDS.get((table, column.name)):
        found = ColumnCheck(_word_check(words), partial(_plain_words, frozenset(words)))
    elif column.name in _DIGESTS:
        found = ColumnCheck(_digest, _plain_digests)
    elif isinstance(kind, String):
        limit = min(kind.length or MAX_TEXT, MAX_TEXT)
        found = ColumnCheck(_text_check(limit), partial(_plain_texts, limit))
    else:
        raise InputError(f"table {table}, column {column.name}: no check for type {kind!r}")
    return ColumnCheck(_or_none(found.value), partial(_plain_or_none, found.plain)) if column.nullable else found


def _bounded(check: ColumnCheck, least: float, most: float) -> ColumnCheck:
    """The check of numbers that are from `least` to `most`."""

    def checked(value: object) -> Raw:
        number = check.value(value)
        if not least <= number <= most:  # type: ignore[operator]  # a number
            raise UnfitValueError(f"expected a number from {least:g} to {most:g}")
        return number

    return ColumnCheck(checked, lambda values: check.plain(values) and least <= min(values) and max(values) <= most)


def _bounds(column: Column[object]) -> tuple[float, float]:
    """The least and the most that a column of numbers holds; by its name, which means the same in every table."""
    most = MOST if isinstance(column.type, Float) else 2**31 - 1
    return _LEAST.get(column.name, -most), _MOST.get(column.name, most)


@cache
def _word_check(words: tuple[str, ...]) -> Check:
    def checked(value: object) -> Raw:
        if value not in words:
            raise UnfitValueError(f"expected one of {', '.join(words)}")
        return str(value)

    return checked


@cache
def _or_none(check: Check) -> Check:
    def checked(value: object) -> Raw:
        return None if value is None else check(value)

    return checked


@cache
def _text_check(limit: int) -> Check:
    def checked(value: object) -> Raw:
        return _text(value, limit)

    return checked


@cache
def _document_check(shape: Shape | None) -> Check:
    def checked(value: object) -> Raw:
        return _document(value, shape)

    return checked


def _text(value: object, limit: int) -> str:
    if not isinstance(value, str):
        raise UnfitValueError("expected text")
    if len(value) > limit:
        raise UnfitValueError(f"expected at most {limit} characters, found {len(value)}")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise UnfitValueError("expected text that is valid Unicode") from None
    return value


def _digest(value: object) -> str:
    text = _text(value, DIGEST_LENGTH)
    if not _HEXADECIMAL.fullmatch(text):
        raise UnfitValueError(f"expected a SHA-256: {DIGEST_LENGTH} hexadecimal digits")
    return text


def _integer(value: object) -> int:
    """An integer of 64 bits."""
    if not isinstance(value, int) or isinstance(value, bool) or not -(2**63) <= value < 2**63:
        raise UnfitValueError("expected an integer of 64 bits")
    return value


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise UnfitValueError("expected a finite number")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise UnfitValueError("expected a finite number")
    return number


def _boolean(value: object) -> int:
    if isinstance(value, bool) or (isinstance(value, int) and value in (0, 1)):
        return int(value)
    raise UnfitValueError("expected true or false")


def _date(value: object) -> str:
    """Naive UTC, as SQLAlchemy writes it: `2026-01-31 23:59:59.000000`."""
    try:
        if isinstance(value, str):
            moment = datetime.fromisoformat(value)
            if moment.isoformat(" ", "microseconds") == value and FIRST_YEAR <= moment.year <= LAST_YEAR:
                return value
    except ValueError:
        pass
    raise UnfitValueError(f"expected a date such as 2026-01-31 23:59:59.000000, from {FIRST_YEAR} to {LAST_YEAR}")


def _refuse_constant(name: str) -> object:
    raise ValueError(f"{name} is no JSON")


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant)


def parse_document(text: str) -> object:
    """A JSON value; ValueError for anything else, NaN and infinity too."""
    try:
        return _DECODER.decode(text)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def _document(value: object, shape: Shape | None) -> str:
    text = _text(value, MAX_TEXT)
    try:
        document = _DECODER.decode(text)
    except (ValueError, RecursionError):
        raise UnfitValueError("expected a JSON document") from None
    if shape is not None and not shape(document):
        raise UnfitValueError(f"expected {shape.__doc__}")
    return text


def _times(value: object) -> bool:
    """a list of times above 0"""
    return isinstance(value, list) and bool(value) and all(type(us) in (float, int) and 0 < us <= MOST for us in value)


def _blocks(value: object) -> bool:
    """a list of [times, clock ratio or null, flagged]"""
    return isinstance(value, list) and all(
        isinstance(block, list)
        and len(block) == 3
        and _times(block[0])
        and (block[1] is None or type(block[1]) in (float, int))
        and isinstance(block[2], bool)
        for block in value
    )


# Columns at one look ------------------------------------------------------------------------------

_PLAIN_TIME = r"[1-9]\d{0,11}(?:\.\d{1,12})?"
_PLAIN_TIMES = re.compile(rf"\[{_PLAIN_TIME}(?:, {_PLAIN_TIME})*\]", re.ASCII)
"""The form of nearly every list of times: no parser is needed to see that it is one."""

_PLAIN_DATE = re.compile(
    r"(?:19[7-9]|20\d|21\d)\d-(?:0[1-9]|1[0-2])-(?:0[1-9]|1\d|2[0-8]) (?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d\.\d{6}",
    re.ASCII,
)
"""Days that every month has."""


def _never(_values: Sequence[object]) -> bool:
    return False


def _plain_or_none(plain: Callable[[Sequence[Any]], bool], values: Sequence[object]) -> bool:
    present = [value for value in values if value is not None]
    return not present or plain(present)


def _plain_times(values: Sequence[Any]) -> bool:
    return set(map(type, values)) == {str} and all(map(_PLAIN_TIMES.fullmatch, values))


def _plain_dates(values: Sequence[Any]) -> bool:
    return set(map(type, values)) == {str} and all(map(_PLAIN_DATE.fullmatch, values))


def _plain_texts(limit: int, values: Sequence[Any]) -> bool:
    return set(map(type, values)) == {str} and max(map(len, values)) <= limit and all(map(str.isascii, values))


def _plain_words(words: frozenset[str], values: Sequence[object]) -> bool:
    return set(map(type, values)) == {str} and set(values) <= words


def _plain_digests(values: Sequence[Any]) -> bool:
    return set(map(type, values)) == {str} and all(map(_HEXADECIMAL.fullmatch, values))


def _plain_integers(values: Sequence[Any]) -> bool:
    return set(map(type, values)) == {int} and min(values) >= -(2**63) and max(values) < 2**63


def _plain_numbers(values: Sequence[Any]) -> bool:
    return set(map(type, values)) == {float} and all(map(math.isfinite, values))


def _plain_booleans(values: Sequence[object]) -> bool:
    return set(map(type, values)) == {int} and set(values) <= {0, 1}


# Documents ---------------------------------------------------------------------------------------


def _names(value: object) -> bool:
    """a list of names"""
    return isinstance(value, list) and all(isinstance(name, str) for name in value)


def _object(value: object) -> bool:
    """an object"""
    return isinstance(value, dict)


def _schedule(value: object) -> bool:
    """an object of texts and integers"""
    return isinstance(value, dict) and all(type(item) in (str, int) for item in value.values())


_SHAPES: Mapping[tuple[str, str], Shape] = {
    ("af_sample", "us"): _times,
    ("af_plan_measurement", "blocks"): _blocks,
    ("af_choice_group", "operators"): _names,
    ("af_schedule", "text"): _schedule,
    ("af_target", "text"): _object,
    ("af_versions", "text"): _object,
    ("af_workload", "text"): _object,
    ("af_plan", "text"): _object,
    **{("af_run", name): _object for name in ("arguments", "budget", "provenance", "summary")},
    ("af_device", "facts"): _object,
    ("af_trial", "answers"): _object,
    ("af_choice", "details"): _object,
    ("af_choice", "limits"): _object,
    ("af_plan_measurement", "limits"): _object,
    **{("af_job", name): _object for name in ("settings", "summary")},
    ("af_task", "result"): _object,
}
"""What a document must look like for those who read it; other documents: any JSON."""


MOST = 1e15
"""No time, count or ratio is larger: 30 years in microseconds."""
_SOME = 1e-9
"""The least that counts as above 0."""
_LEAST: Mapping[str, float] = {
    **dict.fromkeys(("median_us", "ci_lo_us", "ci_hi_us", "us", "best_us", "baseline_us", "clock_ratio"), _SOME),
    **dict.fromkeys(("build_s", "max_rel_error", "composed_us", "active_s", "spent_s", "reserve_s", "beat"), 0),
    **dict.fromkeys(("block", "position", "number", "attempts", "measured", "failed", "owner_started"), 0),
    **dict.fromkeys(("threads", "owner_pid"), 1),
}
"""The least value of columns that have one."""
_MOST: Mapping[str, float] = {"threads": 1 << 16}

_WORDS: Mapping[tuple[str, str], tuple[str, ...]] = {
    ("af_edge", "reason"): REASONS,
    ("af_run", "state"): RUN_STATES,
    ("af_trial", "state"): TRIAL_STATES,
    ("af_candidate", "state"): (OK, *PENDING, *FAILURES),
    ("af_measurement", "state"): (OK, *FAILURES),
    ("af_plan_measurement", "state"): (OK, *FAILURES),
    ("af_job", "state"): JOB_STATES,
    ("af_task", "state"): TASK_STATES,
    ("af_task", "phase"): PHASES,
    ("af_worker", "state"): WORKER_STATES,
}
_DIGESTS = frozenset(("graph_key", "model_sha256"))


def shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
