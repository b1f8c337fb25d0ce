"""Do models run as exporters write them, and as fast as in ONNX Runtime: `python -m experiments real_models`.

Each model is made by its exporter (random weights, nothing is downloaded but libraries, into environments of their
own), compiled, called with two sets of inputs, whose results are held against ONNX Runtime, and raced against ONNX
Runtime alone, interleaved. `--budget`: it is tuned before, else its kernels are guessed. A row is kept as soon as it is
there; the file is deleted then, unless `--keep` says otherwise.
"""

from __future__ import annotations

import argparse
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import geometric_mean
from typing import Any

import numpy as np

from autofuse import api
from autofuse.api.results import BenchReport, CompileReport
from autofuse.errors import AutofuseError
from autofuse.measure.checking.tolerance import compare
from autofuse.measure.networks.judgement import WHOLE_LIMIT, all_nudged, limit_of_answers
from experiments import tables
from experiments.index import ROOT
from experiments.options import new_parser
from experiments.peers.environments import install
from experiments.real_models.cases import CASES, Case
from experiments.records import Table, keep

ALLOWED = 1.02
"""A model may take so many times the time of ONNX Runtime alone."""
OURS, SEGMENTS, WHOLE = "our kernels", "segments", "whole in ONNX Runtime"
"""Who runs a model."""
SEEDS = (0, 1)


@dataclass(frozen=True)
class Row:
    """One model. `runs`: who runs it; `share`: the part of its estimated work that our kernels do, `segments`: in how
    many parts; `error`: the largest, as a part of an output's range, over all inputs; `sizes`: of the first output for
    each set of inputs; `ratio`: ONNX Runtime's time / ours with its interval; `problem`: what went wrong.
    """

    model: str
    exporter: str
    threads: int
    tuned_s: float
    runs: str = ""
    operators: int = 0
    segments: int = 0
    kernels: int = 0
    share: float = 0.0
    error: float | None = None
    sizes: str = ""
    us: float | None = None
    onnxruntime_us: float | None = None
    ratio: float | None = None
    lo: float | None = None
    hi: float | None = None
    trusted: bool = False
    problem: str = ""

    @property
    def slower(self) -> bool:
        """Whether ONNX Runtime alone is faster beyond what is allowed, and beyond doubt."""
        return self.hi is not None and self.hi < 1 / ALLOWED


def made(name: str, folder: Path) -> Path:
    """The model's file, written by its exporter unless it is there. AutofuseError where the exporter fails."""
    path = folder / f"{name}.onnx"
    if not path.exists():
        python = install(CASES[name].environment)
        command = [str(python), "-m", "experiments.real_models.generate", str(folder), name]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        if done.returncode:
            said = (done.stdout.strip() or done.stderr.strip() or f"exit code {done.returncode}").splitlines()
            raise AutofuseError(f"the exporter failed: {said[-1]}")
    return path


def described(row: Row, report: CompileReport) -> Row:
    """What the compiled library is."""
    if not report.parts:
        operators = sum(len(group.operators) for group in report.groups)
        return replace(row, runs=OURS, operators=operators, segments=1, kernels=report.kernels, share=1.0)
    own = [part for part in report.parts if part.side == "autofuse"]
    share = sum(part.share for part in own)
    runs = SEGMENTS if own else WHOLE
    count = sum(part.operators for part in report.parts)
    return replace(row, runs=runs, operators=count, segments=len(own), kernels=report.kernels, share=share)


def agreement(path: Path, library: Path, case: Case) -> tuple[float, str]:
    """The largest error of any output, and the sizes of the first one; AutofuseError where something else is made, and
    for a model that makes the same of all inputs, which shows nothing.

    Tensors are held to ONNX Runtime as closely as that is to itself (`autofuse.measure.networks.judgement`).
    """
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    constants = {name: np.array(value) for name, value in case.constants.items()}
    loaded = api.load(library)
    worst, sizes, firsts = 0.0, [], []
    for seed in SEEDS:
        inputs = with_texts(case, seed) if case.texts else loaded.example_inputs(seed)
        wanted, *moved = (
            dict(zip(names, session.run(None, {**one, **constants}), strict=True))
            for one in (inputs, *(all_nudged(inputs) if case.raced else ()))
        )
        limit = limit_of_answers(wanted, moved)
        for name, one in zip(names, loaded(inputs), strict=True):
            worst = max(worst, difference(one, wanted[name], name, limit))
        firsts.append(wanted[names[0]])
        sizes.append("x".join(map(str, np.shape(firsts[-1]))))
    if all(np.array_equal(firsts[0], other) for other in firsts):
        raise AutofuseError(f"{names[0]} is the same for all inputs")
    return worst, ", ".join(dict.fromkeys(sizes))


def with_texts(case: Case, seed: int) -> dict[str, Any]:
    """Inputs of a model that takes texts: those are drawn, the others are normal numbers."""
    random = np.random.default_rng(seed)
    texts = {name: random.choice(np.array(known, object), case.shapes[name]) for name, known in case.texts.items()}
    return {name: random.standard_normal(shape).astype(np.float32) for name, shape in case.shapes.items()} | texts


def difference(found: Any, wanted: Any, name: str, limit: float = WHOLE_LIMIT) -> float:
    """The error of an output as a part of its range; AutofuseError where it is of other sizes, or above the limit."""
    if not isinstance(wanted, np.ndarray):
        pairs = [(one[key], two[key]) for one, two in zip(found, wanted, strict=True) for key in two]
        return max(difference(np.array(one), np.array(two), name, limit) for one, two in pairs)
    if wanted.dtype.kind not in "fiub":
        if not np.array_equal(found, wanted):
            raise AutofuseError(f"{name}: {np.count_nonzero(found != wanted)} of {wanted.size} elements differ")
        return 0.0
    verdict = compare(found, wanted, limit)
    if not verdict.ok:
        raise AutofuseError(f"{name}: {verdict.reason}")
    return verdict.max_rel_error


def measured(row: Row, path: Path, options: argparse.Namespace) -> Row:
    """The row with everything that is asked of a model; `problem` where one step fails."""
    case, folder = CASES[row.model], options.out
    tuned = f"tuned-{row.tuned_s:g}" if row.tuned_s else "untuned"
    database, library = str(folder / f"{row.model}-{tuned}.db"), folder / f"{row.model}-{row.threads}.so"
    given: dict[str, Any] = {"shapes": case.shapes, "constants": case.constants, "threads": row.threads}
    try:
        if row.tuned_s:
            tune(path, database, row.tuned_s, given)
        row = described(row, api.compile(path, library, database=database, **given))
        error, sizes = agreement(path, library, case)
        row = replace(row, error=error, sizes=sizes)
        if case.raced:
            row = raced(row, path, library, database, options.bench, given)
    except AutofuseError as problem:
        row = replace(row, problem=str(problem))
    library.unlink(missing_ok=True)
    return row


def tune(path: Path, database: str, seconds: float, given: dict[str, Any]) -> None:
    """Tunes the model, unless ONNX Runtime runs all of it."""
    try:
        api.tune(path, database=database, budget=seconds, **given)
    except AutofuseError as error:
        if "nothing to tune" not in str(error):
            raise


def raced(row: Row, path: Path, library: Path, database: str, seconds: float, given: dict[str, Any]) -> Row:
    """The row with the times of a race against ONNX Runtime alone."""
    found = api.bench(path, library=library, database=database, against=("onnxruntime",), budget=seconds, **given)
    assert isinstance(found, BenchReport), "its sizes are fixed"
    rival = found.rivals["onnxruntime"]
    if rival.ratio is None:  # times of a machine that is too busy for a ratio say nothing either
        return replace(row, problem=rival.error or rival.verdict)
    row = replace(row, us=found.autofuse_us, onnxruntime_us=rival.median_us, trusted=rival.trusted)
    return replace(row, ratio=rival.ratio, lo=rival.ci_lo, hi=rival.ci_hi)


def published(rows: Sequence[Row]) -> str:
    """The rows as a table, and what they say together."""
    titles = ("model", "exporter", "threads", "tuned, s", "run by", "share of ours", "kernels", "first output", "error")
    lines = tables.head((*titles, "us", "ONNX Runtime, us", "ONNX Runtime's time / ours"))
    for row in rows:
        told = tables.ratio(row.ratio, row.lo, row.hi, row.trusted)
        told = "; ".join(text for text in (told, row.problem) if text)
        who = f"{row.segments} segments" if row.runs == SEGMENTS and row.segments != 1 else row.runs
        who = "1 segment" if who == SEGMENTS else who
        cells = [row.model, row.exporter, row.threads, f"{row.tuned_s:g}", who, f"{row.share:.0%}", row.kernels]
        cells += [row.sizes, "" if row.error is None else f"{row.error:.0e}"]
        cells += ["" if us is None else f"{us:.1f}" for us in (row.us, row.onnxruntime_us)]
        lines.append(tables.line([*cells, told]))
    return "\n".join(lines) + f"\n\n{_sentence(rows)}\n"


def _sentence(rows: Sequence[Row]) -> str:
    """How many run and agree, how many are slower, and the mean of those that need segments."""
    models = {row.model for row in rows}
    agree = models - {row.model for row in rows if row.error is None}
    known = [row for row in rows if row.ratio is not None]
    slower = sum(row.slower for row in known)
    text = f"{len(agree)} of {len(models)} models run and agree"
    if known:
        text += f"; of {len(known)} races ONNX Runtime alone won {slower} by more than {ALLOWED - 1:.0%}, beyond doubt"
    cut = [row.ratio for row in known if row.runs != OURS and row.ratio]
    if cut:
        text += f"; those that need ONNX Runtime for a part are {geometric_mean(cut):.2f} times as fast as it alone"
        text += " (geometric mean)"
    return f"{text}."


def _place(row: Row) -> tuple[int, int, float]:
    names = list(CASES)
    return names.index(row.model) if row.model in names else len(names), row.threads, row.tuned_s


TABLES = (Table("real_models", Row, ("model", "threads", "tuned_s"), published, _place),)


def main(arguments: Sequence[str] | None = None) -> int:
    """Every model in turn, with each number of threads; 1 when one does not run, is wrong, or slower."""
    parser = new_parser(__doc__, out="out/real_models", threads="1,2", budget="", bench="10s")
    parser.add_argument("models", nargs="*", metavar="MODEL", help=f"default: all of {', '.join(CASES)}")
    parser.add_argument("--keep", action="store_true", help="the files of the models stay")
    options = parser.parse_args(arguments)
    unknown = [name for name in options.models if name not in CASES]
    if unknown:
        parser.error(f"{unknown[0]!r} is not one of {', '.join(CASES)}")
    options.out = options.out.resolve()
    options.out.mkdir(parents=True, exist_ok=True)
    rows: list[Row] = []
    for name in options.models or CASES:
        for threads in options.threads:
            rows.append(tried(Row(name, CASES[name].exporter, threads, options.budget), options))
            keep(TABLES[0], rows[-1:])
            print(published(rows[-1:]).splitlines()[2], flush=True)
        if not options.keep:
            (options.out / f"{name}.onnx").unlink(missing_ok=True)
    tables.write(options.out, rows, published(rows))
    return int(any(row.problem or row.slower for row in rows))


def tried(row: Row, options: argparse.Namespace) -> Row:
    """The row of a model that is made first; one that cannot be made says why."""
    try:
        path = made(row.model, options.out)
    except AutofuseError as error:
        return replace(row, problem=str(error))
    return measured(row, path, options)
