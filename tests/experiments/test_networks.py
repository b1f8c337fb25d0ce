"""The measured table: its networks are what they are named after, and its rows survive failures and restarts."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import ModelProto

import autofuse
from autofuse.database.database import open_database
from autofuse.graph.inputs import generate_inputs
from autofuse.graph.loading.load import load
from experiments.architectures import bert, efficientnet_b0, resnet50, squeezenet1_1, weenet
from experiments.networks import one_network, run, table
from experiments.networks.row import Job, Ratio, Row

SMALL_BERT = bert.Size(layers=2, hidden=24, heads=3, intermediate=40, sequence=10, vocabulary=50, positions=16)
SMALL: dict[str, Callable[[], ModelProto]] = {
    "weenet": lambda: weenet.build(channels=8, size=12),
    "resnet50": lambda: resnet50.build(size=32, classes=10, stages=((16, 2, 1), (32, 1, 2))),
    "squeezenet1_1": lambda: squeezenet1_1.build(size=48, classes=10),
    "efficientnet_b0": lambda: efficientnet_b0.build(size=32, classes=10, blocks=((1, 3, 1, 16, 1), (6, 5, 2, 24, 2))),
    "bert": lambda: bert.build("bert", SMALL_BERT),
}


def operators(model: ModelProto) -> Counter[str]:
    return Counter(node.op_type for node in model.graph.node)


def parameters(model: ModelProto) -> int:
    """Weights that training would change: no statistics of BatchNormalization, no shapes, no single numbers."""
    return sum(
        int(np.prod(weight.dims))
        for weight in model.graph.initializer
        if weight.dims and weight.data_type == onnx.TensorProto.FLOAT and not weight.name.endswith((".mean", ".var"))
    )


def test_resnet50_has_the_layers_and_parameters_of_the_paper() -> None:
    model = resnet50.build(size=32)
    counts = operators(model)
    assert (counts["Conv"], counts["BatchNormalization"], counts["Relu"], counts["Add"]) == (53, 53, 49, 16)
    assert parameters(model) == 25_557_032


def test_squeezenet_has_the_layers_and_parameters_of_its_authors() -> None:
    model = squeezenet1_1.build(size=64)
    counts = operators(model)
    assert (counts["Conv"], counts["Relu"], counts["Concat"], counts["MaxPool"]) == (26, 26, 8, 3)
    assert parameters(model) == 1_235_496


def test_efficientnet_b0_has_the_layers_and_parameters_of_the_paper() -> None:
    model = efficientnet_b0.build(size=32)
    counts = operators(model)
    assert (counts["Conv"], counts["BatchNormalization"], counts["Sigmoid"], counts["Mul"]) == (81, 49, 65, 65)
    assert parameters(model) == 5_288_548


def test_an_encoder_has_the_operators_of_every_layer() -> None:
    counts = operators(SMALL["bert"]())
    assert (counts["MatMul"], counts["LayerNormalization"], counts["Erf"], counts["Softmax"]) == (16, 5, 2, 2)


def test_the_sizes_of_the_encoders_are_those_of_their_papers() -> None:
    """Parameters of a layer, and of the embeddings: 14.3 million and 108.9 million in all (without the pooler)."""

    def total(size: bert.Size) -> int:
        hidden, wide = size.hidden, size.intermediate
        layer = 4 * (hidden + 1) * hidden + (hidden + 1) * wide + (wide + 1) * hidden + 4 * hidden
        return size.layers * layer + (size.vocabulary + size.positions + 2 + 2) * hidden

    assert (round(total(bert.TINY) / 1e6, 1), round(total(bert.BASE) / 1e6, 1)) == (14.3, 108.9)
    model = SMALL["bert"]()
    assert parameters(model) == total(SMALL_BERT)


@pytest.mark.long
@pytest.mark.parametrize("name", SMALL)
def test_a_generated_network_loads_and_answers_differently_to_different_inputs(name: str, tmp_path: Path) -> None:
    path = tmp_path / f"{name}.onnx"
    model = SMALL[name]()
    onnx.save(model, path)
    assert len(autofuse.inspect(path).operators) <= len(model.graph.node)
    assert not autofuse.inspect(path).untunable
    graph = load(path)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    first, second = (session.run(None, generate_inputs(graph, seed))[0] for seed in (1, 2))
    assert np.isfinite(first).all()
    assert np.abs(first - second).max() > 1e-3 * np.ptp(first)


@pytest.mark.parametrize("name", SMALL)
def test_the_same_seed_gives_the_same_weights(name: str) -> None:
    assert SMALL[name]().SerializeToString() == SMALL[name]().SerializeToString()


FULL = Row(
    "net", 2, "0" * 64, tuned=True, tuning_s=600.0, candidates=120, failed=3, operators=9, kernels_none=8, kernels=2,
    autofuse_us=1234.5, max_rel_error=2e-6, measured_at="2031-05-06T07:08:09+00:00", facts={"CPU": "a", "TVM": "b"},
    rivals={
        "onnxruntime": Ratio(1500.0, 1.215, 1.19, 1.25, True),
        "tvm-untuned": Ratio(30000.0, 24.3, 24.0, 25.0, False),
        "none": Ratio(error="build_error: no kernel"),
    },
)  # fmt: skip


def test_a_row_survives_its_file(tmp_path: Path) -> None:
    path = tmp_path / "rows" / "net-2t.json"
    assert Row.read(path) is None
    FULL.write(path)
    assert Row.read(path) == FULL
    path.write_text('{"network": "net"')
    assert Row.read(path) is None


def test_the_table_shows_ratios_doubts_means_and_reasons() -> None:
    other = replace(FULL, network="two", rivals={**FULL.rivals, "onnxruntime": Ratio(1.0, 0.8, 0.7, 0.9, True)})
    broken = replace(FULL, network="three", autofuse_us=None, error="InputError: not an ONNX file")
    text = table.markdown([FULL, other, broken])
    assert "| net | 2 | 8 → 2 | 1.234 ms | 1.22 (1.19–1.25) | 24.3 (24.0–25.0) ? | — |" in text
    assert "| not TVM, untuned, no fusion | 2e-06 | 10.0 min | 120 |" in text
    assert "| geometric mean of 2 | 2 |  |  | 0.99 | 24.3 | — |" in text
    assert "- three, 2 threads: failed: InputError: not an ONNX file" in text
    assert "- net, 2 threads: no fusion: build_error: no kernel" in text
    assert "| three |" not in text
    assert "- CPU: a" in text
    assert "- measured: 2031-05-06\n" in text


def test_facts_that_differ_between_rows_are_all_shown() -> None:
    text = table.markdown([FULL, replace(FULL, facts={"CPU": "z", "TVM": "b"}, measured_at="2031-06-01T00:00:00")])
    assert "- CPU: a, z" in text
    assert "- TVM: b" in text
    assert "- measured: 2031-05-06 to 2031-06-01" in text


@pytest.mark.long
def test_a_broken_model_is_a_row_and_the_next_one_is_finished_and_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The whole of run.py, around a child that tunes nothing; started again, it keeps what is finished."""
    monkeypatch.setattr(run, "MODULE", "tests.experiments.fake_network")
    broken, small = tmp_path / "broken.onnx", tmp_path / "small.onnx"
    onnx.save(SMALL["weenet"](), small)
    broken.write_bytes(small.read_bytes()[:200])
    out = tmp_path / "out"
    arguments = [str(broken), str(small), "--threads", "1", "--budget", "20s", "--trials", "1", "--bench", "2s"]
    assert run.main([*arguments, "--out", str(out)]) == 1
    with (out / "results.csv").open(encoding="utf-8", newline="") as file:
        bad, good = csv.DictReader(file)
    assert "not a readable ONNX file" in bad["error"]
    assert (good["network"], good["error"], good["kernels_none"], good["tuned"]) == ("small", "", "3", "True")
    assert "| small | 1 | 3 → 1 |" in (out / "results.md").read_text(encoding="utf-8")
    assert run.main([str(small), *arguments[2:], "--out", str(out)]) == 0
    kept = Row.read(out / "rows" / "small-1t.json")
    assert kept is not None
    assert kept.measured_at == good["measured_at"]


def test_a_child_that_dies_is_a_row_with_its_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "MODULE", "tests.experiments.fake_network")
    onnx.save(SMALL["weenet"](), tmp_path / "dies.onnx")
    assert run.main([str(tmp_path / "dies.onnx"), "--threads", "1", "--out", str(tmp_path / "out")]) == 1
    row = Row.read(tmp_path / "out" / "rows" / "dies-1t.json")
    assert row is not None and row.error == "died of SIGKILL"


@pytest.mark.slow
@pytest.mark.long
def test_a_network_is_compiled_and_timed_against_its_rivals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the child does after the search, which other tests try: here libraries are compiled by the rules."""
    model = tmp_path / "small.onnx"
    onnx.save(SMALL["weenet"](), model)
    row = Row("small", 1, run.sha256(model), tuned=True)
    open_database(tmp_path / "small.db").close()
    job = Job(
        str(model), 1, str(tmp_path / "small.db"), str(tmp_path / "a.so"), str(tmp_path / "b.so"),
        str(tmp_path / "row.json"), 1.0, 2.0, 1, False,
    )  # fmt: skip
    compiled = autofuse.compile
    monkeypatch.setattr(autofuse, "compile", lambda *given, **named: compiled(*given, **{**named, "on_miss": "rule"}))
    done = one_network.bench(job, one_network.compile_(job, row))
    assert done.finished and (done.kernels_none, done.operators) == (3, 3) and done.kernels in (1, 2)
    assert done.max_rel_error is not None and done.max_rel_error < 1e-4
    found = done.rivals["onnxruntime"]
    assert found.us is not None and found.us > 0
    if found.ratio:  # a busy machine may have too few good blocks for one
        assert found.ci_lo is not None and found.ci_hi is not None and found.ci_lo <= found.ratio <= found.ci_hi
    assert {"CPU", "TVM", "Python"} <= done.facts.keys()


@pytest.mark.long
def test_measuring_again_needs_a_database(tmp_path: Path) -> None:
    small = tmp_path / "small.onnx"
    onnx.save(SMALL["weenet"](), small)
    out = tmp_path / "out"
    assert run.main([str(small), "--threads", "1", "--only-bench", "--bench", "1s", "--out", str(out)]) == 1
    row = Row.read(out / "rows" / "small-1t.json")
    assert row is not None
    assert "run without --only-bench first" in row.error
    assert not (out / "small.db").exists()


def test_a_changed_model_is_measured_anew(tmp_path: Path) -> None:
    model = tmp_path / "net.onnx"
    model.write_bytes(b"one")
    stored = replace(FULL, network="net", threads=1, model_sha256=run.sha256(model))
    stored.write(tmp_path / "out" / "rows" / "net-1t.json")
    assert run.stored(tmp_path / "out", model, 1) == stored
    model.write_bytes(b"two")
    assert run.stored(tmp_path / "out", model, 1) == Row("net", 1, run.sha256(model))


@pytest.mark.parametrize("arguments", [[], ["missing.onnx"], ["lenet"], ["--threads", "0", "x.onnx"]])
def test_wrong_arguments_are_refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as refusal:
        run.main(arguments)
    assert refusal.value.code != 0
    said = f"{refusal.value.code}{capsys.readouterr().err}"
    assert any(word in said for word in ("required: MODEL", "and no network", "not above zero"))
