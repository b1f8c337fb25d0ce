"""Functions of one byte between quantised operators, as tables of what they give for each byte.

QuantizeLinear(f(DequantizeLinear(x))) becomes ByteLookup(x, table), where f is made of operators that work element by
element, with numbers for all else that they read; x may be read several times, and f go through bytes again: a
quantised swish, QuantizeLinear(d * DequantizeLinear(QuantizeLinear(Sigmoid(d)))) with d = DequantizeLinear(x), is one
table. ONNX Runtime evaluates the operators on all 256 bytes, so that a table holds its bits.

That pays where f takes long: see `DEAR`. What others read as well stays computed, and so do the operators before it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autofuse.graph.cost import EXPENSIVE
from autofuse.graph.loading.draft import Draft
from autofuse.graph.loading.simplify.quantized.levels import BYTES, Known
from autofuse.graph.mapping import POINTWISE, names
from autofuse.graph.model import Operator, Tensor
from autofuse.graph.nodes import make_model
from autofuse.graph.own.byte_lookup import ENTRIES, is_byte_lookup
from autofuse.graph.own.names import BYTE_LOOKUP, DOMAIN
from autofuse.ort.session import open_session

DEAR = 8
"""Operations of a function from which on a table is as fast everywhere; one of `EXPENSIVE` operators is dear by itself.

An instruction for a vector of eight or sixteen numbers counts as one. Behind a convolution with AVX2, where a table
takes 47 instructions for 32 bytes, a requantisation (5) took 0.96 of a table's time, LeakyRelu (8) 1.00. Where numbers
are computed with what is looked up, a vector of numbers takes as long as a table for four, or longer: LeakyRelu took
0.92 of the time with AVX2.
"""
_OPERATIONS = {
    "Clip": 2, "DequantizeLinear": 2, "Div": 3, "HardSigmoid": 4, "HardSwish": 5, "LeakyRelu": 3, "PRelu": 3,
    "QuantizeLinear": 3, "Sqrt": 3, "ThresholdedRelu": 2,
}  # fmt: skip
_STEPS = POINTWISE - names("BiasGelu BitCast CastLike FastGelu SwiGLU") | names("DequantizeLinear PRelu QuantizeLinear")
_LEVELS = names("DequantizeLinear QuantizeLinear")
_Steps = dict[str, Operator]
"""Operators by their names."""


def look_up_bytes(draft: Draft) -> bool:
    """Writes functions of one byte as lookups where that pays; True when the draft changed."""
    chains, made, gone = _Chains(draft), dict[str, Operator](), set[str]()
    for last in reversed(draft.operators):
        if last.op_type != "QuantizeLinear" or last.domain or last.name in gone:
            continue
        found = chains.behind_all(last)
        if found is None or not chains.is_dear(last, found[1]):
            continue
        root, steps = found
        table = _table(draft, last, root, steps)
        if table is not None:
            entries = draft.add_constant(f"{last.name}/table", table)
            made[last.name] = Operator(last.name, BYTE_LOOKUP, (root, entries), last.outputs, {}, DOMAIN)
            gone |= {step.name for step in steps.values() if not (chains.is_first(step) and step.inputs[0] == root)}
    draft.operators = [made.get(one.name, one) for one in draft.operators if one.name in made or one.name not in gone]
    return bool(made)


class _Chains:
    """The functions of bytes in a draft that does not change meanwhile."""

    def __init__(self, draft: Draft) -> None:
        self.draft, self.known, self.readers = draft, Known(draft), draft.readers()

    def behind_all(self, last: Operator) -> tuple[str, _Steps] | None:
        """The byte that an operator's result is a function of, as far back as there is one, and what computes it."""
        found = self._behind(last, {}) if self._is_step(last) else None
        if found is None:
            return None
        steps, read = found
        best: tuple[str, _Steps] | None = None
        while True:
            if len(read) == 1:
                best = (next(iter(read)), dict(steps))
            before = next(((name, more) for name in sorted(read) if (more := self._before(name, steps))), None)
            if before is None:
                return best
            name, (more_steps, more_read) = before
            steps |= more_steps
            read = (read - {name}) | more_read

    def is_dear(self, last: Operator, steps: _Steps) -> bool:
        """Whether a table pays; one whose result is turned into numbers again, in the same kernel as a rule, only in
        place of what takes long anyhow."""
        kinds = [step.op_type for step in steps.values()]
        if any(kind in EXPENSIVE for kind in kinds):
            return True
        bytes_alone = not any(self.is_first(reader) for reader in self.readers.get(last.outputs[0], []))
        return bytes_alone and sum(_OPERATIONS.get(kind, 1) for kind in kinds) >= DEAR

    def is_first(self, step: Operator) -> bool:
        """Whether an operator only turns a byte into a number, which others may read as well."""
        return step.op_type == "DequantizeLinear"

    def _before(self, name: str, steps: _Steps) -> tuple[_Steps, set[str]] | None:
        """What a byte is made of that nobody but `steps` reads, nor the numbers that it is turned into."""
        maker = self.known.producers.get(name)
        if maker is None or not (self._is_step(maker) and (maker.op_type == "QuantizeLinear" or is_byte_lookup(maker))):
            return None
        private = self._private(name, steps) and all(
            self._private(output, steps) for reader in self.readers[name] for output in reader.outputs
            if self.is_first(reader)
        )  # fmt: skip
        return self._behind(maker, steps) if private else None

    def _behind(self, last: Operator, known: _Steps) -> tuple[_Steps, set[str]] | None:
        """The operators between an operator and the bytes that it depends on, and these; None where it depends on
        anything else, or where others than these and the `known` ones read what is between."""
        steps, read, waiting = {last.name: last}, set[str](), [last]
        while waiting:
            reader = waiting.pop()
            for name in reader.inputs[: 1 if is_byte_lookup(reader) else None]:
                if not name or self._is_number(name):
                    continue
                tensor, maker = self.draft.tensors.get(name), self.known.producers.get(name)
                if tensor is None or name in self.draft.constants:
                    return None
                if tensor.dtype in BYTES:
                    read.add(name)
                elif maker is None or not self._is_step(maker):
                    return None
                elif maker.name not in steps:
                    steps[maker.name] = maker
                    waiting.append(maker)
        inner = [step for step in steps.values() if step is not last and not self.is_first(step)]
        private = all(self._private(step.outputs[0], {**known, **steps}) for step in inner)
        alike = {self.draft.shape(name) for name in (*read, *(step.outputs[0] for step in steps.values()))}
        return (steps, read) if private and len(alike) == 1 and None not in alike else None

    def _private(self, name: str, steps: _Steps) -> bool:
        readers = self.readers.get(name, [])
        return name not in self.draft.returned and all(reader.name in steps for reader in readers)

    def _is_number(self, name: str) -> bool:
        array = self.draft.constants.get(name)
        return array is not None and array.size == 1

    def _is_step(self, operator: Operator) -> bool:
        """Whether an operator works element by element, and on levels that are the same for all of them."""
        if is_byte_lookup(operator):
            return True
        if operator.domain or operator.op_type not in _STEPS or len(operator.outputs) != 1:
            return False
        if operator.op_type not in _LEVELS:
            return True
        integers = operator.inputs if operator.op_type == "DequantizeLinear" else operator.outputs
        levels = self.known.levels(operator, integers[0])
        return levels is not None and levels.per_tensor and levels.dtype in BYTES


def _table(draft: Draft, last: Operator, root: str, steps: _Steps) -> NDArray[Any] | None:
    """What ONNX Runtime's operators give for each byte; None where it has none of them."""
    given = np.arange(ENTRIES, dtype=np.uint8).view(draft.tensors[root].dtype)
    ordered = [operator for operator in draft.operators if operator.name in steps]
    constants: Mapping[str, NDArray[Any]] = {
        name: draft.constants[name] for step in ordered for name in step.inputs if name in draft.constants
    }
    source, result = Tensor(root, given.shape, given.dtype.name), last.outputs[0]
    try:
        model = make_model("table", ordered, [source], [result], constants, draft.opset)
        session = open_session(draft.source, model.SerializeToString(), threads=1, optimise=False)
        found = np.asarray(session.run([result], {root: given})[0]).reshape(-1)
    except Exception:  # noqa: BLE001 - onnxruntime's own classes; the operators stay as they are
        return None
    return found if found.size == ENTRIES and found.dtype.name in BYTES else None
