"""Limits of memory are only ever lowered, and kept: also without the right to raise one (CAP_SYS_RESOURCE)."""

from __future__ import annotations

import ctypes
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from autofuse.values.processes import default_memory

pytestmark = pytest.mark.slow

DROP_FROM_BOUNDING_SET, SYS_RESOURCE = 24, 24
GIB = 1 << 30

LOWERED = """
import os, resource
from autofuse.measure.children import child
os.environ[child.MEMORY_VARIABLE] = {memory!r}
child._limit()
print(resource.getrlimit(resource.RLIMIT_DATA))
"""


def limited(which: int, soft: int, hard: int) -> Callable[[], None]:
    """Limits a process that is about to start, and takes root's right to raise limits from it."""

    def prepare() -> None:
        ctypes.CDLL(None).prctl(DROP_FROM_BOUNDING_SET, SYS_RESOURCE, 0, 0, 0)
        resource.setrlimit(which, (soft, hard))

    return prepare


@pytest.mark.parametrize(
    ("soft", "hard", "asked", "kept"),
    [
        (resource.RLIM_INFINITY, resource.RLIM_INFINITY, 2 * GIB, 2 * GIB),
        (GIB, GIB, 2 * GIB, GIB),
        (GIB, resource.RLIM_INFINITY, 2 * GIB, GIB),
        (GIB, 4 * GIB, 2 * GIB, GIB),
        (4 * GIB, 8 * GIB, 2 * GIB, 2 * GIB),
    ],
    ids=["none", "hard", "soft", "both", "higher"],
)
def test_a_child_lowers_its_limit_and_keeps_a_lower_one(soft: int, hard: int, asked: int, kept: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOWERED.format(memory=str(asked))],
        preexec_fn=limited(resource.RLIMIT_DATA, soft, hard),
        capture_output=True,
        text=True,
    )
    assert (done.stdout.strip(), done.stderr) == (str((kept, kept)), "")


def test_a_share_of_the_memory_is_no_more_than_this_process_may_take(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _which: (GIB // 2, GIB))
    assert default_memory(1) == min(GIB // 2, default_memory(1))
    monkeypatch.setattr(resource, "getrlimit", lambda _which: (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert default_memory(1) > default_memory(4) > 0


@pytest.mark.long
@pytest.mark.parametrize(
    ("which", "size", "flags"),
    [
        (resource.RLIMIT_AS, 24 * GIB, []),
        (resource.RLIMIT_DATA, 6 * GIB, ["--memory-limit", "3G"]),
    ],
    ids=["ulimit -v", "ulimit -d and --memory-limit"],
)
def test_tuning_works_under_a_limit_that_nobody_may_raise(
    which: int, size: int, flags: list[str], onnx_builder: Any, tmp_path: Path
) -> None:
    b = onnx_builder()
    model = b.save(tmp_path / "net.onnx", {"x": [8, 16]}, [b.op("Relu", "y", b.dense("d", "x", (16, 16)))])
    command = [sys.executable, "-m", "autofuse", "tune", str(model), "--db", str(tmp_path / "net.db")]
    done = subprocess.run(
        [*command, "--threads", "1", "--trials", "1", *flags],
        preexec_fn=limited(which, size, size),
        capture_output=True,
        text=True,
        timeout=1200,
    )
    assert done.returncode == 0, done.stderr
    assert "maximum limit" not in done.stderr + done.stdout
