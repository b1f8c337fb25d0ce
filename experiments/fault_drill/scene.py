"""The scene of a drill: devices, a database, a job, and the supervisor that starts again what has died."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import onnx
import psutil
from onnx import TensorProto, helper, numpy_helper
from sqlalchemy import text

from autofuse.database.database import open_database
from autofuse.errors import DatabaseError
from experiments.fault_drill.postgres import Postgres
from experiments.index import ROOT

KEY, RUN = "drill", "drill"
DEVICES = 2
START_S = 120.0
ENDED = (0, 5)
"""Exit codes of a job that has ended: done, and done with a winner slower than the default plan."""
Snapshot = dict[str, tuple[object, ...]]


@dataclass(frozen=True)
class Results:
    """How each model ended: its state, and the file of its winner, compiled from the database."""

    states: dict[str, str]
    libraries: dict[str, Path]
    models: dict[str, Path]


class DeviceServer:
    """One `autofuse serve` on a port of its own."""

    def __init__(self, folder: Path, number: int) -> None:
        self.port, self.log = free_port(), folder / f"device-{number}.log"
        self.environment = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(folder / f"device-{number}")}
        (folder / f"device-{number}").mkdir()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        return self._process.pid if self._process is not None else -1

    def start(self) -> None:
        command = [sys.executable, "-m", "autofuse", "serve", "--port", str(self.port), "--key", KEY]
        with self.log.open("ab") as file:
            self._process = subprocess.Popen(
                command, stdout=file, stderr=file, env=self.environment, start_new_session=True
            )

    def lose_power(self) -> bool:
        """kill -9 of everything that the server started, and of itself."""
        if not self.alive:
            return False
        with suppress(psutil.NoSuchProcess):
            for process in [*psutil.Process(self.pid).children(recursive=True), psutil.Process(self.pid)]:
                with suppress(psutil.NoSuchProcess):
                    process.kill()
        assert self._process is not None
        self._process.wait()
        return True


class Scene:
    """Use as a context manager. `trials`: candidates of the job."""

    def __init__(self, folder: Path, database: str, models: int, trials: int) -> None:
        folder.mkdir(parents=True)
        self.folder, self.database, self.trials = folder, database, trials
        self.temporary = folder / "tmp"
        self.temporary.mkdir()
        self.models = [small_network(folder / f"net{number}.onnx", 12 + 8 * number) for number in range(models)]
        self.servers = [DeviceServer(folder, number) for number in range(DEVICES)]
        self.postgres: Postgres | None = None
        self._job: subprocess.Popen[bytes] | None = None
        self._finished = False

    def __enter__(self) -> Scene:
        if self.database == "postgres":
            place = self.folder / "postgres"
            place.mkdir()
            self.postgres = Postgres(place)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._job is not None and self._job.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(self._job.pid, signal.SIGKILL)
            self._job.wait()
        for server in self.servers:
            server.lose_power()
        if self.postgres is not None:
            self.postgres.stop()

    @property
    def url(self) -> str:
        return self.postgres.url if self.postgres is not None else str(self.folder / "profile.db")

    # the job

    def start(self) -> None:
        """Devices first."""
        for server in self.servers:
            server.start()
        for server in self.servers:
            wait_until(lambda server=server: listens(server.port), START_S)
        self._start_job()

    def supervise(self) -> Counter[str]:
        """Start what is not running; what was started."""
        started: Counter[str] = Counter()
        for server in self.servers:
            if not server.alive:
                server.start()
                started["server"] += 1
        if not self._finished and (self._job is None or self._job.poll() is not None):
            if self.job_finished():
                return started
            self._start_job()
            started["job"] += 1
        return started

    def _start_job(self) -> None:
        addresses = [part for server in self.servers for part in ("--rpc", f"127.0.0.1:{server.port}")]
        command = [
            sys.executable, "-m", "autofuse", "tune", *map(str, self.models), "--db", self.url, "--run", RUN,
            *addresses, "--rpc-key", KEY, "--threads", "1", "--trials", str(self.trials), "--format", "json",
        ]  # fmt: skip
        with (self.folder / "job.log").open("ab") as log, (self.folder / "job.json").open("wb") as output:
            self._job = subprocess.Popen(
                command, stdout=output, stderr=log, start_new_session=True,
                env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(self.temporary)},
            )  # fmt: skip

    def job_finished(self) -> bool:
        if not self._finished and self._job is not None and self._job.poll() in ENDED:
            self._finished = True
        return self._finished

    def extend(self) -> None:
        """More candidates: a drill lasts until its faults have struck."""
        self.trials += 40
        self._finished, self._job = False, None

    def let_finish(self) -> None:
        """No more faults: whatever is stopped goes on."""
        for process in [*self.job_processes(), *self.device_processes()]:
            with suppress(psutil.NoSuchProcess):
                process.resume()

    # its processes

    def coordinators(self) -> list[psutil.Process]:
        return [psutil.Process(self._job.pid)] if self._job is not None and self._job.poll() is None else []

    def children(self, module: str) -> list[psutil.Process]:
        """Descendants of the job that run a module."""
        return [process for process in self.job_processes() if module in _command(process)]

    def job_processes(self) -> list[psutil.Process]:
        with suppress(psutil.NoSuchProcess):
            return [one for top in self.coordinators() for one in (top, *top.children(recursive=True))]
        return []

    def device_processes(self) -> list[psutil.Process]:
        """What the servers started to hold sessions and run kernels."""
        found = []
        for server in self.servers:
            if server.alive:
                with suppress(psutil.NoSuchProcess):
                    found += psutil.Process(server.pid).children(recursive=True)
        return found

    # what was recorded

    def snapshot(self) -> Snapshot | None:
        """Each measurement by its identity; None while the database cannot be asked."""
        query = (
            "SELECT m.uid, c.workload_id, c.schedule_id, m.state, m.median_us, "
            "(SELECT count(*) FROM af_sample s WHERE s.measurement_id = m.id), m.trusted "
            "FROM af_measurement m JOIN af_candidate c ON c.id = m.candidate_id"
        )
        try:
            with open_database(self.url, read_only=True) as base, base.reading() as sql:
                return {row[0]: tuple(row[1:]) for row in sql.execute(text(query))}
        except DatabaseError:
            return None

    def doubled(self) -> int:
        """Candidates that were measured again although their time was trusted."""
        rows = dict(self.snapshot() or {})
        with open_database(self.url, read_only=True) as base, base.reading() as sql:
            doubts = sql.execute(text("SELECT m.uid FROM af_doubt d JOIN af_measurement m ON m.id = d.measurement_id"))
            for (uid,) in doubts.all():
                rows.pop(uid, None)
        return sum(count - 1 for count in Counter(row[:2] for row in rows.values() if row[5]).values())

    def damage(self) -> list[str]:
        """What is wrong with the database at the end."""
        with open_database(self.url, read_only=True) as base:
            bare = [uid for uid, row in (self.snapshot() or {}).items() if (row[2] == "ok") != (row[4] != 0)]
            return base.problems() + [f"measurement {uid}: its samples do not fit its state" for uid in bare[:3]]

    def results(self) -> Results:
        """Compiles each winner."""
        import autofuse

        with open_database(self.url, read_only=True) as base:
            job = base.jobs.job(RUN)
        assert job is not None
        libraries = {}
        for model in self.models:
            libraries[model.stem] = self.folder / f"{model.stem}.so"
            autofuse.compile(model, libraries[model.stem], database=self.url, threads=1, strict=True)
        states = {Path(task.model).stem: task.state for task in job.tasks}
        return Results(states, libraries, {model.stem: model for model in self.models})


def _command(process: psutil.Process) -> list[str]:
    with suppress(psutil.Error):
        return list(process.cmdline())
    return []


def small_network(path: Path, width: int) -> Path:
    """Two dense layers, a residual and a softmax."""
    chance = np.random.default_rng(width)

    def weights(name: str, *shape: int) -> Any:
        return numpy_helper.from_array(chance.standard_normal(shape).astype(np.float32) * 0.1, name)

    nodes = [
        helper.make_node("MatMul", ["x", "w1"], ["a"], "first"),
        helper.make_node("Add", ["a", "b1"], ["b"], "first_bias"),
        helper.make_node("Relu", ["b"], ["c"], "relu"),
        helper.make_node("MatMul", ["c", "w2"], ["d"], "second"),
        helper.make_node("Add", ["d", "c"], ["e"], "residual"),
        helper.make_node("Softmax", ["e"], ["y"], "softmax"),
    ]
    graph = helper.make_graph(
        nodes, path.stem, [helper.make_tensor_value_info("x", TensorProto.FLOAT, [64, 128])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [64, 8 * width])],
        [weights("w1", 128, 8 * width), weights("b1", 8 * width), weights("w2", 8 * width, 8 * width)],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 9
    onnx.save(model, path)
    return path


def free_port() -> int:
    """A TCP port of this machine that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def listens(port: int) -> bool:
    """Whether somebody does."""
    with socket.socket() as probe:
        probe.settimeout(0.5)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def wait_until(happened: Any, patience_s: float) -> None:
    """Returns once it has; TimeoutError after a while."""
    deadline = time.monotonic() + patience_s
    while not happened():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {patience_s:g} s")
        time.sleep(0.05)
