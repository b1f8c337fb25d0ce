"""Open sizes in jobs: each model has its own of them, a size that none has is refused, other sizes are another job."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from autofuse import api
from autofuse.environment.place import Place
from autofuse.errors import InputError
from autofuse.graph.loading.given.sizes import OpenSize, open_sizes
from autofuse.graph.loading.given.trace import Trace
from autofuse.job.coordinator import JobListener
from autofuse.job.run import run_job
from autofuse.job.settings import JobSettings, WorkerSpec
from autofuse.parted.session import with_own_sizes
from autofuse.search.progress import SearchRequest
from tests.compiler.open_sizes.models import write

ASKED = open_sizes(["batch=1:16", "past=0:8", "total=past+1", "heads=4"])


def model(folder: Path, name: str, *sizes: object) -> Path:
    shape = ", ".join(map(str, sizes))
    return write(folder / f"{name}.onnx", f"{name} (float[{shape}] x) => (float[{shape}] y) {{ y = Relu (x) }}", {})


def own(path: Path) -> SearchRequest:
    return with_own_sizes(path, SearchRequest(sizes=ASKED, trace=Trace(("batch", "past"), ((1, 2, 3),))))


def test_settings_come_back_as_they_were_stored() -> None:
    settings = JobSettings(60.0, sizes=ASKED, trace=Trace(("batch", "past"), ((1, 0, 3), (2, 8, 1)), "sizes.csv"))
    assert JobSettings.from_json(json.loads(json.dumps(settings.to_json()))) == settings
    assert JobSettings.from_json({"budget_s": 1.0}) == JobSettings(1.0), "what an older autofuse stored"


def test_a_model_has_its_own_of_the_sizes(tmp_path: Path) -> None:
    assert own(model(tmp_path, "a", "batch", 8)).sizes == (OpenSize("batch", 1, 16),)
    assert [size.typed for size in own(model(tmp_path, "b", "batch", "past", "total")).sizes] == [
        "batch=1:16", "past=0:8", "total=past+1",
    ]  # fmt: skip
    alone = own(model(tmp_path, "c", "total", 8))
    assert alone.sizes == (OpenSize("total", 1, 9),), "what it follows is no size of this model"


def test_a_model_whose_sizes_are_all_fixed_is_searched_at_these(tmp_path: Path) -> None:
    fixed = own(model(tmp_path, "a", "heads", 8))
    assert (fixed.sizes, fixed.trace, dict(fixed.given)) == ((), None, {"x": (4, 8)})
    assert dict(own(model(tmp_path, "b", 2, 8)).given) == {}


def test_a_size_that_no_model_has_is_refused_with_those_that_they_have(tmp_path: Path) -> None:
    models = [model(tmp_path, "a", "batch", "tokens"), model(tmp_path, "b", 2, 8)]
    with pytest.raises(InputError, match="no model of the job has an open size 'length': a.onnx has batch, tokens; b"):
        api.tune_all(models, sizes=["batch", "length=1:8"], database=str(tmp_path / "a.db"))
    assert not (tmp_path / "a.db").exists()


def test_the_same_models_with_other_sizes_are_another_job(tmp_path: Path) -> None:
    path, worker = model(tmp_path, "a", "batch", 8), WorkerSpec("local", "local", Place(device="generic-avx2"))

    def run(*sizes: str) -> str:
        """The name of the job, which is stopped before it does anything."""
        settings, listener = JobSettings(60.0, sizes=open_sizes(sizes)), JobListener(stop_asked=lambda: True)
        found = run_job(
            [path], [worker], settings, database=str(tmp_path / "a.db"), name=names.pop(), listener=listener
        )
        return found.run

    names: list[str | None] = [None, "night", None, "night"]
    assert run("batch=1:16") == "night"
    assert run("batch=1:16") == "night", "the one that has not ended"
    with pytest.raises(InputError, match="job 'night' is one of other models, sizes or devices"):
        run("batch=1:4")
    assert run("batch=1:4") != "night"
