"""The C interface knows the features of a CPU by the names that the system gives them, as Python does."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

import autofuse.backend
from autofuse.backend.compile.realise import required_features
from autofuse.device.host import _ARM_SPELLING, _X86_SPELLING
from autofuse.device.profile import load_profile, shipped_profiles

CONTAINER = Path(autofuse.backend.__file__).parent / "capi" / "inside" / "container.h"
SYSTEM = {ours: theirs for spelling in (_ARM_SPELLING, _X86_SPELLING) for theirs, ours in spelling.items()}
SYSTEM |= {"sve-bitperm": "svebitperm"}
WANTED = sorted(
    {name for path in shipped_profiles().values() for name in required_features(load_profile(path).target())}
    | {"amx-tile", "amx-int8", "amx-bf16", "fp16fml", "sse4.2", "bmi"}
)


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_each_feature_that_a_library_may_ask_for_is_found_by_the_name_that_the_system_has_for_it(
    tmp_path: Path,
) -> None:
    """Other features than the one that is asked for stand around it; without it the answer is no."""
    function = re.search(r"^static int has_feature.*?^}\n", CONTAINER.read_text(encoding="utf-8"), re.M | re.S)
    assert function is not None
    asked = "\n".join(
        f'  printf("%s %d %d\\n", "{name}", has_feature("fpu {SYSTEM.get(name, name)} sse", "{name}"), '
        f'has_feature("fpu sse", "{name}"));'
        for name in WANTED
    )
    text = f"#include <stdio.h>\n#include <string.h>\n{function.group()}\nint main(void) {{\n{asked}\n}}\n"
    (tmp_path / "ask.c").write_text(text)
    subprocess.run(["cc", "ask.c", "-o", "ask"], cwd=tmp_path, check=True)
    shown = subprocess.run([tmp_path / "ask"], capture_output=True, text=True, check=True).stdout
    assert [line.split() for line in shown.splitlines()] == [[name, "1", "0"] for name in WANTED]
