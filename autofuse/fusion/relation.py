"""The pairs of mapping types that fuse, and what the fused group is: DNNFusion (PLDI'21), Table 3."""

from __future__ import annotations

from enum import StrEnum

from autofuse.graph.mapping import MappingType


class Relation(StrEnum):
    """The paper's verdict on fusing a producer with its consumer.

    `THROUGH` (green): always fuse. `DEPEND` (yellow): legal, measure it. `BREAK` (red): never fuse.
    The table is a prior: a search may overrule any cell, legality alone may not be overruled.
    """

    THROUGH = "through"
    DEPEND = "depend"
    BREAK = "break"


COLUMNS = (
    MappingType.ONE_TO_ONE,
    MappingType.ONE_TO_MANY,
    MappingType.MANY_TO_MANY,
    MappingType.REORGANIZE,
    MappingType.SHUFFLE,
)
"""Rows and columns of `TABLE`, in the paper's order."""

# One row a producer, one cell a consumer: relation (Through, Depend, Break), then the type of the fused group.
# One-to-many x one-to-many is yellow by inference: the paper prints the colour, its text does not say.
_TEXT = """
ONE_TO_ONE    T:ONE_TO_ONE    T:ONE_TO_MANY   T:MANY_TO_MANY  T:REORGANIZE    T:SHUFFLE
ONE_TO_MANY   T:ONE_TO_MANY   D:ONE_TO_MANY   B:MANY_TO_MANY  D:ONE_TO_MANY   D:ONE_TO_MANY
MANY_TO_MANY  T:MANY_TO_MANY  D:MANY_TO_MANY  B:MANY_TO_MANY  D:MANY_TO_MANY  D:MANY_TO_MANY
REORGANIZE    T:REORGANIZE    D:ONE_TO_MANY   D:MANY_TO_MANY  T:REORGANIZE    T:REORGANIZE
SHUFFLE       T:SHUFFLE       D:ONE_TO_MANY   D:MANY_TO_MANY  T:REORGANIZE    T:SHUFFLE
"""


def _parse(text: str) -> dict[tuple[MappingType, MappingType], tuple[Relation, MappingType]]:
    letters = {relation.name[0]: relation for relation in Relation}
    table = {}
    for line in text.strip().splitlines():
        producer, *cells = line.split()
        for consumer, cell in zip(COLUMNS, cells, strict=True):
            letter, result = cell.split(":")
            table[MappingType[producer], consumer] = (letters[letter], MappingType[result])
    return table


TABLE = _parse(_TEXT)
"""(producer, consumer) -> (relation, mapping type of the group). The two red cells hold the type of a forced fusion."""


def relation(producer: MappingType, consumer: MappingType) -> Relation:
    """The colour of a cell; whatever is opaque never fuses."""
    cell = TABLE.get((producer, consumer))
    return Relation.BREAK if cell is None else cell[0]


def combined(producer: MappingType, consumer: MappingType) -> MappingType:
    """Mapping type of the group that the pair makes (for a red cell: of the group that a search forced)."""
    cell = TABLE.get((producer, consumer))
    return MappingType.OPAQUE if cell is None else cell[1]
