"""ONNX Runtime that breaks in child processes, as a hostile model would make it."""

from __future__ import annotations

from pathlib import Path

import pytest


def broken(monkeypatch: pytest.MonkeyPatch, folder: Path, body: str, module: str = "") -> None:
    """ONNX Runtime in children (those that run `module`; "": any) does this when it is asked for a session."""
    package = folder / "onnxruntime"
    package.mkdir()
    (package / "__init__.py").write_text(f"class SessionOptions:\n    def __init__(self):\n        {body}\n")
    first = f"import sys\nif {module!r} in ' '.join(sys.orig_argv): sys.path.insert(0, {str(folder)!r})"
    (folder / "sitecustomize.py").write_text(first)
    monkeypatch.setenv("PYTHONPATH", str(folder))
