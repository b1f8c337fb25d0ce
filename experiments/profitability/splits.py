"""What is learned from and what is asked about: networks, families, devices or thread counts are held out whole."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

import pandas as pd

from autofuse.learning.dataset import Dataset
from experiments.profitability.cases import Case
from experiments.profitability.networks import FAMILIES

EDGE = "edge"
"""The kind of cut that is a decision on one edge; other cuts of `Dataset.decisions` are learned from only."""
KINDS = ("network", "family", "device", "threads")


@dataclass(frozen=True, eq=False)
class Split:
    """`train` knows nothing of `held`; `test` are decisions on edges, `cases` plans to choose from, all of `held`."""

    kind: str
    held: str
    train: Dataset
    test: pd.DataFrame
    cases: tuple[Case, ...]


def splits(data: Dataset, cases: Sequence[Case], kind: str, folds: int) -> Iterator[Split]:
    """The splits of one of `KINDS`; networks are held out in so many `folds` (0: each by itself).

    None where there is only one value: nothing would be left to learn from.
    """
    names = dict.fromkeys([*(case.network for case in cases), *(_first(text) for text in data.decisions["networks"])])
    if kind == "network":
        known = sorted(name for name in names if name)
        count = folds or len(known)
        groups = [frozenset(known[start::count]) for start in range(min(count, len(known)))]
        yield from (_without_networks(data, cases, kind, held) for held in groups if len(groups) > 1)
    elif kind == "family":
        families = sorted({FAMILIES[name] for name in names if name in FAMILIES})
        for family in families if len(families) > 1 else ():
            held = frozenset(name for name in names if FAMILIES.get(name) == family)
            yield _without_networks(data, cases, kind, held, family)
    else:
        values = sorted(set(data.decisions[kind]))
        of_case: Callable[[Case], object] = _device if kind == "device" else _threads
        for value in values if len(values) > 1 else ():
            test = data.decisions[kind] == value
            train = Dataset(data.rows[data.rows[kind] != value], data.decisions[~test])
            kept = tuple(case for case in cases if of_case(case) == value)
            yield Split(kind, str(value), train, data.decisions[test & (data.decisions["cut"] == EDGE)], kept)


def _device(case: Case) -> object:
    return case.where.device


def _threads(case: Case) -> object:
    return case.where.setting.threads


def _without_networks(data: Dataset, cases: Sequence[Case], kind: str, held: frozenset[str], name: str = "") -> Split:
    """Nothing of `held` is learned from, nor a group of theirs that another network was measured with."""
    asked = tuple(case for case in cases if case.network in held)
    keys = {workload.key for case in asked for workload in case.workloads}
    train = Dataset(_foreign(data.rows, held, keys), _foreign(data.decisions, held, keys))
    first = data.decisions["networks"].map(_first)
    test = data.decisions[first.isin(held) & (data.decisions["cut"] == EDGE)]
    return Split(kind, name or ", ".join(sorted(held)), train, test, asked)


def _foreign(frame: pd.DataFrame, held: frozenset[str], keys: Collection[str]) -> pd.DataFrame:
    own = frame["networks"].map(lambda text: not held.isdisjoint(str(text).split(",")))
    return frame[~own & ~frame["workload"].isin(list(keys))]


def _first(networks: str) -> str:
    return str(networks).split(",")[0]
