"""The compile ladder: the best rung on which something legal stands, for plans and for schedules."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import numpy_helper

import autofuse
from autofuse.backend.library.session import Session
from autofuse.compiler import CompileReport, Context, Policy
from autofuse.compiler.plan_ladder import find_plan
from autofuse.errors import InputError, PlanError, StrictMissError
from autofuse.fusion.plan import FusionPlan, ScheduleLimits
from autofuse.fusion.planner.baselines import default_plan, none_plan
from autofuse.fusion.space import FusionSpace
from autofuse.graph.loading.load import load
from tests.compiler.known import GOOD, Known

NETWORK = """net (float[batch,32] x) => (float[batch,16] y)
    { m = MatMul (x, w) b = Add (m, bias) y = Relu (b) }"""
NORM = """norm (float[4,32] x) => (float[4,32] y) {
    m = ReduceMean <axes: ints = [-1]> (x) d = Sub (x, m) q = Mul (d, d) v = ReduceMean <axes: ints = [-1]> (q)
    e = Add (v, epsilon) s = Sqrt (e) n = Div (d, s) g = Mul (n, w) y = Add (g, bias) }"""
"""LayerNormalization as exporters once wrote it."""
"""A schedule that no rule would guess first."""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 18]> {NETWORK}')
    random = np.random.default_rng(0)
    for name, shape in {"w": (32, 16), "bias": (16,)}.items():
        made.graph.initializer.append(numpy_helper.from_array(random.standard_normal(shape).astype("float32"), name))
    path = tmp_path_factory.mktemp("ladder") / "net.onnx"
    onnx.save(made, path)
    return path


@pytest.fixture(scope="module")
def norm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 13]> {NORM}')
    constants = {"w": np.linspace(0.5, 1.5, 32), "bias": np.linspace(-1, 1, 32), "epsilon": np.float32(1e-5)}
    for name, array in constants.items():
        made.graph.initializer.append(numpy_helper.from_array(np.asarray(array, np.float32), name))
    path = tmp_path_factory.mktemp("ladder") / "norm.onnx"
    onnx.save(made, path)
    return path


@pytest.fixture
def known(model: Path, tmp_path: Path) -> Iterator[Known]:
    made = Known(model, tmp_path / "profile.db")
    yield made
    made.base.close()


def tiers(report: CompileReport) -> set[str]:
    return {group.tier for group in report.groups}


@pytest.mark.parametrize("strict", [False, True])
def test_a_hit_that_rests_on_times_that_are_not_trusted_is_said(known: Known, strict: bool) -> None:
    known.measured(known.setting(), trusted=False, plan=none_plan(load(known.model, {"x": (4, 32)})))
    known.chosen(known.setting())
    report = known.compile(strict=strict)
    assert tiers(report) == {"hit"} and all(group.trusted is False for group in report.groups)
    assert report.warning.startswith("not trusted") and report.groups[0].group in report.warning
    assert "whole-model" not in report.warning  # that one is trusted
    known.measured(known.setting(), plan=none_plan(load(known.model, {"x": (4, 32)})))
    assert known.compile(strict=strict).warning == ""


def test_a_plan_that_was_never_measured_whole_is_not_called_disturbed(known: Known) -> None:
    """A run whose budget left no time for its plan was told that the machine was disturbed."""
    known.chosen(known.setting(), timed=False)
    report = known.compile()
    assert report.plan == "chosen (search)" and report.plans[0].trusted is None
    assert report.warning == ""


def test_nothing_known_means_the_fixed_rules(known: Known) -> None:
    report = known.compile()
    assert (report.plan_tier, tiers(report), report.hits, report.library) == ("rule", {"rule"}, 0, "")
    assert known.compile(on_miss="none").plan_tier == "none"


def test_what_was_measured_here_is_a_hit(known: Known) -> None:
    known.measured(known.setting())
    report = known.compile()
    assert tiers(report) == {"hit"} and report.hits == report.kernels
    assert {json.dumps(json.loads(group.schedule)) for group in report.groups} == {json.dumps(GOOD)}
    assert {group.us for group in report.groups} == {10.0}


OTHER = {"contraction.pixels": 4, "contraction.vectors": 1}


def test_other_code_is_no_hit(known: Known, tmp_path: Path) -> None:
    """It comes behind the same code by other versions, and before another CPU; the library says so."""
    known.measured(known.setting(cpu={"model_name": "a sister"}))
    known.measured(known.setting(), code="what was emitted before a change")
    library = tmp_path / "net.so"
    report = autofuse.compile(known.model, library, database=str(known.path), threads=1, shapes={"x": (4, 32)})
    assert tiers(report) == {"stale code"} and report.hits == report.kernels
    assert {row.tier for row in Session(library).metadata.kernel_rows} == {"stale code"}
    known.measured(known.setting(versions="0.1"), schedule=OTHER, us=90.0)
    assert tiers(known.compile()) == {"hit (stale versions)"}
    known.measured(known.setting(), schedule=OTHER, us=99.0)
    report = known.compile()
    assert tiers(report) == {"hit"} and {group.us for group in report.groups} == {99.0}


def test_a_hit_is_the_fastest_of_the_code_that_is_built(known: Known) -> None:
    known.measured(known.setting(), code="what was emitted before a change", us=5.0)
    known.measured(known.setting(), us=7.0)
    assert {(group.tier, group.us) for group in known.compile().groups} == {("hit", 7.0)}


def test_only_the_first_few_schedules_are_emitted(known: Known) -> None:
    """However many times a database holds: compiling does not become slow where all code has changed."""
    for pixels in (1, 2, 3, 4, 5):
        schedule = GOOD | {"contraction.pixels": pixels}
        code = "" if pixels == 5 else "what was emitted before a change"
        known.measured(known.setting(), schedule=schedule, code=code, us=float(pixels))
    assert {(group.tier, group.us) for group in known.compile().groups} == {("stale code", 1.0)}


def test_a_plan_is_a_hit_while_its_kernels_are(known: Known) -> None:
    known.chosen(known.setting(), plan=default_plan)
    known.measured(known.setting(), code="what was emitted before a change")
    report = known.compile()
    assert report.plan_tier == "stale code" and "1 of its kernels are other code now" in report.plan
    with pytest.raises(StrictMissError, match="other code"):
        known.compile(require_complete=True)
    known.measured(known.setting())
    assert known.compile(require_complete=True).plan_tier == "hit"


def test_looking_up_emits_each_kernel_once(known: Known, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is emitted to know its code is what is built."""
    from autofuse.kernels import build

    known.measured(known.setting())
    real, emitted = build.build_kernel, []

    def counting(workload: Any, schedule: Any, target: Any) -> Any:
        emitted.append(workload.key)
        return real(workload, schedule, target)

    monkeypatch.setattr(build, "build_kernel", counting)
    report = autofuse.compile(
        known.model, tmp_path / "net.so", database=str(known.path), threads=1, buckets={"batch": (4, 4)}
    )
    assert tiers(report) == {"hit"} and len(emitted) == len(set(emitted)) == 1


def test_other_versions_come_second(known: Known) -> None:
    known.measured(known.setting(versions="0.1"))
    assert tiers(known.compile()) == {"hit (stale versions)"}
    known.measured(known.setting())
    assert tiers(known.compile()) == {"hit"}


def test_a_similar_device_comes_third(known: Known) -> None:
    known.measured(known.setting(cpu={"vendor": "", "family": "", "model_name": "a sister"}))
    report = known.compile()
    assert tiers(report) == {"similar device"} and {group.source for group in report.groups} == {"a sister"}
    known.measured(known.setting(versions="0.1"))
    assert tiers(known.compile()) == {"hit (stale versions)"}


def test_what_a_cpu_is_called_decides_nothing(known: Known) -> None:
    known.measured(known.setting(mcpu="unheard-of", cpu={"vendor": "Other", "family": "1", "model_name": "a stranger"}))
    assert tiers(known.compile()) == {"similar device"}


@pytest.mark.parametrize("facts", [{"architecture": "vax"}, {"caches": {"l3_kib": 1 << 30, "l3_cores": 1}}])
def test_a_device_with_other_numbers_says_nothing(known: Known, facts: dict[str, Any]) -> None:
    known.measured(known.setting(cpu={"model_name": "far away"}, **facts))
    assert tiers(known.compile()) == {"rule"}


def test_the_nearest_device_is_asked_first(known: Known) -> None:
    """The far one has the better time, which says nothing here; the near one's schedule is taken."""
    for name, times, us in (("far", 1.8, 5.0), ("near", 1.1, 10.0)):
        known.probed(known.setting(cpu={"model_name": name}, **{name: True}), times)
        known.measured(known.setting(cpu={"model_name": name}, **{name: True}), us=us)
    known.probed(known.setting(), 1.0)
    assert {group.source for group in known.compile().groups} == {"near"}


def test_a_device_whose_rates_are_far_off_says_nothing(known: Known) -> None:
    known.probed(known.setting(cpu={"model_name": "slow"}), 32.0)
    known.measured(known.setting(cpu={"model_name": "slow"}))
    assert tiers(known.compile()) == {"similar device"}, "as long as this one was not probed"
    known.probed(known.setting(), 1.0)
    assert tiers(known.compile()) == {"rule"}


def test_the_nearest_shape_comes_fourth(known: Known) -> None:
    for batch in (1, 8, 64):
        known.measured(known.setting(), batch)
    report = known.compile(4)
    assert tiers(report) == {"nearest shape"}
    assert all("8x16" in group.source for group in report.groups), "one doubling away, the others two and four"
    known.measured(known.setting(cpu={"model_name": "a sister"}), 4)
    assert tiers(known.compile(4)) == {"similar device"}


def test_another_structure_is_no_neighbour(known: Known) -> None:
    graph = load(known.model, {"x": (8, 32)})
    known.measured(known.setting(), 8, none_plan(graph))
    report = known.compile(4)
    assert tiers(report) == {"rule"}, [group.group for group in report.groups]


@pytest.mark.parametrize(
    "text",
    [
        '{"contraction.pixels": 8, "contraction.vectors": 8}',
        '{"contraction.speed": 9}',
        '{"contraction.pixels": [1]}',
        "[1]",
    ],
)
def test_an_illegal_stored_schedule_is_a_miss(known: Known, text: str) -> None:
    known.measured(known.setting(), text=text)
    assert tiers(known.compile()) == {"rule"}


def test_plans_have_rungs_too(known: Known) -> None:
    assert known.compile().plan_tier == "rule"
    known.chosen(known.setting(), batch=8)
    report = known.compile(4)
    assert (report.plan_tier, report.kernels) == ("nearest shape", 3)
    known.chosen(known.setting(cpu={"model_name": "a sister"}))
    assert known.compile(4).plan_tier == "similar device"
    known.chosen(known.setting(versions="0.1"))
    assert known.compile(4).plan_tier == "hit (stale versions)"
    known.chosen(known.setting())
    assert known.compile(4).plan_tier == "hit"
    assert known.compile(4, plan="default").plan_tier == "named"


def test_an_illegal_stored_plan_is_a_miss(known: Known) -> None:
    def broken(graph: Any) -> FusionPlan:
        plan = none_plan(graph)
        return replace(plan, groups=plan.groups[1:])

    known.chosen(known.setting(), plan=broken)
    assert known.compile().plan_tier == "rule"


def test_strict_takes_only_what_was_measured_here(known: Known) -> None:
    known.chosen(known.setting(), plan=default_plan)
    known.measured(known.setting(cpu={"model_name": "a sister"}))
    for options in ({"strict": True}, {"on_miss": "fail"}, {"require_complete": True}):
        with pytest.raises(StrictMissError, match="1 of 1 groups have no measured schedule, such as MatMul"):
            known.compile(**options)
    known.measured(known.setting(versions="0.1"))
    assert known.compile(strict=True).hits == 1
    with pytest.raises(StrictMissError, match="other versions"):
        known.compile(require_complete=True)
    known.measured(known.setting())
    assert known.compile(require_complete=True).plan_tier == "hit"


def test_complete_means_that_a_job_ended(known: Known) -> None:
    known.measured(known.setting())
    for options in ({"strict": True}, {"require_complete": True}):
        with pytest.raises(StrictMissError, match="no plan for this model"):
            known.compile(**options)
    known.chosen(known.setting(versions="0.1"), plan=default_plan)
    assert known.compile(strict=True).plan_tier == "hit (stale versions)"
    with pytest.raises(StrictMissError, match="no tuning job"):
        known.compile(require_complete=True)


def test_a_context_serves_many_models_and_owns_its_circumstances(known: Known, tmp_path: Path) -> None:
    known.measured(known.setting())
    with Context(database=str(known.path), threads=1, policy=Policy("rule")) as context:
        first = autofuse.compile(known.model, dry_run=True, context=context, shapes={"x": (4, 32)})
        again = autofuse.compile(known.model, dry_run=True, context=context, shapes={"x": (2, 32)})
        assert (tiers(first), tiers(again)) == ({"hit"}, {"nearest shape"})
        with pytest.raises(InputError, match="context"):
            autofuse.compile(known.model, dry_run=True, context=context, threads=1)
    with pytest.raises(InputError, match="--on-miss"):
        Policy("guess")


def test_buckets_make_one_library_whose_tiers_it_carries(known: Known, tmp_path: Path) -> None:
    known.measured(known.setting(), 4)
    path = tmp_path / "net.so"
    report = autofuse.compile(known.model, path, database=str(known.path), threads=1, buckets={"batch": (4, 1)})
    assert [plan.shapes for plan in report.plans] == [{"x": (1, 32)}, {"x": (4, 32)}]
    assert [(group.program, group.tier) for group in report.groups] == [(0, "nearest shape"), (1, "hit")]
    session = Session(path)
    near, hit = (program.kernel_rows[0] for program in session.metadata.programs)
    assert (near.tier, hit.tier, session.metadata.programs[0].plan_tier) == ("nearest shape", "hit", "rule")
    assert near.source == report.groups[0].source and "4x16" in near.source and hit.source == ""
    expected = onnxruntime.InferenceSession(str(known.model), providers=["CPUExecutionProvider"])
    for batch in (1, 4):
        x = np.random.default_rng(batch).standard_normal((batch, 32)).astype("float32")
        np.testing.assert_allclose(
            session.run(None, {"x": x})[0], expected.run(None, {"x": x})[0], rtol=1e-4, atol=1e-5
        )


def test_an_unknown_bucket_is_named(known: Known) -> None:
    with pytest.raises(InputError, match="no open size 'length'; its open sizes: batch"):
        known.compile(shapes=None, buckets={"length": (1,)})


def test_a_stored_schedule_that_cannot_be_built_gives_way_to_the_rule(
    known: Known, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from autofuse.kernels import build

    real = build.build_kernel

    def refusing(workload: Any, schedule: Any, target: Any) -> Any:
        if dict(schedule) == GOOD:
            raise ValueError("cannot be scheduled")
        return real(workload, schedule, target)

    monkeypatch.setattr(build, "build_kernel", refusing)
    known.measured(known.setting(versions="0.1"))
    report = autofuse.compile(
        known.model, tmp_path / "net.so", database=str(known.path), threads=1, shapes={"x": (4, 32)}
    )
    assert tiers(report) == {"rule"}
    assert {row.tier for row in Session(tmp_path / "net.so").metadata.kernel_rows} == {"rule"}


def labels(report: CompileReport) -> str:
    return " ".join(group.group for group in report.groups)


def test_what_was_never_measured_is_rewritten_unless_every_rounding_is_kept(norm: Path, tmp_path: Path) -> None:
    database = str(tmp_path / "empty.db")
    assert "LayerNormalization" in labels(autofuse.compile(norm, dry_run=True, database=database, threads=1))
    assert "ReduceMean" in labels(autofuse.compile(norm, dry_run=True, database=database, threads=1, exact=True))
    library = tmp_path / "norm.so"
    autofuse.compile(norm, library, database=database, threads=1)
    x = np.random.default_rng(0).standard_normal((4, 32)).astype("float32")
    expected = onnxruntime.InferenceSession(str(norm), providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]
    np.testing.assert_allclose(Session(library).run(None, {"x": x})[0], expected, rtol=1e-4, atol=1e-5)


def test_any_plan_keeps_to_the_tiles_that_are_known_to_be_right(norm: Path, tmp_path: Path) -> None:
    """Also the rule's under `--exact`, which does not take the plan that they are known from."""
    known, graph = Known(norm, tmp_path / "profile.db"), load(norm, {})
    known.chosen(known.setting(), plan=default_plan, winograd_tile=2)
    file = tmp_path / "plan.json"
    file.write_text(none_plan(graph).to_json(ScheduleLimits(0)), encoding="utf-8")
    for exact, asked, plan, tile in (
        (True, None, default_plan(graph, FusionSpace(exact=True)), 2),
        (False, "none", none_plan(graph), 2),
        (False, str(file), none_plan(graph), 0),
        (False, None, default_plan(graph), 2),
    ):
        policy = Policy(limits=ScheduleLimits(exact=exact))
        with Context(database=str(known.path), threads=1, policy=policy) as context:
            found = find_plan(context, graph, "", asked)
        assert (found.plan, found.limits) == (plan, ScheduleLimits(tile, exact=exact))
    known.base.close()


def test_exact_takes_no_plan_that_rounds_differently(norm: Path, tmp_path: Path) -> None:
    known = Known(norm, tmp_path / "profile.db")
    graph = load(norm, {})
    for plan, tier in ((default_plan(graph), "rule"), (none_plan(graph), "hit")):
        known.chosen(known.setting(), plan=lambda _, plan=plan: plan)  # type: ignore[misc]
        report = autofuse.compile(norm, dry_run=True, database=str(known.path), threads=1, exact=True)
        assert (report.plan_tier, "LayerNormalization" in labels(report)) == (tier, False)
    file = tmp_path / "plan.json"
    file.write_text(default_plan(graph).to_json(), encoding="utf-8")
    with pytest.raises(PlanError, match="--exact"):
        autofuse.compile(norm, dry_run=True, database=str(known.path), threads=1, plan=str(file), exact=True)
    known.base.close()
