"""The virtual environments of the rivals, apart from autofuse's own so that their pins cannot meet its own.

`python -m experiments peers.environments [name ...]` makes them (or what changed of them) below `out/peers-venv`.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import venv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from experiments.index import ROOT
from experiments.options import new_parser

FOLDER = ROOT / "out" / "peers-venv"
STAMP = "installed"


@dataclass(frozen=True)
class Environment:
    """`steps`: arguments of one `pip install` each. The versions are those that were seen to work together."""

    steps: tuple[tuple[str, ...], ...]

    @property
    def key(self) -> str:
        """Changes whenever what is installed changes."""
        return hashlib.sha256(repr(self.steps).encode()).hexdigest()[:16]


TORCH = "torch==2.13.0"
"""The CPU build; where the index also offers one with CUDA, name a find-links folder that holds the CPU wheel."""

ENVIRONMENTS = {
    "torch": Environment(
        (
            (TORCH, "numpy>=2,<3"),
            ("onnx==1.23.2", "onnxruntime==1.31.1", "onnxscript", "transformers", "safetensors"),
            ("ncnn", "pnnx", "psutil", "pydantic>=2.10,<3", "matplotlib"),
            # These would replace torch by their own choice of it.
            ("--no-deps", "torchvision==0.28.0", "torchao==0.18.0", "pillow", "onnx2torch"),
        )
    ),
    "openvino": Environment((("openvino==2026.4.1", "numpy>=2,<3", "psutil", "pydantic>=2.10,<3"),)),
    "litert": Environment(
        (
            (TORCH, "litert-torch", "ai-edge-quantizer", "transformers", "psutil", "pydantic>=2.10,<3"),
            ("--no-deps", "torchvision==0.28.0", "pillow", "onnx==1.23.2", "onnx2torch"),
        )
    ),
    "sklearn": Environment((("scikit-learn==1.9.1", "skl2onnx==1.20.0", "onnx==1.23.2", "numpy>=2,<3"),)),
    "metaschedule": Environment(
        (
            ("apache-tvm==0.27.0.post1", "apache-tvm-ffi==0.1.14.post1", "numpy>=2,<3", "onnx==1.23.2"),
            ("psutil", "pydantic>=2.10,<3", "cloudpickle", "xgboost-cpu"),
        )
    ),
}
"""What runs where. LiteRT's converter holds other versions back; MetaSchedule wants XGBoost for its cost model."""


class MissingEnvironmentError(Exception):
    """An environment is not there, or not as it is described here; the text says what to do."""


def interpreter(name: str) -> Path:
    """Its Python; MissingEnvironmentError unless everything is installed."""
    stamp = FOLDER / name / STAMP
    if not stamp.exists() or stamp.read_text(encoding="utf-8") != ENVIRONMENTS[name].key:
        raise MissingEnvironmentError(f"no environment {name!r}: run `make peers-setup`")
    return FOLDER / name / "bin" / "python"


def install(name: str) -> Path:
    """Make the environment unless it is there; its Python. CalledProcessError when pip fails."""
    try:
        return interpreter(name)
    except MissingEnvironmentError:
        pass
    folder = FOLDER / name
    print(f"{name}: installing into {folder} (some minutes, and gigabytes)", flush=True)
    python = folder / "bin" / "python"
    if not python.exists():
        venv.create(folder, with_pip=True)
    for step in ENVIRONMENTS[name].steps:
        subprocess.run(
            [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *step], check=True, cwd=ROOT
        )
    (folder / STAMP).write_text(ENVIRONMENTS[name].key, encoding="utf-8")
    return python


def main(arguments: Sequence[str] | None = None) -> int:
    """Install those named (none: all)."""
    parser = new_parser("The rivals' environments, below out/peers-venv.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(ENVIRONMENTS)} (default: all)")
    names = parser.parse_args(arguments).names
    unknown = [name for name in names if name not in ENVIRONMENTS]
    if unknown:
        parser.error(f"{unknown[0]!r} is not one of {', '.join(ENVIRONMENTS)}")
    for name in names or ENVIRONMENTS:
        try:
            print(f"{name}: {install(name)}", flush=True)
        except subprocess.CalledProcessError as error:
            print(f"{name}: pip failed with exit code {error.returncode}; its message stands above", file=sys.stderr)
            return 1
    return 0
