"""Judging: known answers for known predictions, and models judged on networks that they did not see."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from autofuse.errors import InputError
from autofuse.learning import judge as judge_module
from autofuse.learning.calibrated import Lesson
from autofuse.learning.dataset import Dataset, read_dataset
from autofuse.learning.judge import Predicted, cross_judge, judge, judge_model
from autofuse.learning.model import ProfitabilityModel


def frame(rows: list[tuple[int, float, float, str]]) -> pd.DataFrame:
    """Decisions from (site, fused, apart, colour)."""
    made = pd.DataFrame(rows, columns=["site", "fused_us", "apart_us", "colour"])
    made["log_gain"] = np.log2(made["apart_us"] / made["fused_us"])
    return made.assign(relation=made["colour"] + " cell", networks="a,b")


MIXED = frame([(0, 10, 12, "depend"), (0, 10, 9, "depend"), (1, 5, 8, "through"), (2, 30, 10, "break")] * 10)


def test_who_knows_the_truth_regrets_nothing() -> None:
    found = judge(MIXED, Predicted(MIXED["log_gain"].to_numpy(), np.full(len(MIXED), 0.1)))
    assert (found.regret1, found.regret1_p90, found.regret5, found.harm) == (0, 0, 0, 0)
    assert (found.right, found.answered, found.gain_coverage, found.auc["all"]) == (1, 1, 1, 1)
    assert found.networks == ("a", "b") and (found.decisions, found.sites) == (40, 3)


def test_who_is_always_wrong_pays_for_it() -> None:
    found = judge(MIXED, Predicted(-MIXED["log_gain"].to_numpy()))
    assert found.right == 0 and found.auc["all"] == 0 and found.gain_coverage is None
    # Site 0 has 20 forms apart: the one that looks best takes 12 instead of 9; sites 1 and 2 take the worse form.
    assert sorted([found.regret1, found.regret1_p90]) == pytest.approx([0.6, 0.6 + 0.8 * (2.0 - 0.6)])
    # Through: fusing is ruled and 60 % is lost; break: apart is ruled and twice is lost; depend: 12 against 10.
    assert found.harm == pytest.approx(3 / 4)


def test_the_best_of_five_counts() -> None:
    many = frame([(0, 100, us, "depend") for us in (90, 80, 70, 60, 50, 10)])
    backwards = judge(many, Predicted(-many["log_gain"].to_numpy()))
    assert (backwards.regret1, backwards.regret5) == (pytest.approx(9.0), pytest.approx(5.0))


def test_only_answered_decisions_can_do_harm() -> None:
    wrong = Predicted(-MIXED["log_gain"].to_numpy(), answered=np.array([True, False, False, False] * 10))
    found = judge(MIXED, wrong)
    assert found.answered == 0.25 and found.harm == 1.0
    silent = judge(MIXED, Predicted(wrong.gains, answered=np.zeros(40, bool)))
    assert silent.harm == 0.0
    unsure = judge(MIXED, Predicted(wrong.gains, np.full(40, 10.0)))
    assert unsure.answered == 0.0 and unsure.harm == 0.0


def test_a_cell_with_one_outcome_has_no_ranking() -> None:
    found = judge(MIXED, Predicted(np.zeros(40)))
    assert math.isnan(found.auc["break cell"]) and found.auc["depend cell"] == 0.5


@pytest.mark.long
def test_held_out_networks_are_judged_well(dataset: Dataset) -> None:
    found = cross_judge(dataset)
    assert found.right > 0.7 and found.auc["all"] > 0.7
    assert found.regret1 < 0.05 and found.regret5 <= found.regret1
    assert found.time_error is not None and found.time_error < 0.5
    assert found.gain_coverage is not None and 0.6 < found.gain_coverage <= 1


def test_a_model_is_judged_on_what_it_did_not_see(
    model: ProfitabilityModel, dataset: Dataset, recorder: Any, networks: Mapping[str, Path]
) -> None:
    with pytest.raises(InputError, match="trained on every network"):
        judge_model(model, dataset)
    recorder.record(networks["dense64"])
    recorder.record(networks["dense16"])
    found = judge_model(model, read_dataset([str(recorder.path)]))
    assert found.networks == ("dense64",) and found.regret1 < 0.05 and found.right > 0.7


def test_a_model_that_knows_fewer_features_is_judged_by_those_it_knows(
    model: ProfitabilityModel, recorder: Any, networks: Mapping[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A family of kernels came after it was trained."""
    recorder.record(networks["dense64"])
    dataset = read_dataset([str(recorder.path)])
    before = judge_model(model, dataset)

    def with_one_more(lesson_of: Callable[[Any], Lesson]) -> Callable[[Any], Lesson]:
        def wider(frame: Any) -> Lesson:
            one = lesson_of(frame)
            rows = np.hstack([np.ones((len(one.rows), 1)), one.rows])
            return replace(one, names=("came_later", *one.names), rows=rows)

        return wider

    for name in ("gain_lesson", "time_lesson"):
        monkeypatch.setattr(f"autofuse.learning.judge.{name}", with_one_more(getattr(judge_module, name)))
    after = judge_model(model, dataset)
    assert replace(after, auc={}) == replace(before, auc={})
