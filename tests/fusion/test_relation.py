"""The paper's Table 3."""

from __future__ import annotations

from collections import Counter
from itertools import product

import pytest

from autofuse.fusion.relation import COLUMNS, TABLE, Relation, combined, relation
from autofuse.graph.mapping import MappingType

ONE, MANY, REDUCING, REORG, SHUFFLE = COLUMNS


def test_the_table_has_thirteen_green_ten_yellow_and_two_red_cells() -> None:
    colours = Counter(relation(producer, consumer) for producer, consumer in product(COLUMNS, COLUMNS))
    assert colours == {Relation.THROUGH: 13, Relation.DEPEND: 10, Relation.BREAK: 2}
    assert len(TABLE) == 25


def test_the_red_cells_are_the_ones_into_many_to_many_from_what_expands_or_reduces() -> None:
    red = {cell for cell, (colour, _) in TABLE.items() if colour == Relation.BREAK}
    assert red == {(MANY, REDUCING), (REDUCING, REDUCING)}


@pytest.mark.parametrize("kind", COLUMNS)
def test_a_one_to_one_operator_fuses_with_everything_on_either_side(kind: MappingType) -> None:
    assert relation(ONE, kind) == relation(kind, ONE) == Relation.THROUGH
    assert combined(ONE, kind) == combined(kind, ONE) == kind


@pytest.mark.parametrize(
    ("producer", "consumer", "result"),
    [
        (MANY, REORG, MANY),
        (REORG, MANY, MANY),
        (SHUFFLE, MANY, MANY),
        (REDUCING, SHUFFLE, REDUCING),
        (REORG, REDUCING, REDUCING),
        (REORG, SHUFFLE, REORG),
        (SHUFFLE, REORG, REORG),
        (SHUFFLE, SHUFFLE, SHUFFLE),
    ],
)
def test_a_fused_pair_takes_the_type_printed_in_its_cell(
    producer: MappingType, consumer: MappingType, result: MappingType
) -> None:
    assert combined(producer, consumer) == result


@pytest.mark.parametrize("kind", MappingType)
def test_what_is_opaque_never_fuses(kind: MappingType) -> None:
    assert relation(MappingType.OPAQUE, kind) == relation(kind, MappingType.OPAQUE) == Relation.BREAK
    assert combined(MappingType.OPAQUE, kind) == combined(kind, MappingType.OPAQUE) == MappingType.OPAQUE
