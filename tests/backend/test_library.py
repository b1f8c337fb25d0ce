"""From groups of a graph to one file, and from that file to results, kernel counts and clear refusals."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from autofuse.backend.compile.assemble import assemble
from autofuse.backend.compile.function import compile_function, compile_program, tvm_target
from autofuse.backend.compile.realise import describe
from autofuse.backend.container.metadata import Metadata
from autofuse.backend.library import library as library_module
from autofuse.backend.library.compiled import Library
from autofuse.backend.library.library import count_kernels, export, load, read_metadata
from autofuse.errors import DeviceError, InputError, PlanError
from autofuse.graph.loading.load import from_model
from autofuse.graph.model import Graph, Operator, Tensor
from autofuse.kernels.build import build_kernel
from autofuse.kernels.importer.fallback import imported_function
from autofuse.kernels.workload.workload import bind_workload
from tests.backend.networks import TARGET, Array, expected, groups_of, model_of, unfused, write

NETWORK = """net (float[1,3,8,8] image, float[1,4] extra) => (float[1,4] score, float[1,4,8,8] features)
    { c = Conv <pads=[1,1,1,1]> (image, w) features = Relu (c) c2 = Conv <pads=[1,1,1,1]> (features, w1)
      r2 = Relu (c2) p = GlobalAveragePool (r2) f = Flatten (p) score = Add (f, extra) }"""
WEIGHTS = {"w": (4, 3, 3, 3), "w1": (4, 4, 3, 3)}


@pytest.fixture(scope="module")
def network() -> tuple[onnx.ModelProto, Graph]:
    model = model_of(NETWORK, WEIGHTS)
    return model, from_model(model, "net")


@pytest.fixture(scope="module")
def built(network: tuple[onnx.ModelProto, Graph], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("built") / "net.so"
    write(network[1], unfused(network[1]), path)
    return path


@pytest.fixture
def loaded(built: Path) -> Library:
    return load(built)


def check(model: onnx.ModelProto, library: Library, inputs: dict[str, Array]) -> None:
    for made, wanted in zip(library(inputs), expected(model, inputs), strict=True):
        assert made.dtype == wanted.dtype
        np.testing.assert_allclose(made, wanted, rtol=1e-4, atol=1e-5)


def test_unfused_network_equals_onnx_runtime(network: tuple[onnx.ModelProto, Graph], loaded: Library) -> None:
    check(network[0], loaded, loaded.example_inputs())


def test_inputs_may_be_given_in_order_and_unaligned(network: tuple[onnx.ModelProto, Graph], loaded: Library) -> None:
    raw = np.random.default_rng(1).standard_normal(3 * 64 + 1).astype("float32")
    image, extra = raw[1:].reshape(1, 3, 8, 8), np.ones((1, 4), "float32")
    for made, wanted in zip(
        loaded([image, extra]), expected(network[0], {"image": image, "extra": extra}), strict=True
    ):
        np.testing.assert_allclose(made, wanted, rtol=1e-4, atol=1e-5)


def test_strided_input_is_read_right(network: tuple[onnx.ModelProto, Graph], loaded: Library) -> None:
    image = np.random.default_rng(2).standard_normal((1, 8, 8, 3)).astype("float32").transpose(0, 3, 1, 2)
    check(network[0], loaded, {"image": image, "extra": np.zeros((1, 4), "float32")})


def test_every_group_is_exactly_one_kernel_and_a_view_is_none(
    network: tuple[onnx.ModelProto, Graph], loaded: Library
) -> None:
    views = [operator for operator in network[1].operators if operator.op_type in ("Flatten", "Reshape")]
    assert len(views) == 1
    assert count_kernels(loaded, loaded.example_inputs()) == len(network[1].operators) - 1 == loaded.metadata.kernels


def test_a_fused_plan_launches_fewer_kernels_and_computes_the_same(
    network: tuple[onnx.ModelProto, Graph], tmp_path: Path
) -> None:
    model, graph = network
    names = [operator.name for operator in graph.operators]
    write(graph, groups_of(graph, [names[:2], names[2:4], names[4:]]), tmp_path / "fused.so")
    fused = load(tmp_path / "fused.so")
    check(model, fused, fused.example_inputs())
    assert count_kernels(fused, fused.example_inputs()) == 3


def test_the_count_betrays_a_kernel_that_the_plan_does_not_have(
    network: tuple[onnx.ModelProto, Graph], tmp_path: Path
) -> None:
    write(network[1], unfused(network[1]), tmp_path / "lies.so", kernel_rows=())
    lies = load(tmp_path / "lies.so")
    with pytest.raises(DeviceError, match="beyond the plan"):
        count_kernels(lies, lies.example_inputs())


def test_groups_may_come_in_any_order(network: tuple[onnx.ModelProto, Graph], tmp_path: Path) -> None:
    model, graph = network
    write(graph, list(reversed(unfused(graph))), tmp_path / "backwards.so")
    backwards = load(tmp_path / "backwards.so")
    check(model, backwards, backwards.example_inputs())


def test_a_prepared_library_runs_again_on_the_same_inputs(loaded: Library) -> None:
    inputs = loaded.example_inputs()
    prepared = loaded.prepared(inputs)
    with pytest.raises(InputError, match="not run yet"):
        prepared.outputs()
    prepared.run()
    prepared()
    for made, wanted in zip(prepared.outputs(), loaded(inputs), strict=True):
        np.testing.assert_array_equal(made, wanted)


def test_results_survive_the_next_call(loaded: Library) -> None:
    first = loaded(loaded.example_inputs(seed=1))
    kept = [array.copy() for array in first]
    loaded(loaded.example_inputs(seed=2))
    for array, copy in zip(first, kept, strict=True):
        np.testing.assert_array_equal(array, copy)


def test_a_fresh_process_loads_and_runs_it(built: Path, loaded: Library, tmp_path: Path) -> None:
    inputs = loaded.example_inputs()
    np.savez(tmp_path / "inputs.npz", **inputs)
    code = (
        "import sys, numpy as np\nfrom pathlib import Path\nfrom autofuse.backend.library.library import load\n"
        "outputs = load(Path(sys.argv[1]))(dict(np.load(sys.argv[2])))\nnp.savez(sys.argv[3], *outputs)\n"
    )
    arguments = [str(built), str(tmp_path / "inputs.npz"), str(tmp_path / "outputs.npz")]
    subprocess.run([sys.executable, "-c", code, *arguments], check=True, timeout=600)
    with np.load(tmp_path / "outputs.npz") as made:
        for array, wanted in zip(made.values(), loaded(inputs), strict=True):
            np.testing.assert_array_equal(array, wanted)


def test_equal_kernels_are_one_function_and_equal_weights_are_stored_once(tmp_path: Path) -> None:
    text = (
        "twice (float[1,4,6,6] x) => (float[1,4,6,6] y) { a = Conv (x, w) b = Relu (a) c = Conv (b, w) y = Relu (c) }"
    )
    model = model_of(text, {"w": (4, 4, 1, 1)})
    graph = from_model(model, "twice")
    assembly = write(graph, unfused(graph), tmp_path / "twice.so")
    assert len(assembly.symbols) == 4 and len({symbol for _, symbol in assembly.symbols}) == 2
    assert len(assembly.weights) == 1
    twice = load(tmp_path / "twice.so")
    check(model, twice, twice.example_inputs())
    assert count_kernels(twice, twice.example_inputs()) == 4


def plain_graph(inputs: Sequence[str], outputs: Sequence[str], constants: dict[str, Array] | None = None) -> Graph:
    tensors = {name: Tensor(name, (2, 3), "float32") for name in (*inputs, *outputs)}
    return Graph("plain", tuple(inputs), tuple(outputs), (), tensors, constants or {}, 17)


def test_equal_functions_of_workloads_with_other_literals_get_their_own(tmp_path: Path) -> None:
    graph = from_model(
        model_of(
            """net (float[3,8] x) => (float[3,2] y, float[3,2] z) <int64[2] one = {4, 4}, int64[2] other = {3, 0}>
            { y = Gather <axis=1> (x, one) z = Gather <axis=1> (x, other) }"""
        ),
        "net",
    )
    bounds = [bind_workload(graph, [operator.name], {}) for operator in graph.operators]
    made = write(graph, [(bound, build_kernel(bound.workload, {}, TARGET)) for bound in bounds], tmp_path / "n.so")
    assert len({symbol for _, symbol in made.symbols}) == 1
    x = np.random.default_rng(0).standard_normal((3, 8)).astype("float32")
    y, z = load(tmp_path / "n.so")([x])
    np.testing.assert_array_equal(y, x[:, [4, 4]])
    np.testing.assert_array_equal(z, x[:, [3, 0]])


def test_inputs_and_constants_may_be_outputs_and_stay_untouched(tmp_path: Path) -> None:
    constant = np.arange(6, dtype="float32").reshape(2, 3)
    graph = plain_graph(["x"], ["x", "k", "x"], {"k": constant})
    write(graph, [], tmp_path / "plain.so")
    plain = load(tmp_path / "plain.so")
    given = np.ones((2, 3), "float32")
    first, second, third = plain({"x": given})
    np.testing.assert_array_equal(first, given)
    np.testing.assert_array_equal(third, given)
    np.testing.assert_array_equal(second, constant)
    first += 1
    second += 1
    np.testing.assert_array_equal(third, given)
    np.testing.assert_array_equal(plain({"x": given})[1], constant)
    assert count_kernels(plain, {"x": given}) == 0


def test_copies_of_inputs_lie_in_the_same_memory_and_results_elsewhere(tmp_path: Path) -> None:
    """A second call writes its copies over those of the first, whose results stay."""
    graph = from_model(model_of("""net (float[6,8] x) => (float[8,6] v, float[48] f, float[6,8] y)
        { shape = Constant <value_ints=[8,6]> () flat = Constant <value_ints=[-1]> ()
          v = Reshape (x, shape) f = Reshape (x, flat) y = Relu (x) }"""), "net")  # fmt: skip
    write(graph, groups_of(graph, [(operator.name,) for operator in graph.operators]), tmp_path / "net.so")
    library = load(tmp_path / "net.so", 1)
    calls = [_moved(np.random.default_rng(seed).standard_normal((6, 8)).astype(np.float32)) for seed in range(3)]
    found = [library([x]) for x in calls]
    for x, (v, f, y) in zip(calls, found, strict=True):
        np.testing.assert_array_equal(v, x.reshape(8, 6))
        np.testing.assert_array_equal(f, x.reshape(-1))
        np.testing.assert_array_equal(y, np.maximum(x, 0))
    (kept,) = library._mine.kept
    ((copy, *_),) = kept.values()
    np.testing.assert_array_equal(copy, calls[-1])


def _moved(array: np.ndarray) -> np.ndarray:
    """The array at an address that is no multiple of 64."""
    block = np.zeros(array.nbytes + 128, np.uint8)
    start = -block.__array_interface__["data"][0] % 64 + 16
    moved = block[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    moved[...] = array
    return moved


def test_outputs_that_share_memory_come_as_arrays_of_their_own(tmp_path: Path) -> None:
    tensors = {n: Tensor(n, s, "float32") for n, s in {"x": (2, 3), "a": (2, 3), "b": (6,), "c": (6,)}.items()}
    shape = np.array([6], "int64")
    tensors["s"] = Tensor("s", (1,), "int64")
    operators = (
        Operator("relu", "Relu", ("x",), ("a",)),
        Operator("flat", "Reshape", ("a", "s"), ("b",)),
        Operator("same", "Reshape", ("x", "s"), ("c",)),
    )
    graph = Graph("views", ("x",), ("a", "b", "a", "c"), operators, tensors, {"s": shape}, 17)
    write(graph, unfused(graph), tmp_path / "views.so")
    views = load(tmp_path / "views.so")
    x = np.arange(-3, 3, dtype="float32").reshape(2, 3)
    a, b, again, c = views({"x": x})
    np.testing.assert_array_equal(a, np.maximum(x, 0))
    np.testing.assert_array_equal(b, a.ravel())
    a[:] = 7
    np.testing.assert_array_equal(b, np.maximum(x, 0).ravel())
    np.testing.assert_array_equal(again, np.maximum(x, 0))
    c[:] = 9
    assert x[0, 0] == -3
    assert count_kernels(views, {"x": x}) == 1


def test_integer_and_boolean_tensors_pass_through(tmp_path: Path) -> None:
    text = """kinds (int64[5] i, bool[5] m) => (int64[5] d, bool[5] n, float[5] f)
        { d = Add (i, i) n = Not (m) f = Cast <to=1> (m) }"""
    model = model_of(text)
    graph = from_model(model, "kinds")
    write(graph, unfused(graph), tmp_path / "kinds.so")
    kinds = load(tmp_path / "kinds.so")
    check(model, kinds, {"i": np.arange(-2, 3), "m": np.array([True, False, True, True, False])})


def test_activations_that_are_not_alive_together_share_memory(network: tuple[onnx.ModelProto, Graph]) -> None:
    nodes = " ".join(f"t{i + 1} = Relu (t{i})" if i % 2 else f"t{i + 1} = Neg (t{i})" for i in range(12))
    text = f"chain (float[1000] t0) => (float[1000] y) {{ {nodes} y = Neg (t12) }}"
    graph = from_model(model_of(text), "chain")
    executable = compile_program(assemble(graph, unfused(graph)).module, TARGET)
    assert str(executable.as_text()).count("call  vm.builtin.alloc_storage") == 3  # two in turn, and the output


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"image": np.zeros((1, 3, 8, 8), "float32")}, "'extra' is missing"),
        ({"image": 0, "extra": 0, "more": 0}, "unknown input 'more'"),
        ({"image": np.zeros((1, 3, 9, 8), "float32"), "extra": np.zeros((1, 4), "float32")}, r"shape \(1, 3, 9, 8\)"),
        ({"image": np.zeros((1, 3, 8, 8)), "extra": np.zeros((1, 4), "float32")}, "dtype float64"),
        ([np.zeros((1, 4), "float32")], "1 inputs given"),
    ],
)
def test_wrong_inputs_are_named(loaded: Library, inputs: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        loaded(inputs)


def test_an_index_outside_its_table_is_refused_instead_of_read(tmp_path: Path) -> None:
    model = model_of("table (int64[4] i) => (float[4,3] y) { y = Gather (w, i) }", {"w": (10, 3)})
    graph = from_model(model, "table")
    write(graph, unfused(graph), tmp_path / "table.so")
    table = load(tmp_path / "table.so")
    check(model, table, {"i": np.array([0, 9, -1, -10])})
    with pytest.raises(InputError, match="allowed are -10 to 9"):
        table({"i": np.array([0, 1, 2, 10])})


def test_the_description_is_readable_without_loading_code(built: Path) -> None:
    code = (
        "import sys\nfrom pathlib import Path\nfrom autofuse.backend.library.library import read_metadata\n"
        "print(read_metadata(Path(sys.argv[1])).to_json())\nassert 'tvm' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(built)], check=True, capture_output=True, text=True)
    body = json.loads(done.stdout)
    (program,) = body["programs"]
    assert [item["name"] for item in program["inputs"]] == ["image", "extra"]
    assert program["plan_key"] == "plan" and body["threads"] == 1 and body["target"]["mcpu"] == TARGET.mcpu
    assert Metadata.from_json(done.stdout, "text") == read_metadata(built)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nothing\.so"):
        load(tmp_path / "nothing.so")


@pytest.mark.parametrize("keep", [0, 10, 4096, -1, -200])
def test_a_file_that_was_cut_off_is_refused(built: Path, tmp_path: Path, keep: int) -> None:
    path = tmp_path / "cut.so"
    path.write_bytes(built.read_bytes()[:keep])
    with pytest.raises(InputError, match="cut off"):
        load(path)


def test_any_flipped_byte_is_noticed(built: Path, tmp_path: Path) -> None:
    whole = built.read_bytes()
    path = tmp_path / "flipped.so"
    for place in (100, len(whole) // 2, len(whole) - 400, len(whole) - 150):
        broken = bytearray(whole)
        broken[place] ^= 0x40
        path.write_bytes(bytes(broken))
        with pytest.raises(InputError):
            load(path)


def test_somebody_elses_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.so"
    path.write_bytes(b"\x7fELF" + bytes(5000))
    with pytest.raises(InputError, match="not a library that autofuse wrote"):
        load(path)


def test_a_machine_without_the_features_is_refused(built: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library_module, "host_features", lambda: frozenset({"sse4.1"}))
    with pytest.raises(DeviceError, match=r"lacks .*sse4\.2"):
        load(built)


def test_another_architecture_is_refused(built: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library_module, "host_architecture", lambda: "riscv64")
    with pytest.raises(DeviceError, match=r"built for \w+, this machine is riscv64"):
        load(built)


def test_the_build_of_another_tvm_is_refused(network: tuple[onnx.ModelProto, Graph], tmp_path: Path) -> None:
    versions = {"apache-tvm": "0.1", "apache-tvm-ffi": "0.1", "autofuse": "0"}
    write(network[1], unfused(network[1]), tmp_path / "foreign.so", versions=versions)
    with pytest.raises(DeviceError, match=r"built with apache-tvm 0\.1"):
        load(tmp_path / "foreign.so")


def test_a_failed_write_leaves_the_old_library(
    built: Path, network: tuple[onnx.ModelProto, Graph], tmp_path: Path
) -> None:
    path = tmp_path / "net.so"
    path.write_bytes(built.read_bytes())
    graph = network[1]
    assembly = assemble(graph, unfused(graph))
    executable = compile_program(assembly.module, TARGET)

    class Unwritable:
        """A weight whose bytes cannot be had, as on a full disk."""

        shape, dtype = (1,), np.dtype("float32")

        def __array__(self, *_: Any, **__: Any) -> Array:
            raise OSError(28, "No space left on device")

    metadata = describe(graph, assembly, [], TARGET, 1)
    with pytest.raises(InputError, match="No space left"):
        export(executable, [Unwritable()], metadata, path)  # type: ignore[list-item]
    assert path.read_bytes() == built.read_bytes()
    assert list(tmp_path.iterdir()) == [path]


def test_a_tensor_that_no_group_makes_is_named(network: tuple[onnx.ModelProto, Graph]) -> None:
    with pytest.raises(PlanError, match="no group makes tensor"):
        assemble(network[1], unfused(network[1])[1:])


def test_a_group_that_reads_another_layout_than_is_made_is_refused(network: tuple[onnx.ModelProto, Graph]) -> None:
    graph = network[1]
    groups = unfused(graph)
    bound, kernel = groups[1]
    values = tuple(
        replace(value, shape=(1, 8, 8, 4)) if value.kind == "input" else value for value in bound.workload.values
    )
    groups[1] = (replace(bound, workload=replace(bound.workload, values=values)), kernel)
    with pytest.raises(PlanError, match="is made as"):
        assemble(graph, groups)


def test_an_unknown_cpu_is_refused_instead_of_becoming_generic_code() -> None:
    with pytest.raises(InputError, match=r"'zen99'.*znver4"):
        tvm_target(replace(TARGET, mcpu="zen99"))


def test_a_single_function_compiles_and_runs(network: tuple[onnx.ModelProto, Graph]) -> None:
    import tvm

    graph = network[1]
    relu = next(operator for operator in graph.operators if operator.op_type == "Relu")
    function, _ = imported_function(bind_workload(graph, [relu.name], {}).workload, TARGET)
    x, y = (tvm.runtime.tensor(np.full((1, 4, 8, 8), value, "float32")) for value in (-1.0, np.nan))
    compile_function(function, TARGET)["main"](x, y)
    assert (y.numpy() == 0).all()
