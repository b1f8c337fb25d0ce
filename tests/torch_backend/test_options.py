"""The options of `torch.compile(model, backend="autofuse", options={...})`; none of it needs torch."""

from __future__ import annotations

from pathlib import Path

import pytest

from autofuse.errors import InputError
from autofuse.torch_backend.options import Options, parse_options


def test_nothing_given_is_the_default_of_everything() -> None:
    assert parse_options(None) == parse_options({}, "default") == Options()


def test_what_is_given_arrives() -> None:
    given = {"database": "p.db", "threads": 2, "capture": "folder", "cache": False, "exact": True, "on_miss": "none"}
    found = parse_options(given)
    assert found == Options("p.db", threads=2, on_miss="none", exact=True, capture=Path("folder"), cache=False)
    assert parse_options({"cache_size": "2M"}).cache_bytes == 2 << 20
    assert parse_options({"database": Path("p.db")}).database == "p.db"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"num_threads": 2}, r"unknown 'num_threads' \(did you mean 'threads'\?\); allowed are database, device"),
        ({"chache": True}, r"unknown 'chache' \(did you mean 'cache'\?\)"),
        ({"zzz": 1}, "unknown 'zzz'; allowed are"),
        ({"threads": 0}, "threads: got 0, allowed: a number from 1 on"),
        ({"threads": True}, "threads: got True"),
        ({"threads": "2"}, "threads: got '2'"),
        ({"cache": 1}, "cache: got 1, allowed: True or False"),
        ({"database": ""}, "database: got '', allowed: a text"),
        ({"device": None}, "device: got None, allowed: a text"),
        ({"capture": 3}, "capture: got 3, allowed: a text"),
        ({"cache_size": "huge"}, "cache_size: got 'huge', allowed: a size such as 500M"),
        ({"on_miss": "tune"}, "tune"),
    ],
)
def test_what_cannot_be_used_is_named_with_what_is_allowed(given: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse_options(given)


def test_a_mode_is_refused() -> None:
    with pytest.raises(InputError, match="mode: got 'max-autotune'; the backend has no modes: tune the model"):
        parse_options({}, "max-autotune")
