"""The child that has a kernel built on a Dask cluster: `python -m autofuse.measure.cluster.builder`.

It answers what `autofuse.measure.children.builder` answers. The cluster sees bytes only: no worker needs the
files of this machine, and a cluster that hangs or goes away ends with this process.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any

from autofuse.measure.children.builder import KERNEL, BuildSession
from autofuse.measure.children.child import Handler, RefusedError, note, serve
from autofuse.measure.children.messages import Message
from autofuse.measure.cluster import worker as cluster_worker

CONNECT_S = 10.0
PING_S = 5.0


class ClusterSession:
    """A client of one scheduler; the clock probe alone is built here."""

    def __init__(self) -> None:
        self._client: Any = None
        self._hello: Message = {}
        self._own = BuildSession()

    def handlers(self) -> Mapping[str, Handler]:
        """Requests by name."""
        return {"hello": self.hello, "export": self.export, "probe": self.probe}

    def hello(self, request: Message) -> Message:
        """Connect; the number of builds that the cluster does at once."""
        import distributed

        self._hello = {"target": request["target"], "builder": request["builder"], "build_s": request["build_s"]}
        try:
            self._client = distributed.Client(
                str(request["scheduler"]), timeout=CONNECT_S, set_as_default=False, heartbeat_interval="2s"
            )
            cores = sum(self._client.nthreads().values())
        except (OSError, TimeoutError) as error:
            raise RefusedError(
                "device_lost", f"no Dask scheduler answers at {request['scheduler']}: {error}"
            ) from error
        if not cores:
            raise RefusedError("device_lost", f"the Dask scheduler at {request['scheduler']} has no workers")
        return {"cores": cores}

    def export(self, request: Message) -> Message:
        """See `autofuse.measure.children.builder.BuildSession.export`; the files are written here."""
        arrays = [Path(path).read_bytes() for path in _strings(request["constants"])]
        parts = {"workload": request["workload"], "schedule": request["schedule"]}
        limit_s = float(str(self._hello["build_s"]))
        future = self._client.submit(cluster_worker.build, dict(self._hello), parts, arrays, pure=False)
        try:
            answer: Any = self._result(future, limit_s)
        finally:
            future.cancel()
        if "kind" in answer:
            raise RefusedError(str(answer["kind"]), str(answer["message"]))
        folder = Path(str(request["folder"]))
        folder.mkdir(parents=True, exist_ok=True)
        (folder / KERNEL).write_bytes(answer["kernel"])
        constants = []
        for number, content in enumerate(answer["constants"]):
            constants.append(str(folder / f"constant-{number}.npy"))
            Path(constants[-1]).write_bytes(content)
        made = {"build_s": answer["build_s"], "code": answer["code"]}
        return {**made, "kernel": str(folder / KERNEL), "constants": constants}

    def probe(self, request: Message) -> Message:
        """Built here: it is one kernel a job."""
        self._own.hello(self._hello)
        return self._own.probe(request)

    def _result(self, future: Any, limit_s: float) -> object:
        """What the cluster answers; a cluster that is gone is no fault of the candidate."""
        deadline = time.monotonic() + 2 * limit_s
        while True:
            try:
                return future.result(timeout=PING_S)
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


def _strings(value: object) -> list[str]:
    assert isinstance(value, list)
    return [str(item) for item in value]


def main() -> None:
    """Serve one coordinator until it goes away."""
    serve(ClusterSession().handlers())


if __name__ == "__main__":
    main()
