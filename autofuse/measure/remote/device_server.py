"""`autofuse serve`: this machine as a device that others measure on."""

from __future__ import annotations

import secrets
import signal
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import NoReturn

from autofuse.backend.compile.host_cpu import serving_cpu
from autofuse.backend.rpc.server import Answer, DeviceServer, ServerOptions
from autofuse.device.address import LOOPBACK
from autofuse.device.description import DeviceDescription
from autofuse.device.host import probe_host
from autofuse.device.provenance import collect
from autofuse.measure.remote.device_session import ServedSession
from autofuse.values.scratch import scratch_folder


def serve(options: ServerOptions, log: Callable[[str], None], ready: Callable[[DeviceServer], None]) -> NoReturn:
    """Serve until the process is told to end (then KeyboardInterrupt). `ready`: called once it listens.

    Clients can run any code here, by the nature of the thing: whoever knows the key has this account.
    """
    host, instance = probe_host(serving_cpu()), secrets.token_hex(8)

    def described() -> DeviceDescription:
        return DeviceDescription(host, collect(), instance)

    def open_session(folder: Path, before: str) -> Answer:
        return ServedSession(folder, described, before).answer

    with scratch_folder() as folder:
        for number in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is not signal.SIG_IGN:  # as under `nohup`
                signal.signal(number, _end)
        server = DeviceServer(options, open_session, folder, log)
        if options.host not in LOOPBACK:
            log(
                f"warning: {options.host} is open to the network, without encryption: whoever knows the key can run "
                "code here; better listen at 127.0.0.1 and come through ssh -L"
            )
        ready(server)
        server.serve()
    raise AssertionError("a server ends by a signal only")


def _end(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
