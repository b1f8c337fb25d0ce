"""Winners are measured again from the database alone, and what changed is said and recorded."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from autofuse.database.database import open_database
from autofuse.database.records import Candidate, CandidateOutcome, ChosenGroup, RunStart, SampleBlock
from autofuse.environment.environment import environment_of
from autofuse.environment.place import Place
from autofuse.errors import InputError
from autofuse.graph.loading.load import load
from autofuse.kernels.workload.workload import bind_workload
from autofuse.measure.checking.reference import run_reference
from autofuse.search.lab.revalidation import rebuilt, revalidate, summary


def model(onnx_builder: type, folder: Path) -> Path:
    builder = onnx_builder()
    y = builder.op("Relu", "relu", builder.conv_bn("conv", "x", (4, 8)))
    y = builder.op("Softmax", "soft", y, axis=-1)
    path: Path = builder.save(folder / "net.onnx", {"x": (1, 4, 8, 8)}, [y])
    return path


def test_a_workload_becomes_a_graph_that_runs(onnx_builder: type, tmp_path: Path) -> None:
    graph = load(model(onnx_builder, tmp_path))
    for operators in ([op.name for op in graph.operators[:2]], [graph.operators[-1].name]):
        wanted = bind_workload(graph, operators, {}).workload
        bound, small = rebuilt(wanted.text)
        assert bound.workload.key == wanted.key
        assert bind_workload(small, [op.name for op in small.operators], {}).workload.key == wanted.key
        inputs = {name: np.ones(small.tensors[name].shape, np.float32) for name in small.inputs}
        assert all(np.isfinite(value).all() for value in run_reference(small, inputs).values())


@pytest.mark.slow
def test_a_stale_winner_is_measured_with_the_versions_of_today(onnx_builder: type, tmp_path: Path) -> None:
    graph = load(model(onnx_builder, tmp_path))
    workload = bind_workload(graph, [graph.operators[-1].name], {}).workload
    good = Candidate(workload.key, workload.text, workload.label, "{}", "d" * 64)
    with open_database(tmp_path / "p.db") as database:
        environment = environment_of(database, "local", 1, measuring=True)
        old = database.setting(
            fingerprint=environment.setting.device, device_name=environment.profile.name, device_facts={},
            target=environment.target, threads=1, versions={"tvm": "0.1"},
        )  # fmt: skip
        blocks = tuple(SampleBlock((us,)) for us in (9000.0, 9001.0, 9002.0, 9003.0, 9004.0, 9005.0))
        times = {"median_us": 9002.5, "ci_lo_us": 9000.0, "ci_hi_us": 9005.0, "trusted": True, "blocks": blocks}
        number = database.record_candidate(old, CandidateOutcome(candidate=good, state="ok", **times))  # type: ignore[arg-type]
        run = database.start_run(
            old, RunStart(name="r", model_name="net", model_sha256="0" * 64, graph_key="1" * 64, seed=0)
        )
        database.record_plan("1" * 64, "2" * 64, "{}", "search")
        group = ChosenGroup(("soft",), workload.key, number, 9002.5)
        database.record_choice(run, "2" * 64, [group], median_us=None, trusted=False)
        (done,) = revalidate(database, 5, Place(threads=1))
        assert (done.stale, done.uses, done.old_us) == (True, 1, 9002.5)
        assert done.new_us is not None and done.new_us < 9000
        assert done.verdict in ("faster", "holds"), "a busy machine may leave too few good blocks to be sure"
        assert database.lookup(environment.setting, [workload.key])[workload.key].tier in ("exact", "stale")
        states = {row.tier: row.state for row in database.measured_schedules(environment.setting, workload.key)}
        assert states == {"exact": "ok", "stale": "ok"}
        assert sum(summary([done]).values()) == 1


def test_nothing_to_revalidate_is_said(tmp_path: Path) -> None:
    with open_database(tmp_path / "p.db") as database:
        with pytest.raises(InputError, match="no measured choice"):
            revalidate(database, 3, Place(threads=1))
        with pytest.raises(InputError, match="--revalidate"):
            revalidate(database, 0, Place(threads=1))
