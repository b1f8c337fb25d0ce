"""One job on everything at once: PostgreSQL, a Dask cluster that builds, two devices behind a tracker, and faults.

The networks are so small that a job takes a minute or two on a machine that has nothing else to do.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from servers import Cluster, Postgres, Server, free_port, listens, wait_until
from sqlalchemy import bindparam, text

from autofuse.database.database import open_database

pytestmark = pytest.mark.cluster
KEY = "rack"
PATIENCE_S = 900.0
Network = Callable[..., list[Path]]


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


def device(folder: Path, number: int, tracker: int) -> Server:
    log = folder / f"device-{number}.log"
    server = Server(
        [sys.executable, "-m", "autofuse", "serve", "--port", "0", "--tracker", f"127.0.0.1:{tracker}", "--key", KEY],
        log,
    )
    wait_until(lambda: "offered at tracker" in log.read_text(), "the device is offered")
    return server


@pytest.fixture
def devices(tracker: int, tmp_path: Path) -> Iterator[list[Server]]:
    made = [device(tmp_path, number, tracker) for number in range(2)]
    yield made
    for server in made:
        server.kill()


@pytest.fixture
def networks(onnx_builder: Any, tmp_path: Path) -> Network:
    """Small networks of these widths: each test has its own, because the database is one for all."""

    def make(*widths: int) -> list[Path]:
        made = []
        for width in widths:
            b = onnx_builder()
            y = b.op("Relu", "relu", b.dense("first", "x", (16, width)))
            y = b.op("Softmax", "softmax", b.op("Add", "residual", b.dense("second", y, (width, width)), y))
            made.append(Path(b.save(tmp_path / f"net{width}.onnx", {"x": [8, 16]}, [y])))
        return made

    return make


def measured(postgres: Postgres, models: Sequence[Path]) -> dict[str, tuple[Any, ...]]:
    """Measurements of these models by their identity: candidate, state, number of samples, whether trusted."""
    with open_database(postgres.url):
        pass  # the tables are there from now on
    query = text(
        "SELECT m.uid, m.candidate_id, m.state, (SELECT count(*) FROM af_sample s WHERE s.measurement_id = m.id),"
        " m.trusted AND d.id IS NULL FROM af_measurement m JOIN af_run r ON r.id = m.run_id"
        " LEFT JOIN af_doubt d ON d.measurement_id = m.id WHERE r.model_sha256 IN :models"
    ).bindparams(bindparam("models", expanding=True))
    keys = [hashlib.sha256(model.read_bytes()).hexdigest() for model in models]
    with open_database(postgres.url, read_only=True) as base, base.reading() as sql:
        return {row[0]: tuple(row[1:]) for row in sql.execute(query, {"models": keys})}


def require_sound(found: dict[str, tuple[Any, ...]]) -> None:
    """Every time has its samples, and nothing that is trusted was measured again."""
    assert all((samples > 0) == (state == "ok") for _, state, samples, _ in found.values())
    assert set(Counter(row[0] for row in found.values() if row[3]).values()) <= {1}


class Tune(Server):
    """The job under test."""

    def __init__(self, folder: Path, models: list[Path], base: str, *flags: object) -> None:
        self.output = folder / "job.json"
        arguments = [str(model) for model in models] + ["--db", base, "--format", "json", *map(str, flags)]
        script = f"exec {sys.executable} -m autofuse tune {' '.join(arguments)} > {self.output}"
        super().__init__(["bash", "-c", script], folder / "job.log")

    def end(self) -> dict[str, Any]:
        wait_until(lambda: not self.alive, "the job ends", PATIENCE_S, self.log)
        assert self.process.returncode == 0, self.log.read_text()[-4000:] + self.output.read_text()
        body: dict[str, Any] = json.loads(self.output.read_text())
        return body


Start = Callable[..., Tune]


@pytest.fixture
def tune(tmp_path: Path) -> Iterator[Start]:
    """Starts a job, in a folder of its own; nothing of it outlives the test."""
    made: list[Tune] = []

    def start(models: list[Path], base: str, *flags: object) -> Tune:
        place = tmp_path / f"job-{len(made)}"
        place.mkdir()
        made.append(Tune(place, models, base, *flags))
        return made[-1]

    yield start
    for job in made:
        job.kill()


def test_a_job_survives_the_loss_of_every_part_of_its_cluster(
    postgres: Postgres, cluster: Cluster, tracker: int, devices: list[Server], networks: Network, tune: Start
) -> None:
    models = networks(12, 20)
    job = tune(
        models, postgres.url, "--run", "farm", "--rpc-tracker", f"127.0.0.1:{tracker}", "--rpc-key", KEY,
        "--workers", 2, "--executor", f"dask://{cluster.address}", "--threads", 1, "--trials", 30,
    )  # fmt: skip
    faults: dict[str, Callable[[], object]] = {
        "a worker": cluster.workers[0].kill,
        "the database, for a second": lambda: postgres.restart(1.0),
        "a device": devices[0].kill,
        "the scheduler": cluster.scheduler.kill,
    }
    before: dict[str, tuple[Any, ...]] = {}
    for name, strike in faults.items():
        seen = len(before)
        what = f"two more candidates before the loss of {name}"
        wait_until(lambda seen=seen: len(measured(postgres, models)) >= seen + 2, what, PATIENCE_S, job.log)  # type: ignore[misc]
        before = measured(postgres, models)
        strike()
    body = job.end()
    assert [task["state"] for task in body["tasks"]] == ["done", "done"]
    assert body["complete"]
    assert all(task["chosen"] for task in body["tasks"])
    after = measured(postgres, models)
    assert before.items() <= after.items(), "what was recorded is there still, unchanged"
    require_sound(after)


def test_two_coordinators_share_one_job(
    postgres: Postgres, tracker: int, devices: list[Server], networks: Network, tune: Start
) -> None:
    """Each drives one device; every task is done once."""
    models = networks(28, 36)
    flags = (
        "--run", "two-coordinators", "--rpc-tracker", f"127.0.0.1:{tracker}", "--rpc-key", KEY, "--threads", 1,
        "--trials", 24,
    )  # fmt: skip
    jobs = [tune(models, postgres.url, *flags) for _ in range(2)]
    bodies = [job.end() for job in jobs]
    assert any(body["complete"] for body in bodies)
    with open_database(postgres.url, read_only=True) as base:
        stored = base.jobs.job("two-coordinators")
    assert stored is not None
    assert (stored.state, len(stored.workers)) == ("finished", 2)
    assert [task.state for task in stored.tasks] == ["done", "done"]
    require_sound(measured(postgres, models))
