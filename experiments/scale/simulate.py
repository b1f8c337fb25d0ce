"""200 models on 20 workers for eight hours, in virtual time: the real queue and timetable, replayed candidates.

`python -m experiments scale.simulate [--models N] [--workers N] [--hours H]` tells: seconds of work of the
coordinators, slices and candidates of each model, how evenly the gain is spread, the size of the tables of the job.
"""

from __future__ import annotations

import heapq
import json
import random
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from autofuse.database.database import open_database
from autofuse.database.job_records import CONFIRM, SEARCH, TaskProgress, TaskStart
from autofuse.database.record.job_queue import JobQueue
from autofuse.database.records import content_key
from autofuse.job.searcher import gain_in_an_hour
from autofuse.job.settings import JobSettings
from autofuse.job.timetable import for_task, next_turn
from autofuse.search.schedules.prospects import Prospect, expected_saving
from experiments.options import new_parser
from experiments.scale.figures import keep_figures
from experiments.scale.recorded import endless

OPEN_S, CANDIDATES_LEFT = 12.0, 48
"""Seconds until a model's search is open, as measured on ResNet-50 and BERT; candidates of a workload at most."""


@dataclass
class Model:
    """Workloads of one model on one device: shares of its time, candidates tried."""

    shares: list[float]
    tried: list[int]
    us: float = 1000.0
    slices: int = 0

    def ahead(self) -> tuple[Prospect, ...]:
        return tuple(
            Prospect(share, tried, CANDIDATES_LEFT - tried)
            for share, tried in zip(self.shares, self.tried, strict=True)
            if tried < CANDIDATES_LEFT
        )

    def measure(self, candidates: int) -> float:
        """Spends candidates where they promise most; the part of the time that they saved."""
        before = self.ahead()
        for _ in range(candidates):
            best = max(
                (number for number, tried in enumerate(self.tried) if tried < CANDIDATES_LEFT),
                key=lambda number: self.shares[number] / max(1, self.tried[number]),
                default=None,
            )
            if best is None:
                break
            self.tried[best] += 1
        return expected_saving(before, candidates)


@dataclass
class Load:
    """Real seconds of the coordinators' decisions."""

    seconds: list[float] = field(default_factory=list)

    def __enter__(self) -> Load:
        self._started = time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds.append(time.perf_counter() - self._started)


def simulate(folder: Path, models: int, workers: int, hours: float) -> dict[str, float]:
    """Run the night; see the module."""
    chance, replayed = random.Random(5), endless(5)
    rate = 1.0 / statistics.fmean(next(replayed).took_s for _ in range(5000))
    path = folder / "simulated.db"
    path.unlink(missing_ok=True)
    tasks = [
        TaskStart(f"/models/{model}.onnx", content_key(str(model)), f"device-{worker}")
        for worker in range(workers)
        for model in range(models)
    ]
    settings = JobSettings(budget_s=hours * 3600.0)
    world = {(task.model_sha256, task.device): _model(chance) for task in tasks}
    load, slices, confirmed = Load(), 0, 0
    with open_database(path) as base:
        empty = path.stat().st_size
        started = time.perf_counter()
        job = base.jobs.open_job("night", tasks, settings.to_json())
        opened_s = time.perf_counter() - started
        queues = {f"device-{worker}": JobQueue(base) for worker in range(workers)}
        for device, queue in queues.items():
            queue.join(job.id, device, device)
        idle = [(0.0, device) for device in queues]
        while idle:
            now, device = heapq.heappop(idle)
            with load:
                mine, sharing = queues[device].share(job.id, device)
                turn = next_turn(mine, sharing, settings, settings.budget_s, settings.budget_s - now)  # type: ignore[operator]
                task = queues[device].claim(job.id, device, turn.phase) if turn is not None else None
            if task is None or turn is None:
                continue
            turn = for_task(turn, task, mine, sharing, settings.budget_s - now)  # type: ignore[operator]
            model = world[task.model_sha256, device]
            progress, took_s = _slice(model, turn.seconds, turn.phase, rate, chance)
            with load:
                if turn.phase == CONFIRM:
                    queues[device].finish(task.id, {"chosen": "search"}, progress)
                else:
                    queues[device].give_back(task.id, progress)
            slices, confirmed = slices + (turn.phase == SEARCH), confirmed + (turn.phase == CONFIRM)
            heapq.heappush(idle, (now + took_s, device))
        with load:
            status_started = time.perf_counter()
            base.jobs.job("night")
            status_s = time.perf_counter() - status_started
    measured = [sum(model.tried) for model in world.values()]
    left = [expected_saving(model.ahead(), rate * 3600.0) for model in world.values()]
    return {
        "tasks": len(tasks), "slices": slices, "confirmed": confirmed, "open_job_s": opened_s,
        "decision_median_ms": statistics.median(load.seconds) * 1e3, "decision_worst_ms": max(load.seconds) * 1e3,
        "coordinator_load_percent": 100 * sum(load.seconds) / (hours * 3600.0), "status_s": status_s,
        "candidates": sum(measured), "least_candidates": min(measured), "most_candidates": max(measured),
        "gain_left_spread": statistics.pstdev(left) / max(statistics.fmean(left), 1e-9),
        "job_tables_mb": (path.stat().st_size - empty) / 1e6,
    }  # fmt: skip


def _model(chance: random.Random) -> Model:
    """5 to 80 workloads, the first of which take most of the time, as in real networks."""
    weights = [1.0 / (1 + number) ** chance.uniform(0.7, 1.3) for number in range(chance.randint(5, 80))]
    return Model([weight / sum(weights) for weight in weights], [0] * len(weights))


def _slice(model: Model, seconds: float, phase: str, rate: float, chance: random.Random) -> tuple[TaskProgress, float]:
    took_s = OPEN_S + (seconds if model.slices else max(seconds, 2 * len(model.shares) / rate))
    if phase == CONFIRM and model.slices:
        took_s, candidates = OPEN_S + 20.0 + seconds, 0
    else:
        candidates = max(2 * len(model.shares) if not model.slices else 0, round((took_s - OPEN_S) * rate))
    before, known = model.ahead(), sum(model.tried)
    saved = model.measure(candidates) * chance.uniform(0.3, 1.7)
    model.slices += 1
    model.us *= 1 - saved
    gain = gain_in_an_hour(model.ahead(), before, candidates, took_s, saved)
    progress = TaskProgress(
        spent_s=took_s, measured=sum(model.tried) - known, failed=0, gain=gain, reserve_s=20.0, best_us=model.us,
        baseline_us=1000.0, exhausted=not model.ahead(),
    )  # fmt: skip
    return progress, took_s


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the figures."""
    parser = new_parser(__doc__, out="out/scale")
    parser.add_argument("--models", type=int, default=200)
    parser.add_argument("--workers", type=int, default=20)
    parser.add_argument("--hours", type=float, default=8.0, help="of virtual time")
    options = parser.parse_args(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    found = simulate(options.out, options.models, options.workers, options.hours)
    keep_figures("simulate", found)
    print(json.dumps({name: round(value, 3) for name, value in found.items()}, indent=1))
    return 0
