"""The servers that the tests of the cluster start and kill: PostgreSQL, a Dask scheduler with workers, a tracker."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from experiments.fault_drill.postgres import Postgres, postgres_tools

__all__ = ["Cluster", "Postgres", "Server", "free_port", "listens", "postgres_tools", "wait_until"]

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PATIENCE_S = 60.0


def free_port() -> int:
    """A TCP port of this machine that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_until(
    happened: Callable[[], bool], what: str, patience_s: float = PATIENCE_S, log: Path | None = None
) -> None:
    """Returns once it has; fails after a while, with the end of `log`."""
    deadline, pause_s = time.monotonic() + patience_s, 0.05
    while not happened():
        said = log.read_text()[-4000:] if log is not None else ""
        assert time.monotonic() < deadline, f"not within {patience_s:g} s: {what}\n{said}"
        time.sleep(pause_s)
        pause_s = min(1.0, pause_s * 1.2)


def listens(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(0.5)
        return probe.connect_ex(("127.0.0.1", port)) == 0


class Server:
    """A process with its log; `kill` is kill -9."""

    def __init__(self, command: Sequence[str], log: Path, environment: dict[str, str] | None = None) -> None:
        with log.open("ab") as file:
            self.process = subprocess.Popen(
                command, stdout=file, stderr=file, start_new_session=True,
                env={**os.environ, "PYTHONPATH": f"{ROOT}:{HERE}", **(environment or {})},
            )  # fmt: skip
        self.log = log

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def kill(self) -> None:
        if self.alive:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


class Cluster:
    """A Dask scheduler with workers of one thread each."""

    def __init__(self, folder: Path, workers: int = 2) -> None:
        self.folder, self.port = folder, free_port()
        dashboard = ["--no-dashboard", "--host", "127.0.0.1"]
        self.scheduler = Server(
            [sys.executable, "-m", "distributed.cli.dask_scheduler", "--port", str(self.port), *dashboard],
            folder / "scheduler.log",
        )
        wait_until(lambda: listens(self.port), "the scheduler listens")
        self.workers = [self.add_worker(number) for number in range(workers)]
        wait_until(lambda: self.registered() == workers, "the workers have registered")

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def add_worker(self, number: int) -> Server:
        place = self.folder / f"worker-{number}"
        place.mkdir(exist_ok=True)
        return Server(
            [sys.executable, "-m", "distributed.cli.dask_worker", self.address, "--nthreads", "1", "--no-nanny",
             "--no-dashboard", "--local-directory", str(place), "--host", "127.0.0.1"],
            self.folder / f"worker-{number}.log",
        )  # fmt: skip

    def registered(self) -> int:
        log = (self.folder / "scheduler.log").read_text()
        return log.count("Register worker")

    def close(self) -> None:
        for server in (*self.workers, self.scheduler):
            server.kill()
