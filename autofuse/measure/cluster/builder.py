"""The child that has a kernel built on a Dask cluster: `python -m autofuse.measure.cluster.builder`.

It answers what `autofuse.measure.children.builder` answers. The cluster sees bytes only: no worker needs the
files of this machine, and a cluster that hangs or goes away ends with this process.
"""

from __future__ import annotations

import time
from concurrent.futures import CancelledError
from dataclasses import replace
from typing import Any

from autofuse.measure.children.builder import KERNEL, BuildSession
from autofuse.measure.children.child import Handlers, RefusedError, note, serve
from autofuse.measure.children.messages import Done, Refused, decode, encode, known
from autofuse.measure.children.requests import Export, Exported, ExportProbe, StartBuilder
from autofuse.measure.cluster import worker as cluster_worker
from autofuse.measure.cluster.requests import ClusterReady, StartClusterBuilder

CONNECT_S = 10.0
PING_S = 5.0


class ClusterSession:
    """A client of one scheduler; the clock probe alone is built here."""

    def __init__(self) -> None:
        self._client: Any = None
        self._start: StartBuilder | None = None
        self._limit_s = 0.0
        self._own = BuildSession()

    def handlers(self) -> Handlers:
        """What it does, by the kind of request."""
        return {StartClusterBuilder: self.start, Export: self.export, ExportProbe: self.export_probe}

    def start(self, request: StartClusterBuilder) -> ClusterReady:
        """Connect; the number of builds that the cluster does at once."""
        import distributed

        self._start, self._limit_s = StartBuilder(request.target, request.builder), request.build_s
        try:
            self._client = distributed.Client(
                request.scheduler, timeout=CONNECT_S, set_as_default=False, heartbeat_interval="2s"
            )
            cores = sum(self._client.nthreads().values())
        except (OSError, TimeoutError) as error:
            raise RefusedError("device_lost", f"no Dask scheduler answers at {request.scheduler}: {error}") from error
        if not cores:
            raise RefusedError("device_lost", f"the Dask scheduler at {request.scheduler} has no workers")
        return ClusterReady(cores)

    def export(self, request: Export) -> Exported:
        """See `autofuse.measure.children.builder.BuildSession.export`; the files are written here."""
        assert self._start is not None
        arrays = [path.read_bytes() for path in request.constants]
        future = self._client.submit(
            cluster_worker.build, encode(self._start), encode(request), arrays, self._limit_s, pure=False
        )
        try:
            answer, library, packed = self._result(future)
        finally:
            future.cancel()
        told = decode(answer, known((Exported, Refused)))
        if isinstance(told, Refused):
            raise RefusedError(told.kind, told.message)
        assert isinstance(told, Exported)
        request.folder.mkdir(parents=True, exist_ok=True)
        kernel = request.folder / KERNEL
        kernel.write_bytes(library)
        constants = tuple(request.folder / f"constant-{number}.npy" for number in range(len(packed)))
        for path, content in zip(constants, packed, strict=True):
            path.write_bytes(content)
        return replace(told, kernel=kernel, constants=constants)

    def export_probe(self, request: ExportProbe) -> Done:
        """Built here: it is one kernel a job."""
        assert self._start is not None
        self._own.start(self._start)
        return self._own.export_probe(request)

    def _result(self, future: Any) -> tuple[bytes, bytes, list[bytes]]:
        """What the cluster answers; a cluster that is gone is no fault of the candidate."""
        deadline = time.monotonic() + 2 * self._limit_s
        while True:
            try:
                found: tuple[bytes, bytes, list[bytes]] = future.result(timeout=PING_S)
                return found
            except TimeoutError:
                self._ping()
                if time.monotonic() > deadline:
                    raise RefusedError("device_lost", "the Dask cluster has not built for too long") from None
            except (CancelledError, OSError) as error:
                raise RefusedError("device_lost", f"the Dask scheduler went away: {error}") from error
            except RuntimeError as error:
                raise _refusal(error) from error

    def _ping(self) -> None:
        try:
            if self._client.status != "running" or not self._client.nthreads():
                raise RefusedError("device_lost", "the Dask cluster has no scheduler or no workers any more")
        except (OSError, TimeoutError) as error:
            raise RefusedError("device_lost", f"the Dask scheduler went away: {error}") from error


def _refusal(error: RuntimeError) -> RefusedError:
    """`KilledWorker`: the build took several workers with it."""
    note(f"cluster: {type(error).__name__}: {error}")
    lost = type(error).__name__ not in ("KilledWorker",)
    return RefusedError("device_lost" if lost else "build_error", f"{type(error).__name__}: {error}")


def main() -> None:
    """Serve one coordinator until it goes away."""
    serve(ClusterSession().handlers())


if __name__ == "__main__":
    main()
