"""The coordinator's end of a session on a device: a child that can be killed, and what became of the device."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from autofuse.device.address import Address
from autofuse.device.description import DeviceDescription
from autofuse.errors import DeviceError
from autofuse.measure.children.messages import Message, Request
from autofuse.measure.children.process import Child, ask
from autofuse.measure.measurement import Failure
from autofuse.measure.remote.requests import Connect, Describe
from autofuse.values.processes import default_memory

MODULE = "autofuse.measure.remote.session_child"
RETRY_S = 1.0
A = TypeVar("A", bound=Message)

KILLED = "crashed: SIGKILL"
"""How a session ended (as the device tells the next one) whose process was killed from outside."""


class RestartedError(Exception):
    """The device lost its state in the middle of a candidate, and is back.

    `failure`: what to say of a candidate under which that happens each time; None: that the device is lost.
    """

    def __init__(self, text: str, failure: Failure | None = None) -> None:
        super().__init__(text)
        self.failure = failure


class BusyError(DeviceError):
    """Behind a tracker no device became free: others hold them all."""


@dataclass(frozen=True)
class LinkLimits:
    """Seconds. `connect_s`: for a session to open (behind a tracker: for a device to become free).

    `busy_s`: for a device to become free that is wanted once more, at the end of a tuning, while others race on it.
    `start_s`: for the session to take the clock probe and run it. `recover_s`: for a device that went away in the
    middle to come back; after that it is lost. `environment`: of the child.
    """

    connect_s: float = 30.0
    busy_s: float = 300.0
    start_s: float = 60.0
    recover_s: float = 60.0
    environment: Mapping[str, str] = field(default_factory=dict)


DEFAULT_LIMITS = LinkLimits()


class Link:
    """A session on the device at `address`, opened when it is first needed and again after it broke."""

    def __init__(self, address: Address, limits: LinkLimits = DEFAULT_LIMITS) -> None:
        self.address, self.limits = address, limits
        self._child: Child | None = None
        self._instance, self._before = "", ""

    @property
    def child(self) -> Child:
        """The process that holds the session (which may be gone)."""
        assert self._child is not None
        return self._child

    def connected(self) -> Child:
        """The child, with a session open; DeviceError when none can be opened."""
        if self._child is None or not self._child.running():
            self._instance = self._open(self.limits.connect_s).instance
        return self.child

    def describe(self) -> DeviceDescription:
        """The device now; DeviceError when it does not answer."""
        self.connected()
        reply = self.ask(Describe(), self.limits.connect_s)
        if isinstance(reply, Failure):
            raise DeviceError(f"{self.address.text} does not describe itself: {reply.message}")
        return reply.device

    def ask(self, request: Request[A], limit_s: float) -> A | Failure:
        """One request of an open session."""
        return ask(self.child, request, limit_s)

    def recover(self, failure: Failure) -> Failure:
        """Open a new session after one that broke with `failure`.

        Returns when the device itself was well all the time, so that the candidate was at fault: `failure`, with what
        the device knows of the crash. RestartedError when it started anew, or when a process of the session was killed
        from outside, here or there; DeviceError when it stays away.
        """
        before, deadline = self._instance, time.monotonic() + self.limits.recover_s
        killed = self.child.killed
        reason = failure.message
        while True:
            left = deadline - time.monotonic()
            try:
                self._instance = self._open(max(1.0, min(self.limits.connect_s, left))).instance
                break
            except DeviceError as error:
                reason = str(error)
            if time.monotonic() + RETRY_S > deadline:
                raise DeviceError(f"{self.address.text} is lost: {reason}")
            time.sleep(RETRY_S)
        if self._instance != before:
            raise RestartedError(f"{self.address.text} started anew")
        if self._before == KILLED and not killed:
            failure = Failure("out_of_memory", "the process on the device was killed, as when memory runs out")
            raise RestartedError("the process on the device was killed", failure)
        if killed:
            raise RestartedError("the process that holds the session was killed", failure)
        if self._before.startswith("crashed"):
            return replace(failure, message=f"the process on the device {self._before}")
        return failure

    def drop(self) -> None:
        """End the session."""
        if self._child is not None:
            self._child.kill()

    def close(self) -> None:
        """End the session for good; another one opens when the link is used again."""
        self.drop()
        self._child = None

    def _open(self, limit_s: float) -> DeviceDescription:
        self.drop()
        self._child = Child(MODULE, default_memory(1), self.limits.environment, ())
        reply = ask(self._child, Connect(self.address), limit_s)
        if isinstance(reply, Failure):
            self._child.kill()
            raise self._explained(reply, limit_s)
        self._before = reply.before
        return reply.device

    def _explained(self, failure: Failure, limit_s: float) -> DeviceError:
        if failure.kind != "timeout":
            return DeviceError(failure.message)
        text = self.address.text
        if self.address.tracker:
            return BusyError(f"{text}: no device became free within {limit_s:g} s")
        return DeviceError(f"{text}: no session within {limit_s:g} s: the device hangs, or serves somebody else")


def describe_device(address: Address, limits: LinkLimits = DEFAULT_LIMITS) -> DeviceDescription:
    """What the device at `address` says of itself; DeviceError when it does not answer."""
    link = Link(address, limits)
    try:
        return link.describe()
    finally:
        link.close()
