"""How a device is reached: on this machine, over RPC, or through an RPC tracker."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from autofuse.errors import InputError
from autofuse.values.arguments import DEFAULT_PORT

LOOPBACK = ("127.0.0.1", "localhost", "::1")
KEY_VARIABLE = "AUTOFUSE_RPC_KEY"
"""The environment variable that may hold the key: options can be read in the list of processes."""
_MAX_KEY = 1000
"""Characters of a key; the server hears no longer one."""


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
    labels = (match["name"] or "x").rstrip(".").split(".") if match else []
    if not match or not 0 < int(match["port"]) < 65536 or not all(0 < len(label) < 64 for label in labels):
        raise InputError(f"{option}: got {text!r}, allowed: HOST:PORT such as 127.0.0.1:{DEFAULT_PORT}")
    return match["six"] or match["name"], int(match["port"])


def told_key(key: str | None, file: str | os.PathLike[str] | None, option: str = "--rpc-key") -> str | None:
    """The key that `option` or a file of one line gives; None without either. InputError when it is none.

    A key of the environment counts where an address needs one and neither is given.
    """
    if key is not None and file is not None:
        raise InputError(f"{option} and {option}-file exclude each other: give the key, or the file that holds it")
    if file is None:
        return None if key is None else _checked(key, option)
    try:
        with Path(file).open("rb") as opened:
            text = opened.read(2 * _MAX_KEY).decode()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{option}-file: cannot read {file}: {getattr(error, 'strerror', None) or error}") from None
    return _checked(text.strip(), f"{option}-file {file}", secret=True)


def environment_key() -> str | None:
    """The key in `KEY_VARIABLE`, if it is set."""
    text = os.environ.get(KEY_VARIABLE, "").strip()
    return _checked(text, KEY_VARIABLE, secret=True) if text else None


def choose_address(rpc: str | None, tracker: str | None, key: str | None) -> Address | None:
    """The device that `--rpc`, `--rpc-tracker` and `--rpc-key` mean; None without any. InputError when they clash."""
    if rpc and tracker:
        raise InputError("--rpc and --rpc-tracker exclude each other: name the device, or its tracker")
    if not rpc and not tracker:
        if key:
            raise InputError("--rpc-key needs --rpc HOST:PORT or --rpc-tracker HOST:PORT")
        return None
    key = key or environment_key()
    if not key:
        what = "the key that `autofuse serve` printed" if rpc else "the key that the devices are registered under"
        raise InputError(f"--rpc-key (or --rpc-key-file, or {KEY_VARIABLE}) is missing: {what}")
    _checked(key, "--rpc-key")
    host, port = parse_address(rpc or tracker or "", "--rpc" if rpc else "--rpc-tracker")
    return Address(host, port, key, tracker=bool(tracker))


def _checked(key: str, option: str, secret: bool = False) -> str:
    if not re.fullmatch(r"[A-Za-z0-9._:+-]+", key) or len(key) > _MAX_KEY:
        got = "something else" if secret else repr(key)
        raise InputError(f"{option}: got {got}, allowed: at most {_MAX_KEY} letters, digits and . _ : + -")
    return key
