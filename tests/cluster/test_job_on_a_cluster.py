"""One job on everything at once: PostgreSQL, a Dask cluster that builds, two boards behind a tracker, and faults."""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from servers import Cluster, Postgres, Server, free_port, listens, wait_until
from sqlalchemy import text

from autofuse.profiling.database import open_database

pytestmark = pytest.mark.cluster
KEY = "rack"


@pytest.fixture
def tracker(tmp_path: Path) -> Iterator[int]:
    port = free_port()
    server = Server(
        [sys.executable, "-m", "tvm.exec.rpc_tracker", "--host", "127.0.0.1", "--port", str(port),
         "--port-end", str(port + 1), "--silent"],
        tmp_path / "tracker.log",
    )  # fmt: skip
    wait_until(lambda: listens(port), "the tracker listens")
    yield port
    server.kill()


def board(folder: Path, number: int, tracker: int) -> Server:
    log = folder / f"board-{number}.log"
    server = Server(
        [sys.executable, "-m", "autofuse", "serve", "--port", "0", "--tracker", f"127.0.0.1:{tracker}", "--key", KEY],
        log,
    )
    wait_until(lambda: "offered at tracker" in log.read_text(), "the board is offered")
    return server


@pytest.fixture
def boards(tracker: int, tmp_path: Path) -> Iterator[list[Server]]:
    made = [board(tmp_path, number, tracker) for number in range(2)]
    yield made
    for server in made:
        server.kill()


@pytest.fixture
def models(onnx_builder: Any, tmp_path: Path) -> list[Path]:
    made = []
    for number, width in enumerate((12, 20, 28)):
        b = onnx_builder()
        y = b.op("Relu", "relu", b.dense("first", "x", (16, width)))
        y = b.op("Softmax", "softmax", b.op("Add", "residual", b.dense("second", y, (width, width)), y))
        made.append(Path(b.save(tmp_path / f"net{number}.onnx", {"x": [8, 16]}, [y])))
    return made


def measured(postgres: Postgres, name: str) -> Counter[str]:
    """Measurements of a job's runs, by their identity."""
    with open_database(postgres.url, read_only=True) as base, base.reading() as sql:
        query = (
            "SELECT m.uid FROM af_measurement m WHERE m.run_id IN "
            "(SELECT run_id FROM af_task t JOIN af_job j ON j.id = t.job_id WHERE j.name = :name)"
        )
        return Counter(row[0] for row in sql.execute(text(query), {"name": name}))


class Tune(Server):
    """The job under test."""

    def __init__(self, folder: Path, models: list[Path], base: str, *flags: object) -> None:
        self.output = folder / "job.json"
        arguments = [str(model) for model in models] + ["--db", base, "--format", "json", *map(str, flags)]
        script = f"exec {sys.executable} -m autofuse tune {' '.join(arguments)} > {self.output}"
        super().__init__(["bash", "-c", script], folder / "job.log")

    def end(self, patience_s: float = 400.0) -> dict[str, Any]:
        wait_until(lambda: not self.alive, f"the job ends; it said: {self.log.read_text()[-2000:]}", patience_s)
        assert self.process.returncode == 0, self.log.read_text()[-4000:] + self.output.read_text()
        body: dict[str, Any] = json.loads(self.output.read_text())
        return body


def when(happened: Callable[[], bool], act: Callable[[], object], what: str) -> None:
    wait_until(happened, what, 120.0)
    act()


def test_a_job_survives_the_loss_of_every_part_of_its_cluster(
    postgres: Postgres, cluster: Cluster, tracker: int, boards: list[Server], models: list[Path], tmp_path: Path
) -> None:
    job = Tune(
        tmp_path, models, postgres.url, "--run", "farm", "--rpc-tracker", f"127.0.0.1:{tracker}", "--rpc-key", KEY,
        "--boards", 2, "--executor", f"dask://{cluster.address}", "--threads", 1, "--budget", "150s", "--trials", 60,
    )  # fmt: skip
    count = lambda: sum(measured(postgres, "farm").values())  # noqa: E731
    when(lambda: count() >= 3, cluster.workers[0].kill, "three candidates are measured")
    seen = count()
    when(lambda: count() >= seen + 2, lambda: postgres.restart(1.0), "more after the loss of a worker")
    seen = count()
    when(lambda: count() >= seen + 2, boards[0].kill, "more after the database's restart")
    seen = count()
    when(lambda: count() >= seen + 2, cluster.scheduler.kill, "more after the loss of a board")
    body = job.end()
    assert [task["state"] for task in body["tasks"]] == ["done"] * 3
    assert body["complete"]
    found = measured(postgres, "farm")
    assert set(found.values()) == {1}
    assert all(task["chosen"] for task in body["tasks"])


def test_two_coordinators_share_one_job(
    postgres: Postgres, tracker: int, boards: list[Server], models: list[Path], tmp_path: Path
) -> None:
    """Each drives one board; every task is done once."""
    flags = (
        "--run", "shared", "--rpc-tracker", f"127.0.0.1:{tracker}", "--rpc-key", KEY, "--threads", 1,
        "--budget", "120s", "--trials", 30,
    )  # fmt: skip
    places = [tmp_path / "first", tmp_path / "second"]
    jobs = []
    for place in places:
        place.mkdir()
        jobs.append(Tune(place, models, postgres.url, *flags))
        time.sleep(3.0)
    bodies = [job.end() for job in jobs]
    assert all(task["state"] == "done" for body in bodies[-1:] for task in body["tasks"])
    with open_database(postgres.url, read_only=True) as base:
        stored = base.jobs.job("shared")
        assert stored is not None
        assert stored.state == "finished"
        assert len({found.name for found in stored.boards}) >= 1
        assert len(stored.boards) == 2
    assert set(measured(postgres, "shared").values()) == {1}
