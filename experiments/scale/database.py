"""How large, and how fast, the profiling database is: recording, a night's growth, look-ups at ten million samples.

`python -m experiments scale.database record|fill|lookup`: each part on its own, for a machine to be quiet only
while times are taken (`fill` takes minutes and times nothing).
"""

from __future__ import annotations

import json
import random
import sqlite3
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from itertools import islice
from pathlib import Path

from autofuse.database.database import ProfilingDatabase, open_database
from autofuse.database.records import Candidate, CandidateOutcome, RunStart, SampleBlock, Setting, content_key
from autofuse.device.target import Target
from experiments.options import new_parser
from experiments.scale import figures as published
from experiments.scale.recorded import Replayed, endless

TABLES = published.TABLES
TARGET = Target("znver4", 16, 32, 2, 32768, 1 << 20)
NIGHT_S = 8 * 3600.0
RECORDED, SAMPLES, DEVICES, SCHEDULES = 6000, 10_000_000, 20, 48
TEXT = 380
"""Characters of a workload's text, as recorded."""


def setting(base: ProfilingDatabase, device: int) -> Setting:
    """The circumstances of a device."""
    return base.setting(
        fingerprint=content_key(f"device {device}"), device_name=f"device-{device}", device_facts={"cores": 2},
        target=TARGET, threads=1, versions={"tvm": "0.27.0"},
    )  # fmt: skip


def outcomes(seed: int) -> Iterator[CandidateOutcome]:
    """Candidates with times and blocks like the recorded ones: 48 schedules of each of many workloads."""
    chance, replayed = random.Random(seed), endless(seed)
    for number in range(10**9):
        yield _outcome(f"{seed} {number // SCHEDULES}", number % SCHEDULES, next(replayed), chance)


def _outcome(workload: str, schedule: int, one: Replayed, chance: random.Random) -> CandidateOutcome:
    text = json.dumps({"workload": workload, "padding": "x" * (TEXT - 40)})
    digest, knobs = content_key(f"{text} {schedule}"), json.dumps({"tile": schedule, "order": "a"})
    candidate = Candidate(content_key(text), text, f"workload {workload}", knobs, digest)
    if one.us is None:
        return CandidateOutcome(candidate=candidate, state="build_error", failure="recorded", build_s=one.build_s)
    us = one.us * chance.uniform(0.8, 1.5)
    blocks = tuple(
        SampleBlock((us * chance.gauss(1.0, 0.01),), chance.uniform(0.93, 1.0), chance.random() < 0.1)
        for _ in range(max(5, one.blocks))
    )
    return CandidateOutcome(
        candidate=candidate, state="ok", median_us=us, ci_lo_us=us * 0.99, ci_hi_us=us * 1.01, trusted=True,
        build_s=one.build_s, blocks=blocks,
    )  # fmt: skip


def record(folder: Path) -> dict[str, float]:
    """Candidates a second through `record_candidate` (one commit each), and the bytes that each takes."""
    path = folder / "night.db"
    path.unlink(missing_ok=True)
    with open_database(path) as base:
        here = setting(base, 0)
        run = RunStart(name="night", model_name="m", model_sha256="0" * 64, graph_key="0" * 64, seed=0)
        run_id = base.start_run(here, run)
        made = list(islice(outcomes(1), RECORDED))
        empty = path.stat().st_size
        started = time.perf_counter()
        for one in made:
            base.record_candidate(here, one, run_id)
        seconds = time.perf_counter() - started
    size = (path.stat().st_size - empty) / RECORDED
    mean_s = statistics.fmean(one.took_s for one in islice(endless(2), 5000))
    a_night = NIGHT_S / mean_s
    return {
        "candidates_a_second": RECORDED / seconds,
        "bytes_a_candidate": size,
        "candidates_a_night": a_night,
        "night_mb": a_night * size / 1e6,
    }


def fill(folder: Path) -> dict[str, float]:
    """A database of ten million samples: candidates made through the API, then copied in bulk to further workloads."""
    path = folder / "large.db"
    path.unlink(missing_ok=True)
    with open_database(path) as base:
        for device in range(DEVICES):
            here = setting(base, device)
            for one in islice(outcomes(device), 2 * SCHEDULES):
                base.record_candidate(here, one)
    with closing(sqlite3.connect(path)) as sql:
        while sql.execute("SELECT count(*) FROM af_sample").fetchone()[0] < SAMPLES:
            with sql:
                _double(sql, str(sql.execute("SELECT max(id) FROM af_candidate").fetchone()[0]))
        return {"samples": sql.execute("SELECT count(*) FROM af_sample").fetchone()[0], "bytes": path.stat().st_size}


def _double(sql: sqlite3.Connection, suffix: str) -> None:
    """Everything once more, under new workloads."""
    top = {
        name: sql.execute(f"SELECT max(id) FROM af_{name}").fetchone()[0]
        for name in ("workload", "candidate", "measurement")
    }
    sql.create_function("key", 1, content_key, deterministic=True)
    shift = {name: f"id + {number}" for name, number in top.items()}
    for table, changes in (
        ("workload", {"id": shift["workload"], "key": f"key(key || '{suffix}')"}),
        ("candidate", {"id": shift["candidate"], "workload_id": f"workload_id + {top['workload']}"}),
        (
            "measurement",
            {
                "id": shift["measurement"],
                "candidate_id": f"candidate_id + {top['candidate']}",
                "uid": f"key(uid || '{suffix}')",
            },
        ),
        ("sample", {"measurement_id": f"measurement_id + {top['measurement']}"}),
    ):
        columns = [row[1] for row in sql.execute(f"PRAGMA table_info(af_{table})")]
        values = ", ".join(changes.get(column, column) for column in columns)
        sql.execute(f"INSERT INTO af_{table} ({', '.join(columns)}) SELECT {values} FROM af_{table}")


def lookup(folder: Path) -> dict[str, float]:
    """Milliseconds of a look-up: of one workload, and of a network's 60 at once; median and slowest of many."""
    path = folder / "large.db"
    with open_database(path) as base:
        settings = [setting(base, device) for device in range(DEVICES)]
    with closing(sqlite3.connect(path)) as sql:
        rows = sql.execute(
            "SELECT w.key, d.fingerprint FROM af_workload w JOIN af_candidate c ON c.workload_id = w.id "
            "JOIN af_device d ON d.id = c.device_id GROUP BY w.id"
        ).fetchall()
    by_device: dict[str, list[str]] = {}
    for key, device in rows:
        by_device.setdefault(device, []).append(key)
    chance, found = random.Random(3), {}
    with open_database(path, read_only=True) as base:
        base.lookup(settings[0], ["x"])  # statements are made once
        for name, count, repeat in (("one", 1, 500), ("sixty", 60, 100)):
            times = []
            for _ in range(repeat):
                here = chance.choice(settings)
                keys = chance.sample(by_device[here.device], min(count, len(by_device[here.device])))
                started = time.perf_counter()
                hits = base.lookup(here, keys)
                times.append((time.perf_counter() - started) * 1e3)
                assert len(hits) == len(keys)
            found[f"{name}_median_ms"], found[f"{name}_p99_ms"] = (
                statistics.median(times),
                sorted(times)[-repeat // 100],
            )
    return found


PARTS = {"record": record, "fill": fill, "lookup": lookup}


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the figures of one part."""
    parser = new_parser(__doc__, out="out/scale")
    parser.add_argument("part", choices=PARTS)
    options = parser.parse_args(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    figures = PARTS[options.part](options.out)
    published.keep_figures(options.part, figures)
    print(json.dumps({name: round(value, 3) for name, value in figures.items()}, indent=1))
    return 0
