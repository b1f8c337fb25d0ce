"""The backend with torch, where torch is installed (`make test-torch`)."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

NEEDS_TORCH = ("test_dynamic_sizes.py", "test_torch_compile.py", "test_torch_limits.py")
MISSING = [name for name in ("torch", "onnxscript") if find_spec(name) is None]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that need torch are skipped, and say so, where it is missing."""
    if MISSING:
        for item in items:
            if item.path.name in NEEDS_TORCH and item.path.parent == Path(__file__).parent:
                item.add_marker(pytest.mark.skip(reason=f"needs {' and '.join(MISSING)}: run `make test-torch`"))


@pytest.fixture
def no_warning() -> Iterator[None]:
    """Every warning is an error: nothing runs in eager."""
    from autofuse.torch_backend.graph import EagerWarning

    with warnings.catch_warnings():
        warnings.simplefilter("error", EagerWarning)
        yield


@pytest.fixture
def compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Any]]:
    """`compiled(module, dynamic=..., **options)`: under torch.compile, database and cache being the test's own."""
    import torch

    from autofuse.torch_backend.backend import autofuse

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    torch._dynamo.reset()
    torch.manual_seed(0)

    def compile_module(module: Any, *, dynamic: bool | None = None, **options: object) -> Any:
        given = {"database": str(tmp_path / "p.db"), "threads": 1, **options}
        return torch.compile(module, backend=autofuse, options=given, dynamic=dynamic)

    yield compile_module
    torch._dynamo.reset()
