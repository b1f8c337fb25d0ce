"""Files and functions stay short enough to be read."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from tests.reading import PACKAGE, sources, tree_of

MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 60
MEDIAN_FUNCTION_LINES = 8


def functions(path: Path) -> Iterator[tuple[str, int]]:
    """Name and lines of each function of a file."""
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, (node.end_lineno or 0) - node.lineno + 1


def test_files_stay_short() -> None:
    others = [path for path in PACKAGE.rglob("*") if path.suffix in {".c", ".h", ".js", ".css", ".html"}]
    assert others
    lengths = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in (*sources(), *others)}
    assert {str(path.relative_to(PACKAGE)): n for path, n in lengths.items() if n > MAX_FILE_LINES} == {}


def test_functions_stay_short() -> None:
    lengths = {(path, name): lines for path in sources() for name, lines in functions(path)}
    long = {f"{path.relative_to(PACKAGE)}: {name}": n for (path, name), n in lengths.items() if n > MAX_FUNCTION_LINES}
    assert long == {}


def test_most_functions_fit_a_glance() -> None:
    assert median(lines for path in sources() for _, lines in functions(path)) <= MEDIAN_FUNCTION_LINES
