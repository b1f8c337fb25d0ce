"""Results of experiments: kept by kind of machine, merged row by row, and the tables of the pages made of them."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from experiments import records
from experiments.__main__ import all_tables
from experiments.index import PAGES, ROOT
from experiments.records import Record, Table, keep, merged, read, rendered, running, shown, write


@dataclass(frozen=True)
class Row:
    network: str
    us: float
    trusted: bool = True


def _text(rows: Sequence[Row]) -> str:
    return "\n".join(f"| {row.network} | {row.us} |" for row in rows)


TABLE = Table("sample", Row, ("network",), _text)
OLD = Record("znver3, avx2", "a server", "2026-01-01", "aaaa", "run", True, [{"network": "one", "us": 1.0}])


def _new(machine: str, *names: str, commit: str = "bbbb") -> Record:
    return replace(OLD, machine=machine, commit=commit, rows=[{"network": name, "us": 2.0} for name in names])


def test_a_run_never_touches_rows_of_another_kind_of_machine() -> None:
    assert merged([OLD], _new("znver5, avx512", "one"), TABLE.key)[0] == OLD


def test_rows_measured_anew_replace_those_of_the_same_kind_of_machine() -> None:
    both = replace(OLD, rows=[*OLD.rows, {"network": "two", "us": 1.0}])
    kept, new = merged([both], _new(OLD.machine, "one"), TABLE.key)
    assert [row["network"] for row in kept.rows] == ["two"] and kept.commit == "aaaa"
    assert [row["network"] for row in new.rows] == ["one"] and new.commit == "bbbb"


def test_a_record_without_rows_is_gone() -> None:
    assert [record.commit for record in merged([OLD], _new(OLD.machine, "one"), TABLE.key)] == ["bbbb"]


def test_rows_of_one_run_stand_in_one_record_which_is_trusted_when_all_of_them_are() -> None:
    first = replace(_new(OLD.machine), rows=[{"network": "one", "us": 1.0, "trusted": False}])
    second = replace(_new(OLD.machine), rows=[{"network": "two", "us": 1.0, "trusted": True}])
    (record,) = merged([first], second, TABLE.key)
    assert [row["network"] for row in record.rows] == ["one", "two"] and record.trusted is False


def test_what_was_written_is_read_again(tmp_path: Path) -> None:
    write(tmp_path / "sample.json", [OLD, _new("znver5, avx512", "one", "two")])
    assert read(tmp_path / "sample.json") == [OLD, _new("znver5, avx512", "one", "two")]


def test_a_run_keeps_what_it_found_with_its_machine_commit_and_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "here", lambda: ("znver3, avx2", "a server", "cccc"))
    keep(TABLE, [Row("nobody asked", 1.0)])
    with running("python -m experiments sample", tmp_path):
        keep(TABLE, [Row("one", 1.23456789, trusted=False)])
        keep(TABLE, [Row("two", math.nan)])
    (record,) = read(tmp_path / "sample.json")
    assert (record.machine, record.commit, record.command) == ("znver3, avx2", "cccc", "python -m experiments sample")
    assert record.rows[0] == {"network": "one", "us": 1.23457, "trusted": False}
    assert record.rows[1]["us"] is None and record.trusted is False


def test_this_machine_has_a_kind_and_a_commit() -> None:
    kind, host, commit = records.here()
    assert ", " in kind and "cores" in host and commit


def test_figures_of_several_kinds_of_machine_stand_side_by_side(tmp_path: Path) -> None:
    text = shown(TABLE, [OLD, _new("znver5, avx512", "one")])
    assert text.index("znver3") < text.index("| one | 1.0 |") < text.index("znver5") < text.index("| one | 2.0 |")


def test_a_machine_that_nobody_wrote_down_is_said_to_be_unknown() -> None:
    text = shown(TABLE, [replace(OLD, machine=None, host=None), _new("znver5, avx512", "one")])
    assert text.startswith("*A machine that was not written down*: `run`") and "*znver5, avx512*" in text


def test_a_page_is_filled_between_its_markers_only(tmp_path: Path) -> None:
    write(tmp_path / "sample.json", [OLD])
    page = "before\n<!-- results: sample -->\nold\n<!-- end of results -->\nafter\n"
    filled = rendered(page, {"sample": TABLE}, tmp_path)
    assert filled.startswith("before\n") and filled.endswith("after\n") and "| one | 1.0 |" in filled
    assert "old" not in filled and rendered(filled, {"sample": TABLE}, tmp_path) == filled


@pytest.mark.parametrize("page", PAGES)
def test_the_tables_of_the_pages_are_those_of_the_results(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    assert text == rendered(text, all_tables()), "run python -m experiments render"


def test_every_file_of_results_stands_in_a_page_and_every_table_has_one() -> None:
    files = {path.stem for path in records.RESULTS.glob("*.json")}
    text = "".join((ROOT / page).read_text(encoding="utf-8") for page in PAGES)
    assert files == {Path(table.file).stem for table in all_tables().values()}
    assert all(f"<!-- results: {name} -->" in text for name in all_tables())


@pytest.mark.parametrize("path", sorted(records.RESULTS.glob("*.json")), ids=lambda path: path.stem)
def test_results_say_where_they_are_from(path: Path) -> None:
    for record in json.loads(path.read_text(encoding="utf-8")):
        assert record["rows"] and all(record[name] for name in ("date", "commit", "command"))
        assert (record["machine"] and record["host"]) or record["machine"] is record["host"] is None
        assert "/tmp" not in record["command"] and "/home" not in record["command"]
