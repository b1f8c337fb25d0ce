"""`plan pareto` of a model in parts: a front for each segment."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from autofuse.environment.place import Place
from autofuse.search.composition.pareto import Point, plan_front
from autofuse.segments.choice import Choice
from autofuse.segments.report import PartReport, RestReport, part_reports, rest_reports


@dataclass(frozen=True)
class PartsFront:
    """The front of each segment of a model in parts; `rest`: why operators are not ours."""

    parts: tuple[PartReport, ...]
    rest: tuple[RestReport, ...]
    segments: tuple[tuple[Point, ...], ...]


def front_of_parts(choice: Choice, place: Place, folder: Path | None) -> PartsFront:
    """The front of each segment; `folder`: where plan files go, with a folder for each part.

    InputError when the database knows no plan of a segment.
    """
    found = [
        plan_front(piece.graph, place, None if folder is None else folder / f"part{number}")
        for number, piece in enumerate(choice.pieces)
        if piece.graph is not None
    ]
    return PartsFront(part_reports(choice), rest_reports(choice), tuple(found))
