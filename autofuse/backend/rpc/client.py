"""The client's side of a session on a device: files up and down, and encoded requests, through TVM's RPC.

Calls block, some of them for ever when the device is stuck: use it in a process that can be killed.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from pathlib import Path

from autofuse.backend.rpc.server import REQUEST
from autofuse.device.address import Address

PRIORITY = 1
SESSION_S = 0
"""No limit of the server's own making: it ends a session when its client is gone."""
DIAL_S = 5.0


class ConnectionLostError(Exception):
    """The session or the network broke; the text says what TVM or the system said."""


class DeviceSession:
    """A session on the device at `address`; ends when the object (or its process) goes."""

    def __init__(self, address: Address) -> None:
        from tvm import rpc

        try:
            if address.tracker:
                tracker = rpc.connect_tracker(address.host, address.port)
                self._remote = tracker.request(address.key, priority=PRIORITY, session_timeout=SESSION_S, max_retry=1)
            else:
                self._remote = rpc.connect(address.host, address.port, address.key, session_timeout=SESSION_S)
        except Exception as error:  # TVM's errors share no base
            raise ConnectionLostError(explained(address, error)) from error
        try:
            self._ask = self._remote.get_function(REQUEST)
        except Exception as error:
            raise ConnectionLostError(
                f"{address.text} is TVM's own RPC server: start `autofuse serve` there instead ({_last(error)})"
            ) from error

    def ask(self, request: bytes) -> bytes:
        """The device's answer to one request, both encoded; ConnectionLostError when the session is gone."""
        try:
            return str(self._ask(request.decode())).encode()
        except Exception as error:
            raise ConnectionLostError(_last(error)) from error

    def upload(self, path: Path, name: str) -> None:
        """Copy a file into the session's folder as `name`, which must be new there."""
        try:
            self._remote.upload(bytearray(path.read_bytes()), target=name)
        except OSError:
            raise
        except Exception as error:
            raise ConnectionLostError(_last(error)) from error

    def download(self, name: str) -> bytes:
        """Content of a file in the session's folder."""
        try:
            return bytes(self._remote.download(name))
        except Exception as error:
            raise ConnectionLostError(_last(error)) from error


def dial(host: str, port: int, seconds: float = DIAL_S) -> str:
    """Why nothing listens at an address; "" when a connection is made (and closed)."""
    try:
        socket.create_connection((host, port), timeout=seconds).close()
    except socket.gaierror as error:
        return f"the name {host} has no address: {error.strerror}"
    except TimeoutError:
        return f"no answer from {host} within {seconds:g} s: is it on, is a firewall in between?"
    except OSError as error:
        return f"{host}:{port}: {error.strerror or error}: is the server running there?"
    return ""


def tracker_devices(host: str, port: int) -> Mapping[str, tuple[int, int]]:
    """Key -> (devices registered under it, of them free), as a tracker says. ConnectionLostError when it does not."""
    from tvm import rpc

    try:
        summary = rpc.connect_tracker(host, port).summary()
        servers = [str(info["key"]).partition(":")[2] for info in summary["server_info"]]
        free = {str(key): int(queue["free"]) for key, queue in summary["queue_info"].items()}
    except Exception as error:
        raise ConnectionLostError(f"{host}:{port} does not answer as an RPC tracker: {_last(error)}") from error
    return {key: (servers.count(key), free.get(key, 0)) for key in {*servers, *free}}


def explained(address: Address, error: Exception) -> str:
    """What to change, where TVM's message does not say it."""
    text = _last(error)
    if "mismatch" in text.lower() or "key" in text.lower():
        return f"{address.text}: the server refuses the key: pass the --rpc-key that `autofuse serve` printed"
    return f"{address.text}: {text}"


def _last(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).strip().splitlines() if line.strip()]
    return (lines[-1] if lines else type(error).__name__)[:500]
