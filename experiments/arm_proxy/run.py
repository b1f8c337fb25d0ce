"""How good is the code for ARM, without an ARM machine: counted instructions, and llvm-mca where it is installed.

`python -m experiments arm_proxy [MODEL ...] [--devices LIST] [--forms LIST] [--out FOLDER]` writes a CSV file with a
row a contraction and prints a table. Nothing is timed, so a busy machine does no harm.
"""

from __future__ import annotations

import re
import shutil
import statistics
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from autofuse import api
from autofuse.backend.compile.function import assembly
from autofuse.backend.compile.host_cpu import device_named
from autofuse.device.target import Target
from autofuse.environment.space import load_space
from autofuse.fusion.planner.baselines import default_plan
from autofuse.graph.loading.load import load
from autofuse.kernels.build import build_kernel
from autofuse.kernels.families.narrow.float16.instructions import PRODUCTS, STRETCH, SUMS
from autofuse.kernels.lowering.lower import lower
from autofuse.kernels.schedule.guesses import first_schedules
from autofuse.kernels.schedule.knobs import open_knobs
from autofuse.kernels.workload.workload import Workload
from experiments.arm_proxy.loops import Loop, hot_loop, innermost_loops, summed_in_stretches
from experiments.catalogue import WRITTEN
from experiments.model_files import HELP, asked_for
from experiments.options import listed, new_parser
from experiments.precisions.files import BFLOAT16, FLOAT16, FLOAT32, MOST_LOST, QDQ, samples, write
from experiments.records import Table, keep
from experiments.tables import head, line, write_csv

DEVICES = ("raspberry-pi-3", "raspberry-pi-4", "raspberry-pi-5", "graviton2", "graviton3")
NETWORKS = ("resnet50", "mobilenet_v2", "squeezenet1_1", "tinybert")
BOUND = 1.5
MCA, MCA_S, MCA_ITERATIONS = "llvm-mca", 60, 100
CONTRACTIONS = ("Conv", "MatMul", "Gemm", "ConvInteger", "MatMulInteger", "Bfloat16Conv", "Bfloat16MatMul")
NARROW = ("integer", "bfloat16")
"""Families of narrow products, whose tiles are as even as their rows allow: no loop is that of full tiles alone."""
NEEDED = {BFLOAT16: "bf16", FLOAT16: "fullfp16"}
"""What a device has to have, so that a form is more than a form of storage there."""
FORMS = (FLOAT32, QDQ, BFLOAT16, FLOAT16)


@dataclass(frozen=True)
class Row:
    """The hot loop of one contraction. `full`: whether it is one of full tiles. `cycles`: of llvm-mca a
    multiply-add. `instruction`: what multiplies.
    """

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
    instruction: str = "fmla"

    @property
    def good(self) -> bool:
        return self.ratio <= BOUND and not self.spills


@dataclass(frozen=True)
class Judged:
    """A contraction under its default schedule. `algorithm`: the knob; `tile`: vectors and pixels; `full`: see Row."""

    algorithm: str
    tile: tuple[int, int]
    loop: Loop
    full: bool


def judged(workload: Workload, target: Target) -> Judged | None:
    """The default schedule of a contraction with its hot loop; None for what is not bound by multiply-adds.

    A product with one row reads each weight once: it is bound by memory, however it is written.
    """
    space = load_space(None, target.isa).schedule
    schedule = first_schedules(workload, open_knobs(workload, target, space), target)[0]
    for family in ("contraction", *NARROW):
        if f"{family}.vectors" not in schedule or f"{family}.pixels" not in schedule:
            continue
        vectors, pixels = (int(schedule[f"{family}.{knob}"]) for knob in ("vectors", "pixels"))
        text = assembly(build_kernel(workload, schedule, target).function, target)
        algorithm = str(schedule.get(f"{family}.algorithm", "direct" if family == "contraction" else "single"))
        if algorithm == SUMS:
            loop = summed_in_stretches(text, STRETCH * vectors * pixels)
            return Judged(algorithm, (vectors, pixels), loop, True) if loop else None
        if family in NARROW or algorithm == PRODUCTS:
            loops = [loop for loop in innermost_loops(text) if set(loop.names) - {"fmla"}]  # others are of the epilogue
            return Judged(algorithm, (vectors, pixels), loops[0], True) if loops else None
        tile = vectors * (pixels if algorithm == "direct" else 1)  # else tiles of other widths
        return Judged(algorithm, (vectors, pixels), *hot_loop(text, tile))
    return None


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
            loop = found.loop
            yield Row(
                device, network, bound.workload.label, found.algorithm, "x".join(map(str, found.tile)), loop.fmla,
                loop.instructions, round(loop.ratio, 3), loop.spills, found.full, mca_cycles(loop, target.mcpu),
                " ".join(loop.names) or "fmadd",
            )  # fmt: skip


def in_form(form: str, model: Path, device: str, folder: Path) -> Path:
    """The model in a precision; in bfloat16, with those contractions that are estimated to be faster so on a device."""
    if form != BFLOAT16:
        return write(form, model, folder, 1, folder / "none.db")
    path = folder / f"{model.stem}-{form}.onnx"
    if not path.exists():
        api.quantize(
            model, path, calibration=samples(model), precision="bf16", max_drop=MOST_LOST, device=device,
            database=str(folder / "none.db"),
        )  # fmt: skip
    return path


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
    `instruction`: what multiplies in most of them.
    """

    device: str
    network: str
    contractions: int
    ratio: float
    worst: float
    spilling: int
    in_bound: int
    cycles: float | None
    instruction: str = "fmla"


def summaries(rows: Sequence[Row]) -> list[Summary]:
    """One for each device and network."""
    found = []
    for device, network in dict.fromkeys((row.device, row.network) for row in rows):
        here = [row for row in rows if (row.device, row.network) == (device, network)]
        ratios, cycles = [row.ratio for row in here], [row.cycles for row in here if row.cycles is not None]
        typical = statistics.median(cycles) if cycles else None
        counts = sum(row.spills > 0 for row in here), sum(row.good for row in here)
        found.append(Summary(device, network, len(here), statistics.median(ratios), max(ratios), *counts, typical,
                             statistics.mode(row.instruction for row in here)))  # fmt: skip
    return found


def table(rows: Sequence[Summary]) -> str:
    """A line a device and network."""
    titles = ("device", "network", "multiplied by", "contractions", "instructions each: median (worst)", "spilling")
    lines = head((*titles, "in bound", "cycles each (llvm-mca)"))
    for row in rows:
        cycles = "-" if row.cycles is None else f"{row.cycles:.2f}"
        typical = f"{row.ratio:.2f} ({row.worst:.2f})"
        counts = [row.contractions, typical, row.spilling, row.in_bound, cycles]
        lines.append(line([row.device, row.network, row.instruction, *counts]))
    return "\n".join(lines) + "\n"


TABLES = (Table("arm_proxy", Summary, ("device", "network"), table),)


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the CSV file and the table; what is out of bound is named."""
    parser = new_parser(__doc__, out="out/arm_proxy")
    parser.add_argument("models", nargs="*", metavar="MODEL", help=f"{HELP} (default: {' '.join(NETWORKS)})")
    parser.add_argument(
        "--devices", type=listed, default=list(DEVICES), help=f"profiles (default: {','.join(DEVICES)})"
    )
    parser.add_argument(
        "--forms", type=listed, default=[FLOAT32], help=f"of {','.join(FORMS)}: precisions (default: {FLOAT32})"
    )
    options = parser.parse_args(arguments)
    if set(options.forms) - set(FORMS):
        parser.error(f"argument --forms: of {', '.join(FORMS)}")
    options.out.mkdir(parents=True, exist_ok=True)
    rows: list[Row] = []
    for model in asked_for(parser, options.models or NETWORKS, WRITTEN):
        for form in options.forms:
            for device in options.devices:
                if NEEDED.get(form, "") not in ("", *device_named(device).features):
                    continue  # no contraction is faster so there
                path = in_form(form, model, device, options.out)
                rows += rows_of(device, path.stem, path)
    write_csv(options.out / "loops.csv", [asdict(row) for row in rows])
    found = summaries(rows)
    keep(TABLES[0], found)
    print(table(found))
    for row in rows:
        if not row.good:
            print(f"out of bound: {row}")
    return 0
