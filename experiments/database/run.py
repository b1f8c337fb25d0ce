"""How the tools for databases scale: merge, export, import, prune, report, at the sizes that are promised.

    .venv/bin/python experiments/database/run.py --out out/database

The rows are made up (`synthetic.py`); only the seconds and bytes printed here are results.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from autofuse.profiling.database import open_database
from autofuse.profiling.upkeep import export_database, import_database, merge_database, prune_database
from autofuse.report.analysis import open_analysis
from autofuse.report.page import write_html
from experiments.database.synthetic import write_database


def main() -> int:
    """Make two databases and time what is done with them; 1 when a promise is broken."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("out/database"))
    parser.add_argument("--candidates", type=int, default=100_000, help="of each of the two databases")
    parser.add_argument("--report-candidates", type=int, default=50_000)
    parser.add_argument("--blocks", type=int, default=30, help="blocks of a measurement, as a real run has them")
    arguments = parser.parse_args()
    out: Path = arguments.out
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    broken: list[str] = []
    one, two, other = (out / name for name in ("one.db", "two.db", "other.db"))
    with timed(f"make two databases of {arguments.candidates:,} candidates"):
        for seed, path in enumerate((one, two)):
            write_database(path, arguments.candidates, seed=seed, blocks=arguments.blocks)
    _tell(f"  {one.stat().st_size / 2**20:,.0f} MiB each")
    shutil.copy(one, other)
    with open_database(one) as database:
        limit(broken, "merge one into the other", 30.0, lambda: merge_database(database, two))
        limit(broken, "merge it again", 30.0, lambda: _expect(merge_database(database, two).changes == 0, "idempotent"))
        with timed("check"):
            _expect(database.problems() == [], "sound")
    with open_database(two) as database, timed("merge the other way round"):
        merge_database(database, other)
    exports = [out / "export-one", out / "export-two"]
    for path, folder in zip((one, two), exports, strict=True):
        with open_database(path, read_only=True) as database, timed(f"export {folder.name}"):
            export_database(database, folder)
    same = (exports[0] / "manifest.json").read_bytes() == (exports[1] / "manifest.json").read_bytes()
    _expect(same, "order of merging")
    _tell("  both merges have equal contents: every file has the same SHA-256")
    with open_database(out / "imported.db") as database, timed("import it"):
        import_database(database, exports[0])
    with open_database(out / "imported.db") as database, timed("prune it to the winners"):
        report = prune_database(database, older_than_s=1.0, keep=3)
    _tell(f"  {report.bytes_before / 2**20:,.0f} -> {report.bytes_after / 2**20:,.0f} MiB")
    _report(out, arguments.report_candidates, arguments.blocks, broken)
    for line in broken:
        _tell(f"BROKEN: {line}")
    return 1 if broken else 0


def _report(out: Path, candidates: int, blocks: int, broken: list[str]) -> None:
    path = write_database(out / "night.db", candidates, seed=7, blocks=blocks)
    page = out / "report.html"
    with open_analysis(path) as analysis:
        limit(broken, f"report of {candidates:,} candidates", 20.0, lambda: write_html(analysis, None, page))
    size = page.stat().st_size
    _tell(f"  {size / 2**20:.2f} MiB (at most 10)")
    if size > 10 * 2**20:
        broken.append(f"the report weighs {size} bytes")


@contextmanager
def timed(what: str) -> Iterator[None]:
    """Print the seconds of a step."""
    start = time.perf_counter()
    yield
    _tell(f"{what}: {time.perf_counter() - start:.1f} s")


def limit(broken: list[str], what: str, seconds: float, act: Callable[[], object]) -> None:
    """Time a step that must not take longer."""
    start = time.perf_counter()
    act()
    took = time.perf_counter() - start
    _tell(f"{what}: {took:.1f} s (at most {seconds:.0f})")
    if took > seconds:
        broken.append(f"{what} took {took:.1f} s")


def _expect(holds: bool, what: str) -> None:
    if not holds:
        raise SystemExit(f"BROKEN: {what}")


def _tell(line: str) -> None:
    sys.stdout.write(line + os.linesep)
    sys.stdout.flush()


if __name__ == "__main__":
    raise SystemExit(main())
