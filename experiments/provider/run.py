"""What does the execution provider cost: `python -m experiments provider resnet50 mobilenet_v2 --threads 1,2`.

Each model, all of which our kernels run, is compiled twice by what a database knows, as a library and as a model for
ONNX Runtime. `Session`, ONNX Runtime with our provider, and ONNX Runtime alone then take turns, each in a process of
its own. Before that, chains in which ONNX Runtime and segments of one small kernel alternate say what it costs to enter
a segment, above what ONNX Runtime's own operator takes in its place.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

import numpy as np
import onnx
from onnx import ModelProto, numpy_helper, parser

import autofuse
from autofuse.backend.compile.host_cpu import local_device
from autofuse.graph.loading.load import load
from autofuse.measure.networks.bench import Contender, ContenderResult, Host, bench_contenders
from experiments.model_files import HELP, asked_for
from experiments.options import counts, new_parser
from experiments.races import NO_RATIO, race
from experiments.records import Table, keep
from experiments.tables import head, line, ratio

HOST = Host("experiments.provider.contender")
SESSION, PROVIDER, ALONE = "session", "provider", "onnxruntime"
ALLOWED = 1.02
"""The provider may take so many times the time of `Session`."""
LIMIT_US = 1.0
"""What entering a segment may cost."""
Time = float | None


@dataclass(frozen=True)
class Entry:
    """A chain of so many `segments`: its time in ONNX Runtime alone and with the provider, and the difference a
    segment, with its interval."""

    segments: int
    threads: int
    alone_us: Time = None
    provider_us: Time = None
    each_us: Time = None
    lo: Time = None
    hi: Time = None
    trusted: bool = False
    problem: str = ""


@dataclass(frozen=True)
class Row:
    """A model that is one segment: its time through `Session`; the provider's, and ONNX Runtime's, over that.

    `slower`: the whole interval lies above what is allowed.
    """

    model: str
    threads: int
    session_us: Time = None
    ratio: float | None = None
    lo: float | None = None
    hi: float | None = None
    alone: float | None = None
    alone_lo: float | None = None
    alone_hi: float | None = None
    trusted: bool = False
    problem: str = ""

    @property
    def slower(self) -> bool:
        """Whether the provider is slower beyond what is allowed, and beyond doubt."""
        return self.lo is not None and self.lo > ALLOWED


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; 1 when a promise is broken beyond doubt."""
    parser = new_parser(__doc__, out="out/provider", threads="1,2", bench="15s")
    parser.add_argument("models", nargs="*", help=HELP, metavar="MODEL")
    parser.add_argument("--segments", type=counts, default=[8, 32], metavar="N,N", help="segments of the chains")
    parser.add_argument("--db", type=Path, help="database of what was tuned (default: an empty one)")
    given = parser.parse_args(arguments)
    given.out.mkdir(parents=True, exist_ok=True)
    database = given.db or given.out / "nothing-known.db"
    entries, rows = [], []
    for threads in given.threads:
        for count in given.segments:
            entries.append(entered(count, threads, given.out, given.bench))
            keep(TABLES[0], entries[-1:])
            print(entry_table(entries[-1:]), flush=True)
        for model in asked_for(parser, given.models) if given.models else ():
            rows.append(compared(model, threads, given.out, database, given.bench))
            keep(TABLES[1], rows[-1:])
            print(table(rows[-1:]), flush=True)
    dear = [one for one in entries if one.trusted and one.lo is not None and one.lo > LIMIT_US]
    return 1 if dear or any(row.trusted and row.slower for row in rows) else 0


def chain(segments: int) -> ModelProto:
    """A product by numbers near 1 behind each inverse of a small matrix, which is no kernel of ours."""
    steps = [
        f"b{place} = com.microsoft.Inverse (a{place})  a{place + 1} = Mul (b{place}, c)" for place in range(segments)
    ]
    head_ = '<ir_version: 8, opset_import: ["": 17, "com.microsoft": 1]>'
    text = f"{head_} chain (float[1,4,4] a0) => (float[1,4,4] a{segments}) {{ {' '.join(steps)} }}"
    model = parser.parse_model(text)
    near_one = 1 + 0.001 * np.random.default_rng(0).standard_normal((1, 4, 4))
    model.graph.initializer.append(numpy_helper.from_array(near_one.astype(np.float32), "c"))
    return model


@contextmanager
def any_size() -> Iterator[None]:
    """Every segment is entered, however small it is."""
    with patch("autofuse.segments.worth.LEAST_US", 0.0):
        yield


def entered(segments: int, threads: int, folder: Path, seconds: float) -> Entry:
    """The row of one chain."""
    source, made = folder / f"chain{segments}.onnx", folder / f"chain{segments}-{threads}"
    made.mkdir(exist_ok=True)
    onnx.save(chain(segments), source)
    with any_size():
        report = autofuse.compile(
            source, made / "chain.onnx", format="ort", database=str(folder / "nothing-known.db"), threads=threads
        )
    own = sum(part.side == "autofuse" for part in report.parts)
    if own != segments:
        return Entry(segments, threads, problem=f"{own} segments")
    matrix = np.eye(4, dtype=np.float32)[None] + 0.1
    contenders = [Contender(ALONE, "onnxruntime", source), Contender(PROVIDER, PROVIDER, made / "chain.onnx", HOST)]
    target = local_device().target()
    results = bench_contenders(contenders, {"a0": matrix}, threads, seconds, target=target)
    alone, with_it = results[ALONE], results[PROVIDER]
    if problem := _problem(results):
        return Entry(segments, threads, problem=problem)
    assert alone.median_us is not None

    def each(ratio: float | None) -> Time:
        return None if ratio is None or alone.median_us is None else (ratio - 1) * alone.median_us / segments

    return Entry(
        segments, threads, alone.median_us, with_it.median_us, each(with_it.ratio), each(with_it.ci_lo),
        each(with_it.ci_hi), with_it.trusted,
    )  # fmt: skip


def compared(model: Path, threads: int, folder: Path, database: Path, seconds: float) -> Row:
    """The row of one model."""
    made = folder / f"{model.stem}-{threads}"
    made.mkdir(exist_ok=True)
    library, tuned = made / f"{model.stem}.so", made / f"{model.stem}.onnx"
    for path, form in ((library, "so"), (tuned, "ort")):
        report = autofuse.compile(model, path, format=form, database=str(database), threads=threads)
        if report.parts:
            return Row(model.stem, threads, problem="ONNX Runtime has a part in it")
    contenders = [
        Contender(SESSION, "autofuse", library),
        Contender(PROVIDER, PROVIDER, tuned, HOST),
        Contender(ALONE, "onnxruntime", model),
    ]
    results = race(load(model), contenders, threads, seconds, local_device().target())
    if problem := _problem(results):
        return Row(model.stem, threads, problem=problem)
    through, alone = results[PROVIDER], results[ALONE]
    return Row(
        model.stem, threads, results[SESSION].median_us, through.ratio, through.ci_lo, through.ci_hi, alone.ratio,
        alone.ci_lo, alone.ci_hi, through.trusted,
    )  # fmt: skip


def _problem(results: Mapping[str, ContenderResult]) -> str:
    return "; ".join(f"{name}: {one.error or one.wrong}" for name, one in results.items() if one.error or one.wrong)


def entry_table(rows: Sequence[Entry]) -> str:
    """The chains as Markdown."""
    lines = head(["segments", "threads", "ONNX Runtime alone, us", "with the provider, us", "a segment more, us"])
    for row in rows:
        shown = row.problem or ratio(row.each_us, row.lo, row.hi, row.trusted) or NO_RATIO
        lines.append(line([row.segments, row.threads, _us(row.alone_us), _us(row.provider_us), shown]))
    return "\n".join(lines)


def table(rows: Sequence[Row]) -> str:
    """The models as Markdown."""
    lines = head(["model", "threads", "Session, us", "provider over Session", "ONNX Runtime over Session"])
    for row in rows:
        through = row.problem or ratio(row.ratio, row.lo, row.hi, row.trusted, 3) or NO_RATIO
        alone = ratio(row.alone, row.alone_lo, row.alone_hi, None)
        lines.append(line([row.model, row.threads, _us(row.session_us), through, alone]))
    return "\n".join(lines)


def _us(value: Time) -> str:
    return "" if value is None else f"{value:.1f}"


TABLES = (
    Table("provider.entry", Entry, ("segments", "threads"), entry_table),
    Table("provider", Row, ("model", "threads"), table),
)
