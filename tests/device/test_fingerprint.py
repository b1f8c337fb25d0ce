"""The fingerprint: the same between boots and processes, different where times would differ."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from autofuse.device.fingerprint import fingerprint
from autofuse.device.profile import Caches, CpuIdentity, DeviceProfile

BASE = DeviceProfile(
    name="local",
    description="AMD EPYC",
    architecture="x86_64",
    mcpu="znver3",
    lanes=8,
    registers=16,
    cores=2,
    threads=2,
    features=("avx2", "fma"),
    memory_mib=16000,
    caches=Caches(l1d_kib=32, l2_kib=512),
    cpu=CpuIdentity(vendor="AuthenticAMD", family="25", model="1", stepping="1", model_name="AMD EPYC"),
)


def changed(**fields: Any) -> DeviceProfile:
    return DeviceProfile.model_validate(BASE.model_dump() | fields)


@pytest.mark.parametrize(
    "fields",
    [{"memory_mib": 8000}, {"threads": 1}, {"pinning": "none"}, {"description": "x"}, {"name": "saved-probe"}],
)
def test_what_changes_between_boots_and_processes_does_not_count(fields: dict[str, Any]) -> None:
    assert fingerprint(changed(**fields)) == fingerprint(BASE)


@pytest.mark.parametrize(
    "fields",
    [
        {"mcpu": "znver4"},
        {"mattr": ("-avx512f",)},
        {"cores": 4},
        {"lanes": 4},
        {"features": ("avx2",)},
        {"caches": {"l1d_kib": 48, "l2_kib": 512}},
        {"cpu": {"vendor": "AuthenticAMD", "family": "25", "model": "1", "stepping": "2", "model_name": "AMD EPYC"}},
        {"cpu": None},
    ],
)
def test_what_decides_a_kernels_time_counts(fields: dict[str, Any]) -> None:
    assert fingerprint(changed(**fields)).key != fingerprint(BASE).key


def test_profiles_without_a_cpu_are_told_apart_by_name() -> None:
    assert fingerprint(changed(cpu=None, name="a")).key != fingerprint(changed(cpu=None, name="b")).key


def test_code_for_a_profile_timed_on_this_host_is_neither_of_the_two() -> None:
    other = changed(name="zen2", mcpu="znver2", cpu=None)
    keys = {fingerprint(other, BASE).key, fingerprint(other).key, fingerprint(BASE).key}
    assert len(keys) == 3


def test_another_process_finds_the_same_key() -> None:
    program = (
        "import sys\nfrom autofuse.device.fingerprint import fingerprint\n"
        "from autofuse.device.profile import DeviceProfile\n"
        "print(fingerprint(DeviceProfile.model_validate_json(sys.stdin.read(), strict=False)).key)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], input=BASE.model_dump_json(), capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == fingerprint(BASE).key
