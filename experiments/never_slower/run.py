"""Is a tuned model ever slower than what needs no search: `python -m experiments never_slower --budget 60s`.

Each model is tuned from an empty database, as a user would; then what was chosen is raced against every fixed rule:
no fusion, all legal fusion, TVM's rule and ours, each as it is compiled where nothing was measured. With `--cores` the
tuning has a neighbour that comes and goes, which is gone when the race begins. A race that calls what was chosen slower
is run twice more, in new processes, and the middle ratio counts: where a process finds its memory may cost or gain 4 %.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import geometric_mean
from typing import Any

import onnx

import autofuse
from autofuse.backend.compile.host_cpu import local_device
from autofuse.errors import AutofuseError
from autofuse.graph.loading.load import load
from autofuse.measure.networks.bench import Contender, ContenderResult
from autofuse.measure.timing.race import DECIDING, ratio_of
from autofuse.views.frames.analysis import open_analysis
from autofuse.views.frames.groups import last_choice
from autofuse.views.report.tables import Left, left_of
from experiments.catalogue import WRITTEN
from experiments.index import ROOT
from experiments.model_files import asked_for
from experiments.never_slower.draw import drawn
from experiments.noisy_neighbour.run import ENDED, neighbour
from experiments.options import new_parser
from experiments.over_fusion.cases import CASES
from experiments.races import NO_RATIO, race
from experiments.records import Table, keep
from experiments.tables import head, line, ratio

FIXED = ("default", "none", "always", "tvm-partition")
"""The rules, ours first."""
CHOSEN, DRAWN = "chosen", "drawn"
ALLOWED = 1.02
"""What was chosen may take so many times the time of the best rule."""
NETWORKS = ("small_residual", "small_windowed", "small_shuffled", "small_transformer")
"""Those that are tuned beside a neighbour."""
ROUNDS = replace(DECIDING, deciding=False)
"""Short blocks, as in a tuning's own finals, until every ratio is precise."""
Time = float | None


@dataclass(frozen=True)
class Row:
    """One model, tuned once. Times in microseconds, None where there is none.

    `seed`: of the search. `neighbour`: cores that the neighbour took at most. `chosen`: name of the plan that the
    tuning chose. `best`: the fastest rule; `ratio`: the chosen one's time over its, in the same rounds, with its
    interval [`lo`, `hi`]; `trusted`: whether that interval says more than noise does. `same`: what was chosen is what
    that rule compiles. `kernels` and what follows: what is left to save in what was chosen, see
    `autofuse.views.report.tables.Left` (none of drawn models).
    """

    model: str
    seed: int
    neighbour: int
    chosen: str
    candidates: int
    plan_trials: int
    chosen_us: Time = None
    default_us: Time = None
    none_us: Time = None
    always_us: Time = None
    tvm_us: Time = None
    best: str = ""
    ratio: float | None = None
    lo: float | None = None
    hi: float | None = None
    trusted: bool = False
    same: bool = False
    problem: str = ""
    kernels: int = 0
    kernels_us: Time = None
    calls_us: Time = None
    handed_mb: float | None = None
    handed_us: Time = None
    arithmetic_us: Time = None

    @property
    def slower(self) -> bool:
        """Whether what was chosen is slower than the best rule beyond what is allowed, and beyond doubt."""
        return self.lo is not None and self.lo > ALLOWED


def tuned(model: Path, database: Path, threads: int, seconds: float, seed: int) -> Mapping[str, Any]:
    """The outcome of a tuning by the command line; AutofuseError when it ends with an error."""
    command = [sys.executable, "-m", "autofuse", "tune", str(model), "--db", str(database), "--seed", str(seed)]
    flags = ["--budget", f"{seconds:g}s", "--threads", str(threads), "--format", "json"]
    done = subprocess.run([*command, *flags], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode not in ENDED:
        raise AutofuseError(f"tuning ended with {done.returncode}")
    body: Mapping[str, Any] = json.loads(done.stdout)
    return body


def contenders(model: Path, database: Path, threads: int, rules: Iterable[str]) -> tuple[dict[str, Path], list[str]]:
    """A library for what was chosen, and one for each rule that says something else; the rules that say the same.

    A rule that says nothing of this model (TVM's, now and then) has none.
    """
    folder, empty = database.parent, str(database.with_suffix(".empty.db"))
    made = autofuse.compile(model, folder / f"{model.stem}-{CHOSEN}.so", database=str(database), threads=threads)
    found, same = {CHOSEN: folder / f"{model.stem}-{CHOSEN}.so"}, []
    for rule in rules:
        path = folder / f"{model.stem}-{rule}.so"
        try:
            other = autofuse.compile(model, path, database=empty, threads=threads, plan=rule)
        except AutofuseError:
            continue
        if _code(other) == _code(made):
            same.append(rule)
        else:
            found[rule] = path
    return found, same


def _code(report: Any) -> object:
    """What two libraries share that do the same."""
    return report.plan_key, [(group.group, group.schedule) for group in report.groups]


def row(
    model: str, seed: int, cores: int, outcome: Mapping[str, Any], results: Mapping[str, ContenderResult],
    same: Sequence[str],
) -> Row:  # fmt: skip
    """What the race says of one tuning."""
    us = {name: one.median_us for name, one in results.items() if one.median_us is not None and not one.wrong}
    us |= dict.fromkeys(same, us[CHOSEN]) if CHOSEN in us else {}
    counts = int(outcome["measured"]), int(outcome["plan_trials"])
    times = us.get(CHOSEN), us.get("default"), us.get("none"), us.get("always"), us.get("tvm-partition")
    found = Row(model, seed, cores, str(outcome["chosen"]), *counts, *times)
    bad = {name: one.wrong or one.error for name, one in results.items() if one.wrong or one.error}
    rivals = {name: one for name, one in us.items() if name != CHOSEN}
    if CHOSEN not in us or not rivals:
        return replace(found, problem="; ".join(f"{name}: {why}" for name, why in bad.items()))
    best = min(rivals, key=lambda name: rivals[name])
    if best in same:
        return replace(found, best=best, ratio=1.0, lo=1.0, hi=1.0, trusted=True, same=True)
    mine, theirs = results[CHOSEN].samples, results[best].samples
    told = ratio_of(mine, theirs) if mine is not None and theirs is not None else None
    if told is None or told.value is None:
        return replace(found, best=best, problem=NO_RATIO)
    return replace(found, best=best, ratio=told.value, lo=told.lo, hi=told.hi, trusted=told.trusted)


def tried(model: Path, folder: Path, options: argparse.Namespace, seed: int, rules: Sequence[str]) -> Row:
    """One model tuned, beside a neighbour or not, and raced."""
    database = folder / f"{model.stem}-{seed}-{options.cores}.db"
    for old in folder.glob(f"{database.stem}*"):
        old.unlink()
    beside = neighbour(options.cores, seed, folder / "neighbour.log") if options.cores else nullcontext()
    with beside:
        try:
            outcome = tuned(model, database, options.threads, options.budget, seed)
        except AutofuseError as error:
            return Row(model.stem, seed, options.cores, "", 0, 0, problem=str(error))
    found, same = contenders(model, database, options.threads, rules)
    entries = [Contender(name, "autofuse", path) for name, path in found.items()]

    def raced() -> Row:
        results = race(load(model, {}), entries, options.threads, options.bench, local_device().target(), 7, ROUNDS)
        return row(model.stem, seed, options.cores, outcome, results, same)

    first = raced()
    told = sorted((first, raced(), raced()), key=lambda one: one.ratio or 1.0)[1] if first.slower else first
    if model.stem.startswith(DRAWN):
        return told
    with open_analysis(database) as analysis:
        return with_left(told, left_of(last_choice(analysis.groups)))


def with_left(row: Row, left: Left | None) -> Row:
    """A row with what is left to save in the plan that was chosen; as it is where that is not known."""
    if left is None:
        return row
    return replace(
        row, kernels=left.kernels, kernels_us=left.us, calls_us=left.calls_us, handed_mb=left.handed_bytes / 1e6,
        handed_us=left.handed_us, arithmetic_us=left.arithmetic_us,
    )  # fmt: skip


def published(rows: Sequence[Row]) -> str:
    """The tables of the page, first of the tunings that had no neighbour; last, what is left to save."""
    parts = [_table([one for one in rows if not one.neighbour]), _table([one for one in rows if one.neighbour])]
    return "\n".join(part for part in [*parts, _left(rows)] if part)


def _left(rows: Sequence[Row]) -> str:
    """What is left to save in what was chosen, as parts of the sum of its kernels."""
    known = [one for one in rows if one.kernels_us]
    if not known:
        return ""
    lines = head(("model, seed", "kernels, their sum, us", "calls", "MB beside weights", "from memory", "arithmetic"))
    for one in known:
        parts = [f"{100 * (us or 0.0) / (one.kernels_us or 1.0):.1f}%" for us in (one.calls_us, one.handed_us)]
        arithmetic = f"{100 * (one.arithmetic_us or 0.0) / (one.kernels_us or 1.0):.0f}%"
        cells = [f"{one.model}, {one.seed}", f"{one.kernels}, {one.kernels_us:.0f}", parts[0], f"{one.handed_mb:.1f}"]
        lines.append(line([*cells, parts[1], arithmetic]))
    return "\n".join(lines) + "\n"


def _table(rows: Sequence[Row]) -> str:
    if not rows:
        return ""
    beside = rows[0].neighbour > 0
    titles = (
        "model, seed",
        "chosen",
        "candidates, plans",
        "chosen, us",
        "our rule",
        "no fusion",
        "all fusion",
        "TVM's rule",
    )
    lines = head((*titles, "chosen over best"))
    for one in rows:
        times = (one.chosen_us, one.default_us, one.none_us, one.always_us, one.tvm_us)
        told = "the same" if one.same else ratio(one.ratio, one.lo, one.hi, one.trusted) or one.problem
        cells = [f"{one.model}, {one.seed}", one.chosen, f"{one.candidates}, {one.plan_trials}"]
        lines.append(line([*cells, *("" if us is None else f"{us:.1f}" for us in times), told]))
    words = "Tuned beside a neighbour on up to " + f"{rows[0].neighbour} cores: " if beside else ""
    return "\n".join(lines) + f"\n\n{words}{_sentence(rows)}\n"


def _sentence(rows: Sequence[Row]) -> str:
    """How many were slower, and what the tuning gained in the mean."""
    known = [one for one in rows if one.ratio is not None]
    slower = sum(one.slower for one in known)
    text = f"of {len(known)} models {slower} ended slower than the best rule beyond {ALLOWED - 1:.0%} and beyond doubt"
    gains = {name: _gain(rows, name) for name in ("default_us", "none_us", "always_us", "tvm_us")}
    mean = {name: gain for name, gain in gains.items() if gain is not None}
    if mean:
        least = min(mean, key=lambda name: mean[name])
        text += f"; against the best single rule ({NAMES[least]}) the chosen ones are {mean[least]:.2f} times as fast"
        text += " (geometric mean)"
    return f"{text[0].upper()}{text[1:]}." if not rows[0].neighbour else f"{text}."


NAMES = {"default_us": "ours", "none_us": "no fusion", "always_us": "all fusion", "tvm_us": "TVM's"}


def _gain(rows: Sequence[Row], name: str) -> float | None:
    """The geometric mean of a rule's times over those of what was chosen; None where it does not say all of them."""
    pairs = [(getattr(one, name), one.chosen_us) for one in rows if one.chosen_us is not None]
    if not pairs or any(theirs is None for theirs, _ in pairs):
        return None
    return geometric_mean(theirs / mine for theirs, mine in pairs)


TABLES = (Table("never_slower", Row, ("model", "seed", "neighbour"), published),)


def models(parser: argparse.ArgumentParser, options: argparse.Namespace) -> Iterator[Path]:
    """The models that were asked for; those that are drawn, and the four cases, are written first."""
    made = {f"{DRAWN}{seed}": seed for seed in range(*options.drawn)}
    names = options.models or (NETWORKS if options.cores else [*CASES, *made])
    for name in names:
        path = options.out / f"{name}.onnx"
        if name in CASES:
            onnx.save(CASES[name](), path)
        elif name in made:
            onnx.save(drawn(made[name]), path)
        else:
            (path,) = asked_for(parser, [name], WRITTEN)
        yield path


def main(arguments: Sequence[str] | None = None) -> int:
    """Every model in turn; exit code 1 when one ended slower than a rule."""
    parser = new_parser(__doc__, out="out/never_slower", threads=1, budget="60s", bench="10s", seed=0)
    parser.add_argument("models", nargs="*", metavar="MODEL", help="four cases, drawn models (drawn0), networks, files")
    parser.add_argument("--drawn", type=_span, default=(0, 200), metavar="FIRST:LAST", help="seeds of drawn models")
    parser.add_argument("--cores", type=int, default=0, help="that a neighbour takes at most meanwhile (default: none)")
    parser.add_argument("--runs", type=int, default=1, help="tunings of each model, each with the next seed")
    options = parser.parse_args(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    rules = FIXED[:1] if options.cores else FIXED
    rows = []
    for model in models(parser, options):
        for seed in range(options.seed, options.seed + options.runs):
            rows.append(tried(model, options.out, options, seed, rules))
            keep(TABLES[0], rows[-1:])
            print(_table(rows), flush=True)
    return int(any(one.slower for one in rows))


def _span(text: str) -> tuple[int, int]:
    first, _, last = text.partition(":")
    try:
        return int(first), int(last)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no span such as 0:200") from error
