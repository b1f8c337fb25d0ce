"""The data files are found in a checkout and in an installed wheel."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from autofuse.errors import InputError
from autofuse.values import resources

ROOT = Path(__file__).resolve().parents[2]


def test_a_checkout_finds_its_own_folders() -> None:
    assert resources.data_path("search_spaces") == ROOT / "search_spaces"
    assert "zen4" in resources.named_files("profiles/devices")


def test_a_broken_installation_says_what_to_do() -> None:
    with pytest.raises(InputError, match="data folder 'nothing' is missing .* reinstall autofuse"):
        resources.data_path("nothing")


def test_an_installed_wheel_finds_its_own_copy(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*build, "--wheel-dir", str(tmp_path), str(ROOT)], check=True, capture_output=True, timeout=600)
    (wheel,) = tmp_path.glob("autofuse-*.whl")
    site = tmp_path / "site"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
        names = archive.namelist()
    assert not [name for name in names if name.startswith(("tests/", "experiments/"))]
    assert "autofuse/py.typed" in names
    data = {name.split("/")[3] for name in names if name.startswith("autofuse/_data/profiles/")}
    assert data == {"devices", "models"}, "recorded times are for experiments in a checkout"
    program = (
        "from autofuse.values.resources import data_path; from autofuse.environment.space import load_space\n"
        "from autofuse.device.profile import shipped_profiles\n"
        "print(data_path('profiles')); print(load_space('default', 'avx2').name, *shipped_profiles())"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", program],
        cwd=tmp_path,
        env={"PYTHONPATH": str(site), "PATH": ""},
        check=True,
        capture_output=True,
        text=True,
    )
    where, found = done.stdout.splitlines()
    assert Path(where) == site / "autofuse" / "_data" / "profiles"
    assert found.split()[0] == "default"
    assert set(found.split()[1:]) == {path.stem for path in (ROOT / "profiles" / "devices").glob("*.toml")}
