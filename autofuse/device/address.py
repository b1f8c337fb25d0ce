"""How a device is reached: on this machine, over RPC, or through an RPC tracker."""

from __future__ import annotations

import re
from dataclasses import dataclass

from autofuse.errors import InputError

LOOPBACK = ("127.0.0.1", "localhost", "::1")
DEFAULT_PORT = 9091
"""Of `autofuse serve`, as of TVM's own server."""


@dataclass(frozen=True)
class Address:
    """`tracker`: whether `host` and `port` are a tracker's, which hands out the devices registered under `key`."""

    host: str
    port: int
    key: str
    tracker: bool = False

    @property
    def text(self) -> str:
        """For people, without the key of a server, which is a secret."""
        where = f"{self.host}:{self.port}"
        return f"{self.key} at tracker {where}" if self.tracker else where

    @property
    def is_local(self) -> bool:
        """Whether traffic to it stays on this machine (or in a tunnel that starts here)."""
        return self.host in LOOPBACK


def parse_address(text: str, option: str) -> tuple[str, int]:
    """Host and port of "board.lan:9190", "127.0.0.1:9190" or "[::1]:9190"; InputError names `option`."""
    match = re.fullmatch(r"(?:\[(?P<six>[0-9a-fA-F:]+)\]|(?P<name>[A-Za-z0-9._-]+)):(?P<port>\d{1,5})", text.strip())
    if not match or not 0 < int(match["port"]) < 65536:
        raise InputError(f"{option}: got {text!r}, allowed: HOST:PORT such as 127.0.0.1:{DEFAULT_PORT}")
    return match["six"] or match["name"], int(match["port"])


def choose_address(rpc: str | None, tracker: str | None, key: str | None) -> Address | None:
    """The device that `--rpc`, `--rpc-tracker` and `--rpc-key` mean; None without any. InputError when they clash."""
    if rpc and tracker:
        raise InputError("--rpc and --rpc-tracker exclude each other: name the device, or its tracker")
    if not rpc and not tracker:
        if key:
            raise InputError("--rpc-key needs --rpc HOST:PORT or --rpc-tracker HOST:PORT")
        return None
    if not key:
        what = "the key that `autofuse serve` printed" if rpc else "the key that the devices are registered under"
        raise InputError(f"--rpc-key is missing: {what}")
    if not re.fullmatch(r"[A-Za-z0-9._:+-]+", key):
        raise InputError(f"--rpc-key: got {key!r}, allowed: letters, digits and . _ : + -")
    host, port = parse_address(rpc or tracker or "", "--rpc" if rpc else "--rpc-tracker")
    return Address(host, port, key, tracker=bool(tracker))
