"""LSTM, GRU and RNN, split into an input product and a recurrence of our own, compute what ONNX Runtime computes."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from onnx import helper
from onnx.backend.test.loader import load_model_tests

from autofuse.graph.inputs import generate_inputs
from autofuse.graph.loading.load import from_model
from autofuse.graph.own.recurrence import GATES, RECURRENCES
from autofuse.graph.submodel import to_model
from autofuse.kernels.build import build_kernel
from autofuse.kernels.families.recurrent.emitter import pack_weights
from autofuse.kernels.families.registry import is_own
from autofuse.kernels.schedule.guesses import first_schedules
from autofuse.kernels.schedule.knobs import open_knobs
from autofuse.kernels.workload.workload import bind_workload
from autofuse.measure.checking.reference import run_reference
from autofuse.measure.checking.tolerance import compare
from tests.kernels.conftest import Array, Bench, Small, real
from tests.kernels.kernel_sample import TARGETS
from tests.kernels.test_kernels_of_node_cases import arrays_of

ACTIVATIONS = ("Relu", "Tanh", "Sigmoid", "Affine", "LeakyRelu", "ThresholdedRelu", "ScaledTanh", "HardSigmoid", "Elu",
               "Softsign", "Softplus")  # fmt: skip
NEEDED = {"LSTM": 3, "GRU": 2, "RNN": 1}
RESULTS = {"LSTM": ("y", "y_h", "y_c"), "GRU": ("y", "y_h"), "RNN": ("y", "y_h")}


@dataclass(frozen=True)
class Case:
    """A recurrent operator with its sizes and options; `absent`: optional inputs and outputs that it has not."""

    cell: str
    steps: int = 5
    batch: int = 2
    depth: int = 6
    hidden: int = 20
    direction: str = "forward"
    absent: frozenset[str] = frozenset({"lengths", "h", "c", "p"})
    lengths: tuple[int, ...] = ()
    batch_first: bool = False
    computed_weights: bool = False
    opset: int = 17
    attributes: Mapping[str, Any] = field(default_factory=dict)

    @property
    def directions(self) -> int:
        return 2 if self.direction == "bidirectional" else 1

    def arrays(self) -> dict[str, Array]:
        """Every input by its short name; those that are absent, too."""
        width, d, hidden = GATES[self.cell] * self.hidden, self.directions, self.hidden
        lengths = self.lengths or [1 + (3 * row + 1) % self.steps for row in range(self.batch)]
        return {
            "x": real(self.steps, self.batch, self.depth, low=-2, high=2),
            "w": real(d, width, self.depth, seed=1),
            "r": real(d, width, hidden, seed=2) / np.float32(np.sqrt(hidden)),
            "b": real(d, 2 * width, seed=3),
            "lengths": np.asarray(lengths, "int32"),
            "h": real(d, self.batch, hidden, seed=4),
            "c": real(d, self.batch, hidden, seed=5),
            "p": real(d, 3 * hidden, seed=6),
        }

    def small(self) -> Small:
        """The model, whose weights are constants unless they are computed."""
        arrays = self.arrays()
        names = ("x", "w", "r", "b", "lengths", "h", *(("c", "p") if self.cell == "LSTM" else ()))
        present = [name for name in names if name not in self.absent]
        if self.batch_first:
            arrays |= {name: np.ascontiguousarray(arrays[name].swapaxes(0, 1)) for name in ("x", "h", "c")}
        results = [name if name not in self.absent else "" for name in RESULTS[self.cell]]
        node = helper.make_node(
            self.cell,
            [name if name in present else "" for name in names],
            results,
            direction=self.direction,
            hidden_size=self.hidden,
            **({"layout": 1} if self.batch_first else {}),
            **self.attributes,
        )
        fixed = () if self.computed_weights else ("w", "r", "b", "p")
        fed = {name: arrays[name] for name in present if name not in fixed}
        constants = {name: arrays[name] for name in present if name in fixed}
        return Small([node], fed, [name for name in results if name], constants, self.opset)

    def expected(self) -> dict[str, Array]:
        """What ONNX Runtime computes; it has no layout with the batch first."""
        found = replace(self, batch_first=False).small().reference()
        if not self.batch_first:
            return found
        order = {"y": (2, 0, 1, 3), "y_h": (1, 0, 2), "y_c": (1, 0, 2)}
        return {name: np.ascontiguousarray(array.transpose(order[name])) for name, array in found.items()}


LARGE = 1e4
"""Numbers that only gates without bounds make."""


def check(bench: Bench, case: Case, lanes: int = 8, limit: float = 2e-5, **schedule: int | str) -> None:
    small = case.small()
    bound = bench.bind(small)
    assert is_own(bound.workload), bound.workload.label
    named = {f"recurrent.{knob}": value for knob, value in schedule.items()}
    target = bench.target(lanes)
    results = bench.run(small, bound, build_kernel(bound.workload, named, target), target)
    expected = case.expected()
    assert set(results) == set(expected)
    for name, result in results.items():
        verdict = compare(result, expected[name], limit)
        assert verdict.ok, f"{case}, {name}: {verdict.reason}"


def full(cell: str, **other: Any) -> Case:
    """A case with every optional input."""
    return Case(cell, absent=frozenset(), **other)


CASES = {
    "one step": Case("LSTM", steps=1, batch=1),
    "one unit": Case("GRU", hidden=1),
    "no bias": Case("LSTM", absent=frozenset({"lengths", "h", "c", "p", "b"})),
    "no bias, reset after the product": Case(
        "GRU", absent=frozenset({"lengths", "h", "b"}), attributes={"linear_before_reset": 1}
    ),
    "reset after the product": full("GRU", attributes={"linear_before_reset": 1}),
    "reset before the product": full("GRU", direction="bidirectional"),
    "coupled gates": Case("LSTM", attributes={"input_forget": 1}),
    "coupled gates and peepholes": full("LSTM", attributes={"input_forget": 1}),
    "clipped LSTM": full("LSTM", attributes={"clip": 0.4}),
    "clipped GRU": full("GRU", attributes={"clip": 0.3, "linear_before_reset": 1}),
    "clipped RNN": full("RNN", attributes={"clip": 0.2}),
    "backwards": full("LSTM", direction="reverse"),
    "backwards, shorter sequences": full("RNN", direction="reverse", lengths=(2, 5)),
    "both ways, shorter sequences": full("LSTM", direction="bidirectional", lengths=(4, 1)),
    "an empty sequence": full("LSTM", lengths=(0, 3), direction="bidirectional"),
    "empty sequences alone": full("GRU", lengths=(0, 0)),
    "batch first": full("LSTM", batch_first=True, direction="bidirectional", batch=3),
    "batch first, GRU": full("GRU", batch_first=True),
    "computed weights": full("LSTM", computed_weights=True),
    "computed weights, GRU": full("GRU", computed_weights=True, direction="bidirectional"),
    "the last states alone": Case("LSTM", absent=frozenset({"lengths", "h", "c", "p", "y"})),
    "the last c alone": Case("LSTM", absent=frozenset({"lengths", "h", "c", "p", "y", "y_h"})),
    "no last states": Case("RNN", absent=frozenset({"lengths", "h", "y_h"})),
    "activations that differ by direction": Case(
        "RNN", direction="bidirectional", attributes={"activations": ["Relu", "Sigmoid"]}
    ),
    "alphas and betas in turn": Case(
        "LSTM",
        direction="bidirectional",
        attributes={
            "activations": ["HardSigmoid", "Tanh", "LeakyRelu", "sigmoid", "ScaledTanh", "Elu"],
            "activation_alpha": [0.3, 0.05, 1.5, 0.7],
            "activation_beta": [0.4, 0.8],
        },
    ),
    "opset 7": full("LSTM", opset=7),
    "opset 7, GRU": full("GRU", opset=7),
    "opset 14": full("RNN", opset=14),
    "opset 22": full("GRU", opset=22),
}


@pytest.mark.parametrize("name", CASES)
def test_every_option_is_what_onnx_runtime_makes_of_it(bench: Bench, name: str) -> None:
    check(bench, CASES[name], rows=2, vectors=1)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_every_activation_is_that_of_onnx_runtime(bench: Bench, activation: str) -> None:
    has = {"Affine": 2, "ScaledTanh": 2, "HardSigmoid": 2, "LeakyRelu": 1, "ThresholdedRelu": 1, "Elu": 1}
    count = has.get(activation, 0)
    given_values: dict[str, list[float]] = {}
    if count:
        given_values["activation_alpha"] = [0.3]
    if count > 1:
        given_values["activation_beta"] = [0.6]
    check(bench, Case("RNN", steps=3, hidden=9, attributes={"activations": [activation], **given_values}))
    check(bench, Case("RNN", steps=3, hidden=9, attributes={"activations": [activation]}))


@pytest.mark.parametrize(
    "schedule",
    [
        {"vectors": 2, "rows": 1, "unroll": 1, "sweep": "forward"},
        {"vectors": 1, "rows": 4, "unroll": 8, "sweep": "alternating"},
        {"vectors": 1, "rows": 2, "unroll": 4, "split": 4},
        {"vectors": 2, "rows": 4, "unroll": 2, "split": 2, "sweep": "forward"},
    ],
)
@pytest.mark.parametrize("case", [full("LSTM", batch=5, hidden=37), full("GRU", batch=5, hidden=37)], ids=str)
def test_every_schedule_computes_the_same(bench: Bench, case: Case, schedule: dict[str, Any]) -> None:
    check(bench, case, **schedule)
    check(bench, replace(case, direction="bidirectional"), lanes=4, **schedule)


@st.composite
def some_case(draw: st.DrawFn) -> tuple[Case, dict[str, Any]]:
    """Any mixture of options, and a schedule."""
    cell = draw(st.sampled_from(sorted(GATES)))
    direction = draw(st.sampled_from(["forward", "reverse", "bidirectional"]))
    steps, batch = draw(st.integers(1, 7)), draw(st.integers(1, 5))
    absent = draw(st.sets(st.sampled_from(["lengths", "h", "c", "p", "b"])))
    absent |= draw(st.sets(st.sampled_from(RESULTS[cell]), max_size=len(RESULTS[cell]) - 1))
    count = NEEDED[cell] * (2 if direction == "bidirectional" else 1)
    attributes: dict[str, Any] = {}
    if draw(st.booleans()):
        usable = [name for name in ACTIVATIONS if name not in ("Affine", "ScaledTanh", "Relu", "Softplus", "LeakyRelu")]
        attributes["activations"] = draw(st.lists(st.sampled_from(usable), min_size=count, max_size=count))
    if draw(st.booleans()):
        attributes["clip"] = draw(st.sampled_from([0.25, 1.0, 8.0]))
    if cell == "LSTM" and draw(st.booleans()):
        attributes["input_forget"] = 1
    if cell == "GRU" and draw(st.booleans()):
        attributes["linear_before_reset"] = 1
    lengths = tuple(draw(st.lists(st.integers(1, steps), min_size=batch, max_size=batch)))
    case = Case(
        cell, steps, batch, draw(st.integers(1, 9)), draw(st.integers(2, 40)), direction, frozenset(absent), lengths,
        draw(st.booleans()), draw(st.booleans()), draw(st.sampled_from([14, 17, 22])), attributes,
    )  # fmt: skip
    schedule = {
        "vectors": draw(st.sampled_from([1, 2])),
        "rows": draw(st.sampled_from([1, 2, 4])),
        "unroll": draw(st.sampled_from([1, 2, 4])),
        "split": draw(st.sampled_from([1, 2])),
        "sweep": draw(st.sampled_from(["alternating", "forward"])),
    }
    return case, schedule


@settings(max_examples=8, deadline=None, derandomize=True)
@given(drawn=some_case())
def test_any_mixture_of_options_is_right(drawn: tuple[Case, dict[str, Any]]) -> None:
    check(Bench(), drawn[0], **drawn[1])


@pytest.mark.long
@settings(max_examples=150, deadline=None)
@given(drawn=some_case())
def test_many_mixtures_of_options_are_right(drawn: tuple[Case, dict[str, Any]]) -> None:
    """But for gates without bounds, whose numbers may multiply at each step, and their rounding with them."""
    assume(all(np.abs(array).max(initial=0) < LARGE for array in drawn[0].expected().values()))
    check(Bench(), drawn[0], **drawn[1])


def recurrent_cases() -> dict[str, Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cases = load_model_tests(kind="node")
    return {
        str(case.name): case
        for case in cases
        if case.model is not None and any(node.op_type in GATES for node in case.model.graph.node)
    }


def test_onnx_own_cases_are_right(bench: Bench) -> None:
    cases = recurrent_cases()
    assert len(cases) >= 11
    for name, case in cases.items():
        inputs, outputs = map(arrays_of, case.data_sets[0])
        assert inputs is not None and outputs is not None
        feeds = {value.name: array for value, array in zip(case.model.graph.input, inputs, strict=True)}
        graph = from_model(case.model, name)
        bound = bind_workload(graph, [operator.name for operator in graph.operators], {})
        assert is_own(bound.workload), name
        small = Small([], feeds, [])
        known = [np.asarray(graph.constants[constant]) for constant in bound.constants]
        target = bench.target()
        results = bench.run(small, bound, build_kernel(bound.workload, {}, target), target, known)
        for value, array in zip(case.model.graph.output, outputs, strict=True):
            verdict = compare(results[value.name], np.asarray(array), 1e-5)
            assert verdict.ok, f"{name}, {value.name}: {verdict.reason}"


@pytest.mark.parametrize("cell", GATES)
def test_the_standard_operators_that_stand_for_a_recurrence_compute_it(cell: str) -> None:
    case = full(cell, direction="bidirectional", attributes={"linear_before_reset": 1} if cell == "GRU" else {})
    small = case.small()
    graph = from_model(small.model(), "small")
    assert {operator.op_type for operator in graph.operators if operator.domain} == {f"{cell}Recurrence"}
    onnx.checker.check_model(to_model(graph))
    found, expected = run_reference(graph, dict(small.inputs)), small.reference()
    for name, array in expected.items():
        assert compare(found[name], array, 1e-6).ok


def test_a_recurrent_operator_of_float64_stays_as_it_is() -> None:
    small = Case("RNN").small()
    wide = replace(
        small,
        inputs={name: array.astype("float64") for name, array in small.inputs.items()},
        constants={name: array.astype("float64") for name, array in small.constants.items()},
    )
    (operator,) = from_model(wide.model(), "wide").operators
    assert operator.op_type == "RNN" and operator.op_type not in RECURRENCES


@pytest.mark.parametrize("left", [("h",), ("h", "c"), ("c",)])
def test_states_of_zeros_are_left_out(left: tuple[str, ...]) -> None:
    small = full("LSTM").small()
    zeros = {name: np.zeros_like(small.inputs[name]) for name in left}
    given = {name: array for name, array in small.inputs.items() if name not in left}
    graph = from_model(replace(small, inputs=given, constants=small.constants | zeros).model(), "zeros")
    (operator,) = (one for one in graph.operators if one.op_type in RECURRENCES)
    assert [name for name, place in (("h", 4), ("c", 5)) if not operator.inputs[place]] == list(left)
    assert operator.inputs[6] == "p"


def test_generated_lengths_are_those_of_sequences() -> None:
    graph = from_model(full("LSTM", batch=40).small().model(), "lengths")
    lengths = generate_inputs(graph, 3)["lengths"]
    assert lengths.min() >= 1 and lengths.max() <= 5 and len(set(lengths.tolist())) > 1


def test_weights_are_packed_by_panels_of_units() -> None:
    weights = real(2, 4 * 5, 5)
    packed = pack_weights(weights, 4, (0, 2), (2, 2, 5, 2, 3)).reshape(2, 2, 5, 2, 3)
    assert packed[1, 0, 4, 1, 2] == weights[1, 2 * 5 + 2, 4]
    assert packed[0, 1, 3, 0, 1] == weights[0, 4, 3]
    assert not packed[:, 1, :, :, 2].any()


@pytest.mark.parametrize("isa", TARGETS)
def test_units_are_split_where_threads_have_enough_weights_to_read(isa: str, bench: Bench) -> None:
    target = TARGETS[isa]
    for hidden, first in ((64, 1), (512, 2)):
        workload = bench.bind(Case("LSTM", batch=1, hidden=hidden).small()).workload
        knobs = open_knobs(workload, target, {})
        assert 2 in knobs["recurrent.split"]
        assert first_schedules(workload, knobs, target, threads=2)[0].get("recurrent.split", 1) == first
        assert all(guess.get("recurrent.split", 1) == 1 for guess in first_schedules(workload, knobs, target, 1)[:1])


@pytest.mark.parametrize("isa", TARGETS)
@pytest.mark.parametrize(("cell", "gates"), [("LSTM", 4), ("GRU", 3), ("RNN", 1)])
def test_the_first_tile_has_enough_sums_to_hide_a_multiply_add(cell: str, gates: int, isa: str, bench: Bench) -> None:
    target = TARGETS[isa]
    workload = bench.bind(Case(cell, batch=1, hidden=128).small()).workload
    first, second, *_ = first_schedules(workload, open_knobs(workload, target, {}), target)
    sums = gates * int(first["recurrent.vectors"])
    assert (sums, first["recurrent.unroll"]) == ({"LSTM": 8, "GRU": 12, "RNN": 8}[cell], 8)
    assert sums < target.registers
    assert (second["recurrent.vectors"], second["recurrent.unroll"]) == (2, 4), "the defaults come next"


def test_a_tile_takes_several_sequences_where_there_are_such(bench: Bench) -> None:
    for isa, rows in (("avx2", 2), ("avx512", 4), ("neon", 4)):
        workload = bench.bind(Case("LSTM", batch=6).small()).workload
        first = first_schedules(workload, open_knobs(workload, TARGETS[isa], {}), TARGETS[isa])[0]
        assert first["recurrent.rows"] == rows and first.get("recurrent.vectors", 1) == 1
