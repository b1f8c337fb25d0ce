"""Libraries of models in parts that were damaged or forged are refused before anything of them runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import autofuse
from autofuse.backend.library.library import check, load, read_metadata
from autofuse.cli.main import app
from autofuse.errors import InputError
from experiments.fuzz.forge import greedy, model_of, with_model
from tests.backend.forging import Body, forged, packed, parts_of
from tests.segments.models import model_of as model_of_text
from tests.segments.models import pooled, written


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("parts")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("autofuse.segments.worth.LEAST_US", 0.0)
        autofuse.compile(written(pooled(), folder), folder / "model.so", database=str(folder / "no.db"), threads=1)
    return folder / "model.so"


def test_what_a_library_in_parts_says_of_itself(library: Path) -> None:
    metadata = read_metadata(library)
    assert metadata.parts is not None and metadata.kernels == 2
    assert [(part.program, part.model is None) for part in metadata.parts.order] == [
        (0, True),
        (None, False),
        (1, True),
    ]
    assert check(library)[0] == metadata
    assert parts_of(library)[3].startswith(b"autofuse 2\n"), "a C program must not take the first segment for the model"


def change(place: int, **values: Any) -> Any:
    def body(parsed: Body) -> None:
        parsed["parts"]["order"][place].update(values)

    return body


def with_models_of_others(parsed: Body) -> None:
    """A segment of fixed sizes that says to be one of rows."""
    first, second, *_ = parsed["parts"]["order"]
    first["model"] = second["model"]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (change(0, program=7), "its program is not there"),
        (change(0, program=-1), "its program is not there"),
        (change(0, program=1), "its program takes or makes other values"),
        (change(0, program=None), "neither a program nor a model"),
        (with_models_of_others, "its program is not there"),
        (change(1, model=99), "its model is not there"),
        (change(1, model=-1), "its model is not there"),
        (change(1, model=0), "its model is not there"),
        (change(1, inputs=["nowhere"]), "nothing gives it 'nowhere'"),
        (change(1, outputs=["x"]), "a value is made twice"),
        (lambda parsed: parsed["parts"]["order"].pop(), "no part makes the output 'y'"),
        (lambda parsed: parsed["parts"]["order"].reverse(), "nothing gives it"),
        (lambda parsed: parsed.update(format=2), "library format 2"),
        (lambda parsed: parsed.update(parts=None), "damaged|format"),
        (lambda parsed: parsed.update(programs=[]), "its program is not there"),
    ],
)
def test_a_forged_order_of_parts_is_refused(body: Any, message: str, library: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        load(forged(library, tmp_path / "forged.so", body=body))


def test_a_part_that_takes_other_values_than_its_model_is_refused(library: Path, tmp_path: Path) -> None:
    def body(parsed: Body) -> None:
        parsed["parts"]["order"][1]["outputs"].reverse()

    with pytest.raises(InputError, match="part 1 of the library takes or makes other values"):
        load(forged(library, tmp_path / "forged.so", body=body))


def test_an_onnx_part_is_inside_the_checksum(library: Path, tmp_path: Path) -> None:
    data = bytearray(library.read_bytes())
    place = bytes(data).index(b"MaxPool")
    data[place] ^= 1
    (tmp_path / "cut.so").write_bytes(data)
    with pytest.raises(InputError, match="weights do not match their checksum"):
        load(tmp_path / "cut.so")


def test_an_onnx_part_that_is_no_model_is_refused(library: Path, tmp_path: Path) -> None:
    image, weights, body, table = parts_of(library)
    broken = weights.replace(b"MaxPool", b"MaxNone")
    (tmp_path / "forged.so").write_bytes(packed(image, broken, body, table))
    with pytest.raises(InputError, match="ONNX Runtime cannot load the model"):
        load(tmp_path / "forged.so")


def test_a_model_that_wants_more_memory_than_there_is_is_refused(library: Path, tmp_path: Path) -> None:
    (tmp_path / "greedy.so").write_bytes(with_model(library.read_bytes(), greedy(model_of(library.read_bytes()))))
    loaded = load(tmp_path / "greedy.so")
    with pytest.raises(InputError, match=r"'[qrh]': no memory for its elements, \(68719476736\)"):
        loaded(loaded.example_inputs())


def test_code_without_a_program_is_refused(library: Path, tmp_path: Path) -> None:
    folder = tmp_path / "whole"
    folder.mkdir()
    model = model_of_text("net (float[2,8] x) => (int64[2,n] y) { y = NonZero (x) }")
    autofuse.compile(written(model, folder), folder / "rest.so", database=str(folder / "no.db"))
    assert parts_of(folder / "rest.so")[0] == b""
    with pytest.raises(InputError, match="it has code, and no program"):
        load(forged(folder / "rest.so", tmp_path / "forged.so", image=lambda _: parts_of(library)[0]))


def test_the_command_line_checks_and_runs_it(library: Path, tmp_path: Path) -> None:
    checked = CliRunner().invoke(app, ["library", "check", str(library)])
    assert checked.exit_code == 0, checked.output
    run = CliRunner().invoke(app, ["run", str(library), "-o", str(tmp_path)])
    assert run.exit_code == 0 and {path.name for path in tmp_path.iterdir()} == {"y.npy", "h.npy"}


def test_padding_is_refused(library: Path) -> None:
    with pytest.raises(InputError, match="cannot be padded"):
        load(library, pad=True)
