"""The Python API: lazy, and the same verbs with the same arguments as the command line."""

from __future__ import annotations

import ast
import builtins
import inspect
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import autofuse
from autofuse import api
from autofuse.cli.main import app
from autofuse.environment.device import thread_count
from autofuse.errors import InputError

RENAMED = {"shape": "shapes", "constant": "constants", "cache": "caches"}
"""Options that may repeat, and mappings in Python."""
ONLY_ON_THE_COMMAND_LINE = {
    "form": "how the answer is printed; in Python it is a value",
    "operators": "of `inspect`: whether the screen lists them; the value has them",
    "watch": "of `status`: the screen is drawn again",
    "log": "of `tune`: where the lines of the screen go as well",
    "on_finish": "of `tune`: a command of the shell; in Python, the next line",
}
ONLY_IN_PYTHON = {
    "progress": "the command line shows it on its screen",
    "stop": "of `tune`: Ctrl-C",
    "listener": "of `tune_all`: the screen, and Ctrl-C",
    "ready": "of `serve`: what the command line prints",
    "log": "of `serve`: what the command line prints",
    "context": "of `compile`: many models in one process",
}
THE_READERS_OWN = {"image", "models"}
"""Names in the README that stand for what a reader has."""


def test_importing_the_package_loads_none_of_its_parts() -> None:
    program = (
        "import sys, autofuse; print(sorted(m for m in sys.modules if m.startswith(('autofuse.', 'numpy', 'tvm'))))"
    )
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    # Telemetry is switched off before anything else.
    assert done.stdout.strip() == "['autofuse.values', 'autofuse.values.processes']"


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


def verbs() -> dict[str, Callable[..., object]]:
    """The functions of the command line by the name that each has in Python: `plan show` is `plan_show`."""
    groups = [("", app), *((f"{group.name}_", group.typer_instance) for group in app.registered_groups)]
    return {
        f"{prefix}{command.name}": command.callback
        for prefix, group in groups
        if group is not None
        for command in group.registered_commands
        if command.callback is not None
    }


VERBS = verbs()


def arguments_of(name: str) -> dict[str, object]:
    """Names and defaults of what stands in Python for a verb: for `tune` a search of one model, or a job."""
    found = dict(inspect.signature(getattr(autofuse, name)).parameters)
    if name == "tune":
        del found["model"]
        found |= inspect.signature(autofuse.tune_all).parameters
        found["device"] = found.pop("devices")  # one option that may repeat
    return {argument: parameter.default for argument, parameter in found.items()}


@pytest.mark.parametrize("name", VERBS)
def test_every_verb_is_a_function_with_the_same_arguments_and_defaults(name: str) -> None:
    given = inspect.signature(VERBS[name]).parameters
    on_the_command_line = {
        RENAMED.get(argument, argument): parameter.default
        for argument, parameter in given.items()
        if argument not in ONLY_ON_THE_COMMAND_LINE
    }
    in_python = {key: value for key, value in arguments_of(name).items() if key not in ONLY_IN_PYTHON}
    assert set(on_the_command_line) == set(in_python)
    for argument, default in on_the_command_line.items():
        assert _default(default) == _default(in_python[argument]), argument


def _default(value: object) -> object:
    """Nothing given is None for an option that may repeat, and an empty tuple in Python."""
    return None if value == () else value


@pytest.mark.parametrize("name", sorted({*ONLY_ON_THE_COMMAND_LINE, *ONLY_IN_PYTHON}))
def test_no_exception_is_kept_that_nothing_needs(name: str) -> None:
    if name in ONLY_ON_THE_COMMAND_LINE:
        assert any(name in inspect.signature(verb).parameters for verb in VERBS.values())
    if name in ONLY_IN_PYTHON:
        assert any(name in arguments_of(verb) for verb in VERBS)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"budget": "soon"}, "--budget: got 'soon'"),
        ({"trials": 0}, "--trials: got 0, allowed: an integer from 1"),
        ({"space": "huge"}, "--space: 'huge' is unknown"),
        ({"trained": "absent.model"}, "--model: 'absent.model' is no file"),
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
