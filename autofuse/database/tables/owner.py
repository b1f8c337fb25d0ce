"""Leases: which process works on a row, and whether it is still there."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from pathlib import Path

import psutil

START_TOLERANCE_S = 5.0
"""Start times derive from a clock that may be set; a reused process id is rarely this close."""


@dataclass(frozen=True)
class Owner:
    """A process: host name, process id, boot of the machine, start of the process (seconds since 1970)."""

    host: str
    pid: int
    boot_id: str
    started: float


def this_process() -> Owner:
    """The calling process."""
    process = psutil.Process()
    return Owner(socket.gethostname(), process.pid, boot_id(), process.create_time())


def boot_id() -> str:
    """Names the present boot of this machine: the kernel's own id, else the boot's time in minutes."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return f"booted-{int(psutil.boot_time() // 60)}"


def is_dead(owner: Owner) -> bool:
    """Whether `owner` surely runs no more; False for a process of another host, which cannot be asked."""
    if owner.host != socket.gethostname():
        return False
    if owner.boot_id != boot_id():
        return True
    try:
        process = psutil.Process(owner.pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            return True
        return abs(process.create_time() - owner.started) > START_TOLERANCE_S
    except psutil.NoSuchProcess:
        return True
    except psutil.AccessDenied:
        return False
