"""Why a graph runs in eager: each reason says what to change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

NUMPY_TYPES = frozenset(("float16", "float32", "float64", "bool", "uint8", "int8", "int16", "int32", "int64"))
"""Types of elements that torch, numpy and a library share."""
MOST_SIZES = 8
"""Sizes of its inputs for which one graph is compiled."""
MOST_WEIGHTS = 3
"""Times that one graph is compiled again because its weights have changed."""
PLAIN = (int, float, bool, type(None))


class EagerWarning(UserWarning):
    """A graph of `torch.compile` runs in eager; the text has the reason, and what to change."""


class RefusedError(Exception):
    """A graph that is not compiled; the text is the reason, and what to change."""


@dataclass(frozen=True)
class TensorFacts:
    """What counts of a tensor that goes into or comes out of a graph.

    `kind`: the class. `memory`: where its storage begins (an address; 0 for none). `version`: of its content, as torch
    counts changes, or a digest of it where torch does not count.
    """

    kind: str
    device: str
    dtype: str
    layout: str
    memory: int
    version: int | str | None


def refuse_training(operators: int) -> RefusedError:
    """The reason for a graph whose results a backward pass would want."""
    return RefusedError(
        f"it is part of a training ({operators} operators whose results require gradients); call the model under "
        "torch.no_grad() or torch.inference_mode() to have it compiled"
    )


def check_inputs(inputs: Sequence[TensorFacts]) -> None:
    """RefusedError for tensors that a library cannot take."""
    for number, facts in enumerate(inputs):
        what = f"input {number}"
        if facts.kind not in ("Tensor", "Parameter", "Buffer"):
            raise RefusedError(f"{what} is a {facts.kind}, a tensor of a class of its own; give plain tensors")
        check_tensor(what, facts)


def check_tensor(what: str, facts: TensorFacts) -> None:
    """RefusedError for a tensor that numpy cannot see."""
    if facts.device != "cpu":
        raise RefusedError(f"{what} is on the device {facts.device!r}; autofuse computes on the CPU: use .to('cpu')")
    if facts.layout != "torch.strided":
        raise RefusedError(f"{what} has the layout {facts.layout}; convert it with .to_dense()")
    if facts.dtype not in NUMPY_TYPES:
        raise RefusedError(
            f"{what} has elements of {facts.dtype}; convert it to one of {', '.join(sorted(NUMPY_TYPES))}"
        )


def check_changes(before: Sequence[TensorFacts], after: Sequence[TensorFacts]) -> None:
    """RefusedError where a run has written into its inputs; the facts of all inputs, before and after it."""
    for number, (old, new) in enumerate(zip(before, after, strict=True)):
        if old.version != new.version or old.memory != new.memory:
            raise RefusedError(
                f"it writes into its input {number} (a buffer, or an argument); return the new value instead, "
                "or switch the model to eval()"
            )


def check_outputs(inputs: Sequence[TensorFacts], outputs: Sequence[TensorFacts]) -> None:
    """RefusedError for results that a library cannot give: views of an input or of each other, other types."""
    if not outputs:
        raise RefusedError("it has no tensor among its results, so there is nothing to compute; nothing is lost")
    owners = {facts.memory: f"input {number}" for number, facts in enumerate(inputs) if facts.memory}
    for number, facts in enumerate(outputs):
        check_tensor(f"output {number}", facts)
        if facts.memory in owners:
            raise RefusedError(
                f"output {number} shares its memory with {owners[facts.memory]}; return a copy, such as x.clone()"
            )
        if facts.memory:
            owners[facts.memory] = f"output {number}"


def check_plain(value: object) -> None:
    """RefusedError for a result that is neither a tensor nor a plain number."""
    if type(value) not in PLAIN:
        raise RefusedError(f"a result of it is a {type(value).__name__}; return tensors and numbers only")


def too_many_sizes() -> RefusedError:
    """The reason for a size that is one too many."""
    return RefusedError(
        f"it was compiled for {MOST_SIZES} sizes of its inputs already (none that differs can stay open), further ones "
        "run in eager; pad inputs to a few sizes"
    )


def too_many_weights() -> RefusedError:
    """The reason for weights that keep changing."""
    return RefusedError(
        f"its weights changed more than {MOST_WEIGHTS} times since it was compiled (they are part of a library); "
        "compile the model once its training has ended"
    )
