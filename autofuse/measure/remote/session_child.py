"""The child that holds the session on a device: `python -m autofuse.measure.remote.session_child`.

It uploads the files that a request names and passes the request on. The device may hang, and the network be gone,
in the middle of any call: the coordinator then kills this process, which it could not do with itself.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import NoReturn, TypeVar, cast

from autofuse.backend.rpc.client import ConnectionLostError, DeviceSession
from autofuse.measure.children.child import Handlers, RefusedError, note, serve
from autofuse.measure.children.messages import Message, ProtocolError, Refused, Request, decode, encode, known
from autofuse.measure.children.requests import Check, Checked, Drop, Time
from autofuse.measure.machine import MeasureRates, Rates
from autofuse.measure.measurement import Case
from autofuse.measure.networks.requests import (
    CloseNetwork,
    Compared,
    CompareOutputs,
    Loaded,
    LoadNetwork,
    Saved,
    SaveOutputs,
    TimeCalls,
)
from autofuse.measure.remote.device_session import file_name
from autofuse.measure.remote.requests import (
    Connect,
    Describe,
    Described,
    Keep,
    LoadKernel,
    Missing,
    ProbeRun,
    RunProbe,
    StartSession,
)

A = TypeVar("A", bound=Message)
SAME_VERSION = "install the same version of autofuse on both machines"
LOST = 76
"""Exit code when the session is gone: the coordinator finds out whether the device is, too."""


class RemoteSession:
    """One session on one device. The handlers' requests are those of `device_session`, with paths here."""

    def __init__(self) -> None:
        self._session: DeviceSession | None = None
        self._names: dict[tuple[str, int, int], str] = {}

    def handlers(self) -> Handlers:
        """What it does, by the kind of request."""
        return {
            Connect: self.connect,
            StartSession: self.start,
            LoadKernel: self.load,
            MeasureRates: self.rates,
            Check: self.check,
            LoadNetwork: self.load_network,
            CompareOutputs: self.compare,
            SaveOutputs: self.save,
            **dict.fromkeys((Describe, Time, Drop, RunProbe, TimeCalls, CloseNetwork), self.forward),
        }

    def connect(self, request: Connect) -> Described:
        """Open the session; the device's description."""
        try:
            self._session = DeviceSession(request.address)
        except ConnectionLostError as error:
            raise RefusedError("device_lost", str(error)) from error
        return self.forward(Describe())

    def forward(self, request: Request[A]) -> A:
        """The device's answer; the process ends when the session is gone."""
        assert self._session is not None
        try:
            text = self._session.ask(encode(request))
        except ConnectionLostError as error:
            _leave(error)
        try:
            answer = decode(text, known((request.answer, Refused)))
        except ProtocolError as error:
            raise RefusedError("device_lost", f"the device answers something else ({error}); {SAME_VERSION}") from error
        if isinstance(answer, Refused):
            raise RefusedError(answer.kind or "run_error", answer.message)
        return cast(A, answer)

    def start(self, request: StartSession) -> ProbeRun:
        """Bring the clock probe along."""
        (probe,) = self._upload([request.probe])
        return self.forward(replace(request, probe=probe))

    def load(self, request: LoadKernel) -> Message:
        """Bring a kernel and its constants along."""
        kernel, *constants = self._upload([request.kernel, *request.constants])
        return self.forward(replace(request, kernel=kernel, constants=tuple(constants)))

    def rates(self, request: MeasureRates) -> Rates:
        """Bring the probes along."""
        names = self._upload(request.kernels.values())
        return self.forward(replace(request, kernels=dict(zip(request.kernels, names, strict=True))))

    def check(self, request: Check) -> Checked:
        """Bring the cases along."""
        self._upload([path for case in request.cases for path in (*case.inputs, *case.outputs)])
        named = [Case(self._names_of(case.inputs), self._names_of(case.outputs)) for case in request.cases]
        return self.forward(replace(request, cases=tuple(named)))

    def load_network(self, request: LoadNetwork) -> Loaded:
        """Bring a network and its inputs along."""
        path, *files = self._upload([request.path, *request.inputs.values()])
        return self.forward(replace(request, path=path, inputs=dict(zip(request.inputs, files, strict=True))))

    def compare(self, request: CompareOutputs) -> Compared:
        """Bring the reference along."""
        return self.forward(replace(request, expected=self._upload(request.expected)))

    def save(self, request: SaveOutputs) -> Saved:
        """Write the network's results into `folder`; their paths."""
        assert self._session is not None
        paths = []
        for there in self.forward(replace(request, folder=Path())).paths:
            paths.append(request.folder / there.name)
            try:
                paths[-1].write_bytes(self._session.download(there.name))
            except ConnectionLostError as error:
                _leave(error)
        return Saved(tuple(paths))

    def _upload(self, paths: Iterable[Path]) -> tuple[Path, ...]:
        """Bring those files that the device does not have; what all are called there, in the order of `paths`."""
        names = self._names_of(paths := tuple(paths))
        here = {str(name): path for name, path in zip(names, paths, strict=True)}
        assert self._session is not None
        for name in self.forward(Missing(tuple(here))).names:
            try:
                self._session.upload(here[name], name)
            except ConnectionLostError as error:
                _leave(error)
            self.forward(Keep(name))
        return names

    def _names_of(self, paths: Iterable[Path]) -> tuple[Path, ...]:
        return tuple(Path(self._name(path)) for path in paths)

    def _name(self, path: Path) -> str:
        known = path.stat()
        key = (str(path), known.st_size, known.st_mtime_ns)
        if key not in self._names:
            self._names[key] = file_name(path)
        return self._names[key]


def _leave(error: Exception) -> NoReturn:
    note(f"the session broke: {error}")
    os._exit(LOST)


def main() -> None:
    """Serve one coordinator until it goes away."""
    serve(RemoteSession().handlers())


if __name__ == "__main__":
    main()
