"""What is asked of a search: its limits, where it may search, what it is told, and whom it tells."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from autofuse.search.budget.budget import never
from autofuse.search.progress import Progress
from autofuse.values.arguments import Given


def _silent(_: Progress) -> None:
    """Nobody listens."""


@dataclass(frozen=True)
class SearchRequest:
    """What `autofuse.api.tune` was asked for, as every search of a model takes it.

    `budget_s`, `trials`: limits, whichever comes first (None: none). `space`: file or name of a search space. `exact`:
    only what rounds as ONNX does. `pareto`: memory is a second objective. `trained`: the model that guides it, see
    `autofuse.search.plans.guide.guide_for`. `given`: shapes and constants of inputs. `progress` is called after each
    step. `stop`: whether somebody wants it to end; asked between steps, which KeyboardInterrupt ends then.
    """

    budget_s: float | None = None
    trials: int | None = None
    seed: int = 0
    space: str | None = None
    exact: bool = False
    pareto: bool = False
    trained: str | None = None
    given: Given = field(default_factory=dict)
    progress: Callable[[Progress], None] = _silent
    stop: Callable[[], bool] = never
