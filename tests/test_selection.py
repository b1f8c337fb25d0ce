"""What `make test` leaves out, `make test-long` runs: between them every test is run, and none hangs for ever."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.conftest import further_variants, pytest_collection_modifyitems

ROOT = Path(__file__).resolve().parents[1]


@dataclass(eq=False)
class Item:
    """A collected test."""

    nodeid: str
    marks: set[str] = field(default_factory=set)

    @property
    def path(self) -> Path:
        return Path(self.nodeid.partition("::")[0])

    def get_closest_marker(self, name: str) -> str | None:
        return name if name in self.marks else None


VARIANTS = [f"tests/kernels/test_a.py::test_{name}[{size}]" for name in ("row", "sum") for size in range(240)]
OTHERS = [f"tests/graph/test_b.py::test_shape[{size}]" for size in range(9)]


def collected() -> list[Item]:
    marked = [Item("tests/test_c.py::test_night", {"long", "slow"}), Item("tests/test_d.py::test_kills", {"shortened"})]
    return [*map(Item, OTHERS + VARIANTS), *marked]


def kept(option: str) -> list[str]:
    items: Any = collected()
    dropped: list[Any] = []
    hook = SimpleNamespace(pytest_deselected=lambda items: dropped.extend(items))
    config: Any = SimpleNamespace(getoption=lambda name: name == option, hook=hook)
    pytest_collection_modifyitems(config, items)
    assert {item.nodeid for item in items + dropped} == {item.nodeid for item in collected()}
    return [item.nodeid for item in items]


def test_the_two_parts_are_the_whole_and_share_only_what_is_shortened() -> None:
    brief, beyond = set(kept("--brief")), set(kept("--beyond-brief"))
    assert brief | beyond == {item.nodeid for item in collected()} == set(kept(""))
    assert brief & beyond == {"tests/test_d.py::test_kills"}
    assert "tests/test_c.py::test_night" in beyond
    assert set(OTHERS) <= brief, "no other room has variants that are left out"


def test_a_test_that_hangs_is_a_failed_test_and_the_others_go_on(tmp_path: Path) -> None:
    """With the settings of this project, but for the time."""
    text = "import time\ndef test_hangs(): time.sleep(3600)\ndef test_goes_on(): pass\n"
    (tmp_path / "test_two.py").write_text(text, encoding="utf-8")
    settings = ["-c", str(ROOT / "pyproject.toml"), "--rootdir", str(tmp_path), "-o", "faulthandler_timeout=1"]
    command = [sys.executable, "-m", "pytest", *settings, "-n", "1", "-p", "no:cacheprovider", "test_two.py"]
    alone = {name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"}
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False, env=alone)
    assert "1 failed, 1 passed" in done.stdout, done.stdout + done.stderr
    assert "in test_hangs" in done.stdout + done.stderr, "its stack is told"


def test_files_with_slow_tests_come_first() -> None:
    assert kept("")[0] == "tests/test_c.py::test_night"


@pytest.mark.parametrize("test", ["row", "sum"])
def test_each_test_of_kernels_keeps_its_first_variant_and_some_others(test: str) -> None:
    items: Any = collected()
    left = [item.nodeid for item in items if f"test_{test}[" in item.nodeid and item not in further_variants(items)]
    assert left[0].endswith("[0]")
    assert 3 <= len(left) <= 20


def test_a_first_variant_that_is_long_leaves_the_next_one() -> None:
    items: Any = [
        Item(f"tests/kernels/test_a.py::test_sum[{size}]", {"long"} if size < 2 else set()) for size in range(9)
    ]
    assert items[2] not in further_variants(items)
    assert further_variants(items) <= set(items[3:])
