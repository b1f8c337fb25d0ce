"""The catalogue: every network once, in the forms that it exists in, and the files that experiments are asked for."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from autofuse.errors import InputError
from experiments import catalogue
from experiments.catalogue import ATTENTION, EXPORTED, FURTHER, GENERATED, KINDS, NETWORKS, PAPER, TABLE, WRITTEN
from experiments.index import ROOT
from experiments.model_files import FOLDERS, GROUPS, resolve, write

FOLDER_OF = {"written": "architectures", "exported": "models", "decomposed": "architectures"}


def test_the_catalogue_has_the_fifteen_networks_of_the_paper_and_six_more() -> None:
    assert (len(PAPER), len(FURTHER), len(GENERATED)) == (15, 6, 26)
    assert all(network.written for network in KINDS.values())
    assert len(GROUPS[EXPORTED]) == 19 and set(TABLE) < set(GROUPS[WRITTEN])


@pytest.mark.parametrize("form", FOLDER_OF)
def test_every_builder_that_is_named_is_there(form: str) -> None:
    names = catalogue.with_form(form)
    assert names
    for name in names:
        module, _, function = getattr(NETWORKS[name], form).partition(":")
        text = (ROOT / "experiments" / FOLDER_OF[form] / f"{module}.py").read_text(encoding="utf-8")
        assert f"def {function}(" in text, name


def test_every_network_has_a_form_and_one_sample_as_its_input() -> None:
    for name, network in NETWORKS.items():
        assert any(getattr(network, form) for form in FOLDER_OF), name
        assert all(wanted.shape[0] == 1 for wanted in network.inputs.values())
        assert bool(network.inputs) != (name in GENERATED)


@pytest.mark.parametrize("name", ["squeezenet1_1", "weenet", "tinybert", "audio_encoder"])
def test_inputs_are_those_of_the_file(name: str) -> None:
    made = catalogue.build(name)
    found = {one.name: tuple(size.dim_value for size in one.type.tensor_type.shape.dim) for one in made.graph.input}
    assert found == {key: wanted.shape for key, wanted in NETWORKS[name].inputs.items()}
    assert made.graph.name == name


def test_transformers_are_one_family() -> None:
    assert {name for name in PAPER if PAPER[name].family == ATTENTION} == {
        "tinybert", "distilbert", "albert_base", "bert_base", "mobilebert", "gpt2",
    }  # fmt: skip


def test_reading_the_catalogue_imports_no_library() -> None:
    watched = "import sys, experiments.catalogue; print(sorted({'torch', 'onnx', 'tvm', 'numpy'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", watched], cwd=ROOT, capture_output=True, text=True, check=True)
    plain = subprocess.run(
        [sys.executable, "-c", watched.replace(".catalogue", "")], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout == plain.stdout


def test_a_network_is_written_once(tmp_path: Path) -> None:
    path = write("pointwise0", tmp_path)
    written = path.stat().st_mtime_ns
    assert write("pointwise0", tmp_path) == path
    assert path.stat().st_mtime_ns == written
    assert [file.name for file in tmp_path.iterdir()] == ["pointwise0.onnx"]


@pytest.mark.parametrize("name", ["cnn99", "vgg16", "lenet"])
def test_what_cannot_be_written_without_torch_is_a_key_error(name: str, tmp_path: Path) -> None:
    with pytest.raises(KeyError):
        write(name, tmp_path)


def test_a_builder_takes_other_sizes() -> None:
    made = catalogue.build("weenet", channels=4, size=6)
    assert [size.dim_value for size in made.graph.input[0].type.tensor_type.shape.dim] == [1, 4, 6, 6]


def test_models_are_files_folders_and_names_each_once(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.onnx").write_bytes(b"")
    (tmp_path / "made").mkdir()
    (tmp_path / "made" / "gpt2.onnx").write_bytes(b"")
    given = [str(tmp_path / "b.onnx"), str(tmp_path), "gpt2", "pointwise1"]
    found = resolve(given, EXPORTED, tmp_path / "made")
    assert [path.stem for path in found] == ["b", "a", "gpt2", "pointwise1"]
    (tmp_path / "made" / "a.onnx").write_bytes(b"")
    with pytest.raises(InputError, match="two models are called 'a'"):
        resolve([str(tmp_path), str(tmp_path / "made")], EXPORTED)


def test_a_name_is_no_model_where_there_is_no_such_network() -> None:
    with pytest.raises(InputError, match="'lenet' is no file, no folder, and no network"):
        resolve(["lenet"])


def test_files_of_two_forms_never_meet() -> None:
    assert len(set(FOLDERS.values())) == len(FOLDERS)
