"""Kernels of long code are translated in children, which can be ended: none takes longer than it may."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from autofuse.backend.compile.function import NOTHING_KEPT, Kept, read_object, write_function
from autofuse.backend.compile.realise import Progress
from autofuse.device.target import Target
from autofuse.errors import DeviceError
from autofuse.measure.children.pool import Call, Pool, Program
from autofuse.measure.children.process import available_cores
from autofuse.measure.children.requests import StartBuilder, Translate
from autofuse.measure.measurement import BUILD_CPU_S, Failure
from autofuse.values.scratch import scratch_folder

MODULE, BUILDER = "autofuse.measure.children.builder", "autofuse.kernels.build:build_kernel"
START_S = 90.0
WALL = 30.0
"""Times its processor time that a child may take, on a machine that is busy with others."""
TRANSLATING = "translating kernels of long code"


@dataclass(frozen=True)
class Translation:
    """What `autofuse.backend.compile.realise.Bounded` asks for, for one target. `cpu_s`: processor time of a kernel.

    `kept`: objects of kernels from earlier libraries.
    """

    target: Target
    cpu_s: float = BUILD_CPU_S
    kept: Kept = NOTHING_KEPT

    def __call__(self, functions: Mapping[str, Any], told: Progress) -> tuple[dict[str, Any], dict[str, str]]:
        """Translate each of `functions`; DeviceError when no child can be started."""
        given_up: dict[str, str] = {}
        with scratch_folder() as folder:
            keys = {name: self.kept.key(function) for name, function in functions.items()}
            left = [name for name in functions if not self.kept.take(keys[name], name, folder / f"{name}.o")]
            told(TRANSLATING, len(functions) - len(left), len(functions))
            if left:
                given_up = self._translated({name: functions[name] for name in left}, folder, told, len(functions))
            for name in set(left) - set(given_up):
                self.kept.keep(keys[name], name, folder / f"{name}.o")
            ready = {name: read_object(folder / f"{name}.o", name) for name in functions if name not in given_up}
        return ready, given_up

    def _translated(self, functions: Mapping[str, Any], folder: Path, told: Progress, total: int) -> dict[str, str]:
        """Translates functions in children, into `folder`; why some of them are not."""
        size = min(available_cores(), len(functions))
        hello = Call(StartBuilder(self.target, BUILDER), START_S)
        program = Program(MODULE, hello, {"TVM_NUM_THREADS": "1"}, share=size)
        pool: Pool[str] = Pool(program.start, partial(self._call, folder), size, "process that translates")
        try:
            for symbol, function in functions.items():
                write_function(function, folder / f"{symbol}.json")
            pool.submit(functions)
            return _worked_off(pool, total - len(functions), total, told)
        finally:
            pool.close()

    def _call(self, folder: Path, symbol: str) -> Call:
        request = Translate(folder / f"{symbol}.json", symbol, folder / f"{symbol}.o", self.cpu_s)
        return Call(request, WALL * self.cpu_s, "build_error")


def _worked_off(pool: Pool[str], done: int, total: int, told: Progress) -> dict[str, str]:
    """Why some symbols have no object file, once the pool has worked off all of them."""
    given_up: dict[str, str] = {}
    while not pool.done:
        for answer in pool.step():
            done += 1
            if isinstance(answer.reply, Failure):
                if answer.reply.kind == "device_lost":
                    raise DeviceError(f"kernels cannot be translated: {answer.reply.message}")
                given_up[answer.work] = answer.reply.message
            elif answer.member is not None:
                pool.finish(answer.member)
            told(TRANSLATING, done, total)
    return given_up
