"""Regenerate networks as ONNX files: `.venv/bin/python -m experiments models [name ...] --out FOLDER`.

Public architectures with random weights that never change; nothing is downloaded but libraries, into an environment
of their own. A file that is there already is left alone.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from experiments.catalogue import EXPORTED, with_form
from experiments.index import ROOT
from experiments.options import new_parser
from experiments.peers.environments import install

NETWORKS = with_form(EXPORTED)
FOLDER = ROOT / "out" / "models"
"""Where they are written, unless told otherwise."""


def main(arguments: Sequence[str] | None = None) -> int:
    """0 when every network that was asked for is there."""
    parser = new_parser(__doc__, out=FOLDER)
    parser.add_argument("networks", nargs="*", metavar="name", help=f"default: all of {', '.join(NETWORKS)}")
    options = parser.parse_args(arguments)
    unknown = [name for name in options.networks if name not in NETWORKS]
    if unknown:
        parser.error(f"{unknown[0]!r} is not one of {', '.join(NETWORKS)}")
    return generate(options.networks or NETWORKS, options.out.resolve())


def generate(names: Sequence[str], folder: Path) -> int:
    """Write the networks named into `folder`; the exit code of the program that does it."""
    command = [str(install("torch")), "-m", "experiments.models.generate", str(folder), *names]
    return subprocess.run(command, cwd=ROOT, check=False).returncode
