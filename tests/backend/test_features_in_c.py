"""Python and the C interface know the features of a CPU by the names that the system gives them."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

import autofuse.backend
from autofuse.backend.compile.realise import required_features
from autofuse.device.cpu_features import ARM_SPELLING, X86_SPELLING, may_be_needed, shown_features, system_name
from autofuse.device.profile import load_profile, shipped_profiles
from autofuse.link.architecture import architecture_of

CONTAINER = Path(autofuse.backend.__file__).parent / "capi" / "inside" / "container.h"
SYSTEM = {ours: theirs for spelling in (ARM_SPELLING, X86_SPELLING) for theirs, ours in spelling.items()}
SYSTEM |= {"egpr": "apx", "ndd": "apx"}
ARM = {"complxnum", "cssc", "faminmax", "fp16fml", "mops", "sha3"}
X86 = {
    "amx-tile",
    "amx-int8",
    "amx-bf16",
    "sse4.2",
    "bmi",
    "sse3",
    "ssse3",
    "sse4a",
    "lzcnt",
    "popcnt",
    "movbe",
    "gfni",
}
X86 |= {"egpr", "ndd"}
"""Further ones than those of shipped devices."""
NEEDED = {
    (name, architecture_of(target) == "aarch64")
    for path in shipped_profiles().values()
    for target in (load_profile(path).target(),)
    for name in required_features(target)
}
WANTED = sorted({name for name, _ in NEEDED} | ARM | X86)


@pytest.mark.parametrize(("name", "arm"), sorted({*NEEDED, *((n, True) for n in ARM), *((n, False) for n in X86)}))
def test_python_finds_each_feature_by_the_name_that_the_system_has_for_it(name: str, arm: bool) -> None:
    """A library of a Graviton 4 asked for sve-bitperm, which no machine had, and could not be loaded there."""
    assert may_be_needed(name, arm)
    assert name in shown_features(f"fpu {SYSTEM.get(name, name)} sse", arm)
    assert name not in shown_features("fpu sse", arm)


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_each_feature_that_a_library_may_ask_for_is_found_by_the_name_that_the_system_has_for_it(
    tmp_path: Path,
) -> None:
    """Other features than the one that is asked for stand around it; without it the answer is no."""
    function = re.search(r"^static int has_feature.*?^}\n", CONTAINER.read_text(encoding="utf-8"), re.M | re.S)
    assert function is not None
    asked = "\n".join(
        f'  printf("%s %d %d\\n", "{name}", has_feature("fpu {SYSTEM.get(name, name)} sse", '
        f'"{system_name(name)}"), has_feature("fpu sse", "{system_name(name)}"));'
        for name in WANTED
    )
    text = f"#include <stdio.h>\n#include <string.h>\n{function.group()}\nint main(void) {{\n{asked}\n}}\n"
    (tmp_path / "ask.c").write_text(text)
    subprocess.run(["cc", "ask.c", "-o", "ask"], cwd=tmp_path, check=True)
    shown = subprocess.run([tmp_path / "ask"], capture_output=True, text=True, check=True).stdout
    assert [line.split() for line in shown.splitlines()] == [[name, "1", "0"] for name in WANTED]
