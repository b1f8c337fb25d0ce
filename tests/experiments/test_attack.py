"""A small share of the attack: the cheap axes, some seeds; the product keeps its word, or refuses with a message."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.attack.run import Row, attempts, markdown, prepared
from experiments.attack.stage import Answer, Broken, judged, require_untouched
from experiments.fuzz.contain import Limits, outcomes

SHARE = {"outputs": 6, "arguments": 6, "libraries": 4, "hybrids": 8, "sessions": 8}


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepared(tmp_path_factory.mktemp("attack"), tuned=False)


@pytest.mark.parametrize("axis", SHARE)
def test_the_product_keeps_its_word_or_refuses_with_a_message(axis: str, stage: Path) -> None:
    found = list(outcomes(attempts(axis, stage, 1, SHARE[axis]), Limits(60.0, 3 << 30)))
    assert [outcome.text for outcome in found if outcome.finding] == []


@pytest.mark.parametrize(
    ("answer", "finding"),
    [
        (Answer(70, "", "autofuse: this is a defect of autofuse"), "traceback"),
        (Answer(99, "", "autofuse: no"), "exit code"),
        (Answer(2, "", ""), "silent"),
        (Answer(0, "\x1b[31mred", ""), "control characters"),
    ],
)
def test_the_judge_finds_what_no_user_should_see(answer: Answer, finding: str) -> None:
    with pytest.raises(Broken, match=finding):
        judged(answer, ["verb"])


def test_the_judge_finds_a_changed_file() -> None:
    require_untouched({"mine": "1"}, {"mine": "2"}, frozenset({"mine"}), "verb")
    with pytest.raises(Broken, match="destroyed: thesis by verb"):
        require_untouched({"thesis": "1"}, {}, frozenset({"mine"}), "verb")


def test_the_table_sums_the_axes() -> None:
    text = markdown([Row("outputs", 7, 200, 36, 162, 2), Row("serving", 7, 50, 20, 30, 0)])
    assert "| outputs | 7 | 200 | 36 | 162 | 2 |" in text
    assert "| all |  | 250 | 56 | 192 | 2 |" in text
