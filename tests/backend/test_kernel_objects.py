"""Libraries linked from kernels that were translated before: the same program, and nothing translated twice."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autofuse.backend.compile import jit, objects
from autofuse.backend.compile.assemble import assemble, assemble_all
from autofuse.backend.compile.function import compile_program, read_object, translating
from autofuse.backend.compile.host_cpu import local_device
from autofuse.backend.compile.objects import KeptSymbols, KernelObjects, symbol_of
from autofuse.backend.compile.realise import build_library
from autofuse.backend.library.library import count_kernels, load
from autofuse.errors import PlanError
from autofuse.fusion.planner.baselines import default_plan
from autofuse.graph.loading.load import load as load_model
from autofuse.kernels.build import build_kernel
from autofuse.kernels.lowering.lower import Lowered, lower
from autofuse.kernels.tir.digest import code_key
from autofuse.link.linking import for_tvm, host_linker

TARGET = local_device().target()


@pytest.fixture(scope="module")
def lowered(onnx_builder: Any, tmp_path_factory: pytest.TempPathFactory) -> Lowered:
    """Two equal layers with weights of their own, and another one."""
    b = onnx_builder()
    x = b.op("Relu", "first_relu", b.dense("first", "x", (16, 16)))
    x = b.op("Relu", "second_relu", b.dense("second", x, (16, 16)))
    path = Path(b.save(tmp_path_factory.mktemp("model") / "net.onnx", {"x": [8, 16]}, [b.op("Softmax", "end", x)]))
    graph = load_model(path, {})
    plan = default_plan(graph)
    return lower(graph, plan, TARGET, [group.operators for group in plan.groups])


def written(lowered: Lowered, path: Path, kept: KernelObjects | None = None) -> Path:
    build_library(lowered, {bound.workload.key: {} for bound in lowered.groups}, TARGET, 1, path, objects=kept)
    return path


def test_a_library_linked_from_objects_computes_bit_for_bit_what_one_compiled_whole_does(
    lowered: Lowered, tmp_path: Path
) -> None:
    whole = load(written(lowered, tmp_path / "whole.so"))
    linked = load(written(lowered, tmp_path / "linked.so", KernelObjects(tmp_path / "objects", TARGET)))
    inputs = whole.example_inputs()
    assert [one.tobytes() for one in linked(inputs)] == [one.tobytes() for one in whole(inputs)]
    assert count_kernels(linked, inputs) == count_kernels(whole, inputs) == len(lowered.kernels)


def test_a_program_of_objects_needs_no_more_memory(lowered: Lowered, tmp_path: Path) -> None:
    groups = [(bound, build_kernel(bound.workload, {}, TARGET)) for bound in lowered.groups]
    parts = [(lowered.graph, groups)]
    programs = [assemble(*parts[0]), assemble_all(parts, KeptSymbols(KernelObjects(tmp_path, TARGET)))]
    whole, linked = (compile_program(one.module, TARGET).as_text() for one in programs)
    assert linked.count("alloc_storage") == whole.count("alloc_storage") > 0


def test_equal_functions_are_translated_once_whatever_they_are_called(lowered: Lowered) -> None:
    one, other = (build_kernel(lowered.groups[n].workload, {}, TARGET).function for n in (0, -1))
    with translating(TARGET) as translator:
        begun = translator.begin(one)
        assert translator.begin(one.with_attr("global_symbol", "another")) is begun
        assert translator.begin(other) is not begun
        assert begun.result().stat().st_size > 0


def test_a_kernel_that_takes_something_else_than_its_group_gives_is_no_part_of_a_program(lowered: Lowered) -> None:
    """It does not look at its arguments when it runs."""
    kernels = [build_kernel(bound.workload, {}, TARGET) for bound in lowered.groups]
    kernels[0] = replace(kernels[0], function=kernels[-1].function)
    with pytest.raises(PlanError, match="its kernel is given .*float32.*, but takes .*float32"):
        assemble(lowered.graph, list(zip(lowered.groups, kernels, strict=True)))


@pytest.mark.skipif(host_linker() is None, reason="no bare linker here")
def test_a_library_of_objects_alone_is_linked_without_a_compiler(lowered: Lowered, tmp_path: Path) -> None:
    """As for a device of another architecture, where nothing but a linker is at hand."""
    symbols = KeptSymbols(KernelObjects(tmp_path / "objects", TARGET))
    groups = [(bound, build_kernel(bound.workload, {}, TARGET)) for bound in lowered.groups]
    assembly = assemble_all([(lowered.graph, groups)], symbols)
    ready = {symbol: read_object(path, symbol) for symbol, path in symbols.files.items()}
    linker = host_linker()
    assert linker is not None
    library = tmp_path / "net.so"
    compile_program(assembly.module, TARGET, ready).export_library(
        str(library), fcompile=for_tvm(linker.link, linker.architecture)
    )
    symbols = library.read_bytes()
    assert ready and all(name.encode() in symbols for name in ready)


def test_what_is_compiled_once_is_only_linked_from_then_on(
    lowered: Lowered, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = KernelObjects(tmp_path / "objects", TARGET)
    first = load(written(lowered, tmp_path / "first.so", kept))
    assert len(list(kept.folder.iterdir())) == 2, "two layers have equal code"

    def refuse(*_: object) -> None:
        raise AssertionError("compiled again")

    monkeypatch.setattr(objects, "write_object", refuse)
    again = load(written(lowered, tmp_path / "again.so", kept))
    inputs = first.example_inputs()
    assert all(np.array_equal(a, b) for a, b in zip(first(inputs), again(inputs), strict=True))


@pytest.mark.skipif(host_linker() is None, reason="no bare linker here")
def test_a_library_links_what_was_compiled_to_measure_candidates(
    lowered: Lowered, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A search measures kernels one by one; its finalists are assembled from their objects."""
    kept = KernelObjects(tmp_path / "objects", TARGET)
    for bound in lowered.kernels:
        function = build_kernel(bound.workload, {}, TARGET).function
        jit.kept_kernel(function, code_key(function), TARGET, kept)

    def refuse(*_: object) -> None:
        raise AssertionError("compiled again")

    monkeypatch.setattr(objects, "write_object", refuse)
    library = load(written(lowered, tmp_path / "net.so", kept))
    assert count_kernels(library, library.example_inputs()) == len(lowered.kernels)


def test_a_kernel_runs_from_its_object_and_only_the_object_stays(lowered: Lowered, tmp_path: Path) -> None:
    kept = KernelObjects(tmp_path, TARGET)
    function = build_kernel(lowered.kernels[-1].workload, {}, TARGET).function
    code = code_key(function)
    assert not kept.has(code)
    kernel = jit.kept_kernel(function, code, TARGET, kept)
    assert kept.has(code)
    assert [one.name for one in tmp_path.iterdir()] == [f"{code}.o"]
    x, y = (jit.tensor(np.zeros((8, 16), "float32")) for _ in range(2))
    kernel(x, y)
    assert np.allclose(y.numpy(), 1 / 16)
    assert kernel.block_seconds((x, y), 3, 1e-6) > 0
    assert symbol_of(code).startswith("kernel_")


@pytest.mark.parametrize("lacking", ["linker", "room"])
def test_where_nothing_can_be_kept_the_kernel_runs_all_the_same(
    lowered: Lowered, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lacking: str
) -> None:
    if lacking == "linker":
        monkeypatch.setattr(jit, "host_linker", lambda: None)
    else:
        monkeypatch.setattr(objects, "FREE_BYTES", 1 << 60)
    kept = KernelObjects(tmp_path, TARGET)
    function = build_kernel(lowered.kernels[-1].workload, {}, TARGET).function
    x, y = (jit.tensor(np.zeros((8, 16), "float32")) for _ in range(2))
    jit.kept_kernel(function, code_key(function), TARGET, kept)(x, y)
    assert np.allclose(y.numpy(), 1 / 16)
    assert not list(tmp_path.iterdir())


def test_beyond_the_limit_what_nobody_asked_for_the_longest_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(objects, "MOST_BYTES", 500)
    for age, name in enumerate("abcdef"):
        (tmp_path / f"{name}.o").write_bytes(b"x" * 100)
        os.utime(tmp_path / f"{name}.o", (1000 - age, 1000 - age))
    KernelObjects(tmp_path, TARGET).sweep()
    assert len(list(tmp_path.iterdir())) == 6, "it is not looked at after each kernel"
    KernelObjects(tmp_path, TARGET, objects.SWEEP_EVERY).sweep()
    assert sorted(one.stem for one in tmp_path.iterdir()) == ["a", "b"]
