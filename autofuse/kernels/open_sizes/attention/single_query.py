"""Single queries of an attention, which read keys and values where they lie: each is read once, so that a copy would
win nothing.
"""

from __future__ import annotations

from typing import Any

from autofuse.kernels.open_sizes.attention.tiles import QueryTile
from autofuse.kernels.tir.emit import Expr, const

KEYS = 4
"""Keys whose products with a query are summed side by side, so that none waits for another."""
VALUES = 2
"""Values that are added up side by side."""
VECTORS = 4
"""Vectors of a value that are held in registers."""


class SingleQuery(QueryTile):
    """One query of one head, which reads keys and values where they lie."""

    def multiply_keys(self) -> None:
        """Its scores: a few keys at a time."""
        tokens, emitter, depth = self.tokens, self.emitter, self.tokens.depth
        held = emitter.scratch(depth)
        for column, lanes in tokens.columns(depth):
            with emitter.vector(lanes) as lane, self.scope.point():
                value = tokens.read(tokens.scores.inputs[0], self.head, self.first, column + lane)
                emitter.put(held, column + lane, value)
        whole = tokens.key_count // KEYS
        with emitter.serial(whole) as step:
            self.score_keys(held, step * KEYS, KEYS)
        left = tokens.key_count - whole * KEYS
        if isinstance(left, int) and not left:
            return
        with emitter.serial(left) as rest:
            self.score_keys(held, whole * KEYS + rest, 1)

    def score_keys(self, held: Any, first: Expr, keys: int) -> None:
        """Scores of so many keys: products in lanes, summed across them."""
        tokens, emitter, lanes = self.tokens, self.emitter, self.lanes
        sums = emitter.registers(keys, lanes)
        self.clear(sums)
        for column, wide in tokens.columns(tokens.depth):
            for number, one in enumerate(sums):
                with emitter.vector(wide) as lane, self.scope.point():
                    key = tokens.read(tokens.scores.inputs[1], self.head, column + lane, first + number)
                    emitter.put(one, lane, one[lane] + key * held[column + lane])
        while lanes > 1:
            lanes //= 2
            for one in sums:
                with emitter.vector(lanes) as lane:
                    emitter.put(one, lane, one[lane] + one[lanes + lane])
        for number, one in enumerate(sums):
            emitter.put(self.scores, first + number, one[0])

    def clear(self, vectors: list[Any]) -> None:
        for one in vectors:
            with self.emitter.vector(self.lanes) as lane:
                self.emitter.put(one, lane, const(0.0, "float32"))

    def multiply_values(self) -> Any:
        """The sum of values, each times the exponential of its score."""
        tokens, emitter, padded = self.tokens, self.emitter, self.tokens.padded
        made = emitter.scratch(padded)
        whole = tokens.key_count // VALUES
        for column in range(0, padded, VECTORS * self.lanes):
            end = column + VECTORS * self.lanes
            pieces = [piece for piece in tokens.columns(tokens.width) if column <= piece[0] < end]
            sums = [emitter.registers(len(pieces), self.lanes) for _ in range(VALUES)]
            for one in sums:
                self.clear(one)
            with emitter.serial(whole) as step:
                for number, one in enumerate(sums):
                    self.add_value(one, pieces, step * VALUES + number)
            left = tokens.key_count - whole * VALUES
            if not isinstance(left, int) or left:
                with emitter.serial(left) as rest:
                    self.add_value(sums[0], pieces, whole * VALUES + rest)
            for vector, (start, _) in enumerate(pieces):
                with emitter.vector(self.lanes) as lane:
                    total = sum((one[vector][lane] for one in sums[1:]), sums[0][vector][lane])
                    emitter.put(made, start + lane, total)
        return made

    def add_value(self, sums: list[Any], pieces: list[tuple[int, int]], token: Expr) -> None:
        """Adds one value, times its share."""
        tokens, emitter = self.tokens, self.emitter
        share = emitter.bind(self.score(0, token))
        for one, (start, wide) in zip(sums, pieces, strict=True):
            with emitter.vector(wide) as lane, self.scope.point():
                value = tokens.read(tokens.product.inputs[1], self.head, token, start + lane)
                emitter.put(one, lane, one[lane] + value * share)
