"""Probing a machine, on recorded `/proc` and `/sys` trees and on the one that runs the tests."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from autofuse.device import host
from autofuse.device.host import HostCpu, host_features, probe_host
from autofuse.device.profile import require_features, require_measurable
from autofuse.errors import InputError

ZEN4 = HostCpu("znver4", frozenset({"avx", "avx2", "fma", "avx512f", "avx512vnni", "64bit", "sse4.1"}))
X86_FLAGS = "fpu sse4_1 avx avx2 fma f16c bmi1 bmi2"


def machine(
    root: Path, *, flags: str = X86_FLAGS, cores: int = 2, threads_a_core: int = 1, quota: str = "max 100000"
) -> Path:
    """A fake root file system of an x86 machine."""
    entries = [
        f"processor\t: {number}\nvendor_id\t: AuthenticAMD\ncpu family\t: 25\nmodel\t\t: 17\nmodel name\t: AMD X\n"
        f"stepping\t: 1\nphysical id\t: 0\ncore id\t\t: {number % cores}\ncpu MHz\t\t: 3000.5\nflags\t\t: {flags}\n"
        for number in range(cores * threads_a_core)
    ]
    put(root, "proc/cpuinfo", "\n".join(entries))
    put(root, "proc/meminfo", "MemTotal:       16384000 kB\nMemFree: 1 kB\n")
    put(root, "sys/fs/cgroup/cpu.max", quota)
    last = cores * threads_a_core - 1
    siblings = "0" if threads_a_core == 1 else f"0,{cores}"
    for index, (level, kind, size, shared) in enumerate(
        [
            ("1", "Data", "32K", siblings),
            ("1", "Instruction", "64K", siblings),
            ("2", "Unified", "1024K", siblings),
            ("3", "Unified", "32M", f"0-{last}"),
        ]
    ):
        folder = f"sys/devices/system/cpu/cpu0/cache/index{index}"
        for name, text in (("level", level), ("type", kind), ("size", size), ("shared_cpu_list", shared)):
            put(root, f"{folder}/{name}", text)
    return root


def put(root: Path, name: str, text: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text + "\n", encoding="utf-8")


def test_avx2_gives_eight_lanes_and_sixteen_registers(tmp_path: Path) -> None:
    profile = probe_host(HostCpu("znver3"), root=machine(tmp_path), machine="x86_64")
    assert (profile.lanes, profile.registers, profile.target().isa) == (8, 16, "avx2")
    assert profile.features == ("avx", "avx2", "bmi", "bmi2", "f16c", "fma", "sse4.1")


def test_avx512_gives_sixteen_lanes_and_thirty_two_registers(tmp_path: Path) -> None:
    root = machine(tmp_path, flags=f"{X86_FLAGS} avx512f avx512_vnni")
    profile = probe_host(ZEN4, root=root, machine="x86_64")
    assert (profile.lanes, profile.registers, profile.mattr) == (16, 32, ())
    assert "avx512vnni" in profile.features


def test_a_cpu_without_avx2_falls_back_to_four_lanes(tmp_path: Path) -> None:
    profile = probe_host(HostCpu("nehalem"), root=machine(tmp_path, flags="sse4_1"), machine="x86_64")
    assert (profile.lanes, profile.registers) == (4, 16)


def test_features_that_a_hypervisor_hides_are_switched_off(tmp_path: Path) -> None:
    profile = probe_host(ZEN4, root=machine(tmp_path), machine="x86_64")
    assert profile.mattr == ("-avx512f", "-avx512vnni")
    assert profile.lanes == 8


def test_tile_registers_that_a_hypervisor_hides_are_switched_off(tmp_path: Path) -> None:
    """Code for a CPU of that name would run them."""
    cpu = HostCpu("sapphirerapids", frozenset({"avx2", "amx-tile", "amx-int8", "amx-bf16"}))
    shown = probe_host(cpu, root=machine(tmp_path, flags=f"{X86_FLAGS} amx_bf16 amx_tile amx_int8"), machine="x86_64")
    assert {"amx-bf16", "amx-int8", "amx-tile"} <= set(shown.features) and shown.mattr == ()
    hidden = probe_host(cpu, root=machine(tmp_path), machine="x86_64")
    assert hidden.mattr == ("-amx-bf16", "-amx-int8", "-amx-tile")


@pytest.mark.parametrize("gives", [True, False])
def test_tile_registers_are_there_if_the_system_gives_them(gives: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the machine that runs the tests, whose flags are made up: it is asked there alone."""
    monkeypatch.setattr(host, "_processors", lambda _: [{"processor": "0", "flags": f"{X86_FLAGS} amx_tile amx_int8"}])
    monkeypatch.setattr(host, "gives_tiles", lambda: gives)
    monkeypatch.setattr(host.platform, "machine", lambda: "x86_64")
    cpu = HostCpu("sapphirerapids", frozenset({"avx2", "amx-tile", "amx-int8"}))
    found = probe_host(cpu)
    assert ("amx-tile" in found.features) == ("amx-int8" in found.features) == gives
    assert found.mattr == (() if gives else ("-amx-int8", "-amx-tile"))


def test_features_are_known_without_asking_llvm(tmp_path: Path) -> None:
    profile = probe_host(HostCpu(""), root=machine(tmp_path), machine="x86_64")
    assert profile.mcpu == "x86-64-v3"
    assert {"avx2", "fma"} <= set(profile.features)


def test_a_profile_has_fewer_features_than_code_may_need(tmp_path: Path) -> None:
    """What a profile has is what its times are kept under."""
    root = machine(tmp_path, flags=f"{X86_FLAGS} pni ssse3 sse4a abm popcnt movbe gfni aes")
    more = {"sse3", "ssse3", "sse4a", "lzcnt", "popcnt", "movbe", "gfni"}
    profile = probe_host(HostCpu("znver4", frozenset(more)), root=root, machine="x86_64")
    assert profile.mattr == () and more.isdisjoint(profile.features)
    assert host_features(root, "x86_64") == {*profile.features, *more}


def test_scalar_features_that_a_hypervisor_hides_are_switched_off(tmp_path: Path) -> None:
    """LLVM writes them unasked, and a machine that hides them would refuse its own libraries."""
    cpu = HostCpu("icelake-server", frozenset({"avx2", "lzcnt", "movbe", "gfni", "aes"}))
    profile = probe_host(cpu, root=machine(tmp_path, flags=f"{X86_FLAGS} movbe"), machine="x86_64")
    assert profile.mattr == ("-gfni", "-lzcnt")


def test_hyper_threads_are_not_cores(tmp_path: Path) -> None:
    profile = probe_host(ZEN4, root=machine(tmp_path, cores=4, threads_a_core=2), machine="x86_64")
    assert profile.cores == 4
    caches = profile.caches
    assert (caches.l1d_kib, caches.l2_kib, caches.l2_cores, caches.l3_kib, caches.l3_cores) == (32, 1024, 1, 32768, 4)


def test_the_default_thread_count_heeds_the_cgroups_quota(tmp_path: Path) -> None:
    profile = probe_host(ZEN4, root=machine(tmp_path, cores=8, quota="100000 100000"), machine="x86_64")
    assert (profile.cores, profile.threads) == (8, 1)


def test_an_arm_board_is_recognised(tmp_path: Path) -> None:
    entry = (
        "processor\t: {}\nBogoMIPS\t: 108.00\nFeatures\t: fp asimd evtstrm crc32 asimdhp asimddp\n"
        "CPU implementer\t: 0x41\nCPU architecture: 8\nCPU variant\t: 0x4\nCPU part\t: 0xd0b\nCPU revision\t: 1\n"
    )
    put(tmp_path, "proc/cpuinfo", "\n".join(entry.format(number) for number in range(4)))
    profile = probe_host(HostCpu("cortex-a76", frozenset({"neon", "dotprod"})), root=tmp_path, machine="aarch64")
    assert (profile.architecture, profile.mtriple, profile.target().isa) == ("aarch64", "aarch64-linux-gnu", "neon")
    assert (profile.lanes, profile.registers, profile.cores) == (4, 32, 4)
    assert profile.features == ("dotprod", "fullfp16", "neon")
    assert profile.cpu is not None and (profile.cpu.model, profile.cpu.stepping) == ("0xd0b", "0x4.1")


def test_an_arm_core_without_a_name_keeps_the_features_that_it_shows(tmp_path: Path) -> None:
    entry = (
        "processor\t: 0\nFeatures\t: fp asimd asimddp asimdhp asimdfhm sve i8mm bf16\n"
        "CPU implementer\t: 0x41\nCPU part\t: 0xfff\n"
    )
    put(tmp_path, "proc/cpuinfo", entry)
    profile = probe_host(HostCpu(""), root=tmp_path, machine="aarch64")
    assert (profile.mcpu, profile.mattr) == ("generic", ("+bf16", "+dotprod", "+fp16fml", "+fullfp16", "+i8mm"))
    require_features(profile, {"neon"})
    with pytest.raises(InputError, match="cortex-a72 has no bf16"):
        require_features(profile.model_copy(update={"mcpu": "cortex-a72"}), {"neon"})


def test_a_machine_that_shows_nothing_still_gives_a_profile(tmp_path: Path) -> None:
    profile = probe_host(ZEN4, root=tmp_path, machine="x86_64")
    assert profile.cores == os.cpu_count()
    assert profile.memory_mib is None
    assert profile.mattr == (), "nothing is known to be hidden"


@pytest.mark.skipif(not Path("/proc/cpuinfo").exists(), reason="needs a Linux machine")
def test_this_machine_can_measure_for_itself() -> None:
    from autofuse.backend.compile.host_cpu import accepts, local_device

    profile = local_device()
    require_measurable(profile, profile)
    assert accepts(profile)
    assert 1 <= profile.threads <= profile.cores
