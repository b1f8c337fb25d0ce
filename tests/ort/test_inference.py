"""ONNX Runtime tells the types of a model in a process of its own: what a model does to it ends as a message."""

from __future__ import annotations

from pathlib import Path

import pytest

from autofuse.errors import InputError
from autofuse.ort import inference
from autofuse.ort.inference import TypeInference
from autofuse.ort.session import ValueType
from autofuse.segments.read import read_choice
from experiments.fuzz.bombs import BOMBS
from tests.ort.broken import broken
from tests.segments.models import model_of, written

SOUND = "net (float[2,n] x) => (y, z) { y = NonZero (x)  z = Relu (x) }"


def test_types_come_as_a_session_has_them() -> None:
    content = model_of(SOUND).SerializeToString()
    with TypeInference("net") as types:
        first = types(content)
        assert types(content) == first, "one process answers again and again"
    assert first == {
        "x": ValueType("tensor(float)", (2, "n")),
        "y": ValueType("tensor(int64)", (2, None)),
        "z": ValueType("tensor(float)", (2, "n")),
    }


def test_what_onnx_runtime_refuses_is_told_with_the_name_of_the_model() -> None:
    with (
        TypeInference("net") as types,
        pytest.raises(InputError, match="^net: ONNX Runtime cannot load the model: "),
    ):
        types(model_of("net (float[2] x) => (y) { y = NoSuchThing (x) }").SerializeToString())


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "ONNX Runtime ended with SIGSEGV while it read"),
        ("import os; os._exit(3)", "ONNX Runtime ended with exit code 3"),
        ("sum(iter(int, 1))", "ONNX Runtime took more than 1 s of processor time"),
        ("b'x' * (1 << 40)", "ONNX Runtime takes more memory than it may"),
        ("print('no answer', flush=True); raise RuntimeError", "ONNX Runtime ended with exit code 1 while"),
    ],
)
def test_a_model_that_breaks_onnx_runtime_breaks_nothing_else(
    body: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken(monkeypatch, tmp_path, body)
    monkeypatch.setattr(inference, "CPU_S", 1)
    with TypeInference("net") as types, pytest.raises(InputError, match=told):
        types(model_of(SOUND).SerializeToString())


def test_a_choice_ends_with_the_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(model_of(SOUND.replace("n]", "4]")), tmp_path)
    assert read_choice(path, {}).rest
    broken(monkeypatch, tmp_path, "import os; os.abort()")
    with pytest.raises(InputError, match="^model: ONNX Runtime ended with SIGABRT"):
        read_choice(path, {})


def test_the_process_ends_with_the_block() -> None:
    with TypeInference("net") as types:
        types(model_of(SOUND).SerializeToString())
        process = types._process
        assert process is not None and process.alive
    assert not process.alive


@pytest.mark.parametrize("name", ["ConstantOfShape", "Tile by 2^40", "branches, deep", "Range to infinity"])
def test_a_bomb_is_read_in_bounded_memory(name: str) -> None:
    """Straight to ONNX Runtime: the limits of sizes stand before it for all that has static shapes."""
    with TypeInference("bomb") as types:
        try:
            assert types(BOMBS[name]().SerializeToString())
        except InputError as error:
            assert str(error).startswith("bomb: ONNX Runtime")
