"""Float models that were really trained lose no more than was said when some of their contractions are in int8."""

from __future__ import annotations

import json
from collections.abc import Mapping
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx import helper, numpy_helper
from rich.console import Console
from typer.testing import CliRunner, Result

import autofuse
from autofuse.api.results import ContractionReport, Quantized, TriedSet
from autofuse.cli.main import app
from autofuse.cli.screens.quantize_view import quantize_text
from autofuse.cli.screens.render import explained
from autofuse.errors import InputError
from autofuse.graph.loading.load import load
from autofuse.graph.transform.quantize.certificate import Data
from autofuse.measure.checking.reference import run_reference
from autofuse.values.statistics import MeanInterval
from tests.precision.trained import accuracy, images, questions, save, trained, trained_attention

Array = NDArray[Any]
KEY = "autofuse.quantization"
DEVICE = "icelake"
"""One with instructions for bytes, whatever this machine has: times are estimated for it, nothing is run."""


def call(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def scores(model: Path, x: Array) -> Array:
    """Of one image at a time, by ONNX Runtime as it is shipped."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    return np.concatenate([session.run(None, {"image": one[None]})[0] for one in x])


def right(model: Path, x: Array, labels: Array) -> float:
    return float((scores(model, x).argmax(1) == labels).mean())


def folder_of(path: Path, x: Array) -> Path:
    path.mkdir()
    np.save(path / "images.npy", x[:, None])
    return path


def precisions(found: Quantized) -> dict[str, str]:
    return {one.operator: one.precision for one in found.contractions}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Models, calibration and acceptance data, and a model that the command line wrote, with what it said."""
    made = tmp_path_factory.mktemp("quantize")
    save(trained(), made / "fragile.onnx", fragile=True)
    save(trained(), made / "plain.onnx")
    folder_of(made / "calibration", images(40, 5)[0])
    folder_of(made / "acceptance", images(60, 6)[0])
    done = call(
        "quantize", made / "fragile.onnx", "-o", made / "int8.onnx", "--calibration", made / "calibration",
        "--acceptance", made / "acceptance", "--db", made / "p.db", "--device", DEVICE, "--format", "json",
    )  # fmt: skip
    assert done.exit_code == 0, done.stderr
    (made / "said.json").write_text(done.stdout, encoding="utf-8")
    return made


@pytest.fixture(scope="module")
def said(folder: Path) -> Any:
    return json.loads((folder / "said.json").read_text(encoding="utf-8"))


def test_the_network_of_these_tests_has_learned() -> None:
    assert accuracy(trained(), *images(1000, 7)) > 0.95


def test_all_but_a_fragile_layer_is_in_int8(said: Any) -> None:
    rows = {one["operator"]: one for one in said["contractions"]}
    assert {name: row["precision"] for name, row in rows.items()} == {
        "conv1": "int8", "conv2": "int8", "fragile": "float32", "dense": "int8",
    }  # fmt: skip
    assert rows["fragile"]["noise"] > 100 * rows["conv1"]["noise"]
    assert rows["fragile"]["why"] == "too noisy for what may be lost"
    assert said["chosen_us"] < said["float_us"]
    assert said["front"][-1]["drop"] < 0.005 < max(point["drop"] for point in said["front"])


def test_the_screen_shows_contractions_the_sets_that_were_tried_and_the_certificate(said: Any, folder: Path) -> None:
    rows = [ContractionReport(**row) for row in said["contractions"]]
    drop, points = MeanInterval(**said["drop"]), [TriedSet(**point) for point in said["front"]]
    data = {name: Data(**said[name]) for name in ("calibration", "acceptance")}
    facts = {name: said[name] for name in said if name not in {"counts", "drop", "front", "contractions", *data}}
    screen = Console(file=StringIO(), width=200)
    found = Quantized(drop=drop, front=tuple(points), contractions=tuple(rows), **data, **facts)
    screen.print(explained(quantize_text(found)))
    text = screen.file.getvalue()  # type: ignore[attr-defined]
    assert "3 of 4 contractions" in text and "at most" in text and "with 95% confidence (allowed: 0.5 %)" in text
    assert "added noise: what a contraction" in text and "Some times are estimates" in text


def test_the_stated_drop_holds_on_data_that_nobody_saw(folder: Path, said: Any) -> None:
    x, labels = images(300, 8)
    before, after = scores(folder / "fragile.onnx", x), scores(folder / "int8.onnx", x)
    norms = np.linalg.norm(before, axis=1) * np.linalg.norm(after, axis=1)
    assert (1 - (before * after).sum(1) / norms).mean() < said["max_drop"]
    assert said["drop"]["lo"] < said["drop"]["mean"] < said["drop"]["hi"] < said["max_drop"] == 0.005
    assert right(folder / "int8.onnx", x, labels) > right(folder / "fragile.onnx", x, labels) - 0.01


def test_the_written_model_is_one_of_integers_here_and_in_onnx_runtime(folder: Path) -> None:
    graph = load(folder / "int8.onnx")
    kinds = [operator.op_type for operator in graph.operators]
    assert (kinds.count("ConvInteger"), kinds.count("MatMulInteger"), kinds.count("MatMul")) == (2, 1, 1)
    x = images(1, 9)[0]
    here = run_reference(graph, {"image": x})["scores"]
    assert np.abs(here - scores(folder / "int8.onnx", x)).max() < 0.05


def test_the_certificate_stands_in_the_written_model(folder: Path, said: Any) -> None:
    metadata = {entry.key: entry.value for entry in onnx.load(folder / "int8.onnx").metadata_props}
    certificate = json.loads(metadata[KEY])
    assert certificate["drop"] == said["drop"] and certificate["float32"].keys() == {"fragile"}
    assert (certificate["calibration"]["samples"], certificate["acceptance"]["samples"]) == (40, 60)
    assert certificate["acceptance"]["sha256"] == said["acceptance"]["sha256"] != said["calibration"]["sha256"]
    assert load(folder / "int8.onnx").origin.custom_metadata_map[KEY] == metadata[KEY]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--calibration", "absent"], "--calibration: absent: No such file or directory; name a folder"),
        (["--calibration", "empty"], "empty has no .npy or .npz file"),
        (["--calibration", "large"], "input 'image' has shape [40, 1, 1, 9, 9], the model wants [1, 1, 10, 10]"),
        (["--calibration", "misnamed"], "input 'image' is missing; given: picture"),
        (["--calibration", "complex"], "input 'image' is complex64, the model wants float32"),
        (["--calibration", "infinite"], "input 'image' holds NaN or infinity"),
        (["--calibration", "few"], "--acceptance: 3 samples (every second of --calibration; give at least 16)"),
        (["--calibration", "broken"], "not a readable .npz file"),
        (["--calibration", "calibration", "--metric", "mean"], "--metric: got 'mean', allowed: cosine, top1, kl"),
        (["--calibration", "calibration", "--max-drop", "0"], "--max-drop: got '0', allowed: percent between"),
        (
            ["--calibration", "calibration", "--precision", "int4"],
            "only weights may have four bits: that is int4-weights",
        ),
        (["--calibration", "calibration", "--precision", "float32"], "got float32 only"),
        (["--calibration", "calibration", "--metric", "top1"], "20 answers cannot show a drop of top1 below 0.500%"),
    ],
)
def test_bad_input_is_one_message(
    arguments: list[str], message: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    if not (folder / "empty").exists():
        (folder / "empty").mkdir()
        folder_of(folder / "large", np.zeros((40, 1, 9, 9), "f"))
        folder_of(folder / "complex", np.zeros((40, 1, 10, 10), "complex64"))
        folder_of(folder / "infinite", np.full((40, 1, 10, 10), np.inf, "f"))
        folder_of(folder / "few", np.zeros((6, 1, 10, 10), "f"))
        (folder / "misnamed").mkdir()
        np.savez(folder / "misnamed" / "one.npz", picture=np.zeros((1, 1, 10, 10), "f"))
        (folder / "broken").mkdir()
        (folder / "broken" / "one.npz").write_bytes(b"no archive")
    written = tmp_path / "q.onnx"
    done = call("quantize", "plain.onnx", "-o", written, "--db", tmp_path / "p.db", *arguments)
    assert done.exit_code == 2 and message in done.stderr, done.stderr
    assert not written.exists()


def test_a_quantised_model_and_a_foreign_output_are_refused(folder: Path, tmp_path: Path) -> None:
    data = [{"image": one[None]} for one in images(20, 5)[0]]
    with pytest.raises(InputError, match="the model is quantised already"):
        autofuse.quantize(folder / "int8.onnx", tmp_path / "q.onnx", calibration=data)
    with pytest.raises(InputError, match="is the model, which is read"):
        autofuse.quantize(folder / "plain.onnx", folder / "plain.onnx", calibration=data)


def samples(x: Array, labels: Array) -> list[dict[str, Array]]:
    return [{"image": one[None], "label": label} for one, label in zip(x, labels, strict=True)]


def is_right(outputs: Mapping[str, Array], sample: Mapping[str, Array]) -> float:
    return float(outputs["scores"].argmax() == sample["label"])


@pytest.mark.parametrize("allowed", ["int8,bf16", "bf16"])
def test_bfloat16_takes_what_integers_would_lose(tmp_path: Path, allowed: str) -> None:
    """A layer is too noisy as integers, and quiet as bfloat16, on a CPU that has instructions for both."""
    model = save(trained(), tmp_path / "scaled.onnx", scaled=True)
    data = [[{"image": one[None]} for one in images(count, seed)[0]] for count, seed in ((20, 5), (30, 6))]
    found = autofuse.quantize(
        model, tmp_path / "q.onnx", calibration=data[0], acceptance=data[1], precision=allowed,
        database=str(tmp_path / "p.db"), device="zen4",
    )  # fmt: skip
    kinds = precisions(found)
    assert kinds["fragile"] == "bf16" and found.drop.hi <= found.max_drop
    stayed = [one for one in found.contractions if one.precision == "float32"]
    assert not stayed, "maps of half the bytes make every one of them faster by estimate"
    assert found.bf16 + found.int8 + len(stayed) == len(kinds)
    graph = load(tmp_path / "q.onnx")
    assert sum(operator.op_type.startswith("Bfloat16") for operator in graph.operators) == found.bf16
    x = images(1, 9)[0]
    assert np.abs(run_reference(graph, {"image": x})["scores"] - scores(tmp_path / "q.onnx", x)).max() < 0.05
    certificate = json.loads(graph.origin.custom_metadata_map[KEY])
    assert (certificate["int8"], certificate["bf16"], certificate["float32"]) == (
        found.int8, found.bf16, {one.operator: one.why for one in stayed}
    )  # fmt: skip


def test_bfloat16_pays_where_the_cpu_has_its_instructions(tmp_path: Path) -> None:
    """Of a product that is bound by arithmetic; nothing is written where none is faster."""
    rng = np.random.default_rng(0)
    weights = numpy_helper.from_array(rng.standard_normal((256, 512)).astype("f"), "w")
    sides = [helper.make_tensor_value_info(name, 1, [96, size]) for name, size in (("x", 256), ("y", 512))]
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"], "m")], "g", sides[:1], sides[1:], [weights]
    )
    model = tmp_path / "m.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), model)
    data = [{"x": rng.standard_normal((96, 256)).astype("f")} for _ in range(16)]

    def made(device: str) -> Quantized:
        return autofuse.quantize(
            model, tmp_path / f"{device}.onnx", calibration=data, precision="bf16", database=str(tmp_path / "p.db"),
            device=device, threads=1,
        )  # fmt: skip

    (row,) = made("zen4").contractions
    assert row.precision == "bf16" and row.us.keys() == {"float32", "bf16"}
    assert row.us["bf16"] < row.us["float32"]
    with pytest.raises(InputError, match="no contraction is faster in bf16: m comes nearest"):
        made(DEVICE)
    assert not (tmp_path / f"{DEVICE}.onnx").exists()


@pytest.mark.long
def test_a_metric_of_the_users_reads_labels(folder: Path, tmp_path: Path) -> None:
    found = autofuse.quantize(
        folder / "fragile.onnx", tmp_path / "q.onnx", calibration=samples(*images(40, 5)),
        acceptance=samples(*images(400, 6)), metric=is_right, max_drop="2%",
        database=str(tmp_path / "p.db"), device=DEVICE,
    )  # fmt: skip
    assert found.metric == "is_right" and found.drop.hi <= 0.02
    assert precisions(found)["fragile"] == "float32" and found.int8 == 3


@pytest.mark.long
def test_the_noisiest_go_back_where_the_acceptance_data_are_of_another_kind(folder: Path, tmp_path: Path) -> None:
    """Dark calibration images let ranges be far too small for bright ones."""
    dark, bright = images(40, 5)[0] * 0.05, images(40, 6)[0]
    data = [[{"image": one[None]} for one in kind] for kind in (dark, bright)]
    with pytest.raises(InputError, match="no contraction can be in int8 with a drop of cosine"):
        autofuse.quantize(
            folder / "plain.onnx", tmp_path / "q.onnx", calibration=data[0], acceptance=data[1], max_drop="0.001%",
            database=str(tmp_path / "p.db"), device=DEVICE,
        )  # fmt: skip
    assert not (tmp_path / "q.onnx").exists()


@pytest.mark.long
@pytest.mark.parametrize("seed", range(20))
def test_twenty_trained_networks_keep_what_was_said_of_them(seed: int, tmp_path: Path) -> None:
    network = trained(seed)
    x, labels = images(600, 500 + seed)
    assert accuracy(network, x, labels) > 0.95
    model = save(network, tmp_path / "m.onnx", fragile=bool(seed % 2))
    data = [
        [{"image": one[None]} for one in images(count, start + seed)[0]] for count, start in ((40, 100), (650, 200))
    ]
    found = autofuse.quantize(
        model, tmp_path / "q.onnx", calibration=data[0], acceptance=data[1], metric="top1", max_drop="2%",
        database=str(tmp_path / "p.db"), device=DEVICE,
    )  # fmt: skip
    changed = (scores(model, x).argmax(1) != scores(tmp_path / "q.onnx", x).argmax(1)).mean()
    assert changed <= found.max_drop and found.drop.hi <= found.max_drop
    assert [name for name, kind in precisions(found).items() if kind == "float32"] == ["fragile"] * (seed % 2)


@pytest.mark.long
def test_a_trained_transformer_keeps_what_was_said_of_it(tmp_path: Path) -> None:
    network = trained_attention()
    x, labels = questions(500, 9)
    assert accuracy(network, x, labels) > 0.95
    model = network.save(tmp_path / "m.onnx")
    data = [[{"tokens": one[None]} for one in questions(count, seed)[0]] for count, seed in ((60, 1), (600, 2))]
    found = autofuse.quantize(
        model, tmp_path / "q.onnx", calibration=data[0], acceptance=data[1], metric="top1", max_drop="3%",
        database=str(tmp_path / "p.db"), device=DEVICE,
    )  # fmt: skip
    assert {"agreement", "found"} <= set(precisions(found)), "products of two computed tensors are contractions, too"
    assert found.int8 >= 5 and found.drop.hi <= 0.03
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    best = [
        np.array([session.run(None, {"tokens": one[None]})[0].argmax() for one in x])
        for session in (
            onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
            for path in (model, tmp_path / "q.onnx")
        )
    ]
    assert (best[0] != best[1]).mean() <= 0.03 and (best[1] == labels).mean() > 0.93
