"""The cases where fusing loses: never fuse, always fuse, and what the search finds.

.venv/bin/python -m experiments.over_fusion.run --seconds 60 --out out/over_fusion
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import onnx

from experiments.over_fusion.cases import CASES
from experiments.rivals import compare_plans, read, write


def main(arguments: Sequence[str] | None = None) -> int:
    """Tune each case against both ends; rows of other cases in the folder are kept."""
    parser = argparse.ArgumentParser(description="Cases where fusing loses.")
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"of {', '.join(CASES)} (default: all)")
    parser.add_argument("--seconds", type=float, default=60.0, help="tuning time of each case (default: 60)")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("out/over_fusion"))
    options = parser.parse_args(arguments)
    for name in options.cases:
        if name not in CASES:
            parser.error(f"unknown case {name!r}; allowed: {', '.join(CASES)}")
    out: Path = options.out
    out.mkdir(parents=True, exist_ok=True)
    for name in options.cases or CASES:
        model = out / f"{name}.onnx"
        onnx.save(CASES[name](), model)
        found = compare_plans(model, out / f"{name}.db", options.seconds, threads=options.threads)
        rows = [row for row in read(out) if row.model != name] + found
        print(write(rows, out), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
