"""A free-standing library asks the CPU for what its code uses."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from pathlib import Path

import onnx
import pytest

import autofuse
from autofuse.backend.compile.realise import required_features
from autofuse.backend.freestanding.source import SOURCES
from autofuse.device.cpu_features import system_name
from autofuse.device.profile import load_profile, shipped_profiles
from autofuse.errors import InputError
from autofuse.link.architecture import architecture_of, host_architecture

RUNTIME = (SOURCES / "cpu.c").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", sorted(shipped_profiles()))
def test_the_runtime_knows_each_feature_that_a_shipped_device_has(name: str) -> None:
    target = load_profile(shipped_profiles()[name]).target()
    known = set(re.findall(r'\{"([a-z0-9.-]+)", ', RUNTIME))
    wanted = set(required_features(target))
    assert wanted and wanted <= known, architecture_of(target)


@pytest.mark.skipif(
    shutil.which("cc") is None or host_architecture() != "x86_64", reason="needs a C compiler on x86-64"
)
def test_features_that_this_cpu_lacks_are_named(tmp_path: Path) -> None:
    """The runtime's answers are those of the kernel of the system."""
    flags = set(re.findall(r"^flags\s*:(.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)[0].split())
    names = re.findall(r'\{"([a-z0-9.-]+)", \w+, \d+, E', RUNTIME)
    tables = "\n".join(f'  printf("%s %d\\n", "{name}", has_feature("{name}"));' for name in [*names, "unheard"])
    (tmp_path / "names.h").write_text('#include "net.h"\n#define AF(name) net_##name\n')
    template = (SOURCES / "network.h").read_text().replace("@NAME@", "net").replace("@GUARD@", "NET_H")
    (tmp_path / "net.h").write_text(template.replace("@SHAPES@", "1").replace("@OPEN@", ""))
    head = f'#include "{SOURCES / "cpu.c"}"\n#include <stdio.h>\nconst af_network net_network = {{0}};\n'
    body = f"{head}int main(void) {{\n{tables}\n}}\n"
    (tmp_path / "ask.c").write_text(body + "const unsigned char net_weights[1];\n")
    own = [str(SOURCES / name) for name in ("workspace.c", "threads.c")]
    command = [
        "cc",
        "-I.",
        f"-I{SOURCES}",
        "ask.c",
        *own,
        "-pthread",
        "-o",
        "ask",
    ]
    subprocess.run(command, cwd=tmp_path, check=True)
    shown = subprocess.run([tmp_path / "ask"], capture_output=True, text=True, check=True).stdout
    found = dict(line.split() for line in shown.splitlines())
    assert found.pop("unheard") == "1"
    spelled = {flag.replace("_", ""): flag for flag in flags} | {"bmi": "bmi1"}
    for name, has in found.items():
        flag = spelled.get(name.replace(".", "").replace("-", ""), system_name(name))
        assert (has == "1") == (flag in flags), name
    assert {"1", "0"} >= set(found.values()) and found["sse4.2"] == "1"


def test_python_says_what_it_does_not_load(tmp_path: Path) -> None:
    text = '<ir_version: 8, opset_import: ["": 18]> n (float[4] x) => (float[4] y) { y = Relu (x) }'
    onnx.save(onnx.parser.parse_model(text), tmp_path / "n.onnx")
    autofuse.compile(tmp_path / "n.onnx", tmp_path / "n.so", database=str(tmp_path / "p.db"), threads=1, format="c")
    with pytest.raises(InputError, match=r"n\.so: a free-standing library, which programs link; Python loads what"):
        autofuse.load(tmp_path / "n.so")
    assert ctypes.CDLL(str(tmp_path / "n.so")).n_threads(None) == 0
