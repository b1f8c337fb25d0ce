"""Machine code of kernels that a user keeps: the next compile of an equal kernel translates nothing."""

from __future__ import annotations

import os
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autofuse import api
from autofuse.backend.compile import function, objects
from autofuse.backend.compile.function import ANY_SYMBOL
from autofuse.backend.compile.host_cpu import local_device
from autofuse.backend.compile.objects import KernelObjects, UserObjects, remove_objects, user_objects
from autofuse.backend.compile.realise import build_library
from autofuse.fusion.planner.baselines import default_plan
from autofuse.graph.loading.load import load as load_model
from autofuse.kernels.build import build_kernel
from autofuse.kernels.emission import Emission
from autofuse.kernels.lowering.lower import lower
from autofuse.kernels.workload.workload import Value, Workload, WorkloadOperator

TARGET = local_device().target()
USER_FOLDER = objects.user_folder  # before the fixture for all tests takes its place


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "kept"
    folder.mkdir()
    monkeypatch.setattr(objects, "user_folder", lambda: folder)
    return folder


@pytest.fixture
def model(onnx_builder: Any, tmp_path: Path) -> Path:
    b = onnx_builder()
    x = b.op("Softmax", "middle", b.dense("first", "x", (16, 16)))
    return Path(b.save(tmp_path / "net.onnx", {"x": [8, 16]}, [b.op("Softmax", "end", b.dense("last", x, (16, 4)))]))


def compiled(model: Path, output: Path) -> bytes:
    api.compile(model, output, database=str(output.with_suffix(".db")), threads=1)
    x = np.random.default_rng(0).standard_normal((8, 16)).astype(np.float32)
    return api.load(output)({"x": x})[0].tobytes()


def relu_of(size: int) -> Workload:
    values = (Value("input", (1, size), "float32"), Value("output", (1, size), "float32"))
    return Workload(values, (WorkloadOperator("Relu", (0,), (1,)),), 17)


def relu(size: int) -> Any:
    return build_kernel(relu_of(size), {}, TARGET).function


def refuse(*_arguments: object, **_named: object) -> None:
    raise AssertionError("translated again")


def test_the_second_compile_translates_nothing_and_computes_the_same(
    model: Path, kept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = compiled(model, tmp_path / "first.so")
    names = {path.name for path in kept.iterdir()}
    monkeypatch.setattr(function, "write_object", refuse)
    assert compiled(model, tmp_path / "second.so") == first
    assert names and names == {path.name for path in kept.iterdir()}
    report = api.cache_info()
    assert report.objects == len(names) and report.object_bytes > 1000


def test_a_compile_takes_what_a_search_built_whole_and_writes_the_same_library(
    model: Path, kept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A search calls equal code by one name, a library by what it computes."""
    graph = load_model(model, {})
    plan = default_plan(graph)
    lowered = lower(graph, plan, TARGET, [group.operators for group in plan.groups])
    schedules: dict[str, dict[str, int | str]] = {bound.workload.key: {} for bound in lowered.groups}
    fresh, searched, linked = (tmp_path / f"{name}.so" for name in ("fresh", "searched", "linked"))
    build_library(lowered, schedules, TARGET, 1, fresh)
    session = KernelObjects(tmp_path / "session", TARGET)
    build_library(lowered, schedules, TARGET, 1, searched, objects=session, kept=user_objects(TARGET))
    assert len(list(kept.iterdir())) == len(list(session.folder.iterdir())) > 1
    monkeypatch.setattr(function, "write_object", refuse)
    build_library(lowered, schedules, TARGET, 1, linked, kept=user_objects(TARGET))
    assert linked.read_bytes() == fresh.read_bytes()


def test_an_object_under_another_name_is_what_translating_it_so_gives(tmp_path: Path) -> None:
    one, other = ("kernel_one".ljust(function.SYMBOL_LENGTH, "_"), "kernel_other".ljust(function.SYMBOL_LENGTH, "_"))
    for name in (one, other):
        function.write_object(relu(8), name, TARGET, tmp_path / f"{name}.o")
    code = (tmp_path / f"{one}.o").read_bytes()
    assert function.renamed(code, one, other) == (tmp_path / f"{other}.o").read_bytes() != code
    with pytest.raises(AssertionError, match="no names of 47"):
        function.renamed(code, one, "short")


def test_long_code_that_was_kept_starts_no_child(
    model: Path, kept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(function, "LONG_VECTORS", -1)
    first = compiled(model, tmp_path / "first.so")
    assert list(kept.glob("*.o"))
    monkeypatch.setattr("autofuse.compiler.translation.Pool", refuse)
    assert compiled(model, tmp_path / "second.so") == first


def test_damaged_code_is_translated_again(model: Path, kept: Path, tmp_path: Path) -> None:
    first = compiled(model, tmp_path / "first.so")
    for number, path in enumerate(sorted(kept.iterdir())):
        content = path.read_bytes()
        path.write_bytes(content[: len(content) // 2] if number % 2 else content[:100] + b"\0\1\2" + content[103:])
    assert compiled(model, tmp_path / "second.so") == first
    known = UserObjects(kept, TARGET)
    assert all(known.take(path.stem, ANY_SYMBOL, tmp_path / "one.o") for path in kept.iterdir())


def test_other_code_has_another_name(kept: Path) -> None:
    known = UserObjects(kept, TARGET)
    one, other = relu(8), relu(9)
    keys = {
        known.key(one),
        known.key(other),
        UserObjects(kept, replace(TARGET, mcpu="other")).key(one),
    }
    assert len(keys) == 3
    assert known.key(relu(8).with_attr("global_symbol", "another")) in keys


def test_code_that_a_look_up_wrote_down_names_the_object(kept: Path) -> None:
    known, emission, workload = UserObjects(kept, TARGET), Emission(TARGET), relu_of(8)
    made = emission.kernel(workload, {}).function
    code = emission.code(workload, {})
    assert known.key(made, code) == known.key(made)
    assert known.key(made, "other") != known.key(made)


def test_what_nobody_asked_for_the_longest_goes_first(
    kept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(objects, "MOST_BYTES", 1000)
    known, code = UserObjects(kept, TARGET), tmp_path / "code.o"
    code.write_bytes(bytes(200))
    for number in range(6):
        known.keep(f"key{number}", ANY_SYMBOL, code)
        os.utime(kept / f"key{number}.o", (number, number))
    assert known.take("key0", ANY_SYMBOL, tmp_path / "again.o") and (tmp_path / "again.o").read_bytes() == bytes(200)
    known.bound()
    assert sorted(path.stem for path in kept.iterdir()) == ["key0", "key5"]
    remove_objects()
    assert not list(kept.iterdir()) and not known.take("key0", ANY_SYMBOL, tmp_path / "none.o")


def test_they_lie_among_the_temporary_files_and_are_the_users_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A verb writes nowhere else unasked."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    folder = USER_FOLDER()
    assert folder == tmp_path / f"autofuse-{os.getuid()}" / "objects"
    assert [place.stat().st_mode & 0o777 for place in (folder, folder.parent)] == [0o700, 0o700]


def test_without_a_folder_of_ones_own_everything_is_translated(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / f"autofuse-{os.getuid()}").write_text("no folder")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(objects, "user_folder", USER_FOLDER)
    assert user_objects(TARGET) is function.NOTHING_KEPT
    assert compiled(model, tmp_path / "first.so")
