"""This machine and other devices: is all well, what are they, let others measure here."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from autofuse.device.address import (
    KEY_VARIABLE,
    choose_address,
    environment_key,
    parse_address,
    told_key,
)
from autofuse.values.arguments import DEFAULT_PORT, Duration, StrPath, parse_duration

if TYPE_CHECKING:
    from autofuse.backend.rpc.server import DeviceServer
    from autofuse.checks.check import Check
    from autofuse.device.profile import DeviceProfile


@dataclass(frozen=True)
class DeviceReport:
    """A profile; whether this machine can measure for it (else `why_not`); the `fingerprint` that times are kept by."""

    profile: DeviceProfile
    isa: str
    known_to_llvm: bool
    measurable_here: bool
    why_not: str | None
    fingerprint: str


@dataclass(frozen=True)
class Serving:
    """A device that listens. `key`: to be told, None for one that was given in secret; `source`: where that one is."""

    host: str
    port: int
    key: str | None = field(repr=False)
    source: str
    tracker: str | None
    kind: str = field(repr=False)


def doctor(
    database: str | None = None,
    *,
    device: str = "local",
    rpc: str | None = None,
    rpc_tracker: str | None = None,
    rpc_key: str | None = None,
    rpc_key_file: StrPath | None = None,
    progress: Callable[[Check], None] | None = None,
) -> tuple[Check, ...]:
    """Check that this machine is ready, and each hop to a device elsewhere.

    Packages, linker, CPU, a kernel from source to result, database, disk. `progress` is called after each check.
    """
    from autofuse.checks.doctor import checks

    found = []
    for check in checks(database, device, choose_address(rpc, rpc_tracker, told_key(rpc_key, rpc_key_file))):
        found.append(check)
        if progress is not None:
            progress(check)
    return tuple(found)


def cflags() -> tuple[str, ...]:
    """What a C compiler needs to build a program that runs a library, one argument each."""
    from autofuse.backend.c_interface import compiler_arguments

    return tuple(compiler_arguments())


def device_list() -> tuple[DeviceProfile, ...]:
    """The profiles that `device` accepts by name."""
    from autofuse.device.profile import load_profile, shipped_profiles

    return tuple(load_profile(path) for path in shipped_profiles().values())


def device_show(device: str = "local") -> DeviceReport:
    """One profile, and whether this machine can measure for it."""
    from autofuse.backend.compile.host_cpu import accepts, device_named, local_device
    from autofuse.device.fingerprint import fingerprint
    from autofuse.device.profile import require_measurable
    from autofuse.errors import DeviceError

    profile = device_named(device)
    refusal = None
    try:
        require_measurable(profile, local_device())
    except DeviceError as error:
        refusal = str(error)
    key = fingerprint(profile, None if refusal else local_device()).key
    return DeviceReport(profile, profile.target().isa, accepts(profile), refusal is None, refusal, key)


def device_probe(rates: bool = False) -> DeviceProfile:
    """This machine's profile; its `to_toml()` is a file that `device` reads.

    `rates`: with how fast arithmetic, each level of memory and a dispatch are, measured in some seconds: `compile` for
    a device that was never measured takes the schedules of the known device that is most like it. DeviceError where
    nothing can be measured.
    """
    from autofuse.backend.compile.host_cpu import local_device
    from autofuse.environment.rates import with_rates

    return with_rates(local_device()) if rates else local_device()


def serve(
    *,
    host: str = "127.0.0.1",
    port: int = DEFAULT_PORT,
    key: str | None = None,
    key_file: StrPath | None = None,
    tracker: str | None = None,
    announce: str | None = None,
    session: Duration = "24h",
    ready: Callable[[Serving], None] | None = None,
    log: Callable[[str], None] | None = None,
) -> None:
    """Let others measure on this machine, until the process is told to end (then KeyboardInterrupt).

    One client at a time, by TVM's RPC; a session that crashes or hangs is ended, and the next one is served. `port`: 0
    for any that is free. `key`, `key_file`: what clients must say (None: the environment's, or a new one). `tracker`:
    HOST:PORT where the device is offered under `key`; `announce`: how its clients reach this machine. `session`: the
    longest life of a session. `ready` is called once it listens, `log` with what happens.
    """
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # sessions are forks, which must find no threads
    from autofuse.backend.rpc.server import ServerOptions
    from autofuse.measure.remote.device_server import serve as run

    where = None if tracker is None else parse_address(tracker, "--tracker")
    kept = told_key(key, key_file, "--key") or environment_key()
    used = kept or secrets.token_urlsafe(12).replace("-", ".")
    shown = used if key or not kept else None

    def listening(server: DeviceServer) -> None:
        if ready is not None:
            ready(Serving(host, server.port, shown, str(key_file or KEY_VARIABLE), tracker, used))

    run(
        ServerOptions(host, port, used, where, announce, parse_duration(session, "--session")),
        log or _silent,
        listening,
    )


def _silent(_text: str) -> None:
    """Nobody is told."""
