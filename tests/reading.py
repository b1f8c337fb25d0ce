"""The package's source, read as text: its files, rooms and imports."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "autofuse"


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
    prefix = dotted(folder / "__init__.py") + "."
    below: dict[str, set[str]] = {}
    for found in all_imports():
        place = str(found.source).removeprefix(f"{folder}/")
        if place in (str(found.source), "__init__.py"):
            continue
        importer = place.split("/")[0].removesuffix(".py")
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


def dotted(path: Path) -> str:
    relative = path.relative_to(ROOT).with_suffix("")
    parts = relative.parts[:-1] if relative.name == "__init__" else relative.parts
    return ".".join(parts)


def imported_late(path: Path) -> Iterator[str]:
    """Modules that functions of the file import when they are called."""
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            for inner in ast.walk(node):
                if isinstance(inner, ast.Import):
                    yield from (alias.name for alias in inner.names)
                elif isinstance(inner, ast.ImportFrom) and inner.module:
                    base = inner.module
                    yield from (f"{base}.{alias.name}" for alias in inner.names) if base == "autofuse" else (base,)


def imported_at_load(path: Path) -> Iterator[str]:
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
