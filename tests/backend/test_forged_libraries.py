"""Libraries that were forged or cut: refused before anything of them is mapped or run, in Python and in C."""

from __future__ import annotations

import shlex
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from typer.testing import CliRunner

from autofuse.backend.c_interface import FOLDER
from autofuse.backend.compile import function
from autofuse.backend.library.library import load, read_metadata
from autofuse.backend.library.session import Session
from autofuse.cli.main import app
from autofuse.errors import InputError
from autofuse.graph.loading.load import from_model
from tests.backend.forging import Body, forged, parts_of
from tests.backend.test_session import write

NETWORK = "net (float[4,8] x) => (float[4,2] y) { m = MatMul (x, w) r = Relu (m) y = MatMul (r, v) }"
RELU = "net (float[4,8] x) => (float[4,8] y) { y = Relu (x) }"
SEGMENTS_AT, SEGMENT_BYTES = 64, 56


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 18]> {NETWORK}')
    random = np.random.default_rng(0)
    for name, shape in (("w", (8, 6)), ("v", (6, 2))):
        model.graph.initializer.append(numpy_helper.from_array(random.standard_normal(shape).astype("float32"), name))
    return write([from_model(model, "net")], tmp_path_factory.mktemp("forged") / "net.so")


def number(image: bytes, place: int, value: int, form: str = "<Q") -> bytes:
    changed = bytearray(image)
    struct.pack_into(form, changed, place, value)
    return bytes(changed)


def segment(kind: int, field: int, value: int) -> Callable[[bytes], bytes]:
    """The last segment of a kind with another field (bytes from its start)."""

    def change(image: bytes) -> bytes:
        count = struct.unpack_from("<H", image, 56)[0]
        places = [SEGMENTS_AT + SEGMENT_BYTES * place for place in range(count)]
        found = [place for place in places if struct.unpack_from("<I", image, place)[0] == kind]
        return number(image, found[-1] + field, value)

    return change


IMAGES: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "cut in half": (lambda image: image[: len(image) // 2], "beyond its end|point outside"),
    "a segment beyond the end": (segment(1, 8, 1 << 24), "a segment of it lies beyond its end"),
    "more in the file than in memory": (segment(1, 40, 1), "sizes of its segments are impossible"),
    "more memory than there is": (segment(1, 40, 1 << 50), "sizes of its segments are impossible"),
    "overlapping segments": (segment(1, 16, 0), "its segments overlap|elsewhere"),
    "no dynamic section": (segment(2, 16, 1 << 30), "dynamic section is missing or elsewhere"),
    "a segment that is not read": (segment(1, 32, 0), "dynamic section is missing or elsewhere|points outside of it"),
    "segments beyond the end": (lambda image: number(image, 32, 1 << 40), "its headers point outside of it"),
    "no segments": (lambda image: number(image, 56, 0, "<H"), "it has no segments"),
    "another machine": (lambda image: number(image, 18, 2, "<H"), "it is not for"),
    "a program, no library": (lambda image: number(image, 16, 1, "<H"), "it is no shared object"),
    "text": (lambda image: b"#!/bin/sh\n" * 100, "it is no shared object"),
    "empty": (lambda image: b"", "headers point outside"),
    "a constructor elsewhere": (lambda image: dynamic(image, 12, 1 << 30), r"points outside of it \(tag 12\)"),
    "sections beyond the end": (lambda image: number(image, 40, 1 << 40), "its headers point outside of it"),
    "another kernel": (lambda image: image.replace(b"__tvm_ffi_kernel0", b"__tvm_ffi_kernal0"), "does not define"),
}


def dynamic(image: bytes, tag: int, value: int) -> bytes:
    count = struct.unpack_from("<H", image, 56)[0]
    for place in range(SEGMENTS_AT, SEGMENTS_AT + SEGMENT_BYTES * count, SEGMENT_BYTES):
        kind, _, offset, _, _, size, _, _ = struct.unpack_from("<IIQQQQQQ", image, place)
        for entry in range(offset, offset + size, 16) if kind == 2 else ():
            if struct.unpack_from("<q", image, entry)[0] == tag:
                return number(image, entry + 8, value)
    raise AssertionError("no such tag")


@pytest.mark.parametrize("name", IMAGES)
def test_an_image_that_the_loader_would_stumble_over_is_refused(built: Path, tmp_path: Path, name: str) -> None:
    change, message = IMAGES[name]
    with pytest.raises(InputError, match=message):
        load(forged(built, tmp_path / "forged.so", image=change))


def test_the_constructors_of_a_foreign_image_do_not_run(built: Path, tmp_path: Path) -> None:
    mark = tmp_path / "it-ran"
    source = tmp_path / "foreign.c"
    source.write_text(
        "#include <stdio.h>\n__attribute__((constructor)) static void begin(void) "
        f'{{ fclose(fopen("{mark}", "w")); }}\n'
    )
    subprocess.run(["gcc", "-shared", "-fPIC", str(source), "-o", str(tmp_path / "foreign.so")], check=True)
    foreign = (tmp_path / "foreign.so").read_bytes()
    with pytest.raises(InputError, match="does not define __tvm_ffi_"):
        load(forged(built, tmp_path / "forged.so", image=lambda _: foreign))
    assert not mark.exists()


def program(**values: object) -> Callable[[Body], object]:
    return lambda body: body["programs"][0].update(values)


def first(list_name: str, **values: object) -> Callable[[Body], object]:
    return lambda body: body["programs"][0][list_name][0].update(values)


def opened(low: int = 1, **values: object) -> Callable[[Body], object]:
    sizes = [{"name": "batch", "low": low, "high": 4, "step": 1}]
    spec = {"sizes": sizes, "inputs": [[open_axis()]], "outputs": [[open_axis()]], "caches": []}
    return lambda body: body["programs"][0].update(opened=spec | values)


def open_axis(**values: int) -> dict[str, int | None]:
    return {"axis": 0, "size": 0, "factor": 1, "per": 1, "more": 0, "times": None, **values}


DESCRIPTIONS: dict[str, tuple[Callable[[Body], object], str]] = {
    "another entry": (program(entry="elsewhere"), "there is no program elsewhere"),
    "an entry that is no name": (program(entry="main\nprogram x 1 1 1"), "no name of a function"),
    "a weight that is not there": (program(weights=[0, 7]), "a weight that is not there"),
    "an output that is not there": (program(copied=[3]), "an output that is not there"),
    "no programs": (lambda body: body.update(programs=[]), "no programs"),
    "a program twice": (lambda body: body["programs"].append(body["programs"][0]), "one name"),
    "an input twice": (lambda body: body["programs"][0]["inputs"].append(body["programs"][0]["inputs"][0]), "one name"),
    "an object as dtype": (first("inputs", dtype="object"), "dtype 'object'; allowed: bfloat16, bool"),
    "a dtype that is none": (lambda body: body["weights"][0].update(dtype="float1"), "dtype 'float1'"),
    "a negative size": (first("outputs", shape=[-1, 2]), "shape"),
    "a size beyond all memory": (first("inputs", shape=[1 << 62, 8]), "size is impossible"),
    "a size that is a text": (first("inputs", shape=["4", 8]), "valid integer"),
    "many axes": (first("inputs", shape=[1] * 65), "shape"),
    "smaller weights": (lambda body: body["weights"][0].update(shape=[1]), "weights of"),
    "no threads": (lambda body: body.update(threads=0), "threads: 0"),
    "a million threads": (lambda body: body.update(threads=10**6), "threads"),
    "a table of floats": (first("inputs", table=5), "it has no integers"),
    "more than is known": (lambda body: body.update(more=1), "more: Unexpected"),
    "less than is needed": (lambda body: body.pop("versions"), "versions: .*required"),
    "an open size that no input has": (opened(inputs=[[]]), "no input has one of them"),
    "an open size in a format without them": (opened(), "format 2 and open sizes"),
    "an open size without a range": (opened(low=9), "its open sizes: 'batch': 9 to 4"),
    "an open size of fewer outputs": (opened(outputs=[]), "not told for all"),
    "an open size in an axis that is not there": (opened(inputs=[[open_axis(axis=5)]]), "has no such axis"),
    "an open size that is not there": (opened(inputs=[[open_axis(times=1)]]), "has no such axis"),
    "an open size of another extent": (opened(inputs=[[open_axis(factor=3)]]), "does not have 'batch' in axis 0"),
    "another format": (lambda body: body.update(format=9), "library format 9"),
}


ANOTHER = "not what its description says"
OTHERS: dict[str, tuple[Callable[[Body], object], str]] = {
    "weights in another order": (program(weights=[1, 0]), ANOTHER),
    "a weight less": (program(weights=[0]), ANOTHER),
    "a weight more": (program(weights=[0, 1, 0]), ANOTHER),
    "a weight of another type": (lambda body: body["weights"][0].update(dtype="int32"), ANOTHER),
    "a weight of more axes": (lambda body: body["weights"][0]["shape"].append(1), ANOTHER),
    "a smaller input": (first("inputs", shape=[4, 7]), ANOTHER),
    "a larger input": (first("inputs", shape=[5, 8]), ANOTHER),
    "an input of more axes": (first("inputs", shape=[4, 8, 1]), ANOTHER),
    "an input of another type": (first("inputs", dtype="int32"), ANOTHER),
    "an input of booleans": (first("inputs", dtype="bool"), ANOTHER),
    "an input without elements": (first("inputs", shape=[0, 8]), ANOTHER),
    "an input more": (lambda body: body["programs"][0]["inputs"].append(another_input(body)), ANOTHER),
    "no inputs": (program(inputs=[]), ANOTHER),
    "an input beyond all memory": (first("inputs", shape=[1 << 21, 1 << 21]), f"no memory for float32|{ANOTHER}"),
    "open sizes": (lambda body: (body.update(format=7), opened()(body)), "code has no open sizes"),
}


def another_input(body: Body) -> dict[str, object]:
    return {**body["programs"][0]["inputs"][0], "name": "another"}


@pytest.mark.parametrize("name", OTHERS)
def test_code_that_takes_something_else_than_the_description_says_does_not_run(
    built: Path, tmp_path: Path, name: str
) -> None:
    change, message = OTHERS[name]
    with pytest.raises(InputError, match=message):
        load(forged(built, tmp_path / "forged.so", body=change))


def test_a_library_of_before_is_loaded_since_its_kernels_look_themselves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(function, "lookers", lambda _module: {})
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 18]> {RELU}')
    library = load(write([from_model(model, "net")], tmp_path / "net.so"))
    assert np.array_equal(library([np.full((4, 8), -1, "float32")])[0], np.zeros((4, 8)))


@pytest.mark.parametrize("name", DESCRIPTIONS)
def test_a_description_that_makes_no_sense_is_refused(built: Path, tmp_path: Path, name: str) -> None:
    change, message = DESCRIPTIONS[name]
    with pytest.raises(InputError, match=message):
        load(forged(built, tmp_path / "forged.so", body=change))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b'"threads":1', b'"threads":Infinity'),
        (b'"threads":1', b'"threads":NaN'),
        (b'"threads":1', b'"threads":1e999'),
        (b'"cores":2', b'"cores":-Infinity'),
        (b'"cores":2', b'"cores":1e999'),
        (b'"format":2', b'"format":Infinity'),
        (b'"table":null', b'"table":1e999'),
        (b'"example":null', b'"example":[0,Infinity]'),
        (b"{", b'{"a":' * 100_000),
        (b"{", b"\xff{"),
        (b"{", b"[" * 10),
    ],
)
def test_numbers_that_json_lacks_and_texts_that_are_none_are_refused(
    built: Path, tmp_path: Path, before: bytes, after: bytes
) -> None:
    path = forged(built, tmp_path / "forged.so", text=lambda text: text.replace(before, after, 1))
    with pytest.raises(InputError, match="the library's description is damaged"):
        read_metadata(path)


def test_weights_in_another_order_are_an_error_and_no_traceback(built: Path, tmp_path: Path) -> None:
    path = forged(built, tmp_path / "forged.so", body=program(weights=[1, 0]))
    with pytest.raises(InputError, match="not what its description says"):
        Session(path, threads=1)
    done = CliRunner().invoke(app, ["run", str(path)])
    assert (done.exit_code, done.stderr.count("\n")) == (2, 1)


def test_a_table_that_is_not_the_descriptions_is_refused(built: Path, tmp_path: Path) -> None:
    path = forged(built, tmp_path / "forged.so", table=lambda table: table.replace(b"input 2 32", b"input 2 64"))
    with pytest.raises(InputError, match="its table is not that of its description"):
        load(path)


def test_bytes_between_the_parts_are_refused(built: Path, tmp_path: Path) -> None:
    whole = bytearray(built.read_bytes())
    whole[len(parts_of(built)[0])] = 1
    path = tmp_path / "filled.so"
    path.write_bytes(whole)
    with pytest.raises(InputError, match="its code does not match its checksum"):
        load(path)


# The same from C.


@pytest.fixture(scope="module")
def loader(tmp_path_factory: pytest.TempPathFactory) -> Path:
    program = tmp_path_factory.mktemp("c") / "example"
    arguments = shlex.split(CliRunner().invoke(app, ["cflags"]).stdout)
    source = str(FOLDER / "example.c")
    command = ["gcc", "-Wall", "-Wextra", "-Werror", "-g", "-fsanitize=address,undefined", source, *arguments]
    subprocess.run([*command, "-o", str(program)], check=True)
    return program


def said(loader: Path, library: Path) -> str:
    """What the loader says of a library that it refuses, with exit code 1 and no complaint of a sanitizer."""
    environment = {"ASAN_OPTIONS": "detect_leaks=0"}
    done = subprocess.run([str(loader), str(library)], capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 1, (done.returncode, done.stderr[-2000:])
    assert "Sanitizer" not in done.stderr and "runtime error" not in done.stderr, done.stderr[:2000]
    return done.stderr


def test_c_runs_the_library_as_it_is(loader: Path, built: Path) -> None:
    environment = {"ASAN_OPTIONS": "detect_leaks=0"}
    done = subprocess.run([str(loader), str(built)], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.startswith("y: rank 2, first value ")


IN_C = [name for name in IMAGES if name not in ("another kernel", "sections beyond the end", "another machine")]


@pytest.mark.parametrize("name", IN_C)
def test_c_refuses_the_same_images(loader: Path, built: Path, tmp_path: Path, name: str) -> None:
    assert "the library is damaged" in said(loader, forged(built, tmp_path / "forged.so", image=IMAGES[name][0]))


def test_c_refuses_what_was_cut_or_flipped(loader: Path, built: Path, tmp_path: Path) -> None:
    whole, path = built.read_bytes(), tmp_path / "changed.so"
    for keep in (0, 10, 200, 4096, -1, -200):
        path.write_bytes(whole[:keep])
        assert "cut off" in said(loader, path) or "cannot be mapped" in said(loader, path)
    image, weights, body, table = parts_of(built)
    weights_at = len(whole) - 168 - len(table) - len(body) - len(weights)
    for place in (100, len(image) - 50, weights_at + 3, len(whole) - 400, len(whole) - 180):
        changed = bytearray(whole)
        changed[place] ^= 1
        path.write_bytes(changed)
        assert "checksum" in said(loader, path), place


TABLES: dict[str, tuple[bytes, bytes]] = {
    "a weight less": (b"weight 2 32", b"wait 2 32"),
    "an input less": (b"\ninput", b"\ninsert"),
    "an output less": (b"\noutput", b"\nother"),
    "a use less": (b"\nuses 1", b"\nuse 1"),
    "another weight": (b"\nuses 1", b"\nuses 9"),
    "a weight beyond the end": (b"weight 2 32 1 64 ", b"weight 2 32 1 64 999999"),
    "an enormous weight": (b"weight 2 32 1 64 ", b"weight 2 32 2 9223372036854775807 9 "),
    "a weight that overflows": (b"weight 2 32 1 64 ", b"weight 2 32 2 4294967296 4294967296 "),
    "a strange type": (b"input 2 32", b"input 9 32"),
    "a type of no bits": (b"weight 2 32", b"weight 2 0"),
    "a type of many bits": (b"weight 2 32", b"weight 2 320000"),
    "a long name": (b"program main", b"program " + b"m" * 100),
    "no programs": (b"programs 1", b"programs 0"),
    "programs twice": (b"programs 1", b"programs 1\nprograms 1"),
    "weights twice": (b"weights 2", b"weights 2\nweights 2"),
    "many programs": (b"programs 1", b"programs 99999999999"),
    "minus one input": (b"program main 1", b"program main -1"),
    "nothing": (b"autofuse 1", b"autofuse 9"),
    "weights in another order": (b"\nuses 0\nuses 1", b"\nuses 1\nuses 0"),
    "a weight of another type": (b"weight 2 32", b"weight 0 32"),
    "a larger input": (b"input 2 32 2 4 8", b"input 2 32 2 5 8"),
    "an input of another type": (b"input 2 32", b"input 0 32"),
    "an input of more axes": (b"input 2 32 2 4 8", b"input 2 32 3 4 8 1"),
    "open sizes": (b"\nuses 1", b"\nuses 1\nsize 1 4 batch\nopen 0 0 0 1 0 1 -1"),
}


@pytest.mark.parametrize("name", TABLES)
def test_c_refuses_a_table_that_makes_no_sense(loader: Path, built: Path, tmp_path: Path, name: str) -> None:
    before, after = TABLES[name]
    assert before in parts_of(built)[3]
    path = forged(built, tmp_path / "forged.so", table=lambda table: table.replace(before, after, 1))
    assert "forged.so: " in said(loader, path)
