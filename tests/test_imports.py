"""The architecture, kept by reading the source: one direction of imports, one home for each outside library."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

from tests.reading import (
    PACKAGE,
    ROOT,
    all_imports,
    arrows_inside,
    dotted,
    imported_at_load,
    imported_late,
    own_part,
    part_of,
    rooms,
    sources,
    tree_of,
)

MAX_ENTRIES = 12
MAX_KERNEL_ARROWS = 40

FREE = {"errors", "values"}
"""Plain values that every part may use; they use only each other."""

LAYERS: dict[str, set[str]] = {
    "device": set(),
    "link": {"device"},
    "ort": {"device", "link"},
    "graph": {"ort"},
    "rewrite": {"graph"},
    "fusion": {"graph", "rewrite"},
    "database": {"device"},
    "kernels": {"graph", "rewrite", "fusion", "device"},
    "segments": {"graph", "kernels", "ort"},
    "backend": {"graph", "fusion", "device", "kernels", "link", "ort"},
    "measure": {"graph", "fusion", "device", "kernels", "backend", "ort"},
    "learning": {"graph", "fusion", "device", "kernels", "database"},
    "environment": {"graph", "fusion", "device", "kernels", "backend", "measure", "database"},
}
"""What each part may import, besides itself and `FREE`."""
LAYERS["views"] = {"graph", "rewrite", "fusion", "device", "kernels", "database", "environment", "segments"}
LAYERS["search"] = set(LAYERS) - {"views"}
LAYERS["compiler"] = set(LAYERS) - {"views", "search"}
LAYERS["benchmark"] = LAYERS["compiler"] | {"compiler"}
LAYERS["precision"] = LAYERS["compiler"]
LAYERS["job"] = LAYERS["search"] | {"search"}
LAYERS["torch_backend"] = LAYERS["compiler"] | {"compiler"}
LAYERS["opened"] = LAYERS["benchmark"] | {"benchmark", "search"}
LAYERS["parted"] = LAYERS["opened"] | {"opened"}
LAYERS["checks"] = {"device", "link", "kernels", "backend", "measure", "database", "environment"}
LAYERS["api"] = set(LAYERS)
LAYERS["cli"] = {"api"}
LAYERS["__init__"] = {"api", "backend", "compiler", "ort"}
LAYERS["__main__"] = {"cli"}

HOMES: dict[str, set[str]] = {
    "onnx": {"graph"},
    "tvm": {"kernels", "backend"},
    "tvm_ffi": {"kernels", "backend"},
    "onnxruntime": {"ort"},
    "sqlalchemy": {"database"},
    "alembic": {"database"},
    "cryptography": {"values"},
    "distributed": {"measure"},
    "dask": {"measure"},
    "optuna": {"search"},
    "scipy": {"search", "precision"},
    "lightgbm": {"learning"},
    "pandas": {"views", "learning"},
    "typer": {"cli"},
    "rich": {"cli"},
    "torch": {"torch_backend"},
}
"""The only parts that may import an outside library."""

HEAVY = {
    "tvm",
    "tvm_ffi",
    "pandas",
    "onnx",
    "onnxruntime",
    "sqlalchemy",
    "alembic",
    "optuna",
    "lightgbm",
    "scipy",
    "cryptography",
    "torch",
}
LATE: dict[str, str] = {
    "__init__.py": "importing the package loads none of its parts",
    "__main__.py": "a failing import of a library is a message, too",
    "api": "a verb loads what it needs",
    "cli": "`--help` loads no verb",
    "backend/compile/probes.py": "TVM's compiler, which a device that runs the probes lacks",
    "checks": "`doctor` works where a part of the installation does not",
    "compiler/context.py": "LightGBM and pandas, for those who ask a trained model",
    "compiler/plan_ladder.py": "the same",
    "environment/named_plans.py": "TVM's importer, for one plan",
    "kernels/emission.py": "TVM, for processes that look up and never emit",
    "learning/model.py": "training, which loads pandas",
    "measure/children/builder.py": "a child is ready before TVM's compiler is",
    "measure/children/candidates.py": "the process that starts children has no TVM",
    "measure/children/worker.py": "a child is ready before TVM is",
    "measure/local_runner.py": "LLVM, asked once",
    "measure/machine.py": "TVM, when a machine is probed",
    "measure/networks/contender.py": "a probe in the child",
    "measure/networks/library_builder.py": "TVM's compiler, in the child",
    "measure/networks/network.py": "TVM's importer, for one rival",
    "measure/remote/device_session.py": "TVM, in the child",
    "ort/__init__.py": "`autofuse.ort` is imported without ONNX Runtime",
    "torch_backend/backend.py": "torch lists its backends by importing them",
    "values/outputs.py": "psutil: most verbs write nothing",
}
"""The only places (rooms or files) that import a part of the package inside of a function, and what that spares."""

LATE_LIBRARIES = HEAVY | {"distributed", "ml_dtypes", "numpy", "platformdirs"}
"""Outside libraries that may be imported inside of a function."""

FORBIDDEN_MODULES = {"pickle", "cloudpickle", "dill", "shelve", "marshal", "joblib"}
FORBIDDEN_CALLS = {"eval", "exec"}


def test_every_part_of_the_package_has_a_place_in_the_layers() -> None:
    parts = {part_of(path) for path in sources()}
    assert parts - FREE - set(LAYERS) == set(), "add the new part to LAYERS, and say what it may import"


def test_imports_go_only_downward() -> None:
    upward = []
    for found in all_imports():
        imported = own_part(found.module)
        if imported is None or imported == found.importer or imported in FREE:
            continue
        if imported not in LAYERS.get(found.importer, set()):
            upward.append(f"{found} ({found.importer} may import {sorted(LAYERS.get(found.importer, FREE))})")
    assert upward == []


def test_the_layers_have_no_cycle() -> None:
    below: dict[str, set[str]] = {}
    while len(below) < len(LAYERS):
        ready = [part for part in LAYERS if part not in below and LAYERS[part] <= set(below)]
        assert ready, f"cycle among {sorted(set(LAYERS) - set(below))}"
        below.update({part: LAYERS[part] for part in ready})


def test_modules_do_not_import_each_other_in_a_circle_when_they_load() -> None:
    modules = {dotted(path): path for path in sources()}
    graph: dict[str, set[str]] = {name: set() for name in modules}
    for name, path in modules.items():
        for module in imported_at_load(path):
            if module in modules and module != name:
                graph[name].add(module)
    done: set[str] = set()
    while len(done) < len(graph):
        ready = {name for name in graph if name not in done and graph[name] <= done}
        assert ready, f"import circle among {sorted(set(graph) - done)}"
        done |= ready


@pytest.mark.parametrize("folder", rooms(), ids=lambda folder: str(folder.relative_to(PACKAGE)))
def test_a_room_is_seen_at_a_glance(folder: Path) -> None:
    """The package itself is the whole house, whose parts are named in LAYERS."""
    entries = sorted(entry.name for entry in folder.iterdir() if entry.name != "__pycache__")
    assert len(entries) <= MAX_ENTRIES, f"{len(entries)} entries; give some of them a room: {entries}"


@pytest.mark.parametrize("folder", [PACKAGE, *rooms()], ids=lambda folder: str(folder.relative_to(ROOT)))
def test_a_room_says_what_lives_in_it(folder: Path) -> None:
    assert ast.get_docstring(ast.parse((folder / "__init__.py").read_text(encoding="utf-8")))


@pytest.mark.parametrize("folder", [PACKAGE, *rooms()], ids=lambda folder: str(folder.relative_to(ROOT)))
def test_rooms_do_not_use_each_other_in_a_circle(folder: Path) -> None:
    """Late imports count, too: a circle that is held apart by them is one."""
    below = arrows_inside(folder)
    done: set[str] = set()
    while len(done) < len(below):
        ready = {room for room in below if room not in done and below[room] <= done}
        assert ready, f"circle among { ({room: sorted(below[room] - done) for room in below if room not in done}) }"
        done |= ready


def test_the_rooms_of_the_kernels_are_loosely_tied() -> None:
    arrows = [(room, other) for room, others in arrows_inside(PACKAGE / "kernels").items() for other in sorted(others)]
    assert len(arrows) <= MAX_KERNEL_ARROWS, arrows


def test_each_outside_library_has_one_home() -> None:
    strangers = [
        f"{found} (its home: {sorted(HOMES[library])})"
        for found in all_imports()
        if (library := found.module.split(".")[0]) in HOMES and found.importer not in HOMES[library]
    ]
    assert strangers == []


def test_imports_inside_of_functions_are_there_for_start_up() -> None:
    found = {(path, module) for path in sources() for module in imported_late(path)}
    places = {(str(path.relative_to(PACKAGE)), module) for path, module in found if own_part(module)}
    named = {(place, module, name) for place, module in places for name in LATE if _inside(place, name)}
    assert places - {(place, module) for place, module, _ in named} == set(), "import it at the top, or say why not"
    assert set(LATE) - {name for *_, name in named} == set(), "nothing there is imported late any more"
    outside = {module.split(".")[0] for _, module in found} - set(sys.stdlib_module_names) - {"autofuse"}
    assert outside <= LATE_LIBRARIES


def test_search_compiler_and_views_do_not_import_one_another() -> None:
    apart = {"search", "compiler", "views"}
    crossing = [
        str(found)
        for found in all_imports()
        if found.importer in apart and own_part(found.module) in apart - {found.importer}
    ]
    assert crossing == []


def test_package_init_files_load_no_heavy_library() -> None:
    heavy = []
    for path in sources():
        if path.name == "__init__.py":
            heavy += [
                f"{path.relative_to(ROOT)} loads {module}"
                for module in imported_at_load(path)
                if module.split(".")[0] in HEAVY
            ]
    assert heavy == []


def test_nothing_deserialises_code() -> None:
    loaders = [str(found) for found in all_imports() if found.module.split(".")[0] in FORBIDDEN_MODULES]
    assert loaders == []


def test_nothing_evaluates_text_as_code() -> None:
    calls = [
        f"{path.relative_to(ROOT)}:{node.lineno} calls {node.func.id}()"
        for path in sources()
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in FORBIDDEN_CALLS
    ]
    assert calls == []


def test_no_module_hides_a_function_of_the_same_name_in_the_api() -> None:
    """Importing a submodule binds its name in the package, so `autofuse.bench` could not be both."""
    import autofuse

    assert set(autofuse.__all__) & {part_of(path) for path in sources()} == set()


def _inside(place: str, name: str) -> bool:
    return place == name or place.startswith(f"{name}/")
