"""No kernel's build takes over 10 s: what is not long is translated in seconds, whatever is drawn."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from typing import Any

import pytest
from onnx import helper

from autofuse.backend.compile.function import is_long, translate
from autofuse.backend.compile.host_cpu import local_device
from autofuse.environment.named_plans import named_plan
from autofuse.errors import InputError
from autofuse.graph.loading.load import from_model
from autofuse.kernels.build import build_kernel
from autofuse.kernels.lowering.lower import Lowering
from autofuse.kernels.schedule.guesses import first_schedules
from autofuse.kernels.schedule.knobs import canonical, fits_registers, open_knobs
from autofuse.kernels.workload.workload import Workload
from autofuse.measure.measurement import BUILD_CPU_S
from experiments.random_graphs.generate import Growing, model
from tests.kernels.conftest import real

MOST_CPU_S = 4 * BUILD_CPU_S
"""A slow machine takes longer for what is translated in 10 s here; what hangs takes minutes."""


def drawn_window(chance: random.Random) -> Any:
    """A convolution or pooling of one to three dimensions: taps, padding, strides and sizes of any relation."""
    rank = chance.choice((1, 1, 2, 2, 3))
    size = chance.choice({1: (7, 99, 4_000), 2: (7, 28, 112), 3: (4, 16)}[rank])
    taps = chance.choice((1, 3, 7, min(size, chance.choice((16, 33, 128)))))
    channels = chance.choice((4, 16, 96))
    kind = chance.choice(("Conv", "Conv", "Conv", "ConvTranspose", "MaxPool", "AveragePool"))
    pads = [chance.randint(0, taps - 1 if kind.endswith("Pool") else 2 * taps)] * (2 * rank)
    pads = [0] * (2 * rank) if kind == "ConvTranspose" else pads
    strides = [chance.choice((1, 1, 2, 5))] * rank
    growing = Growing(chance.randrange(1 << 30))
    x = growing.input((1, channels, *[size] * rank))
    groups = chance.choice((1, 1, channels, 4)) if kind.startswith("Conv") else 1
    weights = [growing.constant(real(channels, channels // groups, *[taps] * rank))] if kind.startswith("Conv") else []
    extra = {"group": groups} if weights else {}
    inputs, shape = [x, *weights], [taps] * rank
    node = helper.make_node(kind, inputs, ["c"], kernel_shape=shape, pads=pads, strides=strides, **extra)
    last = helper.make_node(chance.choice(("Relu", "Sigmoid", "Softplus")), ["c"], ["y"])
    value = helper.make_tensor_value_info
    read, made = [value(x, 1, growing.inputs[x])], [value("y", 1, None)]
    graph = helper.make_graph([node, last], "window", read, made, growing.constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def drawn(seed: int) -> Iterator[tuple[Workload, dict[str, int | str]]]:
    """Kernels of a random model with everything fused, each under its first guess and under any schedule."""
    chance = random.Random(seed)
    target = local_device().target()
    graph = from_model(model(seed) if seed % 2 else drawn_window(chance), "drawn")
    for bound in Lowering(graph, target).lower(named_plan(graph, "always")).kernels:
        knobs = open_knobs(bound.workload, target, {})
        yield bound.workload, dict(first_schedules(bound.workload, knobs, target)[0])
        any_of = canonical({name: chance.choice(values) for name, values in knobs.items()}, knobs)
        if fits_registers(any_of, target):
            yield bound.workload, any_of


def check_builds(seed: int) -> None:
    """Each kernel that no child translates is translated in time; one whose code is refused is never begun."""
    target = local_device().target()
    for workload, schedule in drawn(seed):
        start = time.process_time()
        try:
            function = build_kernel(workload, schedule, target).function
        except InputError:
            assert time.process_time() - start < MOST_CPU_S, (workload.label, schedule)
            continue
        if not is_long(function):
            translate(function, "kernel", target)
        assert time.process_time() - start < MOST_CPU_S, (workload.label, schedule)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_drawn_kernels_are_built_in_time(seed: int) -> None:
    check_builds(seed)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(3, 103))
def test_many_drawn_kernels_are_built_in_time(seed: int) -> None:
    check_builds(seed)
