"""A kernel family from outside the package: one class, one entry of the tuple, one line of TOML, and nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from math import prod
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from autofuse.device.target import Target
from autofuse.environment.space import load_space
from autofuse.errors import InputError
from autofuse.graph.loading.load import from_model
from autofuse.kernels.build import build_kernel
from autofuse.kernels.families.protocol import Case, Declared, Family, Guess, Knob, Schedule, Unit, Values, up_to
from autofuse.kernels.families.registry import FAMILIES, families, family_of, installed, is_own, nests_of, refusal
from autofuse.kernels.nest.evaluate import Scope
from autofuse.kernels.nest.nest import Nest
from autofuse.kernels.nest.tiles import divisor_near
from autofuse.kernels.schedule.guesses import first_schedules
from autofuse.kernels.schedule.knobs import canonical, declared_names, open_knobs
from autofuse.kernels.schedule.transfer import schedule_fault
from autofuse.kernels.tir.digest import code_text
from autofuse.kernels.tir.emit import const
from autofuse.kernels.tir.offsets import delinear
from autofuse.kernels.workload.workload import Workload, WorkloadOperator
from autofuse.search.schedules.schedule_search import WorkloadSearch
from tests.kernels.conftest import Bench, Small, parsed, real

AVX2 = Target("znver3", 8, 16, 2, 32768, 524288)
FEW = 8
SPACE = """\
schema = 1

[schedule.prefix_sum]
rows_per_task = [2, 1, 4, 8]
"""


class PrefixSum(Family):
    """CumSum over the last axis: rows in parallel, each summed from its first element on."""

    name = "prefix_sum"
    knobs: ClassVar[Declared] = {"rows_per_task": Knob((1, 2, 4), "rows that a parallel job sums")}
    anchors = frozenset({"CumSum"})

    def refusal(self, workload: Workload, operator: WorkloadOperator) -> str | None:
        if operator.attribute("exclusive", 0) or operator.attribute("reverse", 0):
            return "CumSum that is exclusive or reversed has no definition here"
        axis, rank = workload.values[operator.inputs[1]], len(workload.values[operator.inputs[0]].shape)
        last = axis.kind == "literal" and int(axis.literal_array().reshape(-1)[0]) % rank == rank - 1
        return None if last else "CumSum over another axis than the last has no definition here"

    def useful(self, case: Case, unit: Unit, knob: str, values: Values) -> Iterable[int | str]:
        assert isinstance(unit, Nest)
        return up_to(values, prod(unit.space[:-1]))

    def canonical(self, schedule: Guess, knobs: Mapping[str, Values]) -> Guess:
        """One row a job is what a schedule without the knob means."""
        return {name: value for name, value in schedule.items() if (name, value) != ("prefix_sum.rows_per_task", 1)}

    def guesses(self, case: Case, found: list[Guess]) -> list[Guess]:
        rows = [value for value in case.knobs.get("prefix_sum.rows_per_task", ()) if int(value) >= FEW]
        return [found[0] | {"prefix_sum.rows_per_task": value} for value in rows[:1]] + found

    def emit(self, scope: Scope, unit: Unit, schedule: Schedule) -> None:
        assert isinstance(unit, Nest) and unit.anchor is not None
        emitter, (*outer, count) = scope.emitter, unit.space
        rows = prod(outer)
        each = divisor_near(rows, int(self.chosen(schedule)["rows_per_task"]))
        with emitter.parallel(rows // each) as job:
            total = emitter.scratch(1)
            with emitter.serial(each) as step:
                emitter.put(total, 0, const(0.0, "float32"))
                with emitter.serial(count) as k, scope.point():
                    row = (emitter.simplify(part) for part in delinear(job * each + step, outer))
                    index = (*row, k)
                    emitter.put(total, 0, total[0] + scope.read(unit.anchor.inputs[0], index))
                    scope.finish(unit, index, total[0])


TOY = PrefixSum()


def running(*shape: int, marks: str = "") -> Small:
    """A prologue, the running sum, and an epilogue."""
    nodes = parsed(f"n = Neg (x); c = CumSum {marks} (n, a); y = Mul (c, c)")
    return Small(nodes, {"x": real(*shape)}, ["y"], {"a": np.array(-1, "int64")})


SMALL = running(4, 6, 40)


@pytest.fixture
def toy() -> Iterator[None]:
    with installed(TOY):
        yield


@pytest.fixture
def space(tmp_path: Path, toy: None) -> Any:
    path = tmp_path / "with_toy.toml"
    path.write_text(SPACE, encoding="utf-8")
    return load_space(path, "avx2", declared_names()).schedule


def test_the_package_alone_does_not_know_it(bench: Bench, tmp_path: Path) -> None:
    workload = bench.bind(SMALL).workload
    assert not is_own(workload) and nests_of(workload) == []
    (tmp_path / "s.toml").write_text(SPACE, encoding="utf-8")
    with pytest.raises(InputError, match=r"'schedule.prefix_sum' is unknown"):
        load_space(tmp_path / "s.toml", "avx2", declared_names())
    assert schedule_fault({"prefix_sum.rows_per_task": 2}, AVX2) == "'prefix_sum.rows_per_task' is no knob"


@pytest.mark.usefixtures("toy")
def test_it_takes_its_operator_and_says_why_it_refuses_another(bench: Bench) -> None:
    workload = bench.bind(SMALL).workload
    (nest,) = nests_of(workload)
    assert is_own(workload)
    assert family_of(workload, nest) is TOY
    assert [operator.op_type for operator, _ in nest.epilogue] == ["Mul"]
    backwards = bench.bind(running(4, 6, 40, marks="<reverse=1>")).workload
    (reason,) = filter(None, (refusal(backwards, operator) for operator in backwards.operators))
    assert "reversed" in reason and not is_own(backwards)
    assert schedule_fault({"prefix_sum.rows_per_task": 2}, AVX2) is None


def test_its_knob_is_open_canonical_and_guessed(bench: Bench, space: Any) -> None:
    workload = bench.bind(SMALL).workload
    knobs = open_knobs(workload, AVX2, space)
    assert knobs == {"prefix_sum.rows_per_task": (2, 1, 4, 8)}
    assert open_knobs(bench.bind(running(1, 40)).workload, AVX2, space) == {}
    assert canonical({"prefix_sum.rows_per_task": 1, "elementwise.tasks": 2}, knobs) == {}
    guesses = first_schedules(workload, knobs, AVX2)
    assert guesses == [{"prefix_sum.rows_per_task": 8}, {"prefix_sum.rows_per_task": 2}]


def test_its_knob_is_searched(bench: Bench, space: Any) -> None:
    bound = bench.bind(SMALL)
    search = WorkloadSearch.create(bound, from_model(SMALL.model(), "small"), AVX2, space, 1)
    asked = []
    while (schedule := search.ask()) is not None:
        search.learn(schedule, 1.0 + len(asked))
        asked.append(schedule.get("prefix_sum.rows_per_task", 1))
    assert asked[:2] == [8, 2]
    assert sorted(asked) == [1, 2, 4, 8]


@pytest.mark.usefixtures("toy")
@pytest.mark.parametrize("rows", [1, 2, 4, 8])
def test_its_kernel_is_right_under_every_value(bench: Bench, rows: int) -> None:
    bench.check(SMALL, schedule={"prefix_sum.rows_per_task": rows}, limit=1e-4)


@pytest.mark.usefixtures("toy")
def test_its_knob_changes_the_kernel(bench: Bench) -> None:
    workload = bench.bind(SMALL).workload
    schedules: list[dict[str, int | str]] = [{}, *({"prefix_sum.rows_per_task": rows} for rows in (1, 2, 4))]
    texts = [code_text(build_kernel(workload, schedule, AVX2).function) for schedule in schedules]
    assert texts[0] == texts[1]
    assert len(set(texts)) == 3


def test_it_is_gone_when_its_context_ends() -> None:
    with installed(TOY):
        assert families() == (TOY, *FAMILIES)
    assert families() == FAMILIES
