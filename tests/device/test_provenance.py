"""Provenance: what is there is read, what is not is None."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from autofuse.device.provenance import collect


def put(root: Path, name: str, text: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text + "\n", encoding="utf-8")


def test_a_machine_that_shows_nothing_gives_unknowns(tmp_path: Path) -> None:
    found = collect(root=tmp_path, checkout=tmp_path)
    unknown = (found.git, found.llvm, found.kernel, found.microcode, found.governor, found.mhz, found.temperature_c)
    assert unknown == (None,) * 7
    assert (found.boot_id, found.hypervisor) == (None, None)
    assert found.tvm and found.tvm_ffi and found.optuna and found.onnxruntime


def test_what_the_kernel_shows_is_read(tmp_path: Path) -> None:
    put(tmp_path, "proc/cpuinfo", "processor\t: 0\nmicrocode\t: 0xa1\ncpu MHz\t\t: 2445.4\nflags\t\t: fpu hypervisor")
    put(tmp_path, "proc/sys/kernel/random/boot_id", "boot-1")
    put(tmp_path, "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "performance")
    put(tmp_path, "sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq", "3100000")
    put(tmp_path, "sys/class/thermal/thermal_zone0/temp", "41000")
    put(tmp_path, "sys/class/hwmon/hwmon0/temp1_input", "55500")
    put(tmp_path, "sys/class/hwmon/hwmon0/temp2_input", "nonsense")
    put(tmp_path, "sys/class/dmi/id/sys_vendor", "QEMU")
    found = collect("22", root=tmp_path, checkout=tmp_path)
    assert (found.microcode, found.governor, found.boot_id, found.llvm) == ("0xa1", "performance", "boot-1", "22")
    assert (found.mhz, found.temperature_c, found.hypervisor) == (3100.0, 55.5, "QEMU")


def test_an_edited_checkout_is_marked_dirty(tmp_path: Path) -> None:
    def git(*arguments: str) -> str:
        identity = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
        done = subprocess.run(
            ["git", "-C", str(tmp_path), *identity, *arguments], capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    git("init", "-q")
    put(tmp_path, "file", "one")
    git("add", "file")
    git("commit", "-q", "-m", "first")
    commit = git("rev-parse", "HEAD")
    assert collect(root=tmp_path, checkout=tmp_path).git == commit
    put(tmp_path, "file", "two")
    assert collect(root=tmp_path, checkout=tmp_path).git == f"{commit}-dirty"


def test_it_is_fit_for_json() -> None:
    body = json.loads(json.dumps(collect().as_dict()))
    assert body["python"].startswith("3.")
    assert set(body) >= {"tvm", "tvm_ffi", "llvm", "optuna", "kernel", "microcode", "governor", "mhz", "boot_id"}
