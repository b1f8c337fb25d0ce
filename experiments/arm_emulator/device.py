"""An emulated ARM device: `autofuse serve` under QEMU, to be frozen, killed and started again."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path

from autofuse.device.address import Address
from experiments.arm_emulator.recipe import Emulator, UnavailableError

START_S = 180.0
KEY = "emulated"


class EmulatedDevice:
    """One device with a core of QEMU's name `cpu`; listens at loopback, where `address` says. A context manager.

    `log`: a file that takes what it prints. `tracker`: HOST:PORT to be offered at, as a device of kind `KEY`.
    """

    def __init__(
        self, emulator: Emulator, log: Path, cpu: str = "cortex-a76", port: int = 0, tracker: str | None = None
    ) -> None:
        self._emulator, self._log, self._cpu = emulator, log, cpu
        self._tracker = tracker
        self.port = port
        self._process: subprocess.Popen[str] | None = None

    @property
    def address(self) -> Address:
        """Where it listens."""
        return Address("127.0.0.1", self.port, KEY)

    def __enter__(self) -> EmulatedDevice:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def start(self) -> None:
        """Start it (again, at the same port); UnavailableError when it does not come up."""
        arguments = ["-m", "autofuse", "serve", "--port", str(self.port), "--key", KEY]
        if self._tracker:
            arguments += ["--tracker", self._tracker, "--announce", "127.0.0.1"]
        with self._log.open("a") as log:
            self._process = subprocess.Popen(
                [*self._emulator.command(self._cpu), *arguments],
                env=self._emulator.environment(),
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )
        self.port = self._serving()

    def _serving(self) -> int:
        """The port that it says it listens at."""
        assert self._process is not None and self._process.stdout is not None
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline:
            ready, _, _ = select.select([self._process.stdout], [], [], 1.0)
            line = self._process.stdout.readline() if ready else ""
            if line.startswith("serving at "):
                return int(line.split(",")[0].rpartition(":")[2])
            if ready and not line:
                break
        self.kill()
        raise UnavailableError(f"the emulated device does not start: {self._log.read_text()[-2000:]}")

    def kill(self) -> None:
        """As a power cut: the server and the session that it serves are gone."""
        if self._process is not None:
            for pid in [self._process.pid, *self._sessions()]:
                with suppress(ProcessLookupError):
                    os.killpg(pid, signal.SIGKILL)
            self._process.wait()
            if self._process.stdout:
                self._process.stdout.close()
            self._process = None

    def freeze(self) -> None:
        """As a board that hangs: everything stops, connections stay open."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Undo `freeze`."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: int) -> None:
        assert self._process is not None
        for pid in [self._process.pid, *self._sessions()]:
            with suppress(ProcessLookupError):
                os.killpg(pid, number)

    def _sessions(self) -> list[int]:
        """Sessions lead process groups of their own."""
        import psutil

        assert self._process is not None
        with suppress(psutil.Error):
            return [child.pid for child in psutil.Process(self._process.pid).children()]
        return []
