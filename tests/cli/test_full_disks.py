"""A full disk under what a verb writes: one line that says so, exit code 2, and nothing half-written stays."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from typer.testing import CliRunner, Result

from autofuse.cli.main import app
from autofuse.database.database import open_database
from autofuse.database.records import content_key
from autofuse.errors import InputError
from autofuse.link.c_compiler import CCompiler
from autofuse.link.linking import BareLinker
from tests.cli.test_bad_input import file_limit


@pytest.fixture
def model(tmp_path: Path) -> Path:
    weight = numpy_helper.from_array(np.ones((256, 256), np.float32), "w")
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])], "net", [value("x", TensorProto.FLOAT, [4, 256])],
        [value("y", TensorProto.FLOAT, [4, 256])], [weight],
    )  # fmt: skip
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), tmp_path / "m.onnx")
    return tmp_path / "m.onnx"


def call(*words: object) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words])


def told(result: Result) -> str:
    """The one line of a verb that found the disk full."""
    assert result.exit_code == 2, result.stderr
    assert "Traceback" not in result.stderr
    return result.stderr.strip().splitlines()[-1]


@pytest.mark.parametrize(("form", "output"), [("c", "libm.so"), ("ort", "tuned.onnx")])
def test_no_form_of_compile_leaves_anything(form: str, output: str, model: Path, tmp_path: Path) -> None:
    (place := tmp_path / "out").mkdir()
    named = ["--db", tmp_path / "none.db", "--threads", 1]
    with file_limit(200_000):
        result = call("compile", model, "--format", form, "-o", place / output, *named)
    assert "free some space" in told(result)
    assert list(place.iterdir()) == []


SAID = "/usr/bin/ld: final link failed: No space left on device\ncollect2: error: ld returned 1 exit status"


def test_a_full_disk_is_told_in_our_words_where_a_linker_met_it(tmp_path: Path) -> None:
    """Before: exit code 75, as for a device that is lost, with the words of the linker."""
    compiler = CCompiler("x86_64", ("sh", "-c", f"echo '{SAID}' >&2; exit 1"))
    linker = BareLinker("x86_64", compiler.command)
    for link in (compiler.link, linker.link):
        with pytest.raises(InputError, match=r"No space left on device; free some space, or name a folder in TMPDIR"):
            link(tmp_path / "m.so", [])


def test_a_package_is_whole_or_not_there(model: Path, tmp_path: Path) -> None:
    library, folder = tmp_path / "libm.so", tmp_path / "new" / "package"
    assert call("compile", model, "--format", "c", "-o", library, "--db", tmp_path / "none.db").exit_code == 0
    with file_limit(library.stat().st_size // 2):
        assert "free some space" in told(call("package", library, "-o", folder))
    assert not (tmp_path / "new").exists()


def test_an_export_is_whole_or_not_there(tmp_path: Path) -> None:
    with open_database(tmp_path / "profile.db") as base:
        text = json.dumps({"text": "x" * 500_000})
        base.record_workload(content_key(text), text, "Conv")
    with file_limit(200_000):
        assert "new/export" in told(call("db", "export", tmp_path / "new" / "export", "--db", tmp_path / "profile.db"))
    assert not (tmp_path / "new").exists()
