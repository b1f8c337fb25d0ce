"""What a change did to speed: two checkouts compile the same models, and their libraries are raced interleaved.

    .venv/bin/python -m experiments before_after resnet50 tinybert --before 59c9e05 [--after FOLDER] --bench 30s

A checkout is a folder, or a commit of this one, which is unpacked into `--out`. Each compiles in a process of its own,
from an empty database, in turn (before, after, after, before, ...), with this virtual environment's packages and its
own autofuse. Two things are compared: the seconds of processor time of `compile`, start-up and children included, and
the time of the compiled libraries, one call each in turn, both checked against ONNX Runtime.
"""

from __future__ import annotations

import os
import resource
import shutil
import statistics
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path

from autofuse.backend.compile.host_cpu import local_device
from autofuse.errors import AutofuseError, InputError
from autofuse.graph.loading.load import load
from autofuse.measure.networks.bench import Contender, ContenderResult
from experiments import tables
from experiments.catalogue import TABLE, WRITTEN
from experiments.index import ROOT
from experiments.model_files import HELP, asked_for
from experiments.options import count, new_parser
from experiments.races import NO_RATIO, race
from experiments.records import Table, keep

BEFORE, AFTER = "before", "after"
SLOWER = 1.10
"""The bar: `compile` may take so many times the processor time that it took before."""
COMPILE_S = 1800.0


@dataclass(frozen=True)
class Checkout:
    """A folder that has an `autofuse` package, and the name of its commit."""

    folder: Path
    commit: str


@dataclass(frozen=True)
class Row:
    """One network. `speed`: the time of the library from before over that from after, with its interval [`lo`, `hi`].

    `compile_before_s`, `compile_after_s`: processor seconds of `compile`, medians of all rounds; `compile_ratio`: the
    median, over the rounds, of after over before, between `compile_lo` and `compile_hi`.
    """

    network: str
    threads: int
    before: str
    after: str
    before_us: float | None = None
    after_us: float | None = None
    speed: float | None = None
    lo: float | None = None
    hi: float | None = None
    trusted: bool = False
    compile_before_s: float | None = None
    compile_after_s: float | None = None
    compile_ratio: float | None = None
    compile_lo: float | None = None
    compile_hi: float | None = None
    rounds: int = 0
    problem: str = ""


def checkout(text: str, out: Path) -> Checkout:
    """A folder as it is, or a commit unpacked below `out`; InputError for what is neither."""
    folder = Path(text)
    if (folder / "autofuse" / "__init__.py").is_file():
        return Checkout(folder.resolve(), _commit(folder, "HEAD") or "unknown")
    commit = _commit(ROOT, text)
    if not commit:
        raise InputError(f"{text!r} is neither a folder with an autofuse package nor a commit of this checkout")
    made = (out / "checkouts" / commit).resolve()
    if not made.exists():
        packed = subprocess.run(["git", "archive", commit], cwd=ROOT, capture_output=True, check=True).stdout
        part = made.with_suffix(".part")
        shutil.rmtree(part, ignore_errors=True)
        with tarfile.open(fileobj=BytesIO(packed)) as archive:
            if hasattr(tarfile, "data_filter"):  # Python 3.11 has it from its fourth release on
                archive.extraction_filter = tarfile.data_filter
            archive.extractall(part)
        part.rename(made)
    return Checkout(made, commit)


def _commit(folder: Path, name: str) -> str:
    command = ["git", "rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return done.stdout.strip()[:12]


def environment(checkout: Checkout) -> dict[str, str]:
    """Of a process that imports the checkout's own autofuse; InputError where another one would be imported."""
    made = {**os.environ, "PYTHONPATH": str(checkout.folder)}
    command = [sys.executable, "-c", "import autofuse; print(autofuse.__file__)"]
    done = subprocess.run(command, cwd=checkout.folder, env=made, capture_output=True, text=True, check=False)
    if done.returncode or checkout.folder not in Path(done.stdout.strip()).parents:
        raise InputError(f"{checkout.folder}: its autofuse cannot be imported: {(done.stderr or done.stdout)[-500:]}")
    return made


def compile_seconds(checkout: Checkout, model: Path, library: Path, threads: int) -> float:
    """Processor seconds, user and system, of one `compile` from an empty database; AutofuseError when it fails."""
    made = environment(checkout)
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "autofuse", "compile", str(model), "-o", str(library)]
        options = ["--db", str(Path(folder) / "empty.db"), "--threads", str(threads)]
        start = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(
            [*command, *options], cwd=checkout.folder, env=made, capture_output=True, text=True, check=False,
            timeout=COMPILE_S,
        )  # fmt: skip
        end = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        last = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1:]
        raise AutofuseError(f"{checkout.commit}: compile ended with {done.returncode}: {''.join(last)}")
    return end.ru_utime - start.ru_utime + end.ru_stime - start.ru_stime


def measure(
    model: Path, checkouts: tuple[Checkout, Checkout], threads: int, rounds: int, bench_s: float, folder: Path
) -> Row:
    """The row of one network; what failed is its problem."""
    before, after = checkouts
    row = Row(model.stem, threads, before.commit, after.commit)
    sides = {BEFORE: before, AFTER: after}
    libraries = {side: (folder / f"{model.stem}-{threads}t-{side}.so").resolve() for side in sides}
    times: dict[str, list[float]] = {side: [] for side in sides}
    try:
        for number in range(rounds):
            for side in (BEFORE, AFTER) if number % 2 == 0 else (AFTER, BEFORE):
                times[side].append(compile_seconds(sides[side], model, libraries[side], threads))
        row = with_compile_times(row, times[BEFORE], times[AFTER])
        contenders = [Contender(side, "autofuse", libraries[side]) for side in sides]
        return raced(row, race(load(model, {}), contenders, threads, bench_s, local_device().target()))
    except (AutofuseError, subprocess.TimeoutExpired) as error:
        return replace(row, problem=str(error))


def with_compile_times(row: Row, before: Sequence[float], after: Sequence[float]) -> Row:
    """The row with what `compile` took; rounds are compared one by one, since the machine's speed varies."""
    ratios = [new / old for old, new in zip(before, after, strict=True)]
    return replace(
        row, compile_before_s=statistics.median(before), compile_after_s=statistics.median(after),
        compile_ratio=statistics.median(ratios), compile_lo=min(ratios), compile_hi=max(ratios), rounds=len(ratios),
    )  # fmt: skip


def raced(row: Row, results: dict[str, ContenderResult]) -> Row:
    """The row with what the race of both libraries said."""
    problem = next((f"{side}: {text}" for side, one in results.items() if (text := one.error or one.wrong)), "")
    old, new = results[BEFORE], results[AFTER]
    if problem or not new.ratio or not new.ci_lo or not new.ci_hi:
        return replace(row, problem=problem or NO_RATIO)
    return replace(
        row, before_us=old.median_us, after_us=new.median_us, speed=1 / new.ratio, lo=1 / new.ci_hi, hi=1 / new.ci_lo,
        trusted=new.trusted,
    )  # fmt: skip


def slower(row: Row) -> list[str]:
    """What is slower after than before, beyond its interval or the bar."""
    found = []
    if row.hi is not None and row.hi < 1:
        found.append(f"{row.network}: its library is slower: {_interval(row)} of the speed")
    if row.compile_ratio is not None and row.compile_ratio > SLOWER:
        found.append(f"{row.network}: compile takes {row.compile_ratio:.2f} times as long")
    return found


def markdown(rows: Sequence[Row]) -> str:
    """The rows as a table; a question mark stands where noise spoiled a ratio."""
    titles = ("network", "threads", "commits", "before / after, ms", "speed, times", "compile: before, after, CPU s")
    lines = tables.head((*titles, "compile, times (range, rounds)"))
    for row in rows:
        cells = [row.network, row.threads, f"{row.before[:8]}, {row.after[:8]}"]
        times = f"{row.before_us / 1e3:.3f}, {row.after_us / 1e3:.3f}" if row.before_us and row.after_us else ""
        speed = row.problem or _interval(row)
        if row.compile_ratio is None:
            lines.append(tables.line([*cells, times, speed, "", ""]))
            continue
        seconds = f"{row.compile_before_s:.1f}, {row.compile_after_s:.1f}"
        ratio = f"{row.compile_ratio:.2f} ({row.compile_lo:.2f}-{row.compile_hi:.2f}, {row.rounds})"
        lines.append(tables.line([*cells, times, speed, seconds, ratio]))
    return "\n".join(lines) + "\n"


def _interval(row: Row) -> str:
    return tables.ratio(row.speed, row.lo, row.hi, row.trusted, 3)


TABLES = (Table("before_after", Row, ("network", "threads"), markdown),)


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare the models; 1 when one has a problem, or is slower than before."""
    parser = new_parser(__doc__, out="out/before_after", threads=1, bench="30s")
    parser.add_argument("models", nargs="+", metavar="MODEL", help=HELP)
    parser.add_argument("--before", required=True, metavar="CHECKOUT", help="a folder, or a commit of this checkout")
    parser.add_argument("--after", default=str(ROOT), metavar="CHECKOUT", help="the same (default: this checkout)")
    parser.add_argument("--rounds", type=count, default=3, metavar="N", help="compilations of each side (default: 3)")
    options = parser.parse_args(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    files = asked_for(parser, options.models, WRITTEN, TABLE)
    try:
        both = checkout(options.before, options.out), checkout(options.after, options.out)
    except InputError as error:
        parser.error(str(error))
    rows: list[Row] = []
    for file in files:
        row = measure(file, both, options.threads, options.rounds, options.bench, options.out)
        rows.append(row)
        keep(TABLES[0], [row])
        print(markdown([row]).splitlines()[-1], flush=True)
    tables.write(options.out, rows, markdown(rows))
    lost = [text for row in rows for text in slower(row)]
    print(f"\n{markdown(rows)}" + "".join(f"SLOWER: {text}\n" for text in lost))
    return int(bool(lost) or any(row.problem for row in rows))
