"""Faults at random in one job, until so many have struck: `python -m experiments.fault_drill.drill --faults 100`.

A job over small networks runs on two boards (`autofuse serve` on this machine), its database an SQLite file or a
PostgreSQL server of its own. A supervisor, as cron or systemd would be, starts again what is not running. The job is
then compared with an undisturbed one: its end, every recorded sample, and the winners, measured interleaved.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from experiments.fault_drill.faults import FAULTS, Fault
from experiments.fault_drill.scene import Scene, Snapshot
from experiments.fault_drill.winners import compare_winners

SETTLE_S = (0.5, 4.0)
"""Seconds between two faults, at random between these."""
PATIENCE_S = 1800.0


@dataclass
class Story:
    """What happened: faults by kind, snapshots of what was recorded, how often parts were started again."""

    struck: Counter[str] = field(default_factory=Counter)
    missed: Counter[str] = field(default_factory=Counter)
    snapshots: list[Snapshot] = field(default_factory=list)
    restarts: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)


def strike(scene: Scene, count: int, seed: int, tell: Callable[[str], None]) -> Story:
    """Run the job under `count` faults and to its end."""
    chance, story = random.Random(seed), Story()
    kinds = [fault for fault in FAULTS if fault.fits(scene)]
    deadline = time.monotonic() + PATIENCE_S
    scene.start()
    while sum(story.struck.values()) < count and time.monotonic() < deadline:
        story.restarts.update(scene.supervise())
        time.sleep(chance.uniform(*SETTLE_S))
        fault = _next(kinds, story, chance)
        if scene.job_finished():
            scene.extend()  # the job ended between two faults: it goes on with a larger budget
            continue
        if fault.strike(scene, chance):
            story.struck[fault.name] += 1
            tell(f"{sum(story.struck.values())}: {fault.name}")
        else:
            story.missed[fault.name] += 1
        _look(scene, story)
    scene.let_finish()
    while not scene.job_finished() and time.monotonic() < deadline:
        story.restarts.update(scene.supervise())
        time.sleep(0.5)
        _look(scene, story)
    if not scene.job_finished():
        story.problems.append(f"the job did not end within {PATIENCE_S:.0f} s")
    return story


def _next(kinds: list[Fault], story: Story, chance: random.Random) -> Fault:
    """Each kind about equally often."""
    least = min(story.struck[fault.name] + story.missed[fault.name] for fault in kinds)
    return chance.choice([fault for fault in kinds if story.struck[fault.name] + story.missed[fault.name] <= least + 1])


def _look(scene: Scene, story: Story) -> None:
    """Whether everything that was recorded before is there still, unchanged."""
    seen = scene.snapshot()
    if seen is None:
        return
    if story.snapshots:
        before = story.snapshots[-1]
        lost = [uid for uid, row in before.items() if seen.get(uid) != row]
        if lost:
            story.problems.append(f"{len(lost)} measurements are gone or changed, the first is {lost[0]}")
        story.snapshots[-1] = seen
    else:
        story.snapshots.append(seen)


def run(folder: Path, faults: int, database: str, seed: int, models: int, trials: int) -> dict[str, object]:
    """The undisturbed job, the drill, and how they compare."""

    def tell(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    calm = Scene(folder / "calm", database, models, trials)
    with calm:
        tell("the undisturbed job")
        quiet = strike(calm, 0, seed, tell)
        calm_results = calm.results()
    scene = Scene(folder / "drill", database, models, trials)
    with scene:
        tell("the drill")
        story = strike(scene, faults, seed, tell)
        results = scene.results()
        doubled = scene.doubled()
        damage = scene.damage()
    winners = compare_winners(folder, calm_results, results)
    samples = story.snapshots[-1] if story.snapshots else {}
    return {
        "faults": dict(sorted(story.struck.items())),
        "without_target": dict(sorted(story.missed.items())),
        "restarts": dict(sorted(story.restarts.items())),
        "problems": [*quiet.problems, *story.problems, *damage],
        "measurements": len(samples),
        "doubled": doubled,
        "job": dict(results.states),
        "winners": winners,
    }


def main() -> None:
    """Run the drill and print what came of it; exit code 1 when anything is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--faults", type=int, default=100)
    parser.add_argument("--database", choices=("sqlite", "postgres"), default="sqlite")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--models", type=int, default=3)
    parser.add_argument("--trials", type=int, default=60, help="candidates of the job")
    parser.add_argument("--out", type=Path, help="a JSON file")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="autofuse-drill-") as name:
        Path(name).chmod(0o755)
        found = run(Path(name), options.faults, options.database, options.seed, options.models, options.trials)
    text = json.dumps(found, indent=1)
    print(text)
    if options.out is not None:
        options.out.write_text(text + "\n", encoding="utf-8")
    apart = [one for one in found["winners"] if not one["equal"]]  # type: ignore[attr-defined]
    sys.exit(1 if found["problems"] or found["doubled"] or apart else 0)


if __name__ == "__main__":
    main()
