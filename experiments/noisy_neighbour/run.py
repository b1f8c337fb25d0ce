"""The same job on a quiet machine and beside a noisy neighbour: `python -m experiments noisy_neighbour`.

Both start from an empty database. Then each model's two winners are measured whole, interleaved, on the machine as it
is: the noisy job must have found one as fast, or have said that it does not trust it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import autofuse
from autofuse.backend.compile.host_cpu import local_device
from autofuse.graph.loading.load import load
from autofuse.measure.networks.bench import Contender, ContenderResult
from experiments.catalogue import WRITTEN
from experiments.index import ROOT
from experiments.model_files import HELP, asked_for
from experiments.options import new_parser
from experiments.races import race
from experiments.records import Table, keep
from experiments.tables import head, line

NETWORKS = ("weenet", "squeezenet1_1")
QUIET, NOISY = "quiet", "noisy"
TOLERANCE = 1.05
"""A winner counts as the same when it takes at most so many times the other's time: two quiet runs of the same search
differ by about as much, because they do not measure the same candidates."""
ENDED = (0, 5)


@dataclass(frozen=True)
class Row:
    """A model's two winners. `ratio`: the noisy job's over the quiet one's time, measured now, with its interval.

    `plan_trusted`, `untrusted`: what the noisy job said of its winner: whether it trusts the whole plan's time, and
    which of its kernels it does not. `verdict`: "same", "said" (it differs, and the job said so), or "WRONG".
    """

    model: str
    verdict: str
    ratio: float | None
    ci_lo: float | None
    ci_hi: float | None
    ratio_trusted: bool
    same_plan: bool
    plan_trusted: bool
    untrusted: tuple[str, ...]
    quiet_untrusted: tuple[str, ...]
    measured: int
    quiet_measured: int


@contextmanager
def neighbour(cores: int, seed: int, log: Path) -> Iterator[None]:
    """A load that is switched on and off, while the block lasts."""
    with log.open("w") as file:
        command = [sys.executable, "-m", "experiments.noisy_neighbour.load", str(cores), str(seed)]
        process = subprocess.Popen(command, stdout=file, cwd=ROOT, start_new_session=True)
        try:
            yield
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def tune(folder: Path, name: str, models: Sequence[Path], threads: int, budget_s: float) -> Mapping[str, Any]:
    """One job; its JSON outcome, kept in the folder: a second call with the same folder does not tune again."""
    outcome = folder / f"{name}.json"
    if not outcome.exists():
        command = [sys.executable, "-m", "autofuse", "tune", *map(str, models), "--db", str(folder / f"{name}.db")]
        flags = ["--run", name, "--budget", f"{budget_s:g}s", "--threads", str(threads), "--format", "json"]
        done = subprocess.run([*command, *flags], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
        if done.returncode not in ENDED:
            raise SystemExit(f"the {name} job ended with {done.returncode}")
        outcome.write_text(done.stdout, encoding="utf-8")
    body: Mapping[str, Any] = json.loads(outcome.read_text(encoding="utf-8"))
    return body


def compared(folder: Path, model: Path, threads: int, seconds: float) -> tuple[ContenderResult, bool]:
    """The noisy job's winner against the quiet one's, interleaved, and whether both are one plan with one schedule.

    Both are checked against ONNX Runtime.
    """
    contenders, choices = [], []
    for name in (QUIET, NOISY):
        library = folder / f"{model.stem}-{name}.so"
        made = autofuse.compile(model, library, database=str(folder / f"{name}.db"), threads=threads)
        choices.append((made.plan_key, [(group.group, group.schedule) for group in made.groups]))
        contenders.append(Contender(name, "autofuse", library))
    results = race(load(model, {}), contenders, threads, seconds, local_device().target(), seed=7)
    return results[NOISY], choices[0] == choices[1]


def row(model: Path, result: ContenderResult, quiet: Mapping[str, Any], noisy: Mapping[str, Any], same: bool) -> Row:
    """The verdict on one model; `quiet`, `noisy`: its task in each job's outcome."""
    right = not result.wrong and not result.error and result.ci_lo is not None
    equal = same or (right and result.ci_lo is not None and result.ci_lo <= TOLERANCE)
    said = not noisy["trusted"] or bool(noisy["untrusted"])
    verdict = "WRONG" if not right else "same" if equal else "said" if said else "WRONG"
    return Row(
        model.stem, verdict, result.ratio, result.ci_lo, result.ci_hi, result.trusted, same, bool(noisy["trusted"]),
        tuple(noisy["untrusted"]), tuple(quiet["untrusted"]), noisy["measured"], quiet["measured"],
    )  # fmt: skip


@dataclass(frozen=True)
class Verdict:
    """A model as it is published; see `Row`. `untrusted`: how many kernels' times; None where nobody counted."""

    model: str
    verdict: str
    ratio: float | None
    ci_lo: float | None
    ci_hi: float | None
    ratio_trusted: bool
    plan_trusted: bool
    untrusted: int | None
    quiet_untrusted: int | None
    measured: int
    quiet_measured: int


def verdict_of(row: Row) -> Verdict:
    """What is published of a row."""
    return Verdict(
        row.model, row.verdict, row.ratio, row.ci_lo, row.ci_hi, row.ratio_trusted, row.plan_trusted,
        len(row.untrusted), len(row.quiet_untrusted), row.measured, row.quiet_measured,
    )  # fmt: skip


def published(rows: Sequence[Verdict]) -> str:
    """The table of the page."""
    titles = ("model", "verdict", "noisy winner's time / quiet one's", "candidates: quiet, noisy")
    lines = head((*titles, "the noisy job trusts the plan's time", "kernels' times not trusted: quiet, noisy"))
    for row in rows:
        ratio = "" if row.ratio is None else f"{row.ratio:.2f} ({row.ci_lo:.2f}–{row.ci_hi:.2f})"
        doubt = "" if row.ratio_trusted else " ?"
        counts = ", ".join("not counted" if one is None else str(one) for one in (row.quiet_untrusted, row.untrusted))
        trusts = "yes" if row.plan_trusted else "no"
        measured = f"{row.quiet_measured}, {row.measured}"
        lines.append(line([row.model, row.verdict, f"{ratio}{doubt}", measured, trusts, counts]))
    return "\n".join(lines) + "\n"


TABLES = (Table("noisy_neighbour", Verdict, ("model",), published),)


def main(arguments: Sequence[str] | None = None) -> int:
    """Both jobs, then the comparison; exit code 1 when a winner differs and the job did not say so."""
    parser = new_parser(__doc__, out="out/noisy_neighbour", threads=1, budget="30m", bench="20s", seed=1)
    parser.add_argument("models", nargs="*", metavar="MODEL", help=f"{HELP} (default: {' '.join(NETWORKS)})")
    parser.add_argument("--cores", type=int, default=os.cpu_count() or 1, help="that the neighbour takes at most")
    options = parser.parse_args(arguments)
    folder: Path = options.out
    folder.mkdir(parents=True, exist_ok=True)
    models = asked_for(parser, options.models or NETWORKS, WRITTEN)
    quiet = tune(folder, QUIET, models, options.threads, options.budget)
    with neighbour(options.cores, options.seed, folder / "neighbour.log"):
        noisy = tune(folder, NOISY, models, options.threads, options.budget)
    rows = []
    for model, calm, loud in zip(models, quiet["tasks"], noisy["tasks"], strict=True):
        result, same = compared(folder, model, options.threads, options.bench)
        rows.append(row(model, result, calm, loud, same))
    keep(TABLES[0], [verdict_of(one) for one in rows])
    text = json.dumps([asdict(one) for one in rows], indent=1)
    (folder / "results.json").write_text(text + "\n", encoding="utf-8")
    print(text)
    return int(any(one.verdict == "WRONG" for one in rows))
