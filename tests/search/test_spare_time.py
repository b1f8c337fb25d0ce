"""Before the finals doubted winners are measured again in the time to spare: none where hardly one finalist fits."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from autofuse.search.budget.budget import Budget
from autofuse.search.finals import ending


@pytest.mark.parametrize(("names", "spare_s"), [(("default",), 30.0), ((), 0.0)])
def test_what_the_finalists_need_is_not_spent_on_doubted_winners(
    names: tuple[str, ...], spare_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    spared: list[float] = []
    lab = SimpleNamespace(tell=lambda _: None, assure=lambda _plans, _most, budget: spared.append(budget.left()))
    found = SimpleNamespace(names=names, seconds=10.0 if names else 2.0)
    estimates = SimpleNamespace(finale=lambda *_: found, race_s=12.0)
    standing = SimpleNamespace(phase="search", ends_at=None)
    finals: Any = SimpleNamespace(lab=lab, estimates=estimates, standing=standing)
    monkeypatch.setattr(ending, "wishes", lambda _: {"default": None})
    monkeypatch.setattr(ending, "right_as_a_whole", lambda *_: "verdict")
    assert ending._decided(finals, Budget.lasting(40.0)) == "verdict"  # type: ignore[comparison-overlap]
    assert spared == [pytest.approx(spare_s, abs=1.0)] and standing.phase == "confirming"
