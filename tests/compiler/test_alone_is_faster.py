"""A model that our kernels cover whole is ONNX Runtime's where a race here says that it is faster there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import numpy_helper

import autofuse
from autofuse.backend.library.session import Session
from autofuse.compiler import Context, Policy
from autofuse.environment.alone import OWN, WhoRuns, alone_key
from autofuse.environment.device import NamedDevice
from autofuse.environment.outcomes import record_race
from autofuse.errors import InputError
from autofuse.fusion.planner.baselines import none_plan
from autofuse.graph.loading.load import load
from autofuse.kernels.emission import Emission
from autofuse.kernels.lowering.lower import lower
from autofuse.kernels.tir.digest import digest
from autofuse.measure.measurement import Slice
from autofuse.measure.networks.bench import ContenderResult, compared
from autofuse.measure.timing.race import Samples
from autofuse.values.names import ONNX_RUNTIME
from autofuse.values.statistics import median_interval
from tests.compiler.known import GOOD, Known

NETWORK = "net (float[batch,32] x) => (float[batch,16] y) { m = MatMul (x, w) y = Relu (m) }"
BATCH, ROUNDS = 4, 15
HERE = onnxruntime.__version__
SHAPES = {"x": (BATCH, 32)}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 18]> {NETWORK}')
    weights = np.random.default_rng(0).standard_normal((32, 16)).astype("float32")
    made.graph.initializer.append(numpy_helper.from_array(weights, "w"))
    path = tmp_path_factory.mktemp("alone") / "net.onnx"
    onnx.save(made, path)
    return path


@pytest.fixture
def known(model: Path, tmp_path: Path) -> Iterator[Known]:
    """A database with a finished job, which measured every kernel."""
    made = Known(model, tmp_path / "profile.db")
    made.measured(made.setting(), plan=none_plan(load(model, {"x": (BATCH, 32)})))
    made.chosen(made.setting(), plan=none_plan)
    yield made
    made.base.close()


def result(us: float) -> ContenderResult:
    """A contender of a race, with blocks that differ by a part in a thousand."""
    times = [us * (1 + 1e-3 * (number % 3 - 1)) for number in range(ROUNDS)]
    slices = tuple(Slice(one, 1, 1.0, 0.0, True) for one in times)
    samples = Samples(slices, tuple(range(ROUNDS)), median_interval(times), True, "")
    return ContenderResult(us, None, None, None, True, max_rel_error=1e-7, samples=samples)


def raced(known: Known, own_us: float, alone_us: float, setting: Any = None, version: str = HERE) -> None:
    """A race of the chosen plan with ONNX Runtime alone that ended so."""
    graph, target = load(known.model, {"x": (BATCH, 32)}), known.environment.target
    plan, emission = none_plan(graph), Emission(target)
    kernels = lower(graph, plan, target, [group.operators for group in plan.groups]).kernels
    loads = {bound.workload.key: bound.workload for bound in kernels}.values()
    digests = [digest(emission.code(load_, GOOD), target, known.environment.versions) for load_ in loads]
    results = compared({OWN: result(own_us), ONNX_RUNTIME: result(alone_us)})
    record_race(known.base, setting or known.setting(), alone_key(graph, plan.key, digests, version), results)


def sides(known: Known, **options: Any) -> list[str]:
    """Where the parts of the model run; none where our kernels run it."""
    return [part.side for part in known.compile(**options).parts]


@pytest.mark.parametrize(
    ("alone_us", "expected"),
    [(80.0, ["ONNX Runtime"]), (97.5, ["ONNX Runtime"]), (98.5, []), (100.0, []), (150.0, [])],
    ids=["slower", "just slower", "within two percent", "a tie", "faster"],
)
def test_onnx_runtime_runs_it_only_where_it_is_faster_beyond_doubt_and_by_more_than_two_percent(
    known: Known, alone_us: float, expected: list[str]
) -> None:
    assert sides(known) == []
    raced(known, own_us=100.0, alone_us=alone_us)
    assert sides(known) == expected


def test_the_report_says_why_and_the_newest_race_counts(known: Known) -> None:
    raced(known, own_us=100.0, alone_us=80.0)
    report = known.compile()
    assert report.plan == "ONNX Runtime alone" and report.kernels == 0
    assert all(row.reason.startswith("measured: 0.800x as fast as ONNX Runtime alone") for row in report.rest)
    raced(known, own_us=100.0, alone_us=120.0)
    assert sides(known) == []


def test_a_race_of_another_version_of_onnx_runtime_says_nothing(known: Known) -> None:
    raced(known, own_us=100.0, alone_us=80.0, version="1.0.0")
    assert sides(known) == []
    raced(known, own_us=100.0, alone_us=80.0)
    assert sides(known) == ["ONNX Runtime"]


def inspected(known: Known, **place: Any) -> WhoRuns:
    summary = autofuse.inspect(known.model, **{"database": str(known.path), "threads": 1, **place}, shapes=SHAPES)
    assert summary.runs is not None
    return summary.runs


@pytest.mark.parametrize(("alone_us", "side"), [(80.0, "ONNX Runtime"), (98.5, "autofuse"), (150.0, "autofuse")])
def test_inspect_and_explain_say_what_a_compile_does(known: Known, alone_us: float, side: str) -> None:
    raced(known, own_us=100.0, alone_us=alone_us)
    told = inspected(known)
    assert told.side == side and told.ratio == pytest.approx(alone_us / 100)
    assert told.ci_lo is not None and told.ci_hi is not None and told.ci_lo <= alone_us / 100 <= told.ci_hi
    assert sides(known) == ([side] if side == "ONNX Runtime" else [])
    explained = autofuse.explain(known.model, plan="best", database=str(known.path), threads=1, shapes=SHAPES)
    assert getattr(explained, "alone") == told.reason  # noqa: B009


def test_inspect_says_why_there_is_no_ratio(known: Known, tmp_path: Path) -> None:
    untuned = inspected(known, database=str(tmp_path / "none.db"))
    assert (untuned.side, untuned.ratio) == ("autofuse", None) and "not tuned here" in untuned.reason
    raced(known, own_us=100.0, alone_us=80.0, version="1.0.0")
    assert f"not raced against ONNX Runtime {HERE}" in inspected(known).reason


def test_the_library_runs_in_onnx_runtime_and_computes_the_same(known: Known, tmp_path: Path) -> None:
    raced(known, own_us=100.0, alone_us=80.0)
    library = tmp_path / "net.so"
    autofuse.compile(known.model, library, database=str(known.path), threads=1, shapes={"x": (BATCH, 32)})
    x = np.random.default_rng(1).standard_normal((BATCH, 32)).astype("float32")
    session = Session(library)
    (expected,) = onnxruntime.InferenceSession(known.model).run(None, {"x": x})
    np.testing.assert_array_equal(session.run(None, {"x": x})[0], expected)


def test_a_race_of_other_code_or_in_another_setting_says_nothing(known: Known) -> None:
    raced(known, 100.0, 80.0, setting=known.setting(cpu={"model_name": "a sister"}))
    assert sides(known) == []
    raced(known, 100.0, 80.0)
    assert sides(known) != []
    other = {**GOOD, "contraction.pixels": 4}
    known.measured(known.setting(), plan=none_plan(load(known.model, {"x": (BATCH, 32)})), schedule=other, us=1.0)
    assert sides(known) == []


def test_a_complete_library_is_refused_with_the_ratio(known: Known) -> None:
    assert sides(known, require_complete=True) == []
    raced(known, 100.0, 80.0)
    with pytest.raises(InputError, match=r"0\.800x as fast as ONNX Runtime alone.*without --require-complete"):
        known.compile(require_complete=True)


def test_what_cannot_or_must_not_run_in_onnx_runtime_ignores_the_race(
    known: Known, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A free-standing library, a plan that was asked for, who wants our kernels, a device that is not this machine."""
    raced(known, 100.0, 80.0)
    assert sides(known, format="ort") == ["ONNX Runtime"]
    assert sides(known, format="c") == [] and sides(known, plan="none") == []
    with Context(database=str(known.path), threads=1, policy=Policy(every_segment=True)) as context:
        report = autofuse.compile(known.model, context=context, dry_run=True, shapes={"x": (BATCH, 32)})
        assert report.parts == ()
    monkeypatch.setattr(NamedDevice, "is_known", False)
    assert sides(known) == []


@pytest.mark.long
@pytest.mark.usefixtures("counted_rounds")
def test_tune_records_what_a_compile_looks_up(known: Known, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever won: here a compile is told that ONNX Runtime did."""
    database = str(tmp_path / "own.db")
    shapes = {"x": (BATCH, 32)}
    tuned = autofuse.tune(known.model, database=database, threads=1, trials=1, shapes=shapes)
    assert "ONNX Runtime alone" in tuned.alone
    monkeypatch.setattr("autofuse.compiler.parts.whole.is_slower", lambda _ratio: True)
    report = autofuse.compile(known.model, database=database, threads=1, shapes=shapes, dry_run=True)
    assert [part.side for part in report.parts] == ["ONNX Runtime"]
    explained = autofuse.explain(known.model, plan="best", database=database, threads=1, shapes=shapes)
    assert getattr(explained, "alone") == tuned.alone  # noqa: B009
    assert tuned.alone in autofuse.report(database=database).text()
