"""Who takes part: each rival by its name, with the environment it needs and what it is made ready from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from autofuse.measure.networks.bench import Host
from experiments.peers.environments import interpreter

MODULE = "experiments.peers.contender"
LOAD_S = 900.0


@dataclass(frozen=True)
class Rival:
    """`title`: in tables. `kind`: for the program that holds it. `environment`: of its own (None: autofuse's).

    `plan`: for autofuse's own, the plan that is compiled ("": the best of the database). `per_threads`: what is made
    ready holds for one number of threads only. `peer`: counts among the best peers.
    """

    name: str
    title: str
    kind: str
    environment: str | None = None
    plan: str | None = None
    per_threads: bool = False
    peer: bool = False

    @property
    def foreign(self) -> bool:
        """Whether it is held by this experiment's program, not by autofuse's own."""
        return self.kind not in ("autofuse", "onnxruntime", "tvm")


RIVALS = {
    rival.name: rival
    for rival in (
        Rival("onnxruntime", "ONNX Runtime", "onnxruntime", peer=True),
        Rival("openvino", "OpenVINO f32", "openvino", "openvino", peer=True),
        Rival("torch", "torch eager", "torch", "torch", peer=True),
        Rival("torch.compile", "torch.compile", "torch.compile", "torch", per_threads=True, peer=True),
        Rival("litert", "LiteRT", "litert", "litert", peer=True),
        Rival("ncnn", "ncnn", "ncnn", "torch", peer=True),
        Rival("tvm", "TVM, untuned", "tvm"),
        Rival("metaschedule", "TVM MetaSchedule", "metaschedule", "metaschedule", per_threads=True),
        Rival("autofuse", "autofuse", "autofuse", plan="", per_threads=True),
        Rival("autofuse:none", "autofuse, plan none", "autofuse", plan="none", per_threads=True),
        Rival("autofuse:tvm", "autofuse, plan tvm-partition", "autofuse", plan="tvm-partition", per_threads=True),
    )
}
OWN, BASE = "autofuse", "onnxruntime"
"""Ours; and the one that the ratios of all are to, so that a table without ours reads the same."""


def host_of(rival: Rival, threads: int, cache: Path) -> Host:
    """The program that holds a foreign rival; MissingEnvironmentError when its environment is not installed.

    `cache`: folder of compiled kernels that outlive the process.
    """
    count = str(threads)
    environment = {
        "OMP_NUM_THREADS": count,
        "MKL_NUM_THREADS": count,
        "TORCHINDUCTOR_CACHE_DIR": str(cache),
        "TORCHINDUCTOR_COMPILE_THREADS": "1",  # else it leaves a pool of processes behind
    }
    python = interpreter(rival.environment) if rival.environment else None
    return Host(MODULE, python, environment, LOAD_S)
