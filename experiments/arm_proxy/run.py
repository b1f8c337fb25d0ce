"""How good is the code for ARM, without an ARM machine: counted instructions, and llvm-mca where it is installed.

`python -m experiments arm_proxy [MODEL ...] [--devices LIST] [--out FOLDER]` writes a CSV file with a row a
contraction and prints a table. Nothing is timed, so a busy machine does no harm.
"""

from __future__ import annotations

import re
import shutil
import statistics
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from autofuse.backend.compile.function import assembly
from autofuse.backend.compile.host_cpu import device_named
from autofuse.device.target import Target
from autofuse.environment.space import load_space
from autofuse.fusion.planner.baselines import default_plan
from autofuse.graph.loading.load import load
from autofuse.kernels.build import build_kernel
from autofuse.kernels.lowering.lower import lower
from autofuse.kernels.schedule.guesses import first_schedules
from autofuse.kernels.schedule.knobs import open_knobs
from autofuse.kernels.workload.workload import Workload
from experiments.arm_proxy.loops import Loop, hot_loop
from experiments.catalogue import WRITTEN
from experiments.model_files import HELP, asked_for
from experiments.options import listed, new_parser
from experiments.records import Table, keep
from experiments.tables import head, line, write_csv

DEVICES = ("raspberry-pi-3", "raspberry-pi-4", "raspberry-pi-5", "graviton2", "graviton3")
NETWORKS = ("resnet50", "mobilenet_v2", "squeezenet1_1", "tinybert")
BOUND = 1.5
MCA, MCA_S, MCA_ITERATIONS = "llvm-mca", 60, 100
CONTRACTIONS = ("Conv", "MatMul", "Gemm")


@dataclass(frozen=True)
class Row:
    """The hot loop of one contraction. `full`: whether it is one of full tiles. `cycles`: of llvm-mca a
    multiply-add."""

    device: str
    network: str
    group: str
    algorithm: str
    tile: str
    fmla: int
    instructions: int
    ratio: float
    spills: int
    full: bool
    cycles: float | None

    @property
    def good(self) -> bool:
        return self.ratio <= BOUND and not self.spills


def judged(workload: Workload, target: Target) -> tuple[dict[str, int | str], Loop, bool] | None:
    """The default schedule of a contraction with its hot loop; None for what is not bound by multiply-adds.

    A product with one row reads each weight once: it is bound by memory, however it is written.
    """
    space = load_space(None, target.isa).schedule
    schedule = first_schedules(workload, open_knobs(workload, target, space), target)[0]
    if "contraction.vectors" not in schedule or "contraction.pixels" not in schedule:
        return None
    built = build_kernel(workload, schedule, target)
    direct = schedule.get("contraction.algorithm", "direct") == "direct"  # else tiles of other widths
    tile = int(schedule["contraction.vectors"]) * (int(schedule["contraction.pixels"]) if direct else 1)
    loop, full = hot_loop(assembly(built.function, target), tile)
    return schedule, loop, full


def rows_of(device: str, network: str, model: Path) -> Iterator[Row]:
    """One row a distinct contraction of a network's default plan."""
    target = device_named(device).target()
    graph = load(model)
    plan = default_plan(graph)
    lowered = lower(graph, plan, target, [group.operators for group in plan.groups])
    for bound in {bound.workload.key: bound for bound in lowered.kernels}.values():
        if not any(operator.op_type in CONTRACTIONS for operator in bound.workload.operators):
            continue
        found = judged(bound.workload, target)
        if found is not None:
            schedule, loop, full = found
            yield Row(
                device, network, bound.workload.label, str(schedule.get("contraction.algorithm", "direct")),
                f"{schedule['contraction.vectors']}x{schedule['contraction.pixels']}", loop.fmla, loop.instructions,
                round(loop.ratio, 3), loop.spills, full, mca_cycles(loop, target.mcpu),
            )  # fmt: skip


def mca_cycles(loop: Loop, mcpu: str) -> float | None:
    """Cycles a multiply-add that llvm-mca predicts; None where it is missing, or does not know the core."""
    program = shutil.which(MCA)
    if program is None:
        return None
    body = "\n".join(line for line in loop.lines if ".L" not in line)
    command = [program, "-mtriple=aarch64", f"-mcpu={mcpu}", f"-iterations={MCA_ITERATIONS}", "-"]
    done = subprocess.run(command, input=body, capture_output=True, text=True, timeout=MCA_S, check=False)
    cycles = re.search(r"Total Cycles:\s+(\d+)", done.stdout)
    return round(int(cycles[1]) / MCA_ITERATIONS / loop.fmla, 3) if cycles and loop.fmla else None


@dataclass(frozen=True)
class Summary:
    """A network's contractions on a device. `ratio`: instructions a multiply-add, the median; `worst`: the most.

    `spilling`: how many spill; `in_bound`: how many keep the bound. `cycles`: of llvm-mca a multiply-add, the median.
    """

    device: str
    network: str
    contractions: int
    ratio: float
    worst: float
    spilling: int
    in_bound: int
    cycles: float | None


def summaries(rows: Sequence[Row]) -> list[Summary]:
    """One for each device and network."""
    found = []
    for device, network in dict.fromkeys((row.device, row.network) for row in rows):
        here = [row for row in rows if (row.device, row.network) == (device, network)]
        ratios, cycles = [row.ratio for row in here], [row.cycles for row in here if row.cycles is not None]
        typical = statistics.median(cycles) if cycles else None
        counts = sum(row.spills > 0 for row in here), sum(row.good for row in here)
        found.append(Summary(device, network, len(here), statistics.median(ratios), max(ratios), *counts, typical))
    return found


def table(rows: Sequence[Summary]) -> str:
    """A line a device and network."""
    titles = ("device", "network", "contractions", "instructions an fmla: median (worst)", "spilling", "in bound")
    lines = head((*titles, "cycles an fmla (llvm-mca)"))
    for row in rows:
        cycles = "-" if row.cycles is None else f"{row.cycles:.2f}"
        typical = f"{row.ratio:.2f} ({row.worst:.2f})"
        lines.append(line([row.device, row.network, row.contractions, typical, row.spilling, row.in_bound, cycles]))
    return "\n".join(lines) + "\n"


TABLES = (Table("arm_proxy", Summary, ("device", "network"), table),)


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the CSV file and the table; what is out of bound is named."""
    parser = new_parser(__doc__, out="out/arm_proxy")
    parser.add_argument("models", nargs="*", metavar="MODEL", help=f"{HELP} (default: {' '.join(NETWORKS)})")
    parser.add_argument(
        "--devices", type=listed, default=list(DEVICES), help=f"profiles (default: {','.join(DEVICES)})"
    )
    options = parser.parse_args(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    rows: list[Row] = []
    for model in asked_for(parser, options.models or NETWORKS, WRITTEN):
        for device in options.devices:
            rows += rows_of(device, model.stem, model)
    write_csv(options.out / "loops.csv", [asdict(row) for row in rows])
    found = summaries(rows)
    keep(TABLES[0], found)
    print(table(found))
    for row in rows:
        if not row.good:
            print(f"out of bound: {row}")
    return 0
