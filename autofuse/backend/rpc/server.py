"""The device's side of remote measurement: TVM's RPC protocol behind a listener that survives its sessions.

TVM's own server dies for good with the first session that crashes, waits for ever on a silent client, leaves a hung
kernel running when its client is gone, and lets clients name any file. This one listens in a process that never
runs a kernel, and forks a session for each connection: one at a time, each in its own process group and folder.
"""

from __future__ import annotations

import os
import resource
import secrets
import select
import shutil
import signal
import socket
import struct
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from autofuse.backend.rpc.door import Door
from autofuse.errors import DeviceError
from autofuse.values.processes import follow_parent, lower_limit

REQUEST = "autofuse.request"
"""Global function of a session: an encoded request in, the encoded answer out."""

TRACKER_S = 5.0
"""A tracker that does not answer within so many seconds is away."""
GRACE_S = 2.0
"""From the end of a connection until its session is killed."""
PING_S = 2.0
UNUSED_S = 6.0
"""A device that the tracker gave away, and that nobody came to, is offered again after so many seconds."""
TICK_MS = 50
RETRY_S = 2.0
CRASHES = (signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE)
"""TVM prints a trace of its own stack for these, which takes seconds and says nothing about a kernel."""

Answer = Callable[[str], str]
OpenSession = Callable[[Path, str], Answer]
"""Called in the forked process of a session with its folder and how the session before it ended; answers requests."""


@dataclass(frozen=True)
class ServerOptions:
    """`port`: 0 for any that is free. `key`: what clients must say; behind a tracker, the kind of device.

    `tracker`: host and port. `announce`: the host under which the tracker's clients reach this server.
    `session_s`: longest life of a session.
    """

    host: str
    port: int
    key: str
    tracker: tuple[str, int] | None = None
    announce: str | None = None
    session_s: float = 24 * 3600.0


@dataclass
class _Offer:
    """The offer of this server to a tracker: `key` is what the next client has to say."""

    connection: Any
    key: str
    asked: float = field(default_factory=time.monotonic)
    unused_since: float | None = None
    old: set[str] = field(default_factory=set)


class DeviceServer:
    """Listens from its creation on; `serve` answers for ever. `log`: takes a line for people."""

    def __init__(self, options: ServerOptions, open_session: OpenSession, folder: Path, log: Callable[[str], None]):
        import tvm.rpc  # before any fork: sessions then start at once
        from tvm.rpc import _ffi_api

        assert _ffi_api.ServerLoop is not None
        tvm.rpc.server.logger.handlers.clear()
        self.options, self._open, self._folder, self._log = options, open_session, folder, log
        self._offer: _Offer | None = None
        self._door = Door(options.host, options.port, self._wanted, log)
        self.port = self._door.port
        self._next_offer = 0.0
        self._session: int | None = None
        self.sessions = 0
        self._ending = ""

    def serve(self) -> None:
        """One session after the other, until the process is told to end."""
        try:
            while True:
                connection = self._next_client()
                with connection:
                    self._run_session(connection)
        finally:
            self._kill_session()
            self._door.close()

    # -- clients

    def _next_client(self) -> socket.socket:
        while True:
            if self.options.tracker is not None:
                self._keep_offer()
            found = self._door.next_client(self.options.key)
            if found is None:
                self._door.tend(PING_S)
                continue
            connection, host = found
            _keep_alive(connection)
            self._log(f"session {self.sessions + 1} of {host}")
            return connection

    def _wanted(self) -> str:
        """The key that clients have to say: behind a tracker the one that it hands out."""
        return self._offer.key if self._offer else self.options.key

    # -- sessions

    def _run_session(self, connection: socket.socket) -> None:
        self.sessions += 1
        folder = self._folder / f"session-{self.sessions}-{secrets.token_hex(4)}"
        folder.mkdir()
        sys.stdout.flush()
        sys.stderr.flush()
        listener, pid = os.getpid(), os.fork()
        if pid == 0:
            self._be_session(connection, folder, listener)
        self._session = pid
        try:
            self._ending = self._watch(connection, pid)
            self._log(f"session {self.sessions} {self._ending}")
        finally:
            self._kill_session()
            shutil.rmtree(folder, ignore_errors=True)
            if self._offer is not None:  # its key is used up: the next one is offered at once
                self._offer.unused_since = float("-inf")

    def _be_session(self, connection: socket.socket, folder: Path, listener: int) -> None:
        """The forked process; never returns."""
        code = 1
        try:
            os.setsid()
            follow_parent(listener)
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, *CRASHES):
                signal.signal(number, signal.SIG_DFL)
            lower_limit(resource.RLIMIT_CORE, 0)
            self._door.close()
            os.chdir(folder)
            _register(folder, self._open(folder, self._ending))
            from tvm.rpc import _ffi_api

            _ffi_api.ServerLoop(connection.fileno())
            code = 0
        except BaseException as error:  # noqa: BLE001 the process ends here, whatever happened
            sys.stderr.write(f"session: {type(error).__name__}: {error}\n")
        finally:
            with suppress(OSError, ValueError):
                sys.stderr.flush()
            os._exit(code)

    def _watch(self, connection: socket.socket, pid: int) -> str:
        """Wait for the session's end, or end it: when its client is gone, or it lived too long. How it ended."""
        poll = select.poll()
        poll.register(connection, select.POLLRDHUP)
        deadline = time.monotonic() + self.options.session_s
        gone: float | None = None
        while True:
            ended, status = os.waitpid(pid, os.WNOHANG)
            now = time.monotonic()
            if ended:
                self._session = None
                _kill_group(pid)
                return _told(status)
            self._door.tend(0)
            if gone is None and poll.poll(TICK_MS):
                gone = now
            if gone is not None:
                if now - gone > GRACE_S:
                    return "killed: its client is gone"
                time.sleep(TICK_MS / 1000)
            if now > deadline:
                return f"killed: longer than {self.options.session_s:g} s"

    def _kill_session(self) -> None:
        if self._session is not None:
            _kill_group(self._session)
            with suppress(ChildProcessError):
                os.waitpid(self._session, 0)
            self._session = None

    # -- tracker

    def _keep_offer(self) -> None:
        """Be known to the tracker, under a key that nobody used yet; when it is away, try again later."""
        if time.monotonic() < self._next_offer:
            return
        try:
            if self._offer is None:
                self._offer = self._register_at_tracker()
            else:
                self._renew(self._offer)
        except (OSError, DeviceError, ValueError, struct.error) as error:
            self._log(f"tracker: {error or type(error).__name__}; trying again")
            if self._offer is not None:
                self._offer.connection.close()
            self._offer, self._next_offer = None, time.monotonic() + RETRY_S

    def _register_at_tracker(self) -> _Offer:
        from tvm.rpc import base

        assert self.options.tracker is not None
        connection = socket.create_connection(self.options.tracker, timeout=TRACKER_S)
        connection.sendall(struct.pack("<i", base.RPC_TRACKER_MAGIC))
        if struct.unpack("<i", base.recvall(connection, 4))[0] != base.RPC_TRACKER_MAGIC:
            raise DeviceError(f"{self.options.tracker[0]}:{self.options.tracker[1]} is no RPC tracker")
        about = {"key": f"server:{self.options.key}", "addr": (self.options.announce, self.port)}
        base.sendjson(connection, [base.TrackerCode.UPDATE_INFO, about])
        base.recvjson(connection)
        offer = _Offer(connection, "")
        self._put(offer)
        return offer

    def _renew(self, offer: _Offer) -> None:
        from tvm.rpc import base

        base.sendjson(offer.connection, [base.TrackerCode.GET_PENDING_MATCHKEYS])
        pending = base.recvjson(offer.connection)
        if offer.key in pending:
            offer.unused_since = None
            return
        now = time.monotonic()
        if offer.unused_since is None:
            offer.unused_since = now
        elif now - offer.unused_since > UNUSED_S:
            self._put(offer)

    def _put(self, offer: _Offer) -> None:
        from tvm.rpc import base

        offer.old.add(offer.key)
        offer.key = base.random_key(self.options.key, cmap=offer.old)
        offer.unused_since = None
        body = [base.TrackerCode.PUT, self.options.key, (self.port, offer.key), self.options.announce]
        base.sendjson(offer.connection, body)
        base.recvjson(offer.connection)


def _keep_alive(connection: socket.socket) -> None:
    """Notice within half a minute that the other machine, or the network, is gone."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 10), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 4)):
        if hasattr(socket, name):
            with suppress(OSError):
                connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def _kill_group(pid: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def _told(status: int) -> str:
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        return f"crashed: {signal.Signals(-code).name}"
    return "ended" if code == 0 else f"ended with code {code}"


def _register(folder: Path, answer: Answer) -> None:
    """What a client may call beyond TVM's builtins; files of clients stay in `folder`."""
    import tvm_ffi
    from tvm.runtime import load_module

    def inside(name: str) -> Path:
        path = (folder / str(name)).resolve()
        if not path.is_relative_to(folder.resolve()):
            raise ValueError(f"file name {name!r} leads out of the session's folder")
        return path

    def workpath(name: str) -> str:
        return str(inside(name))

    def load(name: str) -> Any:
        return load_module(str(inside(name)))

    tvm_ffi.register_global_func("tvm.rpc.server.workpath", workpath, override=True)
    tvm_ffi.register_global_func("tvm.rpc.server.load_module", load, override=True)
    tvm_ffi.register_global_func(REQUEST, answer, override=True)
