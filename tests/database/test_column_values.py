"""Values of columns from outside: what is fit at one look is fit value by value, and stays as it is."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from autofuse.database.content.forms import forms
from autofuse.database.content.values import ColumnCheck, UnfitValueError
from autofuse.database.tables.schema import Base

VALUES: tuple[Any, ...] = (
    *(None, True, 0, 1, 2, -1, 2**62, 2**63, -(2**63), 1.0, 0.0, float("nan"), float("inf"), 1e308, b"x"),
    *(
        "",
        "ok",
        "x" * 65,
        "x" * 129,
        "ü",
        "\ud800",
        "[1.0]",
        "[12.5, 3]",
        "[0]",
        "[1e3]",
        "[-1]",
        "[]",
        "[1.0,2]",
        "{}",
    ),
    *("2026-01-31 23:59:59.000000", "2026-02-28 00:00:00.000001", "2026-02-30 00:00:00.000000", "2026-01-01"),
    *("2026-13-01 00:00:00.000000", "0000-01-01 00:00:00.000000", "2026-01-01 24:00:00.000000", "٢٠٢٦-01-01"),
    *("٢٠٢٦-01-01 00:00:00.000000", "[٢.0]"),
)
CHECKS = {
    f"{form.name}.{column}": check
    for form in forms(Base.metadata)
    for column, check in zip(form.columns, form.checks, strict=True)
}


def fit(check: ColumnCheck, value: Any) -> bool:
    try:
        return bool(check.value(value) == value)
    except UnfitValueError:
        return False


@pytest.mark.parametrize("name", CHECKS)
def test_a_column_that_is_fit_at_one_look_is_fit_value_by_value(name: str) -> None:
    check = CHECKS[name]
    for column in itertools.chain(([value] for value in VALUES), itertools.combinations(VALUES, 2)):
        if check.plain(column):
            assert all(fit(check, value) for value in column), column


@pytest.mark.parametrize(
    ("name", "column"),
    [
        ("af_sample.us", ["[12.5]", "[12.5, 3]", "[100]"]),
        ("af_sample.block", [0, 1, 29]),
        ("af_sample.clock_ratio", [0.98, None, 1.0]),
        ("af_sample.flagged", [0, 1]),
        ("af_measurement.created_at", ["2026-01-01 00:00:00.000000", "2026-12-28 23:59:59.999999"]),
        ("af_measurement.state", ["ok", "wrong"]),
        ("af_measurement.failure", [None, "LLVM said no"]),
    ],
)
def test_usual_columns_need_one_look_only(name: str, column: list[Any]) -> None:
    assert CHECKS[name].plain(column)
