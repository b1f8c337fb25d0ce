"""The pages that say where things are name files that there are, and the seven ways that a newcomer asks for."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = (ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "docs" / "finding-your-way.md")
ASKED = {"operator", "knob", "kernel family", "rewrite rule", "device", "rival", "table of the report"}
NAMED = re.compile(r"`((?:autofuse|experiments|tests|docs|profiles|search_spaces)/[\w./-]+)`")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_file_that_a_page_names_is_there(page: Path) -> None:
    named = set(NAMED.findall(page.read_text(encoding="utf-8")))
    missing = {name for name in named if not (ROOT / name).exists() and not (ROOT / f"{name}.py").exists()}
    assert missing == set()


def test_contributing_has_each_way_that_was_tried() -> None:
    contributing, tried = (page.read_text(encoding="utf-8") for page in PAGES[1:])
    heads = " ".join(line.lower() for line in contributing.splitlines() if line.startswith("### "))
    rows = [line.split("|")[1] for line in tried.splitlines() if line.startswith("| a")]
    assert all(any(way in row for row in rows) and way in heads for way in ASKED)
    seconds = [int(line.split("|")[-2]) for line in tried.splitlines() if line.startswith("| a")]
    assert len(seconds) == len(ASKED) and max(seconds) < 60


def test_the_tables_that_it_points_at_have_these_names() -> None:
    """The names of tables that CONTRIBUTING points at."""
    for path, name in (
        ("autofuse/kernels/nest/scalar.py", "_FLOAT_RULES"),
        ("autofuse/kernels/families/registry.py", "FAMILIES"),
        ("experiments/peers/rivals.py", "RIVALS"),
        ("experiments/peers/contender.py", "MODULES"),
        ("experiments/peers/run.py", "PACKAGES"),
        ("experiments/index.py", "EXPERIMENTS"),
        ("autofuse/values/names.py", "FORMER_KNOBS"),
        ("autofuse/views/report/render.py", "def render_markdown"),
        ("autofuse/views/report/page.py", "def page_data"),
    ):
        assert re.search(rf"^{name}\b", (ROOT / path).read_text(encoding="utf-8"), re.MULTILINE), (path, name)
