"""Write networks as ONNX files; runs in the environment that has torch: `python -m experiments.models.generate`."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from experiments.models.build import build, example
from experiments.models.export import export, refusal


def main(folder: Path, names: list[str]) -> int:
    """Each network in turn, those that are there already left alone; 1 when one of them failed."""
    failed = 0
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        path, part = folder / f"{name}.onnx", folder / f"{name}.onnx.part"
        if path.exists():
            print(f"{name}: is there already", flush=True)
            continue
        started = time.monotonic()
        try:
            inputs = example(name)
            model = export(name, build(name), inputs, part)
            problem = refusal(part, inputs, example(name, seed=2))
            if problem:
                raise ValueError(problem)
        except Exception as error:  # noqa: BLE001 exporters raise anything; the other networks go on
            print(f"{name}: failed: {type(error).__name__}: {str(error)[-2000:]}", flush=True)
            failed += 1
            continue
        part.replace(path)
        size, seconds = path.stat().st_size / 1e6, time.monotonic() - started
        print(f"{name}: {len(model.graph.node)} operators, {size:.1f} MB, {seconds:.0f} s", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
