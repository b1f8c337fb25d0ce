"""Does a trained model choose the first schedule of a workload better than the rules?

    python -m experiments replay.first_schedules [--db FILE]

Trees by LightGBM learn from the other networks' oracles how much slower each schedule is than the best one of its
workload, or than the rules' first guess, from what the workload is and the schedule's choices. Judged on the network
that was left out: how much slower the chosen schedule is than the best (regret@1: mean, P90), and how often it is more
than 2 % slower (harm) or faster (help) than what the rules choose.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from autofuse.database.database import open_database
from autofuse.learning.features import Machine, facts_of, on_machine
from autofuse.learning.trees import Growth, grow
from autofuse.search.schedules.schedule_search import schedule_text
from experiments.options import new_parser
from experiments.replay.recorded import Oracle, add_oracles, chosen_oracles
from experiments.replay.run import SEED, everything
from experiments.tables import head, line

GROWTH = Growth(trees=100, leaves=8, smallest=20, rate=0.05, columns=0.4)
MOST = 1.5
"""Powers of two beyond which a slower schedule teaches no more."""
NOTICED = 0.02
MARGINS = (0.0, 0.1, 0.2)
"""Powers of two by which the model must promise more than the rules' guess before it is believed."""


@dataclass(frozen=True)
class Case:
    """A workload: its features, the time of each schedule by its text, and the rules' first guess among them."""

    network: str
    features: tuple[float, ...]
    times: Mapping[str, float]
    guess: str

    def regret(self, schedule: str) -> float:
        """How much slower a schedule is than the best."""
        return self.times[schedule] / min(self.times.values()) - 1.0


def cases(oracle: Oracle) -> Iterator[Case]:
    """The workloads of an oracle that have several schedules, the rules' guess among them."""
    where = oracle.where
    machine = Machine.of(where.target, where.facts, where.setting.threads)
    with TemporaryDirectory() as folder, open_database(Path(folder) / "known.db") as own:
        for search in everything(oracle, own).searches.values():
            times = {text: us for text, us in search.tried.items() if us is not None}
            guess = next((text for one in search.guesses() if (text := schedule_text(one)) in times), None)
            if guess is not None and len(times) > 1:
                facts = on_machine(facts_of(search.bound.workload), machine)
                yield Case(oracle.network, tuple(facts[name] for name in sorted(facts)), times, guess)


class Encoder:
    """Schedules as numbers, one for each knob that any schedule has; texts by the order in which they were met."""

    def __init__(self, every: Sequence[Case]) -> None:
        schedules = [json.loads(text) for case in every for text in case.times]
        self.knobs = sorted({name for schedule in schedules for name in schedule})
        texts = (value for schedule in schedules for value in schedule.values() if isinstance(value, str))
        self.texts = {text: number for number, text in enumerate(dict.fromkeys(texts))}

    def numbers(self, case: Case, schedule: str) -> list[float]:
        """What a schedule of a workload is to the model, and in what it differs from the rules' guess."""
        own, guess = self._values(schedule), self._values(case.guess)
        return [*case.features, *own, *(float(one != other) for one, other in zip(own, guess, strict=True))]

    def _values(self, schedule: str) -> list[float]:
        body = json.loads(schedule)
        return [self._value(body.get(name)) for name in self.knobs]

    def _value(self, value: object) -> float:
        if isinstance(value, int | float):
            return float(value)
        return -1.0 if value is None else float(self.texts[str(value)])


def _over_best(case: Case, schedule: str) -> float:
    return case.times[schedule] / min(case.times.values())


def _over_guess(case: Case, schedule: str) -> float:
    return case.times[schedule] / case.times[case.guess]


WANTED: Mapping[str, Callable[[Case, str], float]] = {
    "time over the best of the workload": _over_best,
    "time over the rules' guess": _over_guess,
}


def predicted(
    wanted: Callable[[Case, str], float], encoder: Encoder, taught: Sequence[Case], asked: Sequence[Case]
) -> Iterator[tuple[Case, Mapping[str, float]]]:
    """What trees that were taught on some workloads say of each schedule of others."""
    rows = np.array([encoder.numbers(case, text) for case in taught for text in case.times])
    targets = np.array([np.log2(wanted(case, text)) for case in taught for text in case.times])
    weights = np.array([1.0 / len(case.times) for case in taught for _ in case.times])
    forest, _ = grow(rows, np.clip(targets, -MOST, MOST), weights, GROWTH, SEED)
    for case in asked:
        values = forest.predict(np.array([encoder.numbers(case, text) for text in case.times]))
        yield case, dict(zip(case.times, map(float, values), strict=True))


def choice(case: Case, said: Mapping[str, float], margin: float) -> str:
    """The schedule that is said to be fastest, where it is faster by the margin than the rules' guess."""
    best = min(said, key=said.__getitem__)
    return best if said[best] < said[case.guess] - margin else case.guess


def _row(name: str, found: Sequence[tuple[Case, str]]) -> str:
    regrets = np.array([case.regret(chosen) for case, chosen in found])
    rules = np.array([case.regret(case.guess) for case, _ in found])
    harm, help_ = np.mean(regrets > rules + NOTICED), np.mean(regrets < rules - NOTICED)
    numbers = (regrets.mean(), np.quantile(regrets, 0.9), harm, help_)
    return line([name, str(len(found)), *(f"{number:.1%}" for number in numbers)])


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; 0 when there were two oracles."""
    parser = new_parser(__doc__)
    add_oracles(parser)
    options = parser.parse_args(arguments)
    every = [case for oracle in chosen_oracles(options) for case in cases(oracle)]
    networks = list(dict.fromkeys(case.network for case in every))
    if len(networks) < 2:
        return 1
    encoder = Encoder(every)
    lines = head(("first schedule by", "workloads", "regret@1, mean", "P90", "harm", "help"))
    lines.append(_row("the rules", [(case, case.guess) for case in every]))
    for name, wanted in WANTED.items():
        said: list[tuple[Case, Mapping[str, float]]] = []
        for network in networks:
            taught = [case for case in every if case.network != network]
            said += predicted(wanted, encoder, taught, [case for case in every if case.network == network])
        for margin in MARGINS:
            choose = partial(choice, margin=margin)
            lines.append(_row(f"{name}, {margin:g} ahead", [(case, choose(case, one)) for case, one in said]))
    print("\n".join(lines))
    return 0
