"""The Python API: lazy, and the same verbs with the same arguments as the command line."""

from __future__ import annotations

import ast
import builtins
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import autofuse
from autofuse import api
from autofuse.cli.verbs import modeling, tuning
from autofuse.environment.device import thread_count
from autofuse.errors import InputError

RENAMED = {"shape": "shapes"}
ALSO_CALLED = {"devices": "device"}
"""One option that may repeat, and a list in Python."""
ONLY_ON_THE_COMMAND_LINE = {"form", "operators", "log", "on_finish", "pareto"}
"""`--pareto` is of one model, and so of `autofuse.tune`."""
ONLY_IN_PYTHON = {"progress", "context", "ear"}
THE_READERS_OWN = {"image", "models"}
"""Names in the README that stand for what a reader has."""


def test_importing_the_package_loads_none_of_its_parts() -> None:
    program = (
        "import sys, autofuse; print(sorted(m for m in sys.modules if m.startswith(('autofuse.', 'numpy', 'tvm'))))"
    )
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    # Telemetry is switched off before anything else.
    assert done.stdout.strip() == "['autofuse.values', 'autofuse.values.telemetry']"


@pytest.mark.parametrize("name", autofuse.__all__)
def test_every_public_name_is_a_documented_function(name: str) -> None:
    function = getattr(autofuse, name)
    assert function is getattr(api, name)
    assert inspect.getdoc(function)
    assert name in dir(autofuse)


def test_the_readme_uses_what_there_is() -> None:
    text = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
    blocks = [ast.parse(block) for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL)]
    nodes = [node for block in blocks for node in ast.walk(block)]
    names = [node for node in nodes if isinstance(node, ast.Name)]
    made = {node.id for node in names if isinstance(node.ctx, ast.Store)} | {"autofuse"} | set(dir(builtins))
    assert {node.id for node in names} - made == THE_READERS_OWN
    used = [node.attr for node in nodes if isinstance(node, ast.Attribute) and _is_autofuse(node.value)]
    assert used and set(used) <= set(autofuse.__all__)
    for node in nodes:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and _is_autofuse(node.func.value):
            known = inspect.signature(getattr(autofuse, node.func.attr)).parameters
            assert {word.arg for word in node.keywords} <= set(known), node.func.attr


def _is_autofuse(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "autofuse"


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'autofuse' has no attribute 'train'"):
        _ = autofuse.train  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("verb", "function"),
    [
        (modeling.inspect, api.inspect),
        (tuning.tune, api.tune_all),
        (modeling.compile_, api.compile),
        (modeling.bench, api.bench),
    ],
)
def test_a_verb_and_its_function_take_the_same_arguments(verb: object, function: object) -> None:
    assert callable(verb) and callable(function)
    of_verb = {RENAMED.get(name, name) for name in inspect.signature(verb).parameters} - ONLY_ON_THE_COMMAND_LINE
    of_function = {ALSO_CALLED.get(name, name) for name in inspect.signature(function).parameters}
    assert of_verb - of_function == set()
    assert of_function - of_verb <= ONLY_IN_PYTHON


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"budget": "soon"}, "--budget: got 'soon'"),
        ({"trials": 0}, "--trials: got 0, allowed: an integer from 1"),
        ({"space": "huge"}, "--space: 'huge' is unknown"),
    ],
)
def test_tune_refuses_bad_arguments_before_it_starts(
    arguments: dict[str, object], message: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=message):
        autofuse.tune(tmp_path / "absent.onnx", **arguments)  # type: ignore[arg-type]


def test_more_threads_than_cores_are_refused() -> None:
    with pytest.raises(InputError, match=r"--threads: got 9, allowed: 1 to 8 \(the cores of zen3\)"):
        thread_count(9, "zen3")
    assert thread_count(None, "zen3") == 8
    assert thread_count(3, "zen3") == 3
