"""Two workers against one, on devices that answer after their recorded time: `python -m experiments scale.workers`."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from autofuse.environment.place import Place
from autofuse.job.coordinator import JobListener
from autofuse.job.run import run_job
from autofuse.job.settings import JobSettings, WorkerSpec
from experiments.index import ROOT
from experiments.options import new_parser
from experiments.scale.figures import keep_figures
from experiments.scale.recorded import recorded

OPENER = "experiments.scale.replay:open_session"
PROFILE = "generic-avx2"
CONFIRM_S = 1.5


def models(folder: Path, candidates: int) -> list[Path]:
    """One model file a recorded network, twice, with so many of its candidates."""
    made = []
    for copy in range(2):
        for name, rows in recorded().items():
            script = {
                "name": f"{name} {copy}",
                "candidates": [[one.took_s, one.us or 0.0] for one in rows[:candidates]],
                "confirm_s": CONFIRM_S,
            }
            path = folder / f"{name}-{copy}.onnx"
            path.write_text(json.dumps(script), encoding="utf-8")
            made.append(path)
    return made


def wall_seconds(folder: Path, workers: int, candidates: int) -> float:
    """Seconds from the start to the end of a job that measures everything there is."""
    folder.mkdir(parents=True, exist_ok=True)
    specs = [WorkerSpec(f"worker {number}", "replay", Place(device=PROFILE)) for number in range(workers)]
    settings = JobSettings(budget_s=3600.0, threads=1)
    started = time.monotonic()
    outcome = run_job(
        models(folder, candidates), specs, settings, database=str(folder / "profile.db"), name="replay",
        listener=JobListener(), opener=OPENER, import_paths=[ROOT],
    )  # fmt: skip
    assert outcome.exit_code == 0, outcome
    return time.monotonic() - started


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the wall times of one and two workers, and their ratio."""
    parser = new_parser(__doc__)
    parser.add_argument("--candidates", type=int, default=10, help="of each model (default: 10)")
    candidates = parser.parse_args(arguments).candidates
    with tempfile.TemporaryDirectory(prefix="autofuse-workers-") as name:
        one, two = (wall_seconds(Path(name) / str(workers), workers, candidates) for workers in (1, 2))
    found = {"one_s": round(one, 1), "two_s": round(two, 1), "speedup": round(one / two, 3)}
    keep_figures("workers", found)
    print(json.dumps(found))
    return 0
