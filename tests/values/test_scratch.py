"""Temporary folders: gone at the end, and swept up after a job that was killed."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from autofuse.values.outputs import Kind, write_output
from autofuse.values.scratch import left_parts, part_name, scratch_folder

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


WRITE = """
import sys, time
from pathlib import Path
from autofuse.values.outputs import Kind, output_file
with output_file(Path(sys.argv[1]) / "model.so", Kind("a note")) as part:
    part.write_bytes(b"half of it")
    print(part, flush=True)
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


def test_a_folder_that_goes_while_it_is_looked_at_stops_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    is_dir, seen = Path.is_dir, []

    def gone_since(path: Path) -> bool:
        found = is_dir(path)
        if found and path.name.endswith("-ended"):
            seen.append(path)
            path.rmdir()
        return found

    with scratch_folder(tmp_path) as mine:
        name = mine.name
    (tmp_path / f"{name[: name.rindex('-') + 1]}ended").mkdir()
    monkeypatch.setattr(Path, "is_dir", gone_since)
    with scratch_folder(tmp_path):
        assert len(seen) == 1


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


def test_the_next_write_to_a_folder_removes_the_parts_of_killed_writers_and_nothing_else(tmp_path: Path) -> None:
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITE, str(tmp_path)], stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    killed = writers[0]
    try:
        left, kept = (Path(writer.stdout.readline().strip()) for writer in writers)  # type: ignore[union-attr]
        killed.send_signal(signal.SIGKILL)
        killed.wait()
        other_system = tmp_path / left.name.replace(left.name[10:22], "0" * 12)
        alike = [other_system, tmp_path / ".autofuse-notes.part", tmp_path / f"{left.name}.txt", tmp_path / "a.part"]
        for path in alike:
            path.write_text("mine")
        precious = tmp_path / "precious"
        precious.write_text("a thesis")
        other = "b" if left.name[-6] == "a" else "a"
        (tmp_path / f"{left.name[:-6]}{other}.part").symlink_to(precious)
        write_output(tmp_path / "plan.json", "{}", Kind("a plan"))
        assert not left.exists()
        assert kept.read_bytes() == b"half of it"
        assert all(path.read_text() == "mine" for path in alike)
        assert precious.read_text() == "a thesis"
    finally:
        for writer in writers:
            writer.kill()
            writer.communicate()


def test_a_part_of_this_process_is_in_use(tmp_path: Path) -> None:
    (tmp_path / part_name()).write_text("x")
    assert left_parts(tmp_path) == []
