"""The model: what it learns of a known law, that its intervals hold, and when it says nothing."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autofuse.errors import DeviceError, InputError
from autofuse.learning.calibrated import COVERAGE, Lesson, folds_of, learn
from autofuse.learning.dataset import Dataset, read_dataset
from autofuse.learning.features import Machine
from autofuse.learning.model import ProfitabilityModel, gain_lesson, time_lesson, train
from autofuse.learning.trees import Growth, grow

SMALL = Growth(trees=60, leaves=12, smallest=5, rate=0.1, columns=1.0)


def synthetic(seed: int, networks: int, each: int) -> Lesson:
    """A smooth law with noise that is ten times larger where the first feature is above zero."""
    random = np.random.default_rng(seed)
    rows = random.uniform(-1, 1, (networks * each, 4))
    noise = np.where(rows[:, 0] > 0, 0.2, 0.02) * random.standard_normal(len(rows))
    wanted = 2 * rows[:, 0] + np.sin(3 * rows[:, 1]) + rows[:, 3] + noise
    names = [frozenset({f"net{number // each}"}) for number in range(len(rows))]
    return Lesson(("a", "b", "c", "base"), "base", rows, wanted, np.ones(len(rows)), names)


def test_the_arrays_say_what_the_learner_says(monkeypatch: pytest.MonkeyPatch) -> None:
    import lightgbm

    learners = []
    train_one = lightgbm.train
    monkeypatch.setattr(lightgbm, "train", lambda *given: learners.append(train_one(*given)) or learners[-1])
    lesson = synthetic(0, 5, 200)
    weights = np.linspace(0.3, 1.0, len(lesson.wanted))
    forest, shares = grow(lesson.rows.round(1), lesson.wanted, weights, SMALL, 3)
    new = np.random.default_rng(1).uniform(-2, 2, (5000, 4))
    new[::7] = new[::7].round(1)
    np.testing.assert_allclose(forest.predict(new), learners[0].predict(new), rtol=0, atol=1e-12)
    assert shares.sum() == pytest.approx(1) and shares.argmax() == 0
    assert len(forest.roots) == SMALL.trees
    assert forest.predict(np.empty((0, 4))).shape == (0,)


def test_trees_are_the_same_each_time() -> None:
    lesson = synthetic(0, 5, 200)
    first, second = (grow(lesson.rows, lesson.wanted, lesson.weights, SMALL, 3)[0] for _ in range(2))
    assert all(np.array_equal(one, second.arrays("f")[name]) for name, one in first.arrays("f").items())


def test_rows_that_are_all_alike_have_their_mean() -> None:
    wanted = np.arange(50.0)
    forest, shares = grow(np.zeros((50, 2)), wanted, np.ones(50), SMALL, 0)
    np.testing.assert_allclose(forest.predict(np.zeros((1, 2))), wanted.mean())
    assert shares.tolist() == [0, 0]


def test_a_learner_that_cannot_be_loaded_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    real = __import__

    def missing(*_: object) -> None:
        raise OSError("libgomp.so.1: cannot open shared object file")

    monkeypatch.delitem(sys.modules, "lightgbm", raising=False)
    monkeypatch.setattr(
        "builtins.__import__", lambda name, *rest: missing() if name == "lightgbm" else real(name, *rest)
    )
    lesson = synthetic(0, 2, 20)
    with pytest.raises(DeviceError, match=r"LightGBM.* cannot be loaded: libgomp"):
        grow(lesson.rows, lesson.wanted, lesson.weights, SMALL, 3)


def test_features_of_many_values_are_binned_without_loss_of_worth() -> None:
    lesson = synthetic(0, 20, 200)
    forest, _ = grow(lesson.rows, lesson.wanted, lesson.weights, SMALL, 3)
    new = synthetic(1, 20, 200)
    missed = forest.predict(new.rows) - new.wanted
    assert missed.std() < 0.3 * new.wanted.std()


def test_intervals_hold_what_they_promise_on_networks_never_seen() -> None:
    learned = learn(synthetic(0, 20, 60), SMALL)
    new = synthetic(1, 20, 60)
    values, halves = learned.predict(new.rows)
    inside = np.abs(values - new.wanted) <= halves
    assert abs(inside.mean() - COVERAGE) < 0.05
    noisy = new.rows[:, 0] > 0
    assert halves[noisy].mean() > 2 * halves[~noisy].mean(), "wide only where it must be"


def test_a_fold_shares_no_network_with_what_it_is_judged_by() -> None:
    networks = [frozenset(names.split()) for names in ("a", "a b", "b", "c", "d", "c d", "e", "a e")] * 5
    folds = folds_of(networks, 3)
    tested = sum(fold.test.astype(int) for fold in folds)
    assert (tested == 1).all()
    for fold in folds:
        seen = frozenset().union(*(own for own, here in zip(networks, fold.train, strict=True) if here))
        assert not seen & frozenset(fold.held_out)
    alone = folds_of([frozenset({"a"})] * 10, 5)
    assert len(alone) == 5 and all(fold.train.sum() == 8 for fold in alone)


def test_it_learns_which_fusion_loses(model: ProfitabilityModel, dataset: Dataset) -> None:
    lesson = gain_lesson(dataset.decisions)
    values, _ = model.gain.predict(lesson.rows)
    assert np.corrcoef(values, lesson.wanted)[0, 1] > 0.8
    far = np.abs(lesson.wanted) > 0.3
    assert (np.sign(values[far]) == np.sign(lesson.wanted[far])).mean() > 0.95
    times = time_lesson(dataset.rows)
    off = np.abs(model.time.predict(times.rows)[0] - times.wanted)
    assert np.median(off) < 0.1


def test_training_again_gives_the_same_model(model: ProfitabilityModel, dataset: Dataset) -> None:
    again = train(dataset)
    for name, array in model.gain.arrays("gain").items():
        np.testing.assert_array_equal(array, again.gain.arrays("gain")[name])
    assert again.about == model.about


def machine_of(dataset: Dataset, recorder: Any) -> Machine:
    from autofuse.database.database import open_database

    with open_database(recorder.path) as base:
        environment = recorder.environment(base, 1)
    return Machine.of(environment.target, environment.device.fingerprint.facts, 1)


def test_it_abstains_where_it_knows_nothing(model: ProfitabilityModel, dataset: Dataset, recorder: Any) -> None:
    from autofuse.kernels.workload.workload import Value, Workload, WorkloadOperator
    from autofuse.learning.features import facts_of

    here = machine_of(dataset, recorder)
    values = (Value("input", (32, 32), "float32"), Value("output", (32, 32), "float32"))
    facts = facts_of(Workload(values, (WorkloadOperator("Sigmoid", (0,), (1,)),), 18))
    (known,) = model.times([facts], here)
    assert known.abstains == "" and known.lo < known.value < known.hi
    other = replace(here, family="sve", lanes=here.lanes)
    assert "trained on" in model.refusal(other) and model.times([facts], other)[0].abstains == model.refusal(other)
    assert "threads is 2" in model.times([facts], replace(here, threads=2))[0].abstains
    huge = (Value("input", (4096, 65536), "float32"), Value("output", (4096, 65536), "float32"))
    large = facts_of(Workload(huge, (WorkloadOperator("Sigmoid", (0,), (1,)),), 18))
    assert "in training" in model.times([large], here)[0].abstains
    assert model.times([], here) == []


def test_too_little_is_refused_with_what_to_do(recorder: Any, networks: Mapping[str, Path]) -> None:
    recorder.record(networks["dense16"])
    few = read_dataset([str(recorder.path)])
    few = replace(few, rows=few.rows.head(10))
    with pytest.raises(InputError, match="too little to learn from: 10 timed workloads"):
        train(few)
