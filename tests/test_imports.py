"""The architecture, kept by reading the source: one direction of imports, one home for each outside library."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import median

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "autofuse"
MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 60
MEDIAN_FUNCTION_LINES = 8
MAX_ENTRIES = 12
MAX_KERNEL_ARROWS = 40

FREE = {"errors", "values"}
"""Plain values that every part may use; they use only each other."""

LAYERS: dict[str, set[str]] = {
    "graph": set(),
    "device": set(),
    "link": {"device"},
    "ort": {"device", "link"},
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
LAYERS["precision"] = LAYERS["search"] | {"search"}
LAYERS["job"] = LAYERS["search"] | {"search"}
LAYERS["torch_backend"] = LAYERS["compiler"] | {"compiler"}
LAYERS["parted"] = LAYERS["benchmark"] | {"benchmark", "search"}
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
    "scipy": {"search"},
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

LATE_LIBRARIES = HEAVY | {"distributed", "numpy", "platformdirs"}
"""Outside libraries that may be imported inside of a function."""

FORBIDDEN_MODULES = {"pickle", "cloudpickle", "dill", "shelve", "marshal", "joblib"}
FORBIDDEN_CALLS = {"eval", "exec"}


@dataclass(frozen=True)
class Import:
    """One imported module (dotted), with where it stands."""

    source: Path
    line: int
    module: str
    type_checking: bool
    names: tuple[str, ...] = ()
    """What `from module import` takes from it."""

    @property
    def importer(self) -> str:
        return part_of(self.source)

    def __str__(self) -> str:
        return f"{self.source.relative_to(ROOT)}:{self.line} imports {self.module}"


def part_of(path: Path) -> str:
    relative = path.relative_to(PACKAGE)
    return relative.parts[0] if len(relative.parts) > 1 else relative.stem


def sources() -> list[Path]:
    return [path for path in sorted(PACKAGE.rglob("*.py")) if "_data" not in path.parts]


def rooms() -> list[Path]:
    """Every folder of modules below the package."""
    return sorted({path.parent for path in sources()} - {PACKAGE})


def arrows_inside(folder: Path) -> dict[str, set[str]]:
    """Of each entry of a folder (a module, or a room with all below it): the other entries that it imports."""
    prefix = _dotted(folder / "__init__.py") + "."
    below: dict[str, set[str]] = {}
    for found in all_imports():
        if found.source == folder / "__init__.py" or folder not in found.source.parents:
            continue
        importer = found.source.relative_to(folder).parts[0].removesuffix(".py")
        entries = below.setdefault(importer, set())
        for module in (found.module, *(f"{found.module}.{name}" for name in found.names)):
            entry = module.removeprefix(prefix).split(".")[0] if module.startswith(prefix) else importer
            if entry != importer and ((folder / entry).is_dir() or (folder / f"{entry}.py").exists()):
                entries.add(entry)
    for others in list(below.values()):
        for other in others:
            below.setdefault(other, set())
    return below


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def imports_of(path: Path) -> Iterator[Import]:
    tree = tree_of(path)
    guarded = {
        id(child)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
        for statement in node.body
        for child in ast.walk(statement)
    }
    for node in ast.walk(tree):
        taken: tuple[str, ...] = ()
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            names = [f"{base}.{alias.name}" if base == "autofuse" else base for alias in node.names]
            taken = tuple(alias.name for alias in node.names) if base != "autofuse" else ()
        else:
            continue
        for name in dict.fromkeys(names):
            yield Import(path, node.lineno, name, id(node) in guarded, taken)


@cache
def all_imports() -> list[Import]:
    """Read when a test asks: each process of the suite loads this file, one runs its tests."""
    return [found for path in sources() for found in imports_of(path)]


def own_part(module: str) -> str | None:
    """The part of autofuse that a dotted module belongs to; None for outside modules and the package itself."""
    head, *rest = module.split(".")
    return rest[0] if head == "autofuse" and rest and not rest[0].startswith("__") else None


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
    modules = {_dotted(path): path for path in sources()}
    graph: dict[str, set[str]] = {name: set() for name in modules}
    for name, path in modules.items():
        for module in _imported_at_load(path):
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
    found = {(path, module) for path in sources() for module in _imported_late(path)}
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
                for module in _imported_at_load(path)
                if module.split(".")[0] in HEAVY
            ]
    assert heavy == []


def test_nothing_deserialises_code() -> None:
    loaders = [str(found) for found in all_imports() if found.module.split(".")[0] in FORBIDDEN_MODULES]
    assert loaders == []


@pytest.mark.parametrize("path", sources(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_nothing_evaluates_text_as_code(path: Path) -> None:
    calls = [
        f"line {node.lineno}: {node.func.id}()"
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in FORBIDDEN_CALLS
    ]
    assert calls == []


@pytest.mark.parametrize("path", sources(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_files_and_functions_stay_short(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    long = [
        f"{node.name} has {length} lines (at most {MAX_FUNCTION_LINES})"
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (length := (node.end_lineno or 0) - node.lineno + 1) > MAX_FUNCTION_LINES
    ]
    if (lines := len(text.splitlines())) > MAX_FILE_LINES:
        long.append(f"the file has {lines} lines (at most {MAX_FILE_LINES})")
    assert long == []


def test_what_is_not_python_stays_short_too() -> None:
    other = (path for path in PACKAGE.rglob("*") if path.suffix in {".c", ".h", ".js", ".css", ".html"})
    lengths = {str(path.relative_to(PACKAGE)): len(path.read_text(encoding="utf-8").splitlines()) for path in other}
    assert lengths
    assert {name: lines for name, lines in lengths.items() if lines > MAX_FILE_LINES} == {}


def test_most_functions_fit_a_glance() -> None:
    lengths = [
        (node.end_lineno or 0) - node.lineno + 1
        for path in sources()
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    assert median(lengths) <= MEDIAN_FUNCTION_LINES


def test_no_module_hides_a_function_of_the_same_name_in_the_api() -> None:
    """Importing a submodule binds its name in the package, so `autofuse.bench` could not be both."""
    import autofuse

    assert set(autofuse.__all__) & {part_of(path) for path in sources()} == set()


def _dotted(path: Path) -> str:
    relative = path.relative_to(ROOT).with_suffix("")
    parts = relative.parts[:-1] if relative.name == "__init__" else relative.parts
    return ".".join(parts)


def _inside(place: str, name: str) -> bool:
    return place == name or place.startswith(f"{name}/")


def _imported_late(path: Path) -> Iterator[str]:
    """Modules that functions of the file import when they are called."""
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            for inner in ast.walk(node):
                if isinstance(inner, ast.Import):
                    yield from (alias.name for alias in inner.names)
                elif isinstance(inner, ast.ImportFrom) and inner.module:
                    base = inner.module
                    yield from (f"{base}.{alias.name}" for alias in inner.names) if base == "autofuse" else (base,)


def _imported_at_load(path: Path) -> Iterator[str]:
    """Modules that the file imports when it is loaded: not inside a function, not for type checking only."""
    pending: list[ast.AST] = list(tree_of(path).body)
    while pending:
        node = pending.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            pending.extend(node.orelse)
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        pending.extend(ast.iter_child_nodes(node))
