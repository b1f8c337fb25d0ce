"""What a program in C compiles with: our file and header, and nothing that could stand for one of its own."""

from __future__ import annotations

from pathlib import Path

from autofuse.backend.c_interface import compiler_arguments


def test_only_our_public_header_lies_on_the_path_of_headers() -> None:
    """`#include <check.h>` is a unit test framework's: a header of ours by that name would take its place."""
    source, folder, *_ = compiler_arguments()
    assert folder == f"-I{Path(source).parent}"
    assert [path.name for path in Path(source).parent.glob("*.h")] == ["autofuse.h"]
