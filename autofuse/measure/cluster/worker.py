"""What runs on a Dask worker: a build in a disposable child of the worker, so that no kernel can take it along.

Workers need autofuse installed, of the same version, and one thread each (`dask worker --nthreads 1`).
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from autofuse.measure.children.process import Child, available_cores, default_memory, wait
from autofuse.measure.measurement import Failure
from autofuse.values.scratch import scratch_folder

BUILDER_MODULE = "autofuse.measure.children.builder"
START_S = 90.0
_NAME = "autofuse_builders"


def build(
    hello: Mapping[str, Any], parts: Mapping[str, Any], arrays: Sequence[bytes]
) -> dict[str, str | float | bytes | list[bytes]]:
    """The kernel's library and its packed constants (.npy) as bytes, with the seconds that took; or a failure.

    `hello`: target, builder and the limit of a build in seconds. `parts`: workload text and schedule. `arrays`: its
    constants (.npy).
    """
    with scratch_folder() as folder:
        paths = []
        for number, content in enumerate(arrays):
            paths.append(str(folder / f"original-{number}.npy"))
            Path(paths[-1]).write_bytes(content)
        child = _child(hello)
        if isinstance(child, Failure):
            return {"kind": child.kind, "message": child.message}
        request = {"do": "export", "constants": paths, "folder": str(folder), "builder": hello["builder"], **parts}
        child.request(request, float(hello["build_s"]), "build_error")
        reply: Any = wait(child)
        if isinstance(reply, Failure):
            return {"kind": reply.kind, "message": reply.message}
        constants = [Path(path).read_bytes() for path in reply["constants"]]
        return {
            "build_s": float(reply["build_s"]),
            "code": str(reply["code"]),
            "kernel": Path(reply["kernel"]).read_bytes(),
            "constants": constants,
        }


def _child(hello: Mapping[str, Any]) -> Child | Failure:
    """This worker thread's building process for this target, kept for the next candidate: it dies with its thread."""
    from distributed import get_worker

    kept: dict[tuple[int, str], Child] = get_worker().__dict__.setdefault(_NAME, {})
    key = threading.get_ident(), repr(sorted(hello["target"].items())) + str(hello["builder"])
    child = kept.get(key)
    if child is not None and child.running() and not child.busy:
        return child
    for old in [name for name in kept if name[0] == key[0]]:
        kept.pop(old).kill()
    child = Child(BUILDER_MODULE, default_memory(available_cores()), {"TVM_NUM_THREADS": "1"}, ())
    child.request({"do": "hello", "target": hello["target"], "builder": hello["builder"]}, START_S)
    reply = wait(child)
    if isinstance(reply, Failure):
        return reply
    kept[key] = child
    return child
