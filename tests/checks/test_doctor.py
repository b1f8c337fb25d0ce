"""`autofuse doctor`: each check says ok, or what is wrong and what to do."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest
from typer.testing import CliRunner

from autofuse.checks import doctor
from autofuse.cli.main import app
from autofuse.device.profile import DeviceProfile, load_profile, shipped_profiles
from autofuse.errors import DatabaseError


@pytest.fixture
def foreign() -> DeviceProfile:
    return load_profile(shipped_profiles()["raspberry-pi-4"])


def test_this_machine_passes_every_check(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["doctor", "--db", str(tmp_path / "p.db"), "--format", "json"])
    body = json.loads(result.stdout)
    assert [check for check in body["checks"] if check["status"] == "fail"] == []
    assert (result.exit_code, body["ok"]) == (0, True)
    names = [check["name"] for check in body["checks"]]
    assert names[:6] == ["python", "packages", "onnxruntime", "linker", "llvm", "kernel"]
    assert not (tmp_path / "p.db").exists(), "a check changes nothing"


def test_a_device_of_another_kind_fails_with_the_reason(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["doctor", "--db", str(tmp_path / "p.db"), "--device", "raspberry-pi-4"])
    assert result.exit_code == 1
    (line,) = [line for line in result.stdout.splitlines() if line.startswith("fail")]
    assert "'raspberry-pi-4' is aarch64 and this machine is" in line


def test_a_missing_linker_fails_and_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.delenv("CC", raising=False)
    check = doctor.linker()
    assert (check.status, check.found) == ("fail", "no C linker")
    assert "install gcc" in check.advice


def test_versions_that_crash_together_fail_and_name_the_pin(monkeypatch: pytest.MonkeyPatch) -> None:
    real = doctor.package_version
    monkeypatch.setattr(doctor, "package_version", lambda name: "0.1.15" if name == "apache-tvm-ffi" else real(name))
    check = doctor.packages()
    assert (check.status, check.found) == ("fail", "apache-tvm-ffi 0.1.15: crashes with this TVM")
    assert "apache-tvm-ffi==0.1.14.post1" in check.advice


def test_a_missing_package_fails_and_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    real = doctor.package_version
    monkeypatch.setattr(doctor, "package_version", lambda name: None if name == "optuna" else real(name))
    assert doctor.packages().found == "not installed: optuna"


def test_a_kernel_that_cannot_run_here_is_a_failed_check_and_no_crash(foreign: DeviceProfile) -> None:
    check = doctor.run_kernel(foreign)
    assert check.status == "fail"
    assert check.found


def test_a_kernel_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    here = load_profile(shipped_profiles()["generic-avx2"])
    assert doctor.run_kernel(here, seconds=0.01).found == "no answer within 0.01 s"


@pytest.mark.parametrize(("governor", "status"), [(None, "ok"), ("performance", "ok"), ("powersave", "warn")])
def test_a_governor_that_saves_power_is_a_warning(
    governor: str | None, status: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "governor", lambda: governor)
    assert doctor.clock().status == status


def test_a_busy_machine_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor.os, "getloadavg", lambda: (100.0, 0.0, 0.0))
    assert doctor.load().status == "warn"


def test_a_full_disk_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = doctor.shutil.disk_usage(tmp_path)
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda _path: usage._replace(free=1024))
    check = doctor.disk(str(tmp_path / "p.db"))
    assert check.status == "fail"
    assert "1.0 KiB free" in check.found


def test_a_file_that_is_no_database_fails(tmp_path: Path) -> None:
    path = tmp_path / "p.db"
    path.write_text("hello", encoding="utf-8")
    with pytest.raises(DatabaseError, match="not an SQLite database"):
        doctor.database_state(str(path))
    result = CliRunner().invoke(app, ["doctor", "--db", str(path)])
    assert result.exit_code == 1
    assert "fail database" in result.stdout


def test_a_database_of_another_program_fails(tmp_path: Path) -> None:
    path = tmp_path / "p.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE songs (name TEXT)")
    connection.close()
    with pytest.raises(DatabaseError):
        doctor.database_state(str(path))
