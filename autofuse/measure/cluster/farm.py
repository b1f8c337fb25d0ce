"""Building candidates for a device elsewhere, in parallel child processes or on a Dask cluster."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from autofuse.device.target import Target
from autofuse.errors import DeviceError
from autofuse.measure.children.builder import KERNEL
from autofuse.measure.children.codec import target_to_json
from autofuse.measure.children.process import Child, Reply, available_cores, default_memory, wait
from autofuse.measure.measurement import Failure, Limits, MeasureRequest

BUILDER = "autofuse.kernels.build:build_kernel"
MODULE = "autofuse.measure.children.builder"
CLUSTER_MODULE = "autofuse.measure.cluster.builder"
CLUSTER_MOST = 32
"""Builds under way on a cluster at once: each has a child here that waits for it."""
CLUSTER_SLACK = 3.0
"""Times the limit of a build that the child may take, in which it finds out whether the cluster is gone."""
START_ATTEMPTS = 2
MOST_KILLS = 2
"""Processes that may be killed from outside while they build a candidate, before that is taken for its fault."""
DEFAULT_LIMITS = Limits()


@dataclass
class Built:
    """A candidate whose kernel lies in `folder`, with the number of times it was tried on a device.

    `code`: see `Measurement`.
    """

    index: int
    identity: int
    request: MeasureRequest
    folder: Path
    kernel: Path
    constants: tuple[Path, ...]
    build_s: float
    code: str
    attempts: int = 0

    @property
    def size_bytes(self) -> int:
        """Bytes to upload."""
        return sum(path.stat().st_size for path in (self.kernel, *self.constants))


@dataclass(frozen=True)
class _Job:
    index: int
    identity: int
    request: MeasureRequest
    folder: Path
    kills: int = 0


@dataclass
class _Builder:
    child: Child
    job: _Job | None = None
    started: bool = False
    served: int = 0


class BuildFarm:
    """Builds for one target; its arguments are those of `autofuse.measure.pool.LocalRunner`.

    `scheduler`: address of a Dask scheduler whose workers build ("tcp://host:8786"). When it does not answer, or goes
    away, building goes on here.
    """

    def __init__(
        self,
        target: Target,
        *,
        builder: str = BUILDER,
        workers: int | None = None,
        limits: Limits = DEFAULT_LIMITS,
        import_paths: Sequence[Path] = (),
        scheduler: str | None = None,
    ) -> None:
        self.scheduler = scheduler
        self.target_json = target_to_json(target)
        self._builder, self._limits, self._paths = builder, limits, tuple(import_paths)
        self._size = max(1, workers or available_cores())
        self._builders: list[_Builder] = []
        self._waiting: deque[_Job] = deque()
        self._identities = 0
        self._failed_starts = 0
        self._reason = ""
        self.notice = ""

    def submit(self, batch: Sequence[tuple[int, MeasureRequest]], folder: Path) -> None:
        """Queue candidates with their numbers; kernels go to folders below `folder`."""
        self._failed_starts = 0
        for index, request in batch:
            self._identities += 1
            self._waiting.append(_Job(index, self._identities, request, folder / f"candidate-{self._identities}"))

    def busy(self) -> list[Child]:
        """Children with a request under way."""
        return [builder.child for builder in self._builders if builder.child.busy]

    def feed(self, hold: bool) -> Iterator[tuple[int, Failure]]:
        """Hand out what waits (nothing new while `hold`); candidates that nobody can build."""
        for builder in list(self._builders):
            idle = not builder.child.busy
            if idle and (builder.served >= self._limits.candidates or not builder.child.running()):
                self._discard(builder)
        if hold or not self._waiting:
            return
        if self._failed_starts >= START_ATTEMPTS and not self._builders:
            failure = Failure("device_lost", f"no process that builds kernels starts: {self._reason}")
            while self._waiting:
                yield self._waiting.popleft().index, failure
            return
        while len(self._builders) < min(self._size, len(self._waiting) + len(self.busy())):
            self._start()
        for builder in self._builders:
            if self._waiting and not builder.child.busy:
                self._give(builder, self._waiting.popleft())

    def take(self, child: Child, reply: Reply) -> Iterator[tuple[int, Built | Failure]]:
        """What a child's reply means: a kernel, a failure, or nothing yet."""
        builder = next((one for one in self._builders if one.child is child), None)
        if builder is None:
            return  # ended with the cluster
        job, builder.job = builder.job, None
        if self.scheduler and isinstance(reply, Failure) and reply.kind == "device_lost":
            self._cluster_lost(job, reply)
            return
        if not builder.started:
            self._greeted(builder, reply)
            return
        assert job is not None
        builder.served += 1
        if not child.alive:
            self._discard(builder)
        if isinstance(reply, Failure) and child.killed and job.kills < MOST_KILLS:
            self._waiting.append(replace(job, kills=job.kills + 1))  # from outside: it need not be its fault
            return
        if isinstance(reply, Failure):
            yield job.index, reply
            return
        paths = reply["constants"]
        assert isinstance(paths, list)
        constants = tuple(Path(str(path)) for path in paths)
        kernel, build_s = job.folder / KERNEL, float(str(reply["build_s"]))
        code = str(reply["code"])
        yield job.index, Built(job.index, job.identity, job.request, job.folder, kernel, constants, build_s, code)

    def probe(self, path: Path, threads: int, steps: int) -> None:
        """Build the clock probe; DeviceError when that is not possible (no linker for the device, above all)."""
        usable = (one for one in self._builders if not one.started or not one.child.busy)
        builder = next(usable, None)
        if builder is None:  # none yet, or each builds a candidate
            self._start()
            builder = self._builders[-1]
        if not builder.started:
            reply = wait(builder.child)
            if self.scheduler and isinstance(reply, Failure):
                self._cluster_lost(None, reply)
                self.probe(path, threads, steps)
                return
            self._greeted(builder, reply)
        if builder.started:
            message = {"do": "probe", "path": str(path), "threads": threads, "steps": steps}
            builder.child.request(message, self._limits.start_s * self._slack())
            reply = wait(builder.child)
            if not isinstance(reply, Failure):
                return
            self._reason = reply.message
        raise DeviceError(f"kernels for the device cannot be built here: {self._reason}")

    def close(self) -> None:
        """End all children, and forget what waits."""
        for builder in self._builders:
            builder.child.kill()
        self._builders.clear()
        self._waiting.clear()

    def _start(self) -> None:
        memory = self._limits.memory_bytes or default_memory(self._size)
        module = CLUSTER_MODULE if self.scheduler else MODULE
        child = Child(module, memory, {**self._limits.environment, "TVM_NUM_THREADS": "1"}, self._paths)
        hello: dict[str, object] = {"do": "hello", "target": self.target_json, "builder": self._builder}
        if self.scheduler:
            hello |= {"scheduler": self.scheduler, "build_s": self._limits.build_s}
        child.request(hello, self._limits.start_s)
        self._builders.append(_Builder(child))

    def _greeted(self, builder: _Builder, reply: Reply) -> None:
        if isinstance(reply, Failure):
            self._failed_starts, self._reason = self._failed_starts + 1, reply.message
            self._discard(builder)
        else:
            self._failed_starts, builder.started = 0, True
            if self.scheduler:
                self._size = min(CLUSTER_MOST, int(str(reply["cores"])))

    def _cluster_lost(self, job: _Job | None, failure: Failure) -> None:
        """Everything under way there is built here: it was not at fault."""
        self.scheduler, self._size = None, max(1, available_cores())
        self.notice = f"{failure.message}: building goes on with {self._size} processes here"
        jobs = [job, *(builder.job for builder in self._builders)]
        self._waiting.extendleft(reversed([one for one in jobs if one is not None]))
        for builder in list(self._builders):
            self._discard(builder)

    def _slack(self) -> float:
        return CLUSTER_SLACK if self.scheduler else 1.0

    def _give(self, builder: _Builder, job: _Job) -> None:
        builder.job = job
        message = {
            "do": "export",
            "workload": job.request.workload.text,
            "schedule": dict(job.request.schedule),
            "builder": self._builder,
            "constants": [str(path) for path in job.request.constants],
            "folder": str(job.folder),
        }
        builder.child.request(message, self._limits.build_s * self._slack(), "build_error")

    def _discard(self, builder: _Builder) -> None:
        builder.child.kill()
        if builder in self._builders:
            self._builders.remove(builder)
