"""Why graphs of torch run in eager: the reasons, decided on plain facts; none of it needs torch."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autofuse.torch_backend import refusals
from autofuse.torch_backend.refusals import RefusedError, TensorFacts

PLAIN = TensorFacts("Tensor", "cpu", "float32", "torch.strided", 100, 0)


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        (replace(PLAIN, kind="DTensor"), "input 1 is a DTensor, a tensor of a class of its own"),
        (replace(PLAIN, device="cuda"), "input 1 is on the device 'cuda'; autofuse computes on the CPU"),
        (replace(PLAIN, layout="torch.sparse_coo"), r"input 1 has the layout torch\.sparse_coo; convert it"),
        (replace(PLAIN, dtype="bfloat16"), "input 1 has elements of bfloat16; convert it to one of bool, float16"),
        (replace(PLAIN, dtype="complex64"), "elements of complex64"),
    ],
)
def test_an_input_that_no_library_takes_is_refused(facts: TensorFacts, reason: str) -> None:
    refusals.check_inputs([PLAIN, replace(PLAIN, kind="Parameter"), replace(PLAIN, dtype="bool")])
    with pytest.raises(RefusedError, match=reason):
        refusals.check_inputs([PLAIN, facts])


def test_a_graph_that_writes_into_its_inputs_is_refused() -> None:
    refusals.check_changes([PLAIN], [PLAIN])
    for changed in (replace(PLAIN, version=1), replace(PLAIN, memory=200)):
        with pytest.raises(RefusedError, match="it writes into its input 1 .* return the new value instead"):
            refusals.check_changes([PLAIN, PLAIN], [PLAIN, changed])


def test_outputs_that_share_memory_are_refused() -> None:
    other = replace(PLAIN, memory=200)
    refusals.check_outputs([PLAIN], [other, replace(PLAIN, memory=300)])
    with pytest.raises(RefusedError, match=r"output 0 shares its memory with input 0; return a copy"):
        refusals.check_outputs([PLAIN], [PLAIN])
    with pytest.raises(RefusedError, match=r"output 1 shares its memory with output 0"):
        refusals.check_outputs([PLAIN], [other, other])


def test_empty_tensors_share_nothing() -> None:
    empty = replace(PLAIN, memory=0)
    refusals.check_outputs([empty], [empty, empty])


def test_outputs_that_no_library_gives_are_refused() -> None:
    with pytest.raises(RefusedError, match="no tensor among its results"):
        refusals.check_outputs([PLAIN], [])
    with pytest.raises(RefusedError, match="output 0 has elements of complex64"):
        refusals.check_outputs([PLAIN], [replace(PLAIN, dtype="complex64", memory=1)])
    for value in (1, 2.5, True, None):
        refusals.check_plain(value)
    with pytest.raises(RefusedError, match="a result of it is a list"):
        refusals.check_plain([])


def test_each_reason_says_what_to_do() -> None:
    assert "torch.no_grad()" in str(refusals.refuse_training(3))
    assert "pad inputs" in str(refusals.too_many_sizes())
    assert "once its training has ended" in str(refusals.too_many_weights())
