"""How torch finds the backend; none of it needs torch."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from autofuse.errors import InputError
from autofuse.torch_backend import backend
from autofuse.torch_backend.export import check_exporter

ROOT = Path(__file__).resolve().parents[2]


def test_the_entry_point_is_the_backend() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    ((name, value),) = project["entry-points"]["torch_dynamo_backends"].items()
    assert name == "autofuse"
    assert EntryPoint(name, value, "torch_dynamo_backends").load() is backend.autofuse
    assert {"torch", "onnxscript"} == {text.partition(">")[0] for text in project["optional-dependencies"]["torch"]}


def test_loading_it_loads_neither_torch_nor_the_compiler() -> None:
    program = (
        "import sys; import autofuse.torch_backend.backend; "
        "print(sorted({'torch', 'tvm', 'onnx', 'sqlalchemy'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"


def test_without_the_packages_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    with pytest.raises(InputError, match=r"needs the package onnxscript: pip install 'autofuse\[torch\]'"):
        check_exporter()
