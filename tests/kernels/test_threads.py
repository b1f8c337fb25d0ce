"""A kernel whose threads write to the same place of memory is refused when it is made."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tvm.script.ir_builder.tirx as builder
from tvm import tirx
from tvm.script.ir_builder import IRBuilder

from autofuse.errors import InputError
from autofuse.kernels.build import build_kernel
from autofuse.kernels.emission import Emission
from autofuse.kernels.families.registry import installed
from autofuse.kernels.open_sizes.products.emitters import FewRowsEmitter
from autofuse.kernels.tir.emit import Emitter
from autofuse.kernels.tir.loops import check_threads
from tests.kernels.conftest import Bench
from tests.kernels.test_a_toy_family import AVX2, SMALL, PrefixSum
from tests.kernels.test_open_products import AVX512, SHORT, made, product

TASKS, WIDTH = 12, 16
Body = Callable[[Emitter, Any], None]
"""Emits the body of a function that writes to a buffer of `TASKS` times `WIDTH` numbers."""


def own_memory(emitter: Emitter, given: Any) -> None:
    with emitter.parallel(TASKS) as task:
        sums = emitter.scratch(WIDTH)
        with emitter.vector(WIDTH) as lane:
            emitter.put(sums, lane, 1.0)
            emitter.put(given, task * WIDTH + lane, sums[lane])


def a_part_of_memory_each(emitter: Emitter, given: Any) -> None:
    sums = emitter.scratch(TASKS * WIDTH)
    with emitter.parallel(TASKS) as task:
        emitter.put(sums, task * WIDTH, 1.0)
        emitter.put(given, task * WIDTH, sums[task * WIDTH])


def places_that_go_through_memory(emitter: Emitter, given: Any) -> None:
    with emitter.parallel(TASKS) as task:
        first = emitter.stored(task * WIDTH)
        with emitter.vector(WIDTH) as lane:
            emitter.put(given, first + lane, 1.0)


def two_numbers_of_a_task(emitter: Emitter, given: Any) -> None:
    with emitter.parallel_parts(4, 3) as (sequence, part):
        emitter.put(given, sequence * 4 + part, 1.0)


def one_task_alone(emitter: Emitter, given: Any) -> None:
    with emitter.parallel(TASKS) as task, emitter.when(task == 0):
        emitter.put(given, 0, 1.0)


def the_last_of_all_tasks(emitter: Emitter, given: Any) -> None:
    with emitter.parallel(TASKS) as task, emitter.when(task % TASKS == TASKS - 1):
        emitter.put(given, 0, 1.0)


def loops_from_a_place_of_the_task_on(emitter: Emitter, given: Any) -> None:
    with emitter.parallel(TASKS) as task, builder.serial(task * WIDTH, task * WIDTH + WIDTH) as place:
        emitter.put(given, place, 1.0)


def one_task(emitter: Emitter, given: Any) -> None:
    sums = emitter.scratch(WIDTH)
    with builder.parallel(0, 1):
        emitter.put(sums, 0, 1.0)
    emitter.put(given, 0, sums[0])


def one_number_of_all(emitter: Emitter, given: Any) -> None:
    zero = emitter.scratch(1)
    with emitter.parallel(TASKS) as task:
        emitter.put(zero, 0, given[0] * 2.0)
        emitter.put(given, task * WIDTH + 1, zero[0])


RIGHT = [own_memory, a_part_of_memory_each, places_that_go_through_memory, two_numbers_of_a_task, one_task_alone,
         the_last_of_all_tasks, loops_from_a_place_of_the_task_on, one_task,
         one_number_of_all]  # fmt: skip


def number(task: Any) -> Any:
    return tirx.Cast("float32", task)


def memory_of_all(emitter: Emitter, given: Any) -> None:
    sums = emitter.scratch(WIDTH)
    with emitter.parallel(TASKS) as task, emitter.vector(WIDTH) as lane:
        emitter.put(sums, lane, number(task))
        emitter.put(given, task * WIDTH + lane, sums[lane])


def a_view_of_memory_of_all(emitter: Emitter, given: Any) -> None:
    sums = emitter.scratch(WIDTH)
    with emitter.parallel(TASKS) as task:
        seen = builder.decl_buffer((WIDTH,), "float32", data=sums.data)
        emitter.put(seen, 0, number(task))
        emitter.put(given, task, seen[0])


def one_result(emitter: Emitter, given: Any) -> None:
    with emitter.parallel(TASKS) as task:
        emitter.put(given, 0, number(task))


def parts_without_their_sequence(emitter: Emitter, given: Any) -> None:
    with emitter.parallel_parts(4, 3) as (sequence, part):
        emitter.put(given, part, number(sequence))


def sequences_without_their_part(emitter: Emitter, given: Any) -> None:
    with emitter.parallel_parts(4, 3) as (sequence, part):
        emitter.put(given, sequence, number(part))


def the_last_of_each_few_tasks(emitter: Emitter, given: Any) -> None:
    with emitter.parallel(TASKS) as task, emitter.when(task % 4 == 3):
        emitter.put(given, 0, number(task))


def all_but_one_task(emitter: Emitter, given: Any) -> None:
    with emitter.parallel(TASKS) as task, builder.If(task == 0):
        with builder.Then():
            emitter.put(given, 1, 1.0)
        with builder.Else():
            emitter.put(given, 0, number(task))


def sums_of_the_same_numbers(emitter: Emitter, given: Any) -> None:
    total = emitter.scratch(1)
    with emitter.parallel(TASKS), emitter.serial(WIDTH) as k:
        emitter.put(total, 0, total[0] + given[k])


def numbers_one_after_the_other(emitter: Emitter, given: Any) -> None:
    held = emitter.scratch(1)
    with emitter.parallel(TASKS) as task, emitter.serial(WIDTH - 1) as k:
        emitter.put(held, 0, given[k])
        emitter.put(given, task * WIDTH + k, held[0])


def two_numbers_of_all(emitter: Emitter, given: Any) -> None:
    held = emitter.scratch(1)
    with emitter.parallel(TASKS) as task:
        emitter.put(held, 0, 1.0)
        emitter.put(given, task, held[0])
        emitter.put(held, 0, 2.0)


WRONG = [memory_of_all, a_view_of_memory_of_all, one_result, parts_without_their_sequence,
         sequences_without_their_part, the_last_of_each_few_tasks, all_but_one_task,
         sums_of_the_same_numbers, numbers_one_after_the_other, two_numbers_of_all]  # fmt: skip


def function(body: Body) -> Any:
    with IRBuilder() as ib, builder.prim_func(s_tir=True):
        given = builder.arg("given", builder.buffer((TASKS * WIDTH,), "float32", align=64))
        body(Emitter(AVX2), given)
    return ib.get()


@pytest.mark.parametrize("body", RIGHT)
def test_threads_that_write_to_places_of_their_own_are_allowed(body: Body) -> None:
    check_threads(function(body))


@pytest.mark.parametrize("body", WRONG)
def test_threads_that_write_to_one_place_are_refused(body: Body) -> None:
    with pytest.raises(InputError, match=r"threads would write to the same place of memory: \w+\[.*\] = "):
        check_threads(function(body))


class SharedSum(PrefixSum):
    """Running sums of which all threads share the number that they add to."""

    def emit(self, scope: Any, unit: Any, schedule: Any) -> None:
        shared = scope.emitter.scratch(1)
        scope.emitter.scratch = lambda *_: shared
        super().emit(scope, unit, schedule)
        del scope.emitter.scratch


def test_a_kernel_of_a_family_is_refused_with_the_reason(bench: Bench) -> None:
    with installed(SharedSum()):
        workload = bench.bind(SMALL).workload
        with pytest.raises(InputError, match="threads would write to the same place of memory"):
            build_kernel(workload, {}, AVX2)
        assert Emission(AVX2).code(workload, {}) == ""


def test_a_kernel_of_open_sizes_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sums of few rows once stood outside of the loop over panels: up to 2.5 % of the calls of a network were wrong."""
    right = FewRowsEmitter.all_panels

    def shared(self: FewRowsEmitter, rows: int, threads: int) -> None:
        sums = self.emitter.registers(64, self.lanes)
        with monkeypatch.context() as patch:
            patch.setattr(self.emitter, "registers", lambda vectors, _lanes: sums[:vectors])
            right(self, rows, threads)

    monkeypatch.setattr(FewRowsEmitter, "all_panels", shared)
    with pytest.raises(InputError, match="threads would write to the same place of memory"):
        made(product(128), SHORT, AVX512, threads=2)
