"""The device's side of a session: the kernels and networks that clients uploaded, checked and timed here.

Everything that decides a result runs on the device, by the same code as on a local machine: the clock probe, the
slices, the comparison with the reference. Files come by the digest of their content, and stay for later sessions.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from autofuse.device.description import DeviceDescription
from autofuse.kernels.workload.workload import Workload
from autofuse.measure.children.candidates import CandidateSession, confine
from autofuse.measure.children.child import Handlers, RefusedError, answer
from autofuse.measure.children.messages import Done, encode
from autofuse.measure.machine import MeasureRates, Rates, rates_of
from autofuse.measure.networks.contender import ContenderSession
from autofuse.measure.networks.requests import (
    CallsTimed,
    CloseNetwork,
    Compared,
    CompareOutputs,
    Loaded,
    LoadNetwork,
    Saved,
    SaveOutputs,
    TimeCalls,
)
from autofuse.measure.remote.requests import (
    Describe,
    Described,
    Keep,
    LoadKernel,
    Missing,
    ProbeRun,
    RunProbe,
    StartSession,
    Wanted,
)
from autofuse.measure.timing.clock import Clock, pin_main_thread

if TYPE_CHECKING:
    from autofuse.backend.compile.probes import FmaProbe

NAME = re.compile(r"[0-9a-f]{64}\.(npy|so|onnx)")
"""What uploaded files are called: the SHA-256 of their content, and what they are."""
FILES = "files"
KEPT_BYTES = 2 << 30
"""Uploaded files kept for later sessions, the most recently used."""
MIN_FREE_BYTES = 256 << 20


class ServedSession(CandidateSession):
    """One client's session in `folder`, where its uploads arrive.

    `described`: the device, asked when it is wanted. `before`: how the session before this one ended.
    """

    def __init__(self, folder: Path, described: Callable[[], DeviceDescription], before: str = "") -> None:
        super().__init__()
        self._folder, self._files, self._described = folder, folder.parent / FILES, described
        self._files.mkdir(exist_ok=True)
        self._before = before
        self._whole: set[str] = set()
        self._networks: dict[str, ContenderSession] = {}
        self._probe: FmaProbe | None = None
        self._results = 0

    def handlers(self) -> Handlers:
        """What it does, by the kind of request."""
        return {
            Describe: self.describe,
            Missing: self.missing,
            Keep: self.keep,
            StartSession: self.start,
            LoadKernel: self.load,
            RunProbe: self.run_probe,
            MeasureRates: self.rates,
            LoadNetwork: self.load_network,
            CompareOutputs: self.compare,
            SaveOutputs: self.save,
            TimeCalls: self.time_calls,
            CloseNetwork: self.close_network,
            **super().handlers(),
        }

    def answer(self, text: str) -> str:
        """One encoded request, answered likewise."""
        return encode(answer(self.handlers(), text.encode())).decode()

    # -- the device and its files

    def describe(self, _request: Describe) -> Described:
        """The device, now."""
        return Described(self._described(), self._before)

    def missing(self, request: Missing) -> Wanted:
        """Those of the files that must be uploaded first."""
        return Wanted(tuple(name for name in request.names if not self._touch(name)))

    def keep(self, request: Keep) -> Done:
        """Take an uploaded file over, when it is what its name says."""
        goal = self._goal(request.name)
        source = self._folder / request.name
        if not source.is_file():
            raise RefusedError("run_error", f"{request.name[:12]} was not uploaded")
        if _digest(source) != goal.stem:
            source.unlink(missing_ok=True)
            raise RefusedError("run_error", f"the upload of {request.name[:12]} was damaged on the way")
        self._make_room(source.stat().st_size)
        source.replace(goal)
        self._whole.add(request.name)
        return Done()

    def place(self, path: Path) -> Path:
        """See CandidateSession: a file that was uploaded; RefusedError for any other name."""
        found = self._goal(str(path))
        if not found.is_file():
            raise RefusedError("run_error", f"{found.name[:12]} was not uploaded")
        return found

    def _goal(self, name: str) -> Path:
        if not NAME.fullmatch(name):
            raise RefusedError("run_error", f"{name[:100]!r} is no name of an uploaded file")
        return self._files / name

    def _touch(self, name: str) -> bool:
        """Whether a file is here; one of an earlier session still has to be what its name says."""
        path = self._goal(name)
        try:
            if name not in self._whole and _digest(path) != path.stem:
                return False
            os.utime(path)
        except OSError:
            return False
        self._whole.add(name)
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

    def start(self, request: StartSession) -> ProbeRun:
        """Use the CPUs and the threads that the client wants, and start the clock probe it brought."""
        from autofuse.backend.compile.jit import load_kernel
        from autofuse.backend.compile.probes import FmaProbe

        _settle(request.cpus, request.threads)
        self.target = request.target
        kernel = load_kernel(self.place(request.probe))
        self._probe = FmaProbe(request.target, request.threads, request.steps, kernel)
        self._probe.seconds()
        self.clock = Clock(self._probe.seconds)
        return ProbeRun(self._probe.seconds())

    def load(self, request: LoadKernel) -> Done:
        """A kernel and its packed constants, by the names of their files, under an id of the client's."""
        from autofuse.backend.compile.jit import load_kernel, tensor

        kernel = load_kernel(self.place(request.kernel))
        constants = [tensor(np.load(self.place(path))) for path in request.constants]
        self.take(request.id, Workload.from_text(request.workload), kernel, constants)
        return Done()

    def rates(self, request: MeasureRates) -> Rates:
        """What the device can do at best, by the probes that were uploaded."""
        from autofuse.backend.compile.jit import load_kernel

        _settle(request.cpus, request.threads)
        return rates_of(request, lambda path: load_kernel(self.place(path)))

    # -- whole networks

    def run_probe(self, _request: RunProbe) -> ProbeRun:
        """One run of the clock probe."""
        if self._probe is None:
            raise RefusedError("run_error", "no clock probe was started")
        with pin_main_thread():
            return ProbeRun(self._probe.seconds())

    def load_network(self, request: LoadNetwork) -> Loaded:
        """A network under a name of the client's, run once on its inputs; see `ContenderSession.load`."""
        session = ContenderSession()
        inputs = {name: self.place(file) for name, file in request.inputs.items()}
        loaded = session.load(replace(request, path=self.place(request.path), inputs=inputs))
        self._networks[request.name] = session
        return loaded

    def compare(self, request: CompareOutputs) -> Compared:
        """The last results of a network against the reference; see `ContenderSession.compare`."""
        expected = tuple(self.place(path) for path in request.expected)
        return self._network(request.name).compare(replace(request, expected=expected))

    def time_calls(self, request: TimeCalls) -> CallsTimed:
        """Timed calls of a network; see `ContenderSession.time_calls`."""
        return self._network(request.name).time_calls(request)

    def save(self, request: SaveOutputs) -> Saved:
        """The last results of a network as .npy files to be downloaded, whatever folder was named."""
        paths = []
        for array in self._network(request.name).results():
            self._results += 1
            paths.append(Path(f"result-{self._results}.npy"))
            np.save(self._folder / paths[-1], array, allow_pickle=False)
        return Saved(tuple(paths))

    def close_network(self, request: CloseNetwork) -> Done:
        """Forget a network."""
        self._networks.pop(request.name, None)
        return Done()

    def _network(self, name: str) -> ContenderSession:
        if name not in self._networks:
            raise RefusedError("run_error", f"no network {name!r} is open")
        return self._networks[name]


def _settle(cpus: Sequence[int], threads: int) -> None:
    """From now on this process runs on these CPUs (none named: any) with so many threads."""
    from autofuse.backend.library.threads import configure_threads

    if cpus:
        confine(cpus)
    configure_threads(threads)


def file_name(path: Path) -> str:
    """What a file is called on a device."""
    return f"{_digest(path)}{path.suffix}"


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
