"""What real runs recorded, for replaying: `python -m experiments scale.extract DB... > recorded.json`.

For each model a list of [seconds since the candidate before, seconds of its build, blocks, microseconds (0: failed)].
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from datetime import datetime
from itertools import pairwise
from pathlib import Path

from experiments.options import new_parser

QUERY = """
SELECT m.created_at, m.build_s, m.median_us, (SELECT count(*) FROM af_sample s WHERE s.measurement_id = m.id)
FROM af_measurement m WHERE m.run_id = ? ORDER BY m.id
"""


def extract(database: Path) -> dict[str, list[list[float]]]:
    """Candidates of each model in a profiling database, in the order in which they were measured."""
    found: dict[str, list[list[float]]] = {}
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
        for run, name in connection.execute("SELECT id, model_name FROM af_run").fetchall():
            rows = connection.execute(QUERY, (run,)).fetchall()
            times = [datetime.fromisoformat(row[0]).timestamp() for row in rows]
            gaps = [0.0, *(max(0.0, later - earlier) for earlier, later in pairwise(times))]
            found.setdefault(name, []).extend(
                [round(gap, 3), round(build or 0.0, 3), blocks, round(us or 0.0, 2)]
                for gap, (_, build, us, blocks) in zip(gaps, rows, strict=True)
            )
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the candidates of all databases as JSON."""
    parser = new_parser(__doc__)
    parser.add_argument("databases", nargs="+", type=Path, metavar="DATABASE")
    found: dict[str, list[list[float]]] = {}
    for database in parser.parse_args(arguments).databases:
        for name, rows in extract(database).items():
            if len(rows) >= 10:
                found[name] = rows
    lines = [f"{json.dumps(name)}: {json.dumps(rows, separators=(',', ':'))}" for name, rows in found.items()]
    print("{\n" + ",\n".join(lines) + "\n}")
    return 0
