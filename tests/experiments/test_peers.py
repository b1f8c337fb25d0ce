"""The peer benchmark without its libraries: rivals' processes, limits, rows, tables, what is made ready."""

from __future__ import annotations

import csv
import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from autofuse.backend.compile.host_cpu import local_device
from autofuse.graph.loading.load import load
from autofuse.measure.networks.bench import Contender, Host, bench_contenders
from experiments.architectures import weenet
from experiments.peers import environments, plot, run, table
from experiments.peers import prepare as making
from experiments.peers.environments import ENVIRONMENTS, MissingEnvironmentError
from experiments.peers.limits import Demand, Rates, demand_of, limit_of
from experiments.peers.prepare import Prepared, Subject, prepare
from experiments.peers.rivals import RIVALS, host_of
from experiments.peers.row import Entry, Row
from experiments.peers.runtimes.litert_runtime import _held, _in_order, _real
from experiments.peers.runtimes.metaschedule_runtime import imported
from experiments.peers.runtimes.ncnn_runtime import foreign_layers
from experiments.seeds.models import SmallModel, conv, norm
from tests.experiments.seven_rounds import samples

FAKE = Host("tests.experiments.fake_rival", environment={"OMP_NUM_THREADS": "1"})


@pytest.mark.long
def test_rivals_of_another_program_are_timed_checked_and_lost_one_by_one(tmp_path: Path, counted_rounds: None) -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    rivals = [Contender(kind, kind, tmp_path, FAKE) for kind in ("right", "wrong", "crash", "unknown")]
    found = bench_contenders(
        rivals, {"x": x}, 1, 1.0, target=local_device().target(), expected=[2 * x], lock=tmp_path / "lock"
    )
    assert found["right"].ratio == 1.0
    assert (found["right"].wrong, found["right"].max_rel_error) == ("", 0.0)
    assert (found["right"].median_us or 0) > 1000, "it sleeps for so long"
    assert "relative error" in found["wrong"].wrong
    assert "exited with code 9" in found["crash"].error
    assert "KeyError" in found["unknown"].error


def subject(tmp_path: Path, **changes: object) -> Subject:
    given = Subject(
        tmp_path / "m.onnx", "0" * 64, 1, {"x": np.zeros((2, 3), np.float32)}, local_device().target(),
        tmp_path / "ready", tmp_path / "m.db",
    )  # fmt: skip
    return replace(given, **changes)  # type: ignore[arg-type]


def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every environment seems to be there."""
    monkeypatch.setattr(making, "interpreter", lambda name: Path(name))


def test_what_was_made_ready_is_kept_until_something_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def fake_host(*_: object) -> Host:
        asked.append(1)
        return FAKE

    installed(monkeypatch)
    monkeypatch.setattr(making, "host_of", fake_host)
    first = prepare(RIVALS["openvino"], subject(tmp_path))
    assert (first.error, first.note) == ("", "{'x': (2, 3)}")
    assert Path(first.path) == tmp_path / "ready" / "openvino"
    assert prepare(RIVALS["openvino"], subject(tmp_path)) == first
    assert len(asked) == 1
    assert prepare(RIVALS["openvino"], subject(tmp_path, sha256="1" * 64)).key != first.key
    assert len(asked) == 2


def test_what_cannot_be_made_ready_says_why_and_is_tried_again_only_on_demand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed(monkeypatch)
    monkeypatch.setattr(making, "host_of", lambda *_: FAKE)
    refusing = replace(RIVALS["ncnn"], kind="refuses")
    first = prepare(refusing, subject(tmp_path))
    assert (first.path, first.error) == ("", "it has no such layer")
    monkeypatch.setattr(making, "host_of", lambda *_: pytest.fail("tried again"))
    assert prepare(refusing, subject(tmp_path)) == first
    monkeypatch.setattr(making, "host_of", lambda *_: FAKE)
    assert not prepare(RIVALS["ncnn"], subject(tmp_path), retry=True).error


def test_a_rival_without_its_environment_says_how_to_install_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environments, "FOLDER", tmp_path)
    with pytest.raises(MissingEnvironmentError, match="make peers-setup"):
        host_of(RIVALS["litert"], 1, tmp_path)
    assert "make peers-setup" in prepare(RIVALS["litert"], subject(tmp_path)).error
    stamp = tmp_path / "litert" / environments.STAMP
    stamp.parent.mkdir()
    stamp.write_text(ENVIRONMENTS["litert"].key)
    host = host_of(RIVALS["litert"], 2, tmp_path)
    assert host.python == tmp_path / "litert" / "bin" / "python"
    assert host.environment["OMP_NUM_THREADS"] == "2"
    stamp.write_text("something older")
    with pytest.raises(MissingEnvironmentError):
        environments.interpreter("litert")


def test_autofuse_without_a_database_is_not_tuned(tmp_path: Path) -> None:
    found = prepare(RIVALS["autofuse"], subject(tmp_path))
    assert "not tuned: no database m.db" in found.error
    assert not Prepared.read(tmp_path / "nothing.json").path


def test_every_rivals_environment_is_described() -> None:
    """`sklearn` is no rival: it writes models (experiments/real_models)."""
    assert {rival.environment for rival in RIVALS.values()} - {None} == set(ENVIRONMENTS) - {"sklearn"}
    installed = [name for environment in ENVIRONMENTS.values() for step in environment.steps for name in step]
    assert all("==" in name for name in installed if name.startswith(("torch", "torchvision", "openvino", "apache")))
    assert "torch" not in installed


def test_the_limit_is_the_slower_of_arithmetic_and_memory() -> None:
    machine = Rates(gflops=100.0, dram_gbs=10.0)
    busy = limit_of(Demand(flops=2 * 10**9, bytes=10**6), machine)
    assert (busy.compute_us, busy.memory_us, busy.bound) == (20_000.0, 100.0, "compute")
    assert limit_of(Demand(flops=10**6, bytes=10**9), machine).us == 100_000.0
    with pytest.raises(ValueError, match="positive"):
        limit_of(Demand(1, 1), Rates(0.0, 1.0))


def test_the_demand_of_a_network_counts_weights_and_ends_once_and_looked_up_rows_only(tmp_path: Path) -> None:
    onnx.save(weenet.build(channels=4, size=6), tmp_path / "net.onnx")
    found = demand_of(load(tmp_path / "net.onnx"))
    pixels, weights = 4 * 36, 4 * 4 * 9
    assert 2 * weights * 36 <= found.flops <= 2 * weights * 36 + 4 * pixels
    assert 4 * (2 * pixels + weights) <= found.bytes <= 4 * (2 * pixels + weights + 16)
    node = helper.make_node("Gather", ["table", "rows"], ["y"])
    ids = helper.make_tensor_value_info("rows", TensorProto.INT64, [3])
    out = helper.make_tensor_value_info("y", TensorProto.FLOAT, [3, 8])
    values = helper.make_tensor("table", TensorProto.FLOAT, [1000, 8], np.zeros(8000))
    graph = helper.make_graph([node], "g", [ids], [out], [values])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), tmp_path / "g.onnx")
    assert demand_of(load(tmp_path / "g.onnx")).bytes == 4 * 24 * 2 + 8 * 3


ROW = Row(
    "net", 2, "0" * 64, "", Demand(10**9, 10**6), Rates(100.0, 10.0),
    {
        "onnxruntime": Entry(samples(20_000.0), max_rel_error=0.0, note=""),
        "openvino": Entry(samples(16_000.0), max_rel_error=1e-7, note="f32"),
        "ncnn": Entry(samples(10_000.0), wrong="output 0: relative error 0.3", max_rel_error=0.3),
        "litert": Entry(error="aten.foo is not known | at all, whatever the converter tries"),
        "autofuse": Entry(samples(12_500.0, trusted=False), max_rel_error=1e-6),
    },
    120.0, 3.0, "2031-05-06T07:08:09+00:00", {"CPU": "a"},
)  # fmt: skip


def test_a_row_with_its_samples_survives_its_file(tmp_path: Path) -> None:
    path = tmp_path / "rows" / "net-2t.json"
    assert Row.read(path) is None
    ROW.write(path)
    assert Row.read(path) == ROW
    path.write_text(json.dumps({"network": "net"}))
    assert Row.read(path) is None


def test_any_two_rivals_of_a_row_can_be_compared() -> None:
    found = ROW.ratio("openvino", "autofuse")
    assert found is not None
    assert (round(found.ratio, 2), found.trusted) == (1.28, True)
    assert found.lo <= found.ratio <= found.hi
    assert ROW.ratio("litert", "autofuse") is None
    assert ROW.ratio("torch", "autofuse") is None
    assert ROW.fastest(["onnxruntime", "openvino", "ncnn", "litert"]) == "openvino"


def test_the_table_shows_ratios_the_best_peer_doubts_wrong_results_and_reasons() -> None:
    other = replace(ROW, network="two", entries={**ROW.entries, "autofuse": Entry(samples(8000.0))})
    broken = replace(ROW, network="three", error="InputError: no", entries={}, measured_at="")
    text = table.markdown([ROW, other, broken])
    head, _, first, second, mean = text.splitlines()[:5]
    assert head.split(" | ")[2:7] == ["ONNX Runtime", "OpenVINO f32", "LiteRT", "ncnn", "autofuse"]
    assert first.split(" | ")[2:5] == ["1", "**1.25 (1.25–1.25)**", "cannot: aten.foo is not known \\| at…"]
    assert first.split(" | ")[5:8] == [
        "wrong: 2.00 (2.00–2.00)", "1.60 (1.60–1.60)", "1.28 (1.28–1.28) against OpenVINO f32",
    ]  # fmt: skip
    assert first.endswith("| 62 %, 80 % (compute) |")
    assert second.startswith("| two | 2 |")
    assert mean.split(" | ")[2:8] == ["1.00", "1.25", "—", "—", "2.00", f"{math.sqrt(1.28 * 2):.2f}"]
    assert "- net, 2 threads: LiteRT: aten.foo is not known | at all, whatever the converter tries" in text
    assert "- net, 2 threads: ncnn: wrong: output 0: relative error 0.3" in text
    assert "- three, 2 threads: failed: InputError: no" in text
    assert "- probe, 2 threads: 100 GFLOP/s of float32, 10.0 GB/s read from memory" in text
    assert "- OpenVINO f32: f32" in text


def test_the_csv_has_a_line_for_each_rival_and_the_plot_reads_it(tmp_path: Path) -> None:
    table.write([ROW], tmp_path)
    with (tmp_path / "results.csv").open(encoding="utf-8", newline="") as file:
        lines = list(csv.DictReader(file))
    assert [line["rival"] for line in lines] == ["onnxruntime", "openvino", "litert", "ncnn", "autofuse"]
    ours = lines[-1]
    assert (float(ours["of_limit"]), ours["bound"], ours["trusted"]) == (
        pytest.approx(10 / 12.5, rel=0.01),
        "compute",
        "True",
    )
    assert (lines[2]["median_us"], lines[3]["of_limit"]) == ("", "")
    points = plot.points(lines)
    assert list(points) == ["2"]
    assert set(points["2"]) == {"onnxruntime", "openvino", "autofuse"}
    assert points["2"]["openvino"]["net"][0] == pytest.approx(1.25)


def test_finished_rows_are_kept_as_long_as_the_model_is_the_same(tmp_path: Path) -> None:
    model = tmp_path / "net.onnx"
    model.write_bytes(b"one")
    kept = replace(ROW, model_sha256=run.sha256(model))
    kept.write(tmp_path / "out" / "rows" / "net-2t.json")
    assert run.stored(tmp_path / "out", model, 2) == kept
    model.write_bytes(b"two")
    assert run.stored(tmp_path / "out", model, 2) == Row("net", 2, run.sha256(model))


@pytest.mark.long
def test_a_run_on_the_rivals_that_need_no_environment_is_finished_and_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, counted_rounds: None
) -> None:
    monkeypatch.setattr(environments, "FOLDER", tmp_path / "nothing")
    onnx.save(weenet.build(channels=8, size=12), tmp_path / "small.onnx")
    rivals = "onnxruntime,openvino,autofuse,autofuse:none"
    arguments = [str(tmp_path / "small.onnx"), "--threads", "1", "--rivals", rivals, "--bench", "1s"]
    arguments += ["--out", str(tmp_path / "out"), "--databases", str(tmp_path)]
    assert run.main(arguments) == 0
    row = Row.read(tmp_path / "out" / "rows" / "small-1t.json")
    assert row is not None
    assert row.entries["onnxruntime"].counts
    assert row.entries["autofuse:none"].counts
    assert "not tuned" in row.entries["autofuse"].error
    assert "make peers-setup" in row.entries["openvino"].error
    assert row.limit is not None
    assert 0 < row.limit.us < (row.entries["onnxruntime"].us or 0)
    assert "| small | 1 | **1" in (tmp_path / "out" / "results.md").read_text()
    capsys.readouterr()
    assert run.main(arguments) == 0
    assert "small, 1 thread: finished on" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["lenet"], "is no file, no folder, and no network"),
        (["x.onnx", "--rivals", "caffe"], "'caffe' is not one of onnxruntime"),
        (["resnet50", "--threads", "0"], "--threads: 0 is not above zero"),
    ],
)
def test_wrong_arguments_of_the_peer_benchmark_are_refused(
    arguments: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "resnet50.onnx").write_bytes(b"not read")
    with pytest.raises(SystemExit) as refusal:
        run.main([*arguments, "--generated", str(tmp_path)])
    assert refusal.value.code != 0
    assert said in f"{refusal.value.code}{capsys.readouterr().err}"


def test_layers_that_ncnn_does_not_have_are_named() -> None:
    layers = ["Input in0 0 1 in0", "Convolution conv 1 1 in0 1 0=8", "pnnx.Expression e 1 1 1 2", "Swish s 1 1 2 out0"]
    text = "\n".join(["7767517", "3 3", *layers])
    assert foreign_layers(text) == ["pnnx.Expression"]
    assert foreign_layers(text.replace("pnnx.Expression", "BinaryOp")) == []


def test_tensors_of_a_signature_go_by_their_number() -> None:
    assert _in_order({"args_10": 5, "args_2": 7, "args_0": 9}) == [9, 7, 5]
    assert _in_order({"output": 3}) == [3]


def test_litert_takes_and_gives_bytes_where_its_model_is_quantised() -> None:
    detail = {"dtype": np.int8, "quantization": (0.5, -3)}
    array = np.array([-100.0, -0.25, 0.0, 0.8, 70.0], np.float32)
    held = _held(array, detail)
    assert held.dtype == np.int8 and held.tolist() == [-128, -3, -3, -1, 127]
    assert _real(held, detail).tolist() == [-62.5, 0.0, 0.0, 1.0, 65.0]
    plain = {"dtype": np.int32, "quantization": (0.0, 0)}
    assert _held(np.array([7], np.int64), plain).dtype == np.int32
    assert _real(array, plain) is array


def test_metaschedule_reads_folded_weights_as_parameters_and_scalars_as_constants(tmp_path: Path) -> None:
    model = SmallModel("clipped")
    x = norm(model, conv(model, model.input("x", 1, 3, 8, 8), 3, 8, 3, 1), 8)
    limits = [model.constant(np.array(value, np.float32)) for value in (0.0, 6.0)]
    onnx.save(model.build(model.node("Clip", x, *limits), 1, 8, 8, 8), tmp_path / "clipped.onnx")
    module, weights = imported(tmp_path / "clipped.onnx")
    assert [tuple(weight.shape) for weight in weights] == [(8, 3, 3, 3), (8,)]
    assert len(module["main"].params) == 1 + len(weights)
    assert "batch_norm" not in module.script() and "sqrt" not in module.script()
