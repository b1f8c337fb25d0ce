"""Recorded candidates, to be replayed."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

FILE = Path(__file__).with_name("recorded.json")


@dataclass(frozen=True)
class Replayed:
    """One candidate: seconds that it took in all and to build, blocks of its timing, microseconds (None: it failed)."""

    took_s: float
    build_s: float
    blocks: int
    us: float | None


def recorded(path: Path = FILE) -> dict[str, list[Replayed]]:
    """Candidates of each recorded model, in the order in which they were measured."""
    body = json.loads(path.read_text(encoding="utf-8"))
    return {
        name: [Replayed(gap, build, int(blocks), us or None) for gap, build, blocks, us in rows]
        for name, rows in body.items()
    }


def endless(seed: int) -> Iterator[Replayed]:
    """Recorded candidates of all models, drawn again and again."""
    chance, pool = random.Random(seed), [one for rows in recorded().values() for one in rows]
    while True:
        yield chance.choice(pool)
