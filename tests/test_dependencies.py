"""Nothing imports a package that happens to be here: what `pip install -e '.[dev]'` does not ask for may be missing."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections import defaultdict
from functools import cache
from importlib.metadata import packages_distributions, requires
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
OWN = {"autofuse", "tests", "experiments"}

BROUGHT = {
    "google": ("protobuf", "onnx"),
    "nbformat": ("nbformat", "nbclient"),
    "pydantic_core": ("pydantic-core", "pydantic"),
}
"""Modules of a distribution that is not asked for by name, because the one beside it cannot do without it."""

APART: dict[str, tuple[str, ...]] = {
    "distributed": ("autofuse/measure/cluster", "experiments/scale"),
    "selenium": ("experiments/browser.py", "tests/browser"),
    "servers": ("tests/cluster",),
    "torch": (
        "autofuse/torch_backend",
        "tests/torch_backend",
        "tests/experiments/test_torch_compile_experiment.py",
        "experiments/torch_compile",
        "experiments/models",
        "experiments/peers",
        "experiments/real_models",
        "experiments/open_sizes/exports.py",
        "tests/experiments/test_real_models.py",
    ),
    "torchvision": ("experiments/models", "experiments/real_models"),
    "transformers": ("experiments/models", "experiments/real_models", "experiments/open_sizes/exports.py"),
    "sklearn": ("experiments/real_models",),
    "skl2onnx": ("experiments/real_models",),
    "onnx_ir": ("experiments/models",),
    "onnxscript": ("experiments/models",),
    "matplotlib": ("experiments/peers", "experiments/open_sizes/plot.py"),
    "openvino": ("experiments/peers", "experiments/kernel_counts"),
    "litert_torch": ("experiments/peers",),
    "ai_edge_litert": ("experiments/peers",),
    "ai_edge_quantizer": ("experiments/peers",),
    "onnx2torch": ("experiments/peers",),
    "torchao": ("experiments/peers",),
    "pnnx": ("experiments/peers",),
    "ncnn": ("experiments/peers",),
}
"""Modules of the other extras, and of rivals in virtual environments of their own: imported there and nowhere else."""


def declared() -> set[str]:
    """Distributions that `autofuse[dev]` asks for by name."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    pending, found = [*project["dependencies"], "autofuse[dev]"], set()
    while pending:
        name, extras = _requirement(pending.pop())
        if name == "autofuse":
            pending += [text for extra in extras for text in project["optional-dependencies"][extra]]
        else:
            found.add(name)
    return found


def _requirement(text: str) -> tuple[str, list[str]]:
    """The normal name of a requirement, and its extras."""
    match = re.match(r"([\w.-]+)(?:\[([^]]*)])?", text)
    assert match is not None, text
    return _normal(match[1]), [extra.strip() for extra in (match[2] or "").split(",") if extra.strip()]


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


@cache
def givers() -> dict[str, set[str]]:
    """The distributions that each installed module comes with."""
    return {module: {_normal(name) for name in names} for module, names in packages_distributions().items()}


@cache
def imported() -> dict[str, list[str]]:
    """Outside modules by their first name, with the places that import them; types alone do not count."""
    found = defaultdict(list)
    for path in sorted(path for folder in OWN for path in (ROOT / folder).rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                modules = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                modules = [node.module or ""]
            else:
                continue
            for module in {module.partition(".")[0] for module in modules}:
                if module not in sys.stdlib_module_names and module not in OWN | {"_typeshed"}:
                    found[module].append(f"{path.relative_to(ROOT)}:{node.lineno}")
    return dict(found)


def test_the_imports_are_found() -> None:
    assert {"numpy", "tvm", "pytest", "typer"} <= imported().keys()
    assert {"apache-tvm", "numpy", "pytest", "cryptography", "tornado"} <= declared()


def test_an_imported_package_is_one_that_the_project_asks_for() -> None:
    """One test, not one a package: only the process that runs it reads all files."""
    strangers = {module: imported()[module] for module in imported().keys() - APART.keys() if not asked_for(module)}
    assert strangers == {}


def asked_for(module: str) -> bool:
    """Whether a distribution that the project asks for by name brings this module."""
    if module in BROUGHT:
        brought, by = BROUGHT[module]
        return by in declared() and brought in {_requirement(text)[0] for text in requires(by) or []}
    return bool(givers().get(module, set()) & declared())


@pytest.mark.parametrize("module", APART)
def test_a_package_that_is_not_always_there_is_imported_in_its_place_only(module: str) -> None:
    places = imported().get(module, [])
    assert places, f"nothing imports {module}: take it out of the table"
    assert [place for place in places if not place.startswith(APART[module])] == []
