"""Temporary folders: gone at the end, and swept up after a job that was killed."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from autofuse.values.scratch import scratch_folder

HOLD = """
import sys, time
from pathlib import Path
from autofuse.values.scratch import scratch_folder
with scratch_folder(Path(sys.argv[1])) as folder:
    (folder / "arrays").mkdir()
    (folder / "arrays" / "x.npy").write_bytes(b"0" * 1000)
    print(folder, flush=True)
    time.sleep(60)
"""


def folders(root: Path) -> list[Path]:
    return [path for path in root.iterdir() if path.is_dir()]


def test_a_folder_goes_at_the_end_also_after_an_error(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), scratch_folder(tmp_path) as folder:
        (folder / "file").write_text("x")
        raise ZeroDivisionError
    assert folders(tmp_path) == []


def test_two_jobs_do_not_disturb_each_other(tmp_path: Path) -> None:
    with scratch_folder(tmp_path) as first, scratch_folder(tmp_path) as second:
        assert first != second
        assert first.is_dir()
        assert second.is_dir()


def test_what_a_killed_job_left_behind_is_removed_and_a_living_jobs_folder_stays(tmp_path: Path) -> None:
    jobs = [
        subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    killed = jobs[0]
    try:
        left, kept = (Path(job.stdout.readline().strip()) for job in jobs)  # type: ignore[union-attr]
        killed.send_signal(signal.SIGKILL)
        killed.wait()
        assert (left / "arrays" / "x.npy").exists()
        with scratch_folder(tmp_path):
            assert not left.exists()
            assert kept.exists()
    finally:
        for job in jobs:
            job.kill()
            job.communicate()


def test_what_only_looks_like_a_folder_of_ours_is_left_alone(tmp_path: Path) -> None:
    with scratch_folder(tmp_path) as folder:
        prefix = folder.name[: folder.name.rindex("-") + 1]
    precious = tmp_path / "precious"
    precious.mkdir()
    (tmp_path / f"{prefix}link").symlink_to(precious)
    (tmp_path / f"{prefix}file").write_text("x")
    with scratch_folder(tmp_path):
        assert precious.is_dir()
        assert (tmp_path / f"{prefix}file").read_text() == "x"
