"""`autofuse tune` killed, interrupted and robbed of a worker: it goes on, and nothing recorded is lost or doubled.

One story on one database, in real processes: ten times kill -9 (three times in `make test`), then Ctrl-C, then (in
`make test-long` only) a run that loses a worker process and finishes. Each fixture is a chapter; the tests look at
what it left behind.
"""

from __future__ import annotations

import os
import random
import re
import signal
import sqlite3
import subprocess
import sys
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest

from autofuse.database.database import open_database
from autofuse.search.progress import PHASES

pytestmark = [pytest.mark.slow, pytest.mark.shortened]

KILLS, FEW_KILLS = 10, 3
PATIENCE_S = 600.0
WORKER = "autofuse.measure.children.worker"


class TuneProcess:
    """A running `autofuse tune`; `said`: its lines so far. All its descendants carry a mark in their environment."""

    def __init__(self, model: Path, *flags: object) -> None:
        self.database, self.mark = model.with_suffix(".db"), uuid.uuid4().hex
        command = [sys.executable, "-m", "autofuse", "tune", str(model), "--db", str(self.database), "--threads", "1"]
        temporary = model.parent / "tmp"
        temporary.mkdir(exist_ok=True)
        self.process = subprocess.Popen(
            [*command, *map(str, flags)],
            env={**os.environ, "AUTOFUSE_TEST_MARK": self.mark, "TMPDIR": str(temporary)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.said: list[str] = []
        self._reader = threading.Thread(target=self._listen, daemon=True)
        self._reader.start()

    def _listen(self) -> None:
        assert self.process.stderr is not None
        self.said.extend(iter(self.process.stderr.readline, ""))

    def wait_until(self, happened: Callable[[], bool]) -> None:
        """Returns once it has; fails when the process ends before, or nothing happens for long."""
        deadline = time.monotonic() + PATIENCE_S
        while not happened():
            assert self.process.poll() is None, f"ended with {self.process.returncode}: {''.join(self.said)}"
            assert time.monotonic() < deadline, f"nothing happened: {''.join(self.said)}"
            time.sleep(0.02)

    def end(self) -> int:
        """Waits for the process; its exit code."""
        code = self.process.wait(PATIENCE_S)
        self._reader.join(5.0)
        return code

    def kill(self) -> None:
        """kill -9, and nothing else."""
        self.process.kill()
        self.process.wait()

    def descendants(self) -> list[psutil.Process]:
        """Living processes that this one started, directly or not."""
        found = []
        for process in psutil.process_iter():
            try:
                marked = process.environ().get("AUTOFUSE_TEST_MARK") == self.mark
                if marked and process.pid != self.process.pid and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
            except psutil.Error:
                continue
        return found

    def workers(self) -> list[psutil.Process]:
        """Living worker processes."""
        found = []
        for child in psutil.Process(self.process.pid).children():
            with suppress(psutil.NoSuchProcess):  # it may end while we look
                found += [child] if WORKER in child.cmdline() else []
        return found

    def orphans(self) -> list[str]:
        """Command lines of descendants that are still there long after the end."""
        deadline = time.monotonic() + PATIENCE_S
        while (left := self.descendants()) and time.monotonic() < deadline:
            time.sleep(0.05)
        return [" ".join(process.cmdline()) for process in left]


def recorded(database: Path) -> dict[str, tuple[object, ...]]:
    """Each measurement by its identity, with what it says; read beside whoever writes."""
    if not database.exists():
        return {}
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True, timeout=10)) as connection:
        try:
            rows = connection.execute(
                "SELECT m.uid, c.workload_id, c.schedule_id, m.state, m.median_us,"
                " (SELECT count(*) FROM af_sample s WHERE s.measurement_id = m.id), m.trusted"
                " FROM af_measurement m JOIN af_candidate c ON c.id = m.candidate_id"
            ).fetchall()
        except sqlite3.OperationalError:  # killed before the tables were there
            return {}
    return {row[0]: tuple(row[1:]) for row in rows}


@dataclass(frozen=True)
class Kills:
    """How many processes are killed while they start, while they measure and among the finalists."""

    early: int
    measuring: int
    late: int

    @classmethod
    def of(cls, count: int) -> Kills:
        early, late = max(1, 2 * count // 5), max(1, count // 5)
        return cls(early, count - early - late, late)

    @property
    def all(self) -> int:
        return self.early + self.measuring + self.late


@dataclass
class Chapter:
    """What a part of the story left behind."""

    model: Path
    before: list[dict[str, tuple[object, ...]]] = field(default_factory=list)
    after: list[dict[str, tuple[object, ...]]] = field(default_factory=list)
    orphans: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    runs: list[dict[str, Any]] = field(default_factory=list)
    phases: list[str] = field(default_factory=list)
    said: str = ""
    code: int | None = None

    def close(self) -> Chapter:
        """Takes a last look at the database."""
        with open_database(self.model.with_suffix(".db"), read_only=True) as opened:
            self.problems += opened.problems()
            self.runs = opened.table("runs").records()
        return self


@pytest.fixture(scope="module")
def model(onnx_builder: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two convolutions and a Gemm: a search that is far from complete when the story ends."""
    b = onnx_builder()
    x = b.op("Relu", "relu", b.conv_bn("conv", "x", (3, 16)))
    x = b.op("Relu", "relu2", b.conv_bn("deep", x, (16, 16), group=16))
    x = b.op("Flatten", "flatten", b.op("GlobalAveragePool", "average", x))
    x = b.op("Gemm", "classes", x, b.weights(10, 16), b.weights(10), transB=1)
    return Path(b.save(tmp_path_factory.mktemp("story") / "net.onnx", {"x": [1, 3, 24, 24]}, [x]))


@pytest.fixture(scope="module")
def kills(pytestconfig: pytest.Config) -> Kills:
    return Kills.of(FEW_KILLS if pytestconfig.getoption("--brief") else KILLS)


@pytest.fixture(scope="module")
def killed(model: Path, kills: Kills) -> Chapter:
    """Processes that are killed at a random moment: while they start, while they measure, among the finalists."""
    chance, chapter = random.Random(11), Chapter(model)
    database = model.with_suffix(".db")
    for number in range(kills.all):
        known = len(recorded(database))
        finals = number >= kills.early + kills.measuring
        run = TuneProcess(model, *(["--trials", 1] if finals else ["--budget", "10m"]))
        if number < kills.early:
            time.sleep(chance.uniform(0.3, 4.0))
        elif finals:
            run.wait_until(lambda run=run: any("confirming" in line for line in run.said))
            time.sleep(chance.uniform(0.0, 1.5))
        else:
            run.wait_until(lambda known=known: len(recorded(database)) > known)
            time.sleep(chance.uniform(0.0, 1.0))
        chapter.before.append(recorded(database))
        run.kill()
        chapter.orphans += run.orphans()
        chapter.after.append(recorded(database))
        chapter.phases += re.findall(rf"phase \d of \d, ({'|'.join(PHASES)})", "".join(run.said))
        if database.exists() and database.stat().st_size:  # a kill may come between the file and its first page
            chapter.close()
    return chapter


@pytest.fixture(scope="module")
def interrupted(killed: Chapter) -> Chapter:
    """Ctrl-C, once, while candidates are measured."""
    chapter, database = Chapter(killed.model), killed.model.with_suffix(".db")
    run = TuneProcess(killed.model, "--budget", "10m")
    known = len(recorded(database))
    run.wait_until(lambda: len(recorded(database)) > known)
    run.process.send_signal(signal.SIGINT)
    chapter.code, chapter.said = run.end(), "".join(run.said)
    chapter.orphans = run.orphans()
    chapter.before, chapter.after = [killed.after[-1]], [recorded(database)]
    return chapter.close()


@pytest.fixture(scope="module")
def finished(interrupted: Chapter) -> Chapter:
    """A run to the end, in which one worker is killed once it has measured something.

    It ends after so many trials, however long a busy machine takes: a lone one might be over before we look.
    """
    chapter, database = Chapter(interrupted.model), interrupted.model.with_suffix(".db")
    run, known = TuneProcess(interrupted.model, "--trials", 8), len(recorded(database))
    run.wait_until(lambda: len(recorded(database)) > known and bool(run.workers()))
    run.workers()[0].kill()
    chapter.code, chapter.said = run.end(), "".join(run.said)
    chapter.orphans = run.orphans()
    chapter.before, chapter.after = [interrupted.after[-1]], [recorded(database)]
    return chapter.close()


@pytest.fixture(params=[pytest.param(name, marks=pytest.mark.long) for name in ("killed", "interrupted", "finished")])
def chapter(request: pytest.FixtureRequest) -> Iterator[Chapter]:
    yield request.getfixturevalue(request.param)


def test_nothing_recorded_is_lost_or_changed(chapter: Chapter) -> None:
    for before, after in zip(chapter.before, chapter.after, strict=True):
        assert before.items() <= after.items()


def test_no_candidate_is_measured_again_once_its_time_is_trusted(chapter: Chapter) -> None:
    """A winner that is not trusted is measured again, so a candidate may have several times that are not."""
    trusted = Counter(row[:2] for row in chapter.after[-1].values() if row[-1])
    assert set(trusted.values()) <= {1}


def test_every_time_has_all_its_samples(chapter: Chapter) -> None:
    for _, _, state, median_us, samples, _ in chapter.after[-1].values():
        assert (samples > 0) == (state == "ok") == (median_us is not None)  # type: ignore[operator]


def test_the_database_is_sound(chapter: Chapter) -> None:
    assert chapter.problems == []


def test_no_process_outlives_its_job(chapter: Chapter) -> None:
    assert chapter.orphans == []


def test_each_start_goes_on_with_the_same_run(chapter: Chapter) -> None:
    assert len(chapter.runs) == 1


def test_the_kills_hit_every_phase_and_each_start_got_further(killed: Chapter, kills: Kills) -> None:
    assert {"baselines", "confirming"} <= set(killed.phases)
    counts = [len(after) for after in killed.after]
    assert counts == sorted(counts)
    before, after = counts[kills.early - 1], counts[kills.early + kills.measuring - 1]
    assert after >= before + kills.measuring, "at least one candidate for each start that was given the time"
    assert killed.runs[0]["state"] == "running", "a killed process cannot say that it ended"


def test_an_interrupt_stops_cleanly_and_says_how_to_go_on(interrupted: Chapter) -> None:
    assert interrupted.code == 130
    assert interrupted.said.count("stopping after the candidate in flight") == 1
    assert "the same command goes on from there" in interrupted.said
    assert "Traceback" not in interrupted.said
    assert interrupted.runs[0]["state"] == "interrupted"


@pytest.mark.long
def test_a_killed_worker_costs_a_candidate_and_not_the_job(finished: Chapter) -> None:
    assert finished.code == 0, finished.said
    assert finished.runs[0]["state"] == "finished"
    new = [row for identity, row in finished.after[0].items() if identity not in finished.before[0]]
    lost = [row for row in new if row[2] != "ok"]
    assert len(new) > len(lost) <= 1, "how many are measured depends on how many times are trusted"


@pytest.mark.long
def test_the_finished_run_left_a_choice_that_compile_takes(finished: Chapter, tmp_path: Path) -> None:
    import autofuse

    report = autofuse.compile(
        finished.model, tmp_path / "net.so", database=str(finished.model.with_suffix(".db")), threads=1, strict=True
    )
    assert report.hits == report.kernels


@pytest.mark.long
def test_no_temporary_folder_is_left(finished: Chapter) -> None:
    left = {path.name for path in (finished.model.parent / "tmp").iterdir() if path.is_dir()}
    assert left <= {f"autofuse-{os.getuid()}"}, "the folder of lock files stays"
