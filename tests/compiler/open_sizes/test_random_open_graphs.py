"""Random graphs over an open size: right at every size that is tried, or refused. Some operators mix rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from autofuse.errors import InputError
from tests.compiler.open_sizes.models import Array, built, check, weight, write

SIZES = (1, 2, 3, 5, 16, 17, 20, 37)


class _Random:
    """A chain of operators over x [n, c] or [n, c, l], one at a time."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.shape: list[int | str] = [
            "n",
            int(self.random.integers(2, 40)),
            *([6] if self.random.random() < 0.4 else []),
        ]
        self.first = list(self.shape)
        self.lines: list[str] = []
        self.weights: dict[str, Array] = {}
        self.now, self.count, self.mixes = "x", 0, False

    def name(self) -> str:
        self.count += 1
        return f"v{self.count}"

    def constant(self, array: Array) -> str:
        name = f"k{len(self.weights)}"
        self.weights[name] = array
        return name

    def add(self, text: str) -> None:
        made = self.name()
        self.lines.append(f"{made} = {text.replace('@', self.now)}")
        self.now = made

    def step(self) -> None:
        kinds = ["unary", "row", "own", "product", "softmax", "norm", "turn", "flat", "cut", "join", "mean"]
        kind = str(self.random.choice([*kinds * 4, "over", "mixed", "reversed", "counted"]))
        getattr(self, f"_{kind}")()

    def _last(self) -> int:
        assert isinstance(self.shape[-1], int)
        return self.shape[-1]

    def _unary(self) -> None:
        self.add(f"{self.random.choice(['Relu', 'Sigmoid', 'Tanh', 'Abs'])} (@)")

    def _row(self) -> None:
        self.add(f"Add (@, {self.constant(weight(self._last()))})")

    def _own(self) -> None:
        before = self.now
        self._unary()
        self.add(f"Mul (@, {before})")

    def _product(self) -> None:
        width = int(self.random.integers(1, 40))
        self.add(f"MatMul (@, {self.constant(weight(self._last(), width))})")
        self.shape[-1] = width

    def _softmax(self) -> None:
        self.add("Softmax <axis = -1> (@)")

    def _norm(self) -> None:
        ones = self.constant(np.ones(self._last(), np.float32))
        self.add(f"LayerNormalization <axis = -1> (@, {ones})")

    def _turn(self) -> None:
        if len(self.shape) == 3:
            self.add("Transpose <perm = [0, 2, 1]> (@)")
            self.shape[1:] = self.shape[:0:-1]

    def _flat(self) -> None:
        if len(self.shape) == 3:
            self.add("Flatten <axis = 1> (@)")
            self.shape = ["n", int(np.prod([size for size in self.shape if isinstance(size, int)]))]
        elif self._last() % 2 == 0:
            target = self.constant(np.array([0, 2, self._last() // 2]))
            self.add(f"Reshape (@, {target})")
            self.shape = ["n", 2, self._last() // 2]

    def _cut(self) -> None:
        if self._last() > 3:
            ends = [self.constant(np.array([number])) for number in (1, self._last() - 1, -1)]
            self.add(f"Slice (@, {', '.join(ends)})")
            self.shape[-1] = self._last() - 2

    def _join(self) -> None:
        before = self.now
        self._unary()
        self.add(f"Concat <axis = -1> (@, {before})")
        self.shape[-1] = 2 * self._last()

    def _mean(self) -> None:
        self.add(f"ReduceMean <keepdims = 1> (@, {self.constant(np.array([-1]))})")
        self.shape[-1] = 1

    def _over(self) -> None:
        """Rows are mixed: whatever is made of this is not right a row at a time."""
        self.mixes = True
        self.add("Softmax <axis = 0> (@)")

    def _mixed(self) -> None:
        self.mixes = True
        before = self.now
        self.add(f"ReduceSum <keepdims = 1> (@, {self.constant(np.array([0]))})")
        self.add(f"Sub ({before}, @)")

    def _reversed(self) -> None:
        self.mixes = True
        ends = [self.constant(np.array([number])) for number in (-1, -(2**31), 0, -1)]
        self.add(f"Slice (@, {', '.join(ends)})")

    def _counted(self) -> None:
        """The number of rows is a factor."""
        self.mixes = True
        before = self.now
        self.add("Shape <start = 0, end = 1> (@)")
        self.add("Cast <to = 1> (@)")
        self.add(f"Div ({before}, @)")

    def text(self) -> str:
        given, made = (", ".join(map(str, shape)) for shape in (self.first, self.shape))
        return f"random (float[{given}] x) => (float[{made}] {self.now}) {{\n" + "\n".join(self.lines) + "\n}"


@pytest.mark.long
@pytest.mark.parametrize("seed", range(24))
def test_a_random_graph_is_right_at_every_size_or_refused(tmp_path: Path, seed: int) -> None:
    graph = _Random(seed)
    for _ in range(int(graph.random.integers(2, 7))):
        graph.step()
    if not graph.lines:
        graph.add("Relu (@)")
    model = write(tmp_path / "random.onnx", graph.text(), graph.weights)
    try:
        library = built(model, "n", 1, max(SIZES), plan=str(graph.random.choice(["best", "none"])))
    except InputError as error:
        assert graph.mixes, graph.text()
        assert "--sizes" in str(error)
        return
    check(model, library, "n", SIZES)
    assert not graph.mixes, f"nobody noticed that rows are mixed: {graph.text()}"
