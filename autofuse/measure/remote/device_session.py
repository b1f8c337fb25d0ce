"""The device's side of a session: the kernels and networks that clients uploaded, checked and timed here.

Everything that decides a result runs on the device, by the same code as on a local machine: the clock probe, the
slices, the comparison with the reference. Files come by the digest of their content, and stay for later sessions.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from autofuse.device.description import DeviceDescription
from autofuse.kernels.workload.workload import Workload
from autofuse.measure.children.candidates import CandidateSession, confine, identity_of
from autofuse.measure.children.child import Handler, RefusedError, answer
from autofuse.measure.children.codec import target_from_json
from autofuse.measure.children.messages import Message
from autofuse.measure.networks.contender import ContenderSession
from autofuse.measure.timing.clock import Clock, pin_main_thread

if TYPE_CHECKING:
    from autofuse.backend.compile.probes import FmaProbe

NAME = re.compile(r"[0-9a-f]{64}\.(npy|so|onnx)")
"""What uploaded files are called: the SHA-256 of their content, and what they are."""
FILES = "files"
KEPT_BYTES = 2 << 30
"""Uploaded files kept for later sessions, the most recently used."""
MIN_FREE_BYTES = 256 << 20


class BoardSession(CandidateSession):
    """One client's session in `folder`, where its uploads arrive.

    `described`: the device, asked when it is wanted. `before`: how the session before this one ended.
    """

    def __init__(self, folder: Path, described: Callable[[], DeviceDescription], before: str = "") -> None:
        super().__init__()
        self._folder, self._files, self._described = folder, folder.parent / FILES, described
        self._files.mkdir(exist_ok=True)
        self._before = before
        self._networks: dict[str, ContenderSession] = {}
        self._probe: FmaProbe | None = None
        self._results = 0

    def handlers(self) -> Mapping[str, Handler]:
        """Requests by name."""
        return {
            "describe": self.describe,
            "missing": self.missing,
            "keep": self.keep,
            "hello": self.hello,
            "load": self.load,
            "probe": self.probe,
            "open": self.open,
            "compare": self.compare,
            "block": self.block,
            "outputs": self.outputs,
            "shut": self.shut,
            **super().handlers(),
        }

    def answer(self, text: str) -> str:
        """One request as JSON text, answered likewise."""
        return json.dumps(answer(self.handlers(), json.loads(text)))

    # -- the device and its files

    def describe(self, _request: Message) -> Message:
        """The device, now."""
        return {"device": self._described().to_json(), "before": self._before}

    def missing(self, request: Message) -> Message:
        """Those of the files in `names` that must be uploaded first."""
        return {"missing": [name for name in _names(request["names"]) if not self._touch(name)]}

    def keep(self, request: Message) -> Message:
        """Take an uploaded file over, when it is what its name says."""
        name = str(request["name"])
        source, goal = self._folder / name, self.place(Path(name))
        if _digest(source) != goal.stem:
            source.unlink(missing_ok=True)
            raise RefusedError("run_error", f"the upload of {name[:12]} was damaged on the way")
        self._make_room(source.stat().st_size)
        source.replace(goal)
        return {}

    def place(self, path: Path) -> Path:
        """See CandidateSession: a file that was uploaded; RefusedError for any other name."""
        if not NAME.fullmatch(str(path)):
            raise RefusedError("run_error", f"{str(path)!r} is no name of an uploaded file")
        return self._files / path

    def _touch(self, name: str) -> bool:
        try:
            os.utime(self.place(Path(name)))
        except OSError:
            return False
        return True

    def _make_room(self, wanted: int) -> None:
        """Drop the files that were not used for longest, when there are too many or the disk is full."""
        held = sorted(self._files.iterdir(), key=lambda path: path.stat().st_mtime)
        total = sum(path.stat().st_size for path in held) + wanted
        free = shutil.disk_usage(self._files).free
        for path in held:
            if total <= KEPT_BYTES and free >= MIN_FREE_BYTES:
                return
            size = path.stat().st_size
            path.unlink()
            total, free = total - size, free + size

    # -- candidates

    def hello(self, request: Message) -> Message:
        """Use the CPUs and the threads that the client wants, and start the clock probe it brought."""
        from autofuse.backend.compile.jit import load_kernel
        from autofuse.backend.compile.probes import FmaProbe
        from autofuse.backend.library.threads import configure_threads

        cpus: Any = request.get("cpus")
        if cpus:
            confine(cpus)
        self.target, threads = target_from_json(request["target"]), int(str(request["threads"]))
        configure_threads(threads)
        kernel = load_kernel(self.place(Path(str(request["probe"]))))
        self._probe = FmaProbe(self.target, threads, int(str(request["steps"])), kernel)
        self._probe.seconds()
        self.clock = Clock(self._probe.seconds)
        return {"probe_s": self._probe.seconds()}

    def load(self, request: Message) -> Message:
        """A kernel and its packed constants, by the names of their files, under an id of the client's."""
        from autofuse.backend.compile.jit import load_kernel, tensor

        kernel = load_kernel(self.place(Path(str(request["kernel"]))))
        constants = [tensor(np.load(self.place(Path(name)))) for name in _names(request["constants"])]
        self.take(identity_of(request), Workload.from_text(str(request["workload"])), kernel, constants)
        return {}

    # -- whole networks

    def probe(self, _request: Message) -> Message:
        """One run of the clock probe."""
        assert self._probe is not None
        with pin_main_thread():
            return {"seconds": self._probe.seconds()}

    def open(self, request: Message) -> Message:
        """A network under a name of the client's, run once on its inputs; see `ContenderSession.load`."""
        inputs: Any = request["inputs"]
        session = ContenderSession()
        placed = {
            **request,
            "path": str(self.place(Path(str(request["path"])))),
            "inputs": {name: str(self.place(Path(file))) for name, file in inputs.items()},
        }
        loaded = session.load(placed)
        self._networks[str(request["name"])] = session
        return loaded

    def compare(self, request: Message) -> Message:
        """The last results of a network against the reference; see `ContenderSession.check`."""
        paths = [str(self.place(Path(name))) for name in _names(request["expected"])]
        return self._network(request).check({"expected": paths})

    def block(self, request: Message) -> Message:
        """Timed calls of a network; see `ContenderSession.block`."""
        return self._network(request).block(request)

    def outputs(self, request: Message) -> Message:
        """The last results of a network as .npy files to be downloaded."""
        names = []
        for array in self._network(request).results():
            self._results += 1
            names.append(f"result-{self._results}.npy")
            np.save(self._folder / names[-1], array, allow_pickle=False)
        return {"names": names}

    def shut(self, request: Message) -> Message:
        """Forget a network."""
        self._networks.pop(str(request["name"]), None)
        return {}

    def _network(self, request: Message) -> ContenderSession:
        name = str(request["name"])
        if name not in self._networks:
            raise RefusedError("run_error", f"no network {name!r} is open")
        return self._networks[name]


def file_name(path: Path) -> str:
    """What a file is called on a device."""
    return f"{_digest(path)}{path.suffix}"


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _names(value: object) -> list[str]:
    assert isinstance(value, list)
    return [str(item) for item in value]
