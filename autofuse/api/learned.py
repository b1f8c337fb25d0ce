"""The learned profitability model: trained, judged, shown."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from autofuse.values.arguments import StrPath, check_seed

if TYPE_CHECKING:
    from autofuse.learning.judge import Judgement


@dataclass(frozen=True)
class TrainingReport:
    """A written model: what it was trained on and how wide its intervals are (`facts`), and how long it took."""

    facts: Mapping[str, object]
    model: str
    sha256: str
    read_s: float
    learn_s: float


@dataclass(frozen=True)
class ModelReport:
    """What a model was trained on (`facts`), and the share that each feature has in its parts "time" and "gain"."""

    facts: Mapping[str, object]
    importances: Mapping[str, Mapping[str, float]]


def model_train(output: StrPath, *, databases: Sequence[str] = (), seed: int = 0) -> TrainingReport:
    """Learn times and gains of fusing from what databases hold, into the file `output`; measures nothing.

    `databases`: none given, the one in the user's data folder.
    """
    check_seed(seed)
    from autofuse.database.connection import locate
    from autofuse.learning.about import facts
    from autofuse.learning.dataset import read_dataset
    from autofuse.learning.model import train
    from autofuse.learning.stored import TRAINED_MODEL, save
    from autofuse.values.outputs import check_output, database_files

    for place in databases or (None,):
        check_output(Path(output), TRAINED_MODEL, database_files(locate(place).path))
    started = time.monotonic()
    dataset = read_dataset(databases or [None])
    read_s = time.monotonic() - started
    made = train(dataset, seed)
    learn_s = time.monotonic() - started - read_s
    return TrainingReport(facts(made), str(output), save(made, Path(output)), read_s, learn_s)


def model_eval(model: StrPath | None = None, *, databases: Sequence[str] = (), seed: int = 0) -> Judgement:
    """Judge predictions on networks held out: regret, harm, ranking, calibration.

    `model`: a file (None: models are trained on some networks of the databases and judged on the others, in turn).
    """
    check_seed(seed)
    from autofuse.learning.dataset import read_dataset
    from autofuse.learning.judge import cross_judge, judge_model
    from autofuse.learning.stored import load_model

    loaded = None if model is None else load_model(Path(model))
    dataset = read_dataset(databases or [None])
    return cross_judge(dataset, seed) if loaded is None else judge_model(loaded, dataset)


def model_show(model: StrPath) -> ModelReport:
    """What a model was trained on, how wide its intervals are, and what it looks at."""
    from autofuse.learning.about import facts, importances
    from autofuse.learning.stored import load_model

    made = load_model(Path(model))
    return ModelReport(facts(made), {part: importances(made, part) for part in ("time", "gain")})
