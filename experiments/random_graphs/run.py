"""Random models by the thousand, in slices: every seed is a row, and a second run goes on where the first ended.

.venv/bin/python -m experiments random_graphs --seeds 0:10000 --time 10m
.venv/bin/python -m experiments random_graphs --open --seeds 0:5000 --time 10m    # models with an open size
.venv/bin/python -m experiments random_graphs --images --seeds 0:5000 --time 10m  # images whose sides are open
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from multiprocessing.connection import wait
from multiprocessing.context import SpawnProcess as Process
from pathlib import Path

from experiments.options import new_parser
from experiments.random_graphs.check import Outcome, check
from experiments.random_graphs.open_images import check_images
from experiments.random_graphs.open_sizes import REFUSED, check_open

SEEDS_A_CHILD = 50
"""Seeds that one child process checks; a new one starts fresh, so that nothing piles up."""
SEED_SECONDS = 120.0
"""What is left to a child when the time of the slice is over: one that takes longer hangs."""
FINE = {"ok", REFUSED}
"""What may become of a seed: right, or refused because the model mixes what lies along its open size."""
SPAWN = multiprocessing.get_context("spawn")


def main(arguments: Sequence[str] | None = None) -> int:
    """Check seeds until they or the time are used up; 0 when every row so far is right."""
    options = _parser().parse_args(arguments)
    first, last = (int(part) for part in options.seeds.split(":"))
    out: Path = options.out
    out.mkdir(parents=True, exist_ok=True)
    kind = "open" if options.open else "images" if options.images else "rows"
    rows = out / f"{kind}.jsonl"
    done = {row["seed"] for row in _read(rows)}
    waiting = [seed for seed in range(first, last) if seed not in done]
    end = time.monotonic() + options.time
    children: dict[Process, tuple[list[int], float]] = {}
    while children or (waiting and time.monotonic() < end):
        while waiting and len(children) < options.processes and time.monotonic() < end:
            share, waiting = waiting[:SEEDS_A_CHILD], waiting[SEEDS_A_CHILD:]
            child = SPAWN.Process(target=_work, args=(share, rows, end, kind))
            child.start()
            children[child] = share, max(end, time.monotonic()) + SEED_SECONDS
        wait([child.sentinel for child in children], timeout=5.0)
        for child in [child for child, (_, limit) in children.items() if _ended(child, limit)]:
            _take_loss(child, children.pop(child)[0], rows)
    return _summary(_read(rows), out)


def _ended(child: Process, limit: float) -> bool:
    return not child.is_alive() or time.monotonic() > limit


def _take_loss(child: Process, seeds: list[int], rows: Path) -> None:
    """A child that died or hangs is the row of the seed that it was at."""
    hung = child.is_alive()
    if hung:
        child.kill()
    child.join()
    if hung or child.exitcode:
        done = {row["seed"] for row in _read(rows)}
        lost = next((seed for seed in seeds if seed not in done), None)
        if lost is not None:
            message = "hung" if hung else f"the process ended with {child.exitcode}"
            _append(rows, Outcome(lost, "crash", message=message))


def _work(seeds: list[int], rows: Path, end: float, kind: str) -> None:
    looked_at = {"rows": check, "open": check_open, "images": check_images}[kind]
    with tempfile.TemporaryDirectory() as folder:
        for seed in seeds:
            if time.monotonic() > end:
                return
            _append(rows, looked_at(seed, Path(folder)))


def _append(rows: Path, outcome: Outcome) -> None:
    with rows.open("a", encoding="utf-8") as file:
        file.write(json.dumps(outcome.row()) + "\n")


def _read(rows: Path) -> list[dict[str, object]]:
    if not rows.exists():
        return []
    return [json.loads(line) for line in rows.read_text(encoding="utf-8").splitlines() if line]


def _summary(rows: Sequence[dict[str, object]], out: Path) -> int:
    states = Counter(str(row["state"]) for row in rows)
    numbers = {key: sum(float(str(row[key])) for row in rows) for key in ("operators", "kernels", "folds", "copies")}
    worst = max((float(str(row["error"])) for row in rows if row["state"] == "ok"), default=0.0)
    lines = [
        f"{len(rows)} random models: " + ", ".join(f"{count} {state}" for state, count in states.most_common()),
        f"{numbers['operators']:.0f} operators in {numbers['kernels']:.0f} kernels, {numbers['folds']:.0f} folds, "
        f"{numbers['copies']:.0f} copies; largest error of a right result {worst:.1e} of its range",
    ]
    lines += [f"seed {row['seed']}: {row['state']}: {row['message']}" for row in rows if row["state"] not in FINE]
    text = "\n".join(lines)
    (out / "summary.txt").write_text(text + "\n", encoding="utf-8")
    print(text)
    return 0 if set(states) <= FINE else 1


def _parser() -> argparse.ArgumentParser:
    parser = new_parser(
        "Random models: plan, build, compare with ONNX Runtime.", out="out/random_graphs", processes=1, time="10m"
    )
    parser.add_argument("--seeds", default="0:10000", metavar="FIRST:LAST", help="seeds of this run (default: 0:10000)")
    parser.add_argument("--open", action="store_true", help="models with an open size, each at five sizes")
    parser.add_argument("--images", action="store_true", help="images whose height, width or both are open")
    return parser
