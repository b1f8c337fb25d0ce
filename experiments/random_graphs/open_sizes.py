"""One random model with an open size: compiled once, and compared with ONNX Runtime at five sizes, at two threads.

The size is a batch (of rows, sequences or maps) or a number of tokens; or there are two, a batch of sequences of any
number of tokens. Some operators mix what lies along it: such a model must be refused, or be right all the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper, parser

from autofuse import api
from autofuse.errors import InputError
from autofuse.measure.checking.tolerance import compare
from experiments.random_graphs.check import LIMIT, Outcome, outcome_of

LARGEST = 48
MOST_SEQUENCES = 6
CANCELLED = 2e-6
"""Error that rounding may leave where numbers of the order of one cancel out, whatever the range of what is left."""
THREADS = 2
MOST_STEPS = 8
REFUSED = "refused"
ROWS, SEQUENCES, MAPS, TOKENS, BATCHES = "rows", "sequences", "maps", "tokens", "batches of tokens"
ALWAYS = ("unary", "own", "overall")
TABLES = ("row", "product", "softmax", "norm", "join", "mean")
KINDS = {
    ROWS: (*ALWAYS, *TABLES, "split", "cut"),
    SEQUENCES: (*ALWAYS, *TABLES, "turn", "flat", "attention"),
    MAPS: (*ALWAYS, "channel", "conv", "depthwise", "pool", "average", "whole", "join_maps", "flat"),
    TOKENS: (*ALWAYS, *TABLES, "cut", "attention", "attention"),
    BATCHES: (*ALWAYS, *TABLES, "cut", "shared", "own_factor", "attention", "attention"),
}
"""Operators that leave what lies along the open size apart, attend over it or reduce it, by what the model is over."""
MIXING = ("over", "reversed", "counted")
Array = NDArray[Any]
Ranges = Mapping[str, tuple[int, int]]


class OpenModel:
    """A chain of operators over `x`, one of whose sizes is `n`, with forks that join again."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng([seed, 7])
        self.over = str(self.random.choice(list(KINDS)))
        width = int(self.random.integers(2, 40))
        shapes: dict[str, list[int | str]] = {
            ROWS: ["n", width],
            SEQUENCES: ["n", 6, width],
            MAPS: ["n", width, 9, 8],
            TOKENS: [1, "n", width],
            BATCHES: ["m", "n", width],
        }
        self.shape = shapes[self.over]
        self.first = list(self.shape)
        self.lines: list[str] = []
        self.weights: dict[str, Array] = {}
        self.now, self.count, self.mixes = "x", 0, False
        for _ in range(int(self.random.integers(2, MOST_STEPS))):
            self._step()
        if not self.lines:
            self.add("Relu (@)")

    def model(self) -> onnx.ModelProto:
        """The model as ONNX."""
        given, made = (", ".join(map(str, shape)) for shape in (self.first, self.shape))
        body = "\n".join(self.lines)
        text = f"random (float[{given}] x) => (float[{made}] {self.now}) {{\n{body}\n}}"
        model = parser.parse_model(f'<ir_version: 9, opset_import: ["" : 18]>\n{text}')
        model.graph.initializer.extend(numpy_helper.from_array(np.asarray(a), name) for name, a in self.weights.items())
        return model

    @property
    def sizes(self) -> dict[str, tuple[int, int]]:
        """The ranges of its open sizes."""
        several = {"m": (1, MOST_SEQUENCES)} if self.over == BATCHES else {}
        return {**several, "n": (1, LARGEST)}

    def input_at(self, size: int, seed: int, sequences: int = 1) -> Array:
        """An input of a size, and of so many sequences."""
        known = {"n": size, "m": sequences}
        shape = [known[one] if isinstance(one, str) else one for one in self.first]
        return np.random.default_rng([seed, size]).standard_normal(shape).astype(np.float32)

    def constant(self, array: Any) -> str:
        """A weight, or a parameter."""
        name = f"k{len(self.weights)}"
        self.weights[name] = np.asarray(array)
        return name

    def weight(self, *shape: int) -> str:
        """Random weights, so scaled that a product keeps the scale of what it reads."""
        scale = np.sqrt(shape[0] if len(shape) < 3 else np.prod(shape[1:]))
        return self.constant((self.random.standard_normal(shape) / scale).astype(np.float32))

    def add(self, text: str) -> str:
        """An operator on what there is now (`@`); the name of its result."""
        self.count += 1
        made = f"v{self.count}"
        self.lines.append(f"{made} = {text.replace('@', self.now)}")
        self.now = made
        return made

    def _step(self) -> None:
        kinds = KINDS[self.over] if len(self.shape) == len(self.first) else KINDS[ROWS]
        known = [kind for kind in kinds if kind != "split" or len(self.shape) == 2]
        kind = (
            str(self.random.choice([*known * 12, *MIXING]))
            if self.over not in (TOKENS, BATCHES)
            else str(self.random.choice(known))
        )
        getattr(self, f"_{kind}")()

    def _last(self) -> int:
        assert isinstance(self.shape[-1], int)
        return self.shape[-1]

    def _channels(self) -> int:
        assert isinstance(self.shape[1], int)
        return self.shape[1]

    def _unary(self) -> None:
        self.add(f"{self.random.choice(['Relu', 'Sigmoid', 'Tanh', 'Abs', 'HardSwish', 'Erf'])} (@)")

    def _row(self) -> None:
        self.add(f"{self.random.choice(['Add', 'Mul', 'Max'])} (@, {self.weight(self._last())})")

    def _own(self) -> None:
        before = self.now
        self._unary()
        self.add(f"{self.random.choice(['Mul', 'Add'])} (@, {before})")

    def _product(self) -> None:
        width = int(self.random.integers(1, 70))
        self.add(f"MatMul (@, {self.weight(self._last(), width)})")
        self.shape[-1] = width

    def _softmax(self) -> None:
        self.add("Softmax <axis = -1> (@)")

    def _norm(self) -> None:
        self.add(f"LayerNormalization <axis = -1> (@, {self.constant(np.ones(self._last(), np.float32))})")

    def _turn(self) -> None:
        if len(self.shape) == 3:
            self.add("Transpose <perm = [0, 2, 1]> (@)")
            self.shape[1:] = self.shape[:0:-1]

    def _flat(self) -> None:
        self.add("Flatten <axis = 1> (@)")
        self.shape = ["n", int(np.prod([size for size in self.shape if isinstance(size, int)]))]

    def _split(self) -> None:
        if self._last() % 2 == 0:
            half = self._last() // 2
            self.add(f"Reshape (@, {self.constant(np.array([0, 2, half]))})")
            self.add(f"ReduceMax <keepdims = 0> (@, {self.constant(np.array([1]))})")
            self.shape[-1] = half

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
        before = self.now
        self.add(f"ReduceMean <keepdims = 1> (@, {self.constant(np.array([-1]))})")
        self.add(f"Sub ({before}, @)")

    def _attention(self) -> None:
        """One head over all tokens of a sequence."""
        if len(self.shape) != 3:
            return
        width, before = self._last(), self.now
        query, key, value = (self.add(f"MatMul ({before}, {self.weight(width, width)})") for _ in range(3))
        turned = self.add(f"Transpose <perm = [0, 2, 1]> ({key})")
        self.add(f"MatMul ({query}, {turned})")
        self.add(f"Div (@, {self.constant(np.float32(np.sqrt(width)))})")
        self.add("Softmax <axis = -1> (@)")
        self.add(f"MatMul (@, {value})")

    def _channel(self) -> None:
        self.add(f"{self.random.choice(['Add', 'Mul'])} (@, {self.weight(self._channels(), 1, 1)})")

    def _conv(self) -> None:
        made, kernel = int(self.random.integers(1, 40)), int(self.random.choice([1, 3]))
        weights = self.weight(made, self._channels(), kernel, kernel)
        pads = [kernel // 2] * 4
        self.add(f"Conv <pads = {pads}> (@, {weights}, {self.weight(made)})")
        self.shape[1] = made

    def _depthwise(self) -> None:
        channels = self._channels()
        self.add(f"Conv <pads = [1, 1, 1, 1], group = {channels}> (@, {self.weight(channels, 1, 3, 3)})")

    def _pool(self) -> None:
        self.add("MaxPool <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (@)")

    def _average(self) -> None:
        self.add("AveragePool <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (@)")

    def _whole(self) -> None:
        """Squeeze and excite: what is known of a whole map scales it."""
        before, channels = self.now, self._channels()
        self.add("GlobalAveragePool (@)")
        self.add(f"Conv (@, {self.weight(channels, channels, 1, 1)})")
        self.add("Sigmoid (@)")
        self.add(f"Mul ({before}, @)")

    def _join_maps(self) -> None:
        before = self.now
        self._unary()
        self.add(f"Concat <axis = 1> (@, {before})")
        self.shape[1] = 2 * self._channels()

    def _over(self) -> None:
        self.mixes = True
        self.add("Softmax <axis = 0> (@)")

    def _overall(self) -> None:
        """What is known of all rows together meets each of them."""
        before, axis = self.now, 1 if self.over in (TOKENS, BATCHES) else 0
        kind = self.random.choice(["ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceL2"])
        self.add(f"{kind} <keepdims = 1> (@, {self.constant(np.array([axis]))})")
        self.add(f"Sub ({before}, @)")

    def _shared(self) -> None:
        """What each place has in all sequences: positions."""
        table = self.weight(1, LARGEST, self._last())
        ends = [self.constant(np.array([number])) for number in (0, 1)]
        self.lines.append(f"t{self.count} = Shape <start = 1, end = 2> (@)".replace("@", self.now))
        self.lines.append(f"p{self.count} = Slice ({table}, {ends[0]}, t{self.count}, {ends[1]})")
        self.add(f"Add (@, p{self.count})")

    def _own_factor(self) -> None:
        """What each sequence has for all of its places: the first one scales the others."""
        before = self.now
        self.add(f"Gather <axis = 1> (@, {self.constant(np.array([0]))})")
        self.add(f"MatMul (@, {self.weight(self._last(), self._last())})")
        self.add("Tanh (@)")
        self.add(f"Mul ({before}, @)")

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


def check_open(seed: int, folder: Path) -> Outcome:
    """Generate, compile, and compare at five sizes; never raises but for an interrupt."""
    made = OpenModel(seed)
    return outcome_of(seed, made.model(), folder / f"open_{seed}.onnx", partial(_checked, made))


def _checked(made: OpenModel, seed: int, path: Path) -> Outcome:
    """Rows of a model that mixes them must be refused; every other model has to be compiled."""

    def inputs() -> Iterator[tuple[str, Array]]:
        for size in {1, LARGEST, *map(int, made.random.integers(2, LARGEST, 3))}:
            sequences = int(made.random.integers(1, MOST_SEQUENCES + 1))
            yield f"{made.over}, n = {size}, m = {sequences}", made.input_at(size, seed, sequences)

    facts, plan = Outcome(seed, "ok", len(made.lines)), str(made.random.choice(["best", "none"]))
    return compared(facts, path, made.sizes, plan, inputs(), may_refuse=made.mixes)


def compared(
    facts: Outcome, path: Path, sizes: Ranges, plan: str, inputs: Iterable[tuple[str, Array]], *, may_refuse: bool
) -> Outcome:
    """`facts` with what a model at `path` comes to: compiled under a plan, and compared with ONNX Runtime for each of
    some `inputs`, with what they are. `may_refuse`: whether its sizes may be refused."""
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    library = path.with_suffix(".so")
    try:
        report = api.compile(
            path, library, database=str(path.with_suffix(".db")), threads=THREADS, sizes=sizes, plan=plan
        )
    except InputError as error:
        state = REFUSED if may_refuse and "--sizes" in str(error) else "crash"
        return replace(facts, state=state, message=str(error))
    run, worst = api.load(library), 0.0
    for what, x in inputs:
        (wanted,), (found,) = session.run(None, {"x": x}), run({"x": x})
        verdict = compare(np.asarray(found), np.asarray(wanted), LIMIT)
        if not verdict.ok and np.abs(np.asarray(found) - wanted).max(initial=0.0) > CANCELLED:
            message = f"{what}, plan {plan}: {verdict.reason}"
            return replace(facts, state="wrong", error=float(verdict.max_rel_error), message=message)
        worst = max(worst, float(verdict.max_rel_error)) if verdict.ok else worst
    return replace(facts, kernels=report.kernels, error=worst)
