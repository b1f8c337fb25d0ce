"""Regenerate networks as ONNX files: `.venv/bin/python -m experiments models [name ...] --out FOLDER`.

Public architectures with random weights that never change; nothing is downloaded but libraries, into an environment
of their own. A file that is there already is left alone.
"""

from __future__ import annotations

import argparse
import subprocess
from collections.abc import Sequence
from pathlib import Path

from experiments.models.catalogue import NETWORKS
from experiments.peers.environments import install

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "out" / "models"


def main(arguments: Sequence[str] | None = None) -> int:
    """0 when every network asked for is there."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("networks", nargs="*", metavar="name", help=f"default: all of {', '.join(NETWORKS)}")
    parser.add_argument("--out", type=Path, default=FOLDER, help="folder of the files written (default: out/models)")
    options = parser.parse_args(arguments)
    unknown = [name for name in options.networks if name not in NETWORKS]
    if unknown:
        parser.error(f"{unknown[0]!r} is not one of {', '.join(NETWORKS)}")
    return generate(options.networks or list(NETWORKS), options.out.resolve())


def generate(names: Sequence[str], folder: Path) -> int:
    """Write the networks named into `folder`; the exit code of the program that does it."""
    command = [str(install("torch")), "-m", "experiments.models.generate", str(folder), *names]
    return subprocess.run(command, cwd=ROOT, check=False).returncode
