"""Packages: C and C++ projects find a library by CMake, by pkg-config, by two options; it runs in a bare system."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest
from typer.testing import CliRunner

import autofuse
from autofuse.cli.main import app
from autofuse.errors import InputError
from tests.conftest import OnnxBuilder

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")

IN_CPP = """
#include "net.h"
#include <cstdio>
#include <stdexcept>
#include <thread>
#include <vector>

class Network {
 public:
  explicit Network(int threads) { check(net_create(&session_, 0, threads)); }
  ~Network() { net_destroy(session_); }
  void run(const float *input, float *output) {
    const void *inputs[] = {input};
    void *outputs[] = {output};
    check(net_run(session_, inputs, outputs));
  }
 private:
  static void check(int code) { if (code != net_OK) throw std::runtime_error(net_error()); }
  net_session *session_ = nullptr;
};

int main() {
  std::vector<std::vector<float>> results(3, std::vector<float>(net_output(0, 0)->bytes / sizeof(float)));
  std::vector<float> input(net_input(0, 0)->bytes / sizeof(float));
  std::vector<std::thread> callers;
  for (size_t i = 0; i < results.size(); i++)
    callers.emplace_back([&, i] { Network network(1 + i % 2); network.run(input.data(), results[i].data()); });
  for (auto &caller : callers) caller.join();
  bool same = results[0] == results[1] && results[0] == results[2];
  std::printf("%s %.9g\\n", same ? "same" : "different", results[0][0]);
}
"""
IN_CMAKE = """
cmake_minimum_required(VERSION 3.13)
project(user C CXX)
find_package(net REQUIRED)
add_executable(example example.c)
add_executable(user user.cpp)
find_package(Threads REQUIRED)
target_link_libraries(example net::net)
target_link_libraries(user net::net Threads::Threads)
"""


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A package whose network is `net`."""
    folder = tmp_path_factory.mktemp("package")
    net = OnnxBuilder()
    net.op("Relu", "a", net.conv_bn("stem", "x", (3, 8)))
    net.op("Flatten", "flat", net.op("GlobalAveragePool", "pool", "a"))
    model = net.save(
        folder / "net.onnx", {"x": (1, 3, 16, 16)}, [net.op("Sigmoid", "y", net.dense("fc", "flat", (8, 4)))]
    )
    database = str(folder / "p.db")
    autofuse.compile(model, folder / "libnet.so", database=database, threads=2, format="c")
    autofuse.compile(model, folder / "net.so", database=database, threads=2)
    done = CliRunner().invoke(app, ["package", str(folder / "libnet.so"), "-o", str(folder / "out")])
    assert done.exit_code == 0, done.stderr
    return folder / "out"


@pytest.fixture(scope="module")
def wanted(package: Path) -> np.float32:
    """The first value of the output for zeros."""
    session = autofuse.Session(package.parent / "net.so")
    return np.float32(session.run(None, session.empty_inputs())[0].flat[0])


def run(command: str | Sequence[str | Path], folder: Path, **environment: str) -> str:
    done = subprocess.run(
        command, shell=isinstance(command, str), cwd=folder, capture_output=True, text=True, timeout=600,
        env={**os.environ, **environment},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def told(value: np.float32) -> str:
    """What the example prints."""
    return f"y: float32, 16 bytes {' '.join(f'{byte:02x}' for byte in value.tobytes())}\n"


def test_the_example_runs_as_its_comment_says(package: Path, wanted: np.float32) -> None:
    found = re.search(r"`(cc .*)`", (package / "share/net/example.c").read_text())
    assert found is not None
    assert run(found[1].replace("cc ", "cc -std=c11 -Wall -Wextra -Werror ", 1), package) == told(wanted)
    (package / "example").unlink()


def test_pkg_config_finds_it(package: Path, wanted: np.float32, tmp_path: Path) -> None:
    if shutil.which("pkg-config") is None:
        pytest.skip("there is no pkg-config")
    (tmp_path / "user.cpp").write_text(IN_CPP)
    run(
        "g++ user.cpp $(pkg-config --cflags --libs net) -pthread -o user",
        tmp_path,
        PKG_CONFIG_PATH=str(package / "lib/pkgconfig"),
    )
    made = run("./user", tmp_path, LD_LIBRARY_PATH=str(package / "lib"))
    assert made == f"same {wanted:.9g}\n"


def test_cmake_finds_it(package: Path, wanted: np.float32, tmp_path: Path) -> None:
    if shutil.which("cmake") is None:
        pytest.skip("there is no CMake")
    moved = tmp_path / "elsewhere" / "net"
    shutil.copytree(package, moved)
    shutil.copy(moved / "share/net/example.c", tmp_path)
    (tmp_path / "user.cpp").write_text(IN_CPP)
    (tmp_path / "CMakeLists.txt").write_text(IN_CMAKE)
    run(["cmake", "-S", ".", "-B", "build", f"-DCMAKE_PREFIX_PATH={moved}"], tmp_path)
    run(["cmake", "--build", "build"], tmp_path)
    assert run(["build/example"], tmp_path) == told(wanted)
    assert run(["build/user"], tmp_path) == f"same {wanted:.9g}\n"


IN_CPP_AT_ANY_SIZE = """
#include "net.h"
#include <cstdio>
#include <stdexcept>
#include <vector>

static void check(int code) { if (code != net_OK) throw std::runtime_error(net_error()); }

int main() {
  net_session *session;
  check(net_create(&session, 0, 1));
  std::vector<float> input(net_input(0, 0)->bytes / sizeof(float), 1), output(net_output(0, 0)->bytes / sizeof(float));
  const net_range *range = net_open_size(0);
  for (int64_t size = range->low; size <= range->high; size++) {
    const void *inputs[] = {input.data()};
    void *outputs[] = {output.data()};
    check(net_set_size(session, range->name, size));
    check(net_run(session, inputs, outputs));
    const net_tensor *now = net_output_now(session, 0);
    float last = output[now->bytes / sizeof(float) - 1];
    std::printf("%s %d %zu %.9g\\n", range->name, (int)now->shape[0], now->bytes, last);
  }
  if (net_set_size(session, "batch", 4) != net_BAD_ARGUMENT) return 1;
  std::printf("%s\\n", net_error());
  net_destroy(session);
}
"""


def test_a_library_with_an_open_size_is_packaged(tmp_path: Path) -> None:
    model = onnx.parser.parse_model(
        """<ir_version: 9, opset_import: ["" : 18]> net (float[batch, 4] x) => (float[batch, 4] y)
        <float[4] k = {1, 2, 3, 4}> { y = Mul (x, k) }"""
    )
    onnx.save(model, tmp_path / "net.onnx")
    autofuse.compile(
        tmp_path / "net.onnx", tmp_path / "libnet.so", database=str(tmp_path / "p.db"), sizes=["batch=1:3"], format="c"
    )
    package = tmp_path / "out"
    autofuse.package(tmp_path / "libnet.so", package)
    found = re.search(r"`(cc .*)`", (package / "share/net/example.c").read_text())
    assert found is not None
    made = run(found[1].replace("cc ", "cc -std=c11 -Wall -Wextra -Werror ", 1), package)
    assert made == "y: float32, 16 bytes 00 00 00 00\n"
    (tmp_path / "user.cpp").write_text(IN_CPP_AT_ANY_SIZE)
    run(["g++", "-Wall", "-Wextra", "-Werror", "user.cpp", f"-I{package}/include", "libnet.so", "-o", "user"], tmp_path)
    lines = run(["./user"], tmp_path, LD_LIBRARY_PATH=str(tmp_path)).splitlines()
    assert lines[:3] == ["batch 1 16 4", "batch 2 32 4", "batch 3 48 4"]
    assert lines[3].startswith("set_size: batch is 4, the library takes 1 to 3: compile it with a wider range")


def test_it_needs_the_c_library_alone_and_has_no_constructors(package: Path) -> None:
    shown = run(["ldd", package / "lib/libnet.so"], package)
    needed = {line.split()[0].split("/")[-1].split(".so")[0] for line in shown.splitlines()}
    assert {name.split("-")[0] for name in needed} <= {"linux", "libc", "libm", "libpthread", "ld"}, shown
    dynamic = run(["readelf", "-d", package / "lib/libnet.so"], package)
    assert "SONAME" in dynamic
    for constructors in ("INIT", "INIT_ARRAY", "PREINIT_ARRAY", "FINI", "FINI_ARRAY"):
        assert f"({constructors})" not in dynamic
    weights = (16 * 3 * 9 + 8 + 8 * 4 + 4) * 4
    assert (package / "lib/libnet.so").stat().st_size < weights + (100 << 10)


def bare_root(root: Path, programs: Sequence[Path], library: Path) -> None:
    """A system's root that holds programs, a library, and of the C library what they name."""
    shown = "".join(run(["ldd", path], root, LD_LIBRARY_PATH=str(library.parent)) for path in (*programs, library))
    for found in set(re.findall(r"(/\S+) \(0x", shown)):
        (root / found[1:]).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(found, root / found[1:])
    (root / "lib").mkdir(exist_ok=True)
    for path in (*programs, library):
        target = root / ("lib" if path == library else "") / path.name
        shutil.copy(path, target)


def into(root: Path) -> list[str]:
    """The command that runs another in a bare root; the test is skipped where the system allows no such thing."""
    change, alone = shutil.which("chroot", path="/usr/sbin:/usr/bin:/sbin:/bin"), shutil.which("unshare")
    namespace = [alone, "--user", "--map-root-user"] if alone else []
    for before in ([], namespace):
        command = [*before, str(change), str(root)]
        if change and subprocess.run([*command, "/nothing"], capture_output=True, check=False).returncode == 127:
            return command
    pytest.skip("this user may not change the root folder, with or without a namespace")


def test_c_and_cpp_programs_run_where_there_is_nothing_but_the_c_library(
    package: Path, wanted: np.float32, tmp_path: Path
) -> None:
    (tmp_path / "user.cpp").write_text(IN_CPP)
    link = ["-I", package / "include", package / "lib/libnet.so", "-pthread", "-o"]
    run(["cc", package / "share/net/example.c", *link, tmp_path / "example"], tmp_path)
    run(["g++", "user.cpp", "-static-libstdc++", "-static-libgcc", *link, tmp_path / "user"], tmp_path)
    root = tmp_path / "root"
    root.mkdir()
    bare_root(root, [tmp_path / "example", tmp_path / "user"], package / "lib/libnet.so")
    assert not [path for path in root.rglob("*") if re.search("python|tvm|stdc", path.name)]
    command = ["env", "-i", "LD_LIBRARY_PATH=/lib", *into(root)]
    assert run([*command, "/example"], tmp_path) == told(wanted)
    assert run([*command, "/user"], tmp_path) == f"same {wanted:.9g}\n"


def test_a_package_is_written_again_and_never_over_files_of_others(package: Path, tmp_path: Path) -> None:
    library = package.parent / "libnet.so"
    report = autofuse.package(library, tmp_path / "p")
    assert sorted(report.files) == sorted(
        str(path.relative_to(tmp_path / "p")) for path in (tmp_path / "p").rglob("*") if path.is_file()
    )
    assert autofuse.package(library, tmp_path / "p") == report
    (tmp_path / "p/lib/pkgconfig/net.pc").write_text("mine")
    with pytest.raises(InputError, match=r"net\.pc' exists and is not a file of a package of autofuse"):
        autofuse.package(library, tmp_path / "p")


def test_only_free_standing_libraries_are_packaged(package: Path, tmp_path: Path) -> None:
    whole = (package.parent / "libnet.so").read_bytes()
    (tmp_path / "cut.so").write_bytes(whole[:-9])
    (tmp_path / "broken.so").write_bytes(whole.replace(b'"cpu_features"', b'"cpu-features"'))
    (tmp_path / "my net.so").write_bytes(whole)
    (tmp_path / "empty.so").touch()
    none = "not a free-standing library"
    for file, words in (
        (package.parent / "net.so", none),
        (tmp_path / "cut.so", none),
        (tmp_path / "empty.so", none),
        (tmp_path / "absent.so", "cannot read the library"),
        (tmp_path / "broken.so", "its description is damaged"),
        (tmp_path / "my net.so", "build systems need a name"),
    ):
        with pytest.raises(InputError, match=words):
            autofuse.package(file, tmp_path / "out")
        assert not (tmp_path / "out").exists()
