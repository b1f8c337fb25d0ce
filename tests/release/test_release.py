"""A release: built twice to the same bytes, small, and of use in an empty environment far from the checkout."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from tests.docs.models import save_model

pytestmark = pytest.mark.release

ROOT = Path(__file__).resolve().parents[2]
MAX_BYTES = 5_000_000
KEPT = ROOT / "out" / "release"


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The wheel and the source archive, built from what is committed."""
    folders = [tmp_path_factory.mktemp(name) for name in ("first", "second")]
    sources = [tmp_path_factory.mktemp(f"source-{number}") for number in range(2)]
    for source, folder in zip(sources, folders, strict=True):
        checkout = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, check=True, capture_output=True).stdout
        subprocess.run(["tar", "-x"], cwd=source, input=checkout, check=True)
        _build(source, folder)
    first, second = ({path.name: _digest(path) for path in folder.iterdir()} for folder in folders)
    assert first == second and len(first) == 2
    shutil.rmtree(KEPT, ignore_errors=True)
    shutil.copytree(folders[0], KEPT)
    return sorted(folders[0].iterdir())


def _build(source: Path, folder: Path) -> None:
    stamp = subprocess.run(
        ["git", "log", "-1", "--format=%ct"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-d", str(folder)],
        cwd=source,
        check=True,
        capture_output=True,
        env={**os.environ, "SOURCE_DATE_EPOCH": stamp.strip()},
    )


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_wheel_and_source_archive_are_small(archives: list[Path]) -> None:
    assert [path.suffix for path in archives] == [".whl", ".gz"]
    assert {path.name: path.stat().st_size for path in archives if path.stat().st_size > MAX_BYTES} == {}


def test_the_wheel_tunes_compiles_and_runs_in_an_empty_environment(archives: list[Path], tmp_path: Path) -> None:
    place = tmp_path / "environment"
    venv.create(place, with_pip=True)
    pip = [str(place / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    wheel = archives[0]  # by its path: a public index may have another project of this name
    subprocess.run([*pip, str(wheel)], check=True, timeout=1200)
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    save_model(folder / "model.onnx", 16)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | {"HOME": str(folder)}
    for verb in (
        "doctor --db profile.db",
        "tune model.onnx --budget 15s --db profile.db",
        "compile model.onnx -o model.so --db profile.db",
        "run model.so",
        "report --db profile.db",
    ):
        done = subprocess.run(
            [str(place / "bin" / "autofuse"), *verb.split()],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, f"autofuse {verb}\n{done.stdout}\n{done.stderr}"
