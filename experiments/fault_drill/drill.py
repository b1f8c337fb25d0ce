"""Faults at random in one job, until so many have struck: `python -m experiments fault_drill --faults 100`.

A job over small networks runs on two devices (`autofuse serve` on this machine), its database an SQLite file or a
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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from experiments.fault_drill.faults import FAULTS, Fault
from experiments.fault_drill.scene import Scene, Snapshot
from experiments.fault_drill.winners import compare_winners
from experiments.options import new_parser
from experiments.records import Table, keep
from experiments.tables import head, line

SETTLE_S = (0.0, 2.0)
"""Seconds between two faults, at random between these, and until something new is recorded: the job is at work."""
HASTE, PROGRESS_S = 0.3, 15.0
"""Part of the faults that do not wait for that, so that they strike while it starts; the longest wait."""
END_S = 600.0
"""Seconds that the job has to end in when the faults are over."""


@dataclass
class Story:
    """What happened: faults by kind, those that found nothing to strike, what was recorded so far, how often parts were
    started again."""

    struck: Counter[str] = field(default_factory=Counter)
    missed: Counter[str] = field(default_factory=Counter)
    struck_s: float = 0.0
    seen: Snapshot = field(default_factory=dict)
    restarts: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)


def strike(scene: Scene, count: int, seconds: float, seed: int, tell: Callable[[str], None]) -> Story:
    """Run the job under `count` faults (or as many as strike in so many seconds) and to its end."""
    chance, story = random.Random(seed), Story()
    kinds = [fault for fault in FAULTS if fault.fits(scene)]
    started = time.monotonic()
    scene.start()
    while sum(story.struck.values()) < count and time.monotonic() < started + seconds:
        _settle(scene, story, chance)
        if scene.job_finished():
            scene.extend()  # the job ended between two faults: it goes on with a larger budget
            continue
        fault = _next(kinds, story, chance)
        if fault.strike(scene, chance):
            story.struck[fault.name] += 1
            tell(f"{time.monotonic() - started:.0f} s, {sum(story.struck.values())}: {fault.name}")
        else:
            story.missed[fault.name] += 1
    story.struck_s = time.monotonic() - started
    scene.let_finish()
    deadline = time.monotonic() + END_S
    while not scene.job_finished() and time.monotonic() < deadline:
        story.restarts.update(scene.supervise())
        time.sleep(0.5)
    _look(scene, story)
    if not scene.job_finished():
        story.problems.append(f"the job did not end within {END_S:.0f} s after the last fault")
    return story


def _settle(scene: Scene, story: Story, chance: random.Random) -> None:
    """Start again what has died, and let the job get on with its work."""
    time.sleep(chance.uniform(*SETTLE_S))
    hasty, deadline = chance.random() < HASTE, time.monotonic() + PROGRESS_S
    while True:
        story.restarts.update(scene.supervise())
        known = len(story.seen)
        _look(scene, story)
        if hasty or len(story.seen) > known or scene.job_finished() or time.monotonic() > deadline:
            return
        time.sleep(0.5)


def _next(kinds: list[Fault], story: Story, chance: random.Random) -> Fault:
    """Each kind about equally often."""
    least = min(story.struck[fault.name] + story.missed[fault.name] for fault in kinds)
    return chance.choice([fault for fault in kinds if story.struck[fault.name] + story.missed[fault.name] <= least + 1])


def _look(scene: Scene, story: Story) -> None:
    """Whether everything that was recorded before is there still, unchanged."""
    seen = scene.snapshot()
    if seen is None:
        return
    lost = [uid for uid, row in story.seen.items() if seen.get(uid) != row]
    if lost:
        story.problems.append(f"{len(lost)} measurements are gone or changed, the first is {lost[0]}")
    story.seen = seen


def run(folder: Path, options: argparse.Namespace) -> dict[str, object]:
    """The undisturbed job, the drill, and how they compare."""

    def tell(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    started = time.monotonic()
    with Scene(folder / "calm", options.database, options.models, options.trials) as calm:
        tell("the undisturbed job")
        quiet = strike(calm, 0, 0.0, options.seed, tell)
        calm_results = calm.results()
    with Scene(folder / "drill", options.database, options.models, options.trials) as scene:
        tell("the drill")
        story = strike(scene, options.faults, options.time, options.seed, tell)
        results = scene.results()
        doubled = scene.doubled()
        damage = scene.damage()
    struck = sum(story.struck.values())
    short = [f"{struck} of {options.faults} faults struck"] if struck < options.faults else []
    return {
        "faults": dict(sorted(story.struck.items())),
        "struck": struck,
        "without_target": dict(sorted(story.missed.items())),
        "restarts": dict(sorted(story.restarts.items())),
        "problems": [*quiet.problems, *story.problems, *damage, *short],
        "measurements": len(story.seen),
        "measurements_calm": len(quiet.seen),
        "samples": sum(int(str(row[4])) for row in story.seen.values()),
        "doubled": doubled,
        "job": dict(results.states),
        "winners": compare_winners(calm_results, results),
        "drill_s": round(story.struck_s),
        "all_s": round(time.monotonic() - started),
    }


@dataclass(frozen=True)
class FaultRow:
    """How often a kind of fault struck, and how often it found nothing to strike."""

    fault: str
    struck: int
    missed: int


WORDS = {
    "kill -9 coordinator": "kill -9 of the coordinator",
    "kill -9 search": "kill -9 of a search process",
    "kill -9 worker": "kill -9 of a process that builds",
    "kill -9 link": "kill -9 of a process that holds a session",
    "kill -9 server": "kill -9 of a device's server with all that it started",
    "kill -9 device": "kill -9 of the process that runs kernels",
    "SIGSTOP device": "SIGSTOP of that one",
    "full disk": "no file can grow (a full disk)",
    "database restart": "the database server killed and started again",
    "corrupt candidate": "a kernel overwritten with noise before it is measured",
}
"""Of each fault: what the page calls it."""


def fault_rows(struck: Mapping[str, int], missed: Mapping[str, int]) -> list[FaultRow]:
    """One for each kind that was tried."""
    names = [fault.name for fault in FAULTS if fault.name in struck or fault.name in missed]
    return [FaultRow(name, struck.get(name, 0), missed.get(name, 0)) for name in names]


def published(rows: Sequence[FaultRow]) -> str:
    """The table of the page."""
    lines = head(("fault", "struck", "found nothing to strike"))
    lines += [line([WORDS[row.fault], row.struck, row.missed or ""]) for row in rows]
    lines.append(line(["all", sum(row.struck for row in rows), sum(row.missed for row in rows) or ""]))
    return "\n".join(lines) + "\n"


TABLES = (Table("fault_drill", FaultRow, ("fault",), published),)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the drill and print what came of it; exit code 1 when anything is wrong."""
    parser = new_parser(__doc__, out="out/fault_drill", seed=1, time="25m")
    parser.add_argument("--faults", type=int, default=100)
    parser.add_argument("--database", choices=("sqlite", "postgres"), default="postgres")
    parser.add_argument("--models", type=int, default=2)
    parser.add_argument("--trials", type=int, default=120, help="candidates of the job")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="autofuse-drill-", ignore_cleanup_errors=True) as name:
        Path(name).chmod(0o755)
        found = run(Path(name), options)
    keep(TABLES[0], fault_rows(found["faults"], found["without_target"]))  # type: ignore[arg-type]
    text = json.dumps(found, indent=1)
    print(text)
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "results.json").write_text(text + "\n", encoding="utf-8")
    apart = [one for one in found["winners"] if not one["equal"]]  # type: ignore[attr-defined]
    return 1 if found["problems"] or found["doubled"] or apart else 0
