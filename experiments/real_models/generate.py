"""Write models as ONNX files; runs in the environment of its library: `python -m experiments.real_models.generate`."""

from __future__ import annotations

import importlib
import sys
import time
import warnings
from pathlib import Path

from experiments.real_models.cases import CASES


def main(folder: Path, names: list[str]) -> int:
    """Each model in turn; 1 when an exporter failed."""
    failed = 0
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        part, started = folder / f"{name}.onnx.part", time.monotonic()
        module, _, function = CASES[name].maker.partition(":")
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                make = getattr(importlib.import_module(f"experiments.real_models.{module}"), function)
                make(part, **CASES[name].arguments)
        except Exception as error:  # noqa: BLE001 exporters raise anything; the other models go on
            print(f"{name}: failed: {type(error).__name__}: {str(error)[-1500:]}", flush=True)
            failed = 1
            continue
        part.replace(folder / f"{name}.onnx")
        print(f"{name}: {(folder / f'{name}.onnx').stat().st_size / 1e6:.1f} MB, {time.monotonic() - started:.0f} s")
    return failed


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
