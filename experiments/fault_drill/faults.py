"""The faults: each strikes a running part of the scene, and says whether there was one to strike."""

from __future__ import annotations

import os
import random
import resource
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    from experiments.fault_drill.scene import Scene

STOPPED_S = (1.0, 20.0)
"""Seconds that a process stays stopped: at most longer than a run on the device may take."""
FULL_S = 3.0
CORRUPT_S = 5.0
"""Seconds to wait for a kernel that was just built."""


@dataclass(frozen=True)
class Fault:
    """`strike`: True when it struck. `database`: the only kind of database that it fits (None: any)."""

    name: str
    strike: Callable[[Scene, random.Random], bool]
    database: str | None = None

    def fits(self, scene: Scene) -> bool:
        return self.database in (None, scene.database)


def _kill(processes: Sequence[psutil.Process], chance: random.Random, number: int = signal.SIGKILL) -> bool:
    if not processes:
        return False
    try:
        os.kill(chance.choice(list(processes)).pid, number)
    except ProcessLookupError:
        return False
    return True


def kill_coordinator(scene: Scene, _chance: random.Random) -> bool:
    """kill -9 of the process that drives the job."""
    return _kill(scene.coordinators(), _chance)


def kill_search(scene: Scene, chance: random.Random) -> bool:
    """kill -9 of a search process."""
    return _kill(scene.children("autofuse.job.searcher"), chance)


def kill_worker(scene: Scene, chance: random.Random) -> bool:
    """kill -9 of a process that builds kernels or whole libraries."""
    modules = ("autofuse.measure.children.builder", "autofuse.measure.networks.library_builder")
    builders = [child for module in modules for child in scene.children(module)]
    return _kill(builders, chance)


def kill_link(scene: Scene, chance: random.Random) -> bool:
    """kill -9 of a process that holds a session on a device."""
    return _kill(scene.children("autofuse.measure.remote.session_child"), chance)


def kill_server(scene: Scene, chance: random.Random) -> bool:
    """kill -9 of a device's server, with everything that it started: the device has lost its power."""
    server = chance.choice(scene.servers)
    return server.lose_power()


def kill_device(scene: Scene, chance: random.Random) -> bool:
    """kill -9 of the process on the device that runs the kernels."""
    return _kill(scene.device_processes(), chance)


def stop_device(scene: Scene, chance: random.Random) -> bool:
    """SIGSTOP of the process that runs the kernels; it wakes up again after a while."""
    found = scene.device_processes()
    if not found:
        return False
    process = chance.choice(list(found))
    with suppress(psutil.NoSuchProcess):
        process.suspend()
        time.sleep(chance.uniform(*STOPPED_S))
        process.resume()
        return True
    return False


def fill_disk(scene: Scene, _chance: random.Random) -> bool:
    """No file of the job can grow for a while: what a full disk means to those who write."""
    found = scene.job_processes()
    for process in found:
        _limit_files(process.pid, 4096)
    time.sleep(FULL_S)
    for process in [*found, *scene.job_processes()]:  # those started meanwhile inherited the limit
        _limit_files(process.pid, resource.RLIM_INFINITY)
    return bool(found)


def _limit_files(pid: int, size: int) -> None:
    with suppress(OSError):
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


def restart_database(scene: Scene, chance: random.Random) -> bool:
    """The server goes away as by a power cut, and comes back."""
    assert scene.postgres is not None
    scene.postgres.restart(after_s=chance.uniform(0.0, 2.0))
    return True


def corrupt_candidate(scene: Scene, chance: random.Random) -> bool:
    """A kernel that was just built is overwritten with noise before it is measured."""
    end = time.monotonic() + CORRUPT_S
    while time.monotonic() < end:
        kernels = [path for path in Path(scene.temporary).rglob("kernel.so") if _fresh(path)]
        if kernels:
            with suppress(OSError):
                path = chance.choice(kernels)
                path.write_bytes(bytes(chance.randrange(256) for _ in range(4096)))
                return True
        time.sleep(0.01)
    return False


def _fresh(path: Path) -> bool:
    with suppress(OSError):
        return time.time() - path.stat().st_mtime < 2.0
    return False


FAULTS = (
    Fault("kill -9 coordinator", kill_coordinator),
    Fault("kill -9 search", kill_search),
    Fault("kill -9 worker", kill_worker),
    Fault("kill -9 link", kill_link),
    Fault("kill -9 server", kill_server),
    Fault("kill -9 device", kill_device),
    Fault("SIGSTOP device", stop_device),
    Fault("full disk", fill_disk),
    Fault("database restart", restart_database, "postgres"),
    Fault("corrupt candidate", corrupt_candidate),
)
