"""The child process of `run.py`: tunes, compiles and times one network. Reads a `Job` as JSON from standard input."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import autofuse
from autofuse.api.results import BenchReport
from autofuse.backend.compile.host_cpu import llvm_version, local_device
from autofuse.cli.screens.live import TuneView
from autofuse.device.provenance import collect
from autofuse.errors import AutofuseError, InputError
from autofuse.search.progress import Progress
from experiments.networks.row import RIVALS, Job, Ratio, Row

SAVE_EVERY_S = 10.0
LEAST_BUDGET_S = 60.0
"""For an attempt after one that was interrupted near its end."""


def main() -> int:
    """Do the job; an error that autofuse foresees is written into the row, any other is a traceback."""
    job = Job(**json.load(sys.stdin))
    path = Path(job.row)
    row = Row.read(path)
    if row is None:
        raise SystemExit(f"{path}: not a row")
    try:
        if job.only_bench and not Path(job.database).exists():
            raise InputError(f"--only-bench: no database {job.database}; run without --only-bench first")
        if not job.only_bench and not row.tuned:
            row = tune(job, row)
        row = bench(job, compile_(job, row))
    except (AutofuseError, OSError) as error:
        latest = Row.read(path) or row
        replace(latest, error=f"{type(error).__name__}: {error}").write(path)
        return 1
    row.write(path)
    return 0


def tune(job: Job, row: Row) -> Row:
    """Search, for what the budget of earlier attempts leaves; the time spent is in the file all along."""
    path, before = Path(job.row), row.tuning_s
    spent = before

    with TuneView() as view:

        def progress(state: Progress) -> None:
            nonlocal spent
            view(state)
            if before + state.elapsed_s - spent >= SAVE_EVERY_S:
                spent = before + state.elapsed_s
                replace(row, tuning_s=spent).write(path)

        budget = max(LEAST_BUDGET_S, job.budget_s - before) if before else job.budget_s
        result = autofuse.tune(
            job.model, database=job.database, budget=budget, trials=job.trials, threads=job.threads, progress=progress
        )
    return replace(row, tuned=True, tuning_s=before + result.elapsed_s, plan=result.chosen).write(path)


def compile_(job: Job, row: Row) -> Row:
    """Build the library; a group that the database does not know is an error, since it was tuned."""
    report = autofuse.compile(job.model, job.library, database=job.database, threads=job.threads, on_miss="fail")
    unfused = autofuse.compile(job.model, job.unfused, database=job.database, threads=job.threads, plan="none")
    with autofuse.open(job.database) as analysis:
        tasks = analysis.tasks
    summary = autofuse.inspect(job.model).operators
    operators = summary if isinstance(summary, int) else len(summary)
    own = tasks[tasks["threads"] == job.threads]
    return replace(
        row, compile_s=report.elapsed_s, kernels=report.kernels, kernels_none=unfused.kernels,
        candidates=int((own["ok"] + own["failed"]).sum()), failed=int(own["failed"].sum()),
        operators=operators,
    ).write(Path(job.row))  # fmt: skip


def bench(job: Job, row: Row) -> Row:
    """Check the library and time it against its rivals."""
    report = autofuse.bench(
        job.model, library=job.library, database=job.database, threads=job.threads, against=RIVALS, budget=job.bench_s
    )
    assert isinstance(report, BenchReport), "its sizes are fixed"
    rivals = {
        name: Ratio(rival.median_us, rival.ratio, rival.ci_lo, rival.ci_hi, rival.trusted, rival.error)
        for name, rival in report.rivals.items()
    }
    return replace(
        row, autofuse_us=report.autofuse_us, max_rel_error=report.max_rel_error, kernels=report.kernels,
        rivals=rivals, facts=facts(), measured_at=datetime.now(UTC).isoformat(timespec="seconds"),
    )  # fmt: skip


def facts() -> dict[str, str]:
    """The machine and the versions, in the words of the table's foot."""
    device, now = local_device(), collect(llvm_version())
    known = {
        "CPU": device.cpu and device.cpu.model_name,
        "LLVM's name of it": device.mcpu,
        "instruction set": device.target().isa,
        "cores": str(device.cores),
        "memory": f"{device.memory_mib / 1024:.0f} GiB" if device.memory_mib else None,
        "virtual machine": {None: "no", "unknown": "yes"}.get(now.hypervisor, now.hypervisor),
        "kernel": now.kernel,
        "governor": now.governor or "not shown",
        "autofuse": " ".join(part for part in (now.autofuse, now.git and now.git[:12]) if part),
        "TVM": now.tvm,
        "LLVM": now.llvm,
        "ONNX Runtime": now.onnxruntime,
        "Python": now.python,
    }
    return {name: value or "unknown" for name, value in known.items()}


if __name__ == "__main__":
    sys.exit(main())
