"""The demo: MobileNetV2 from an empty database, tuned, compiled, compared and reported.

Everything goes through the command line as a user types it; each command is printed before it runs. `make demo`, or
`python -m experiments demo --budget 2m`.
"""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import onnx

from autofuse.device.host import HostCpu, probe_host
from experiments import catalogue
from experiments.index import ROOT
from experiments.options import new_parser

DATABASE, JOURNAL = "profile.db", "studies.journal"


def main(arguments: Sequence[str] | None = None) -> int:
    """All steps in turn; the exit code of the first that fails."""
    options = _arguments(arguments)
    folder: Path = options.out
    folder.mkdir(parents=True, exist_ok=True)
    for old in (*folder.glob(f"{DATABASE}*"), folder / JOURNAL):
        old.unlink(missing_ok=True)
    started = time.monotonic()
    model = folder / "mobilenet_v2.onnx"
    onnx.save(catalogue.build("mobilenet_v2", width=options.width, size=options.size), model)
    print(f"MobileNetV2 (width {options.width:g}, {options.size} pixels, random weights) is in {model}", flush=True)
    database = ["--db", str(folder / DATABASE)]
    machine = ["--threads", str(options.threads)]
    library, report = folder / "mobilenet_v2.so", folder / "report"
    compared = ["--against", "onnxruntime,tvm-untuned,none", "--budget", f"{options.bench:g}s"]
    steps: list[list[str]] = [
        ["inspect", str(model)],
        ["tune", str(model), "--budget", f"{options.budget:g}s", *database, *machine],
        ["compile", str(model), "-o", str(library), *database, *machine],
        ["report", *database, "-o", str(report)],
        ["db", "export", "--optuna", str(folder / JOURNAL), *database],
        ["bench", str(model), *compared, *database, *machine],
    ]
    for step in steps:
        print(f"\n$ autofuse {shlex.join(step)}", flush=True)
        code = subprocess.run([sys.executable, "-m", "autofuse", *step], cwd=ROOT, check=False).returncode
        if code:
            print(f"demo: `autofuse {step[0]}` ended with exit code {code}; its message stands above", file=sys.stderr)
            return code
    print(f"\nThe demo took {(time.monotonic() - started) / 60:.1f} minutes.")
    print(f"Compiled model: {library}\nProfiling database: {folder / DATABASE}\nReport: {report}")
    print(f"Searches, for `optuna-dashboard`: {folder / JOURNAL}")
    return 0


def _arguments(given: Sequence[str] | None) -> argparse.Namespace:
    parser = new_parser(
        __doc__, out=ROOT / "out" / "demo", budget="4m", bench="45s", threads=probe_host(HostCpu("")).threads
    )
    parser.add_argument("--width", type=float, default=1.0, help="scales the network's channels (default: 1)")
    parser.add_argument("--size", type=int, default=224, help="pixels a side (default: 224)")
    return parser.parse_args(given)
