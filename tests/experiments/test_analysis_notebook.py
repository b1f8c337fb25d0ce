"""The notebook runs from start to end on a database, and what it shows are the database's own numbers."""

from __future__ import annotations

import os
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from tests.database.recorded import fill

NOTEBOOK = Path(__file__).resolve().parents[2] / "experiments" / "analysis" / "database.ipynb"


@pytest.mark.long
def test_the_notebook_runs_and_shows_what_was_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOFUSE_DB", str(fill(tmp_path / "p.db", 1)))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(NOTEBOOK.parents[2]), os.environ.get("PYTHONPATH", ""))))
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    assert all(cell.get("outputs", []) == [] for cell in notebook.cells), "committed without outputs"
    NotebookClient(notebook, timeout=600, kernel_name="python3").execute(cwd=str(tmp_path))
    shown = [
        output["data"]["text/plain"]
        for cell in notebook.cells
        if cell.cell_type == "code"
        for output in cell.outputs
        if output.output_type == "execute_result"
    ]
    assert len(shown) == sum(cell.cell_type == "code" for cell in notebook.cells)
    text = "\n".join(shown)
    for wanted in ("run1", "finished", "run_error", "chosen_measured", "KiB of HTML"):
        assert wanted in text, wanted
