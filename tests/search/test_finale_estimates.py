"""How long a finalist's library takes to build: a kernel that the search has compiled is only linked."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from autofuse.search.budget.time_budget import LINK_S, LINKED_KERNEL_S
from autofuse.search.finals.finale import OBJECTS, Estimates, Opening


def estimates(folder: Path, codes: Mapping[str, str], best: Mapping[str, str | None]) -> Estimates:
    """Of a search with two workloads, whose candidates took 0.5 and 1.5 s to build."""
    searches = {
        name: SimpleNamespace(bound=SimpleNamespace(workload=name), best=best[name], build_s=build_s)
        for name, build_s in (("a", 0.5), ("b", 1.5))
    }
    seen = SimpleNamespace(seen=lambda workload, schedule: codes.get(f"{workload}-{schedule}", ""))
    environment = SimpleNamespace(target=None, codes=seen)
    evidence: Any = SimpleNamespace(searches=searches, of=lambda _: list(searches.values()), environment=environment)
    return Estimates.of(evidence, Opening(1.0, 1.0), 2, 60.0, folder)


@pytest.mark.parametrize(
    ("best", "kernels_s"),
    [
        ({"a": "x", "b": "y"}, 0.5 + LINKED_KERNEL_S),
        ({"a": "x", "b": "z"}, 0.5 + 1.5),
        ({"a": None, "b": None}, 0.5 + 1.5),
    ],
    ids=["b is compiled", "b's best is another schedule", "nothing has a time"],
)
def test_only_a_kernel_whose_object_is_there_costs_no_compilation(
    tmp_path: Path, best: Mapping[str, str | None], kernels_s: float
) -> None:
    (tmp_path / OBJECTS).mkdir()
    (tmp_path / OBJECTS / "code-by.o").touch()
    found = estimates(tmp_path, {"a-x": "code-ax", "b-y": "code-by", "b-z": "code-bz"}, best)
    assert found.build_s(SimpleNamespace()) == pytest.approx(LINK_S + kernels_s)  # type: ignore[arg-type]
