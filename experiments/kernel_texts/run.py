"""The code of every kernel of networks as text, to be compared before and after a change. Nothing is built or timed.

    .venv/bin/python -m experiments kernel_texts dump out/before MODEL.onnx ... [--devices zen3,zen4,raspberry-pi-5]
    .venv/bin/python -m experiments kernel_texts compare out/before out/after

`dump` emits each kernel of the plans `default` and `none` under every schedule that the rules would try first, and
writes one file a network and device. `compare` says which kernels differ; its exit code is 1 when any does.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from autofuse.backend.compile.host_cpu import device_named
from autofuse.device.target import Target
from autofuse.environment.named_plans import named_plan
from autofuse.environment.space import load_space
from autofuse.graph.loading.load import load
from autofuse.graph.model import Graph
from autofuse.kernels.build import build_kernel
from autofuse.kernels.lowering.lower import Lowering
from autofuse.kernels.schedule.guesses import first_schedules
from autofuse.kernels.schedule.knobs import open_knobs
from autofuse.kernels.tir.digest import code_text
from autofuse.kernels.workload.workload import Workload
from experiments.catalogue import WRITTEN
from experiments.model_files import HELP, asked_for
from experiments.options import listed, new_parser

PLANS = ("default", "none")
DEVICES = "zen3,zen4,raspberry-pi-5"
"""One of each kind of vector: AVX2, AVX-512, NEON."""
THREADS = 2
HEAD = re.compile(r"^== (.+)$", re.MULTILINE)


def texts(graph: Graph, target: Target) -> Iterator[tuple[str, str]]:
    """(name, code) of each kernel: names say the plan, the first group that has the kernel, and which guess it is.

    A kernel that cannot be emitted has the name of its error instead of code.
    """
    lowering, space, seen = Lowering(graph, target), load_space(None, target.isa).schedule, set()
    for plan in PLANS:
        for number, bound in enumerate(lowering.lower(named_plan(graph, plan)).kernels):
            workload = bound.workload
            if workload.key in seen:
                continue
            seen.add(workload.key)
            guesses = first_schedules(workload, open_knobs(workload, target, space), target, THREADS)
            for guess, schedule in enumerate(guesses):
                name = f"{plan} kernel {number} guess {guess}: {workload.label}"
                yield name, _code(workload, dict(schedule), target)


def _code(workload: Workload, schedule: dict[str, int | str], target: Target) -> str:
    try:
        return code_text(build_kernel(workload, schedule, target).function)
    except Exception as error:  # noqa: BLE001  # the same error before and after is no difference
        return f"{type(error).__name__}: no kernel\n"


def dump(folder: Path, model: Path, device: str) -> int:
    """Writes one network's kernels for one device; how many."""
    found = list(texts(load(model, {}), device_named(device).target()))
    folder.mkdir(parents=True, exist_ok=True)
    body = "".join(f"== {name}\n{code.strip()}\n" for name, code in found)
    (folder / f"{model.stem}.{device}.txt").write_text(body, encoding="utf-8")
    return len(found)


def read(path: Path) -> dict[str, str]:
    """The kernels of a dumped file, by name."""
    _, *parts = HEAD.split(path.read_text(encoding="utf-8"))
    return dict(zip(parts[::2], parts[1::2], strict=True))


def compare(before: Path, after: Path) -> list[str]:
    """What differs between two folders, one line a kernel; a file that one of them lacks differs in every kernel."""
    lines = []
    for name in sorted({path.name for folder in (before, after) for path in folder.glob("*.txt")}):
        old, new = (read(folder / name) if (folder / name).exists() else {} for folder in (before, after))
        for kernel in {**old, **new}:
            if old.get(kernel) != new.get(kernel):
                state = "only before" if kernel not in new else "only after" if kernel not in old else "changed"
                lines.append(f"{name}: {state}: {kernel}")
    return lines


def main(arguments: list[str] | None = None) -> int:
    """See the module; the exit code."""
    parser = new_parser(__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    dumping = verbs.add_parser("dump")
    dumping.add_argument("folder", type=Path)
    dumping.add_argument("models", nargs="+", metavar="MODEL", help=HELP)
    dumping.add_argument(
        "--devices", type=listed, default=listed(DEVICES), help=f"device profiles (default: {DEVICES})"
    )
    comparing = verbs.add_parser("compare")
    comparing.add_argument("before", type=Path)
    comparing.add_argument("after", type=Path)
    asked = parser.parse_args(arguments)
    if asked.verb == "dump":
        for model in asked_for(parser, asked.models, WRITTEN):
            for device in asked.devices:
                print(f"{model.stem} on {device}: {dump(asked.folder, model, device)} kernels", flush=True)
        return 0
    lines = compare(asked.before, asked.after)
    print("\n".join(lines) or "no kernel differs")
    return 1 if lines else 0
