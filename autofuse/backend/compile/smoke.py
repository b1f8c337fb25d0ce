"""A tiny kernel from source to result, in a process of its own: what `autofuse doctor` runs.

`python -m autofuse.backend.compile.smoke FOLDER` with a `Target` as JSON on standard input prints one JSON object.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np

from autofuse.backend.compile.jit import tensor, tvm_target
from autofuse.device.target import Target

_ELEMENTS = 1024


def run(target: Target, folder: Path) -> str:
    """Compile, link, load and run a vector addition; what went wrong, or "" when its sums are right."""
    import tvm
    from tvm import te

    a, b = (te.placeholder((_ELEMENTS,), "float32", name) for name in "ab")
    function = te.create_prim_func([a, b, te.compute((_ELEMENTS,), lambda i: a[i] + b[i], "sum")])
    module = tvm.compile(tvm.IRModule({"main": function.with_attr("global_symbol", "main")}), tvm_target(target))
    path = folder / "smoke.so"
    module.export_library(str(path))
    numbers = np.arange(_ELEMENTS, dtype=np.float32)
    result = tensor(np.full(_ELEMENTS, np.nan, np.float32))
    tvm.runtime.load_module(str(path))["main"](tensor(numbers), tensor(numbers * 2), result)
    return "" if np.array_equal(result.numpy(), numbers * 3) else "the kernel ran, but computed wrong sums"


def main() -> None:
    """Read the target, run, report."""
    target = Target(**json.loads(sys.stdin.read(), object_hook=_tuples))
    sys.stdout.write(json.dumps({"problem": run(target, Path(sys.argv[1]))}) + "\n")


def _tuples(body: dict[str, object]) -> dict[str, object]:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in body.items()}


if __name__ == "__main__":
    main()
