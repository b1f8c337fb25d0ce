"""Building candidates for a device elsewhere, in parallel child processes or on a Dask cluster."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from autofuse.device.target import Target
from autofuse.errors import DeviceError
from autofuse.measure.children.messages import Message
from autofuse.measure.children.pool import Answer, Call, Pool, Program
from autofuse.measure.children.process import Child, Reply, available_cores
from autofuse.measure.children.requests import Export, Exported, ExportProbe, StartBuilder
from autofuse.measure.cluster.requests import ClusterReady, StartClusterBuilder
from autofuse.measure.measurement import Failure, Limits, MeasureRequest

BUILDER = "autofuse.kernels.build:build_kernel"
MODULE = "autofuse.measure.children.builder"
CLUSTER_MODULE = "autofuse.measure.cluster.builder"
CLUSTER_MOST = 32
"""Builds under way on a cluster at once: each has a child here that waits for it."""
CLUSTER_SLACK = 3.0
"""Times the limit of a build that the child may take, in which it finds out whether the cluster is gone."""
DEFAULT_LIMITS = Limits()


@dataclass(frozen=True)
class Built:
    """A candidate with its kernel's files, which lie in `folder`; `identity`: of the candidate on the device."""

    index: int
    identity: int
    request: MeasureRequest
    folder: Path
    files: Exported

    @property
    def size_bytes(self) -> int:
        """Bytes to upload."""
        return sum(path.stat().st_size for path in (self.files.kernel, *self.files.constants))


@dataclass(frozen=True)
class _Order:
    """A candidate that waits to be built."""

    index: int
    identity: int
    request: MeasureRequest
    folder: Path


class BuildFarm:
    """A farm of processes that build kernels for one target.

    Its arguments are those of `autofuse.measure.local_runner.LocalRunner`.

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
        self.scheduler, self.target, self.notice = scheduler, target, ""
        self._builder, self._limits, self._paths = builder, limits, tuple(import_paths)
        size = workers or available_cores()
        self._pool = Pool(
            self._program(size).start, self._export, size, "process that builds kernels",
            limits=limits, greeted=self._greeted,
        )  # fmt: skip
        self._identities = 0

    def submit(self, batch: Sequence[tuple[int, MeasureRequest]], folder: Path) -> None:
        """Queue candidates with their numbers; kernels go to folders below `folder`."""
        orders = []
        for index, request in batch:
            self._identities += 1
            orders.append(_Order(index, self._identities, request, folder / f"candidate-{self._identities}"))
        self._pool.submit(orders)

    def busy(self) -> list[Child]:
        """Children with a request under way."""
        return self._pool.busy()

    def feed(self, hold: bool) -> Iterator[tuple[int, Built | Failure]]:
        """Hand out what waits (nothing new while `hold`); candidates that nobody can build."""
        for answer in self._pool.feed(hold):
            yield self._ended(answer)

    def take(self, child: Child, reply: Reply) -> Iterator[tuple[int, Built | Failure]]:
        """What a child's reply means: a kernel, a failure, or nothing yet."""
        if self.scheduler and isinstance(reply, Failure) and reply.kind == "device_lost":
            self._cluster_lost(reply)
            return
        for answer in self._pool.take(child, reply):
            if answer.member is not None and not isinstance(answer.reply, Failure):
                self._pool.finish(answer.member)
            yield self._ended(answer)

    def probe(self, path: Path, threads: int, steps: int) -> None:
        """Build the clock probe; DeviceError when that is not possible (no linker for the device, above all)."""
        found = self._pool.any_member()
        if isinstance(found, Failure) and self.scheduler:
            self._cluster_lost(found)
            found = self._pool.any_member()
        call = Call(ExportProbe(path, threads, steps), self._limits.start_s * self._slack())
        reply = found if isinstance(found, Failure) else self._pool.ask_now(found, call)
        if isinstance(reply, Failure):
            raise DeviceError(f"kernels for the device cannot be built here: {reply.message}")

    def close(self) -> None:
        """End all children, and forget what waits."""
        self._pool.close()

    def _program(self, size: int) -> Program:
        """How a building child is started: one that builds, or one that has it done on the cluster."""
        limits = self._limits
        environment = {**limits.environment, "TVM_NUM_THREADS": "1"}
        if self.scheduler:
            there = StartClusterBuilder(self.target, self._builder, self.scheduler, limits.build_s)
            hello, module = Call(there, limits.start_s), CLUSTER_MODULE
        else:
            hello, module = Call(StartBuilder(self.target, self._builder), limits.start_s), MODULE
        return Program(module, hello, environment, self._paths, limits.memory_bytes, max(1, size))

    def _export(self, order: _Order) -> Call:
        request, cpu_s = order.request, self._limits.build_cpu_s
        constants = tuple(request.constants)
        export = Export(request.workload.text, dict(request.schedule), self._builder, constants, order.folder, cpu_s)
        return Call(export, self._limits.build_s * self._slack(), "build_error")

    def _ended(self, answer: Answer[_Order]) -> tuple[int, Built | Failure]:
        order, reply = answer.work, answer.reply
        if isinstance(reply, Failure):
            return order.index, reply
        assert isinstance(reply, Exported)
        return order.index, Built(order.index, order.identity, order.request, order.folder, reply)

    def _greeted(self, said: Message) -> None:
        if isinstance(said, ClusterReady):
            self._pool.size = min(CLUSTER_MOST, said.cores)

    def _cluster_lost(self, failure: Failure) -> None:
        """Everything under way there is built here: it was not at fault."""
        size = max(1, available_cores())
        self.scheduler = None
        self.notice = f"{failure.message}: building goes on with {size} processes here"
        self._pool.restart(self._program(size).start, size)

    def _slack(self) -> float:
        return CLUSTER_SLACK if self.scheduler else 1.0
