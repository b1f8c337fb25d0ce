"""The child that holds the session on a device: `python -m autofuse.measure.remote.session_child`.

It uploads the files that a request names and passes the request on. The device may hang, and the network be gone,
in the middle of any call: the coordinator then kills this process, which it could not do with itself.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NoReturn

from autofuse.backend.rpc.client import ConnectionLostError, DeviceSession
from autofuse.device.address import Address
from autofuse.measure.children.child import Handler, RefusedError, note, serve
from autofuse.measure.children.messages import Message
from autofuse.measure.remote.device_session import file_name

LOST = 76
"""Exit code when the session is gone: the coordinator finds out whether the device is, too."""


class RemoteSession:
    """One session on one device. The handlers' requests are those of `device_session`, with paths here."""

    def __init__(self) -> None:
        self._session: DeviceSession | None = None
        self._names: dict[tuple[str, int, int], str] = {}

    def handlers(self) -> Mapping[str, Handler]:
        """Requests by name."""
        return {
            "connect": self.connect,
            "describe": self.forward,
            "hello": self.hello,
            "load": self.load,
            "check": self.check,
            "time": self.forward,
            "drop": self.forward,
            "probe": self.forward,
            "open": self.open,
            "compare": self.compare,
            "block": self.forward,
            "outputs": self.outputs,
            "shut": self.forward,
        }

    def connect(self, request: Message) -> Message:
        """Open the session; the device's description."""
        address: Any = request["address"]
        try:
            self._session = DeviceSession(Address(**address))
        except ConnectionLostError as error:
            raise RefusedError("device_lost", str(error)) from error
        return self.forward({"do": "describe"})

    def forward(self, request: Message) -> Message:
        """The device's answer; the process ends when the session is gone."""
        assert self._session is not None
        try:
            answer = self._session.ask(request)
        except ConnectionLostError as error:
            _leave(error)
        if answer.get("ok") is not True:
            raise RefusedError(str(answer.get("kind") or "run_error"), str(answer.get("message")))
        return {key: value for key, value in answer.items() if key != "ok"}

    def hello(self, request: Message) -> Message:
        """Bring the clock probe along."""
        probe = Path(str(request["probe"]))
        self._upload([probe])
        return self.forward({**request, "probe": self._name(probe)})

    def load(self, request: Message) -> Message:
        """Bring a kernel and its constants along."""
        kernel, constants = Path(str(request["kernel"])), _paths(request["constants"])
        self._upload([kernel, *constants])
        names = [self._name(path) for path in constants]
        return self.forward({**request, "kernel": self._name(kernel), "constants": names})

    def check(self, request: Message) -> Message:
        """Bring the cases along."""
        cases: Any = request["cases"]
        self._upload([path for case in cases for kind in ("inputs", "outputs") for path in _paths(case[kind])])
        named = [
            {kind: [self._name(path) for path in _paths(case[kind])] for kind in ("inputs", "outputs")}
            for case in cases
        ]
        return self.forward({**request, "cases": named})

    def open(self, request: Message) -> Message:
        """Bring a network and its inputs along."""
        inputs: Any = request["inputs"]
        path = Path(str(request["path"]))
        self._upload([path, *_paths(list(inputs.values()))])
        named = {name: self._name(Path(file)) for name, file in inputs.items()}
        return self.forward({**request, "path": self._name(path), "inputs": named})

    def compare(self, request: Message) -> Message:
        """Bring the reference along."""
        expected = _paths(request["expected"])
        self._upload(expected)
        return self.forward({**request, "expected": [self._name(path) for path in expected]})

    def outputs(self, request: Message) -> Message:
        """Write the network's results into `folder`; their paths."""
        assert self._session is not None
        names: Any = self.forward({"do": "outputs", "name": request["name"]})["names"]
        paths = []
        for name in names:
            path = Path(str(request["folder"])) / str(name)
            try:
                path.write_bytes(self._session.download(str(name)))
            except ConnectionLostError as error:
                _leave(error)
            paths.append(str(path))
        return {"paths": paths}

    def _upload(self, paths: Iterable[Path]) -> None:
        """Those files that the device does not have."""
        named = {self._name(path): path for path in paths}
        missing: Any = self.forward({"do": "missing", "names": list(named)})["missing"]
        assert self._session is not None
        for name in missing:
            try:
                self._session.upload(named[name], name)
            except ConnectionLostError as error:
                _leave(error)
            self.forward({"do": "keep", "name": name})

    def _name(self, path: Path) -> str:
        known = path.stat()
        key = (str(path), known.st_size, known.st_mtime_ns)
        if key not in self._names:
            self._names[key] = file_name(path)
        return self._names[key]


def _leave(error: Exception) -> NoReturn:
    note(f"the session broke: {error}")
    os._exit(LOST)


def _paths(value: object) -> list[Path]:
    assert isinstance(value, list)
    return [Path(str(item)) for item in value]


def main() -> None:
    """Serve one coordinator until it goes away."""
    serve(RemoteSession().handlers())


if __name__ == "__main__":
    main()
