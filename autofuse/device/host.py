"""This machine as a device profile, from `/proc` and `/sys`; LLVM's own view of the CPU is handed in."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from autofuse.device.arm_cores import ask_core, core_name
from autofuse.device.cpu_features import TILES, gives_tiles, is_named, may_be_needed, shown_features
from autofuse.device.profile import LOCAL, UNNAMED, Caches, CpuIdentity, DeviceProfile

ROOT = Path("/")

_ARM_ASKED_FOR = frozenset({"dotprod", "fullfp16", "fp16fml", "i8mm", "bf16"})
"""Features whose instructions kernels may ask for."""
_UNKNOWN_L1D_KIB = 32
_UNKNOWN_L2_KIB = 256
"""Where the kernel shows no caches (some containers and boards): the smallest that current cores have."""


@dataclass(frozen=True)
class HostCpu:
    """LLVM's view: the host's `mcpu` ("": not asked) and the `features` that this name switches on."""

    mcpu: str
    features: frozenset[str] = frozenset()


def probe_host(cpu: HostCpu, *, root: Path = ROOT, machine: str | None = None) -> DeviceProfile:
    """Profile "local" of this machine.

    A hypervisor may hide features that `cpu.mcpu` implies: those are switched off in `mattr`. An ARM core that has no
    name here stands there as "generic", with the features that it says it has switched on. Tile registers (AMX) are
    there where the system gives them to this process. `threads` heeds the
    CPU affinity and the cgroup's quota of this process. `root`, `machine`: for tests ("/" and the running kernel's).
    """
    processors = _processors(root)
    arm, first = _first(processors, machine)
    known = _features(first, arm, asking=machine is None and root == ROOT)
    hidden = sorted(name for name in cpu.features if may_be_needed(name, arm) and name not in known)
    features = frozenset(name for name in known if is_named(name, arm))
    mcpu = _mcpu(cpu, first, features, arm)
    unnamed = sorted(features & _ARM_ASKED_FOR - cpu.features) if arm and mcpu == UNNAMED else []
    cores = len(set(_core_of(processors).values())) or os.cpu_count() or 1
    return DeviceProfile(
        name=LOCAL,
        description=_identity(first).model_name,
        architecture="aarch64" if arm else "x86_64",
        mcpu=mcpu,
        mtriple="aarch64-linux-gnu" if arm else None,
        mattr=(*(f"+{name}" for name in unnamed), *(f"-{name}" for name in hidden if processors)),
        lanes=16 if "avx512f" in features else 8 if {"avx2", "fma"} <= features else 4,
        registers=32 if arm or "avx512f" in features else 16,
        cores=cores,
        threads=max(1, min(cores, _usable_cpus(root))),
        features=tuple(sorted(features)),
        memory_mib=_memory_mib(root),
        caches=_caches(root, _core_of(processors)),
        cpu=_identity(first),
    )


def host_features(root: Path = ROOT, machine: str | None = None) -> frozenset[str]:
    """All features of this machine's CPU that code may need, in LLVM's spelling: more than stand in its profile.

    `root`, `machine`: see `probe_host`.
    """
    arm, first = _first(_processors(root), machine)
    return _features(first, arm, asking=machine is None and root == ROOT)


def read_text(path: Path) -> str | None:
    """Stripped content of a small file of the kernel; None where it is missing or unreadable."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None


def _processors(root: Path) -> list[dict[str, str]]:
    """Entries of /proc/cpuinfo that describe a processor, keys in lower case."""
    found = []
    for block in (read_text(root / "proc/cpuinfo") or "").split("\n\n"):
        pairs = (line.partition(":") for line in block.splitlines() if ":" in line)
        entry = {key.strip().lower(): value.strip() for key, _, value in pairs}
        if "processor" in entry:
            found.append(entry)
    return found


def _core_of(processors: list[dict[str, str]]) -> dict[int, tuple[str, str]]:
    """Physical core of each CPU number; hyper-threads share one."""
    return {
        int(entry["processor"]): (entry.get("physical id", ""), entry.get("core id", entry["processor"]))
        for entry in processors
        if entry["processor"].isdigit()
    }


def _best(processors: list[dict[str, str]], arm: bool) -> dict[str, str]:
    """The entry that stands for the machine: the first, or on ARM, where cores may differ, the largest part number.

    Newer and bigger cores of one maker have larger numbers within a chip (Cortex-A55 and A76, X1 and A78).
    """
    if not processors:
        return {}
    parts = [entry for entry in processors if re.fullmatch(r"0x[0-9a-fA-F]+", entry.get("cpu part", ""))]
    return max(parts, key=lambda entry: int(entry["cpu part"], 16)) if arm and parts else processors[0]


def _first(processors: list[dict[str, str]], machine: str | None) -> tuple[bool, dict[str, str]]:
    """Whether the machine is an ARM, and the entry that stands for it; an ARM core that shows nothing is asked."""
    arm = (machine or platform.machine()) in ("aarch64", "arm64")
    first = _best(processors, arm)
    return arm, _asked(first) if arm and machine is None and "cpu part" not in first else first


def _asked(entry: Mapping[str, str]) -> dict[str, str]:
    """The entry of a core that /proc/cpuinfo does not describe, from the core itself."""
    found = ask_core()
    if found is None:
        return dict(entry)
    known = {
        "cpu implementer": f"0x{found.implementer:02x}",
        "cpu architecture": "8",
        "cpu variant": f"0x{found.variant:x}",
        "cpu part": f"0x{found.part:03x}",
        "cpu revision": str(found.revision),
    }
    return {"features": " ".join(found.features), **(known if found.part else {})}


def _mcpu(cpu: HostCpu, entry: Mapping[str, str], features: frozenset[str], arm: bool) -> str:
    """LLVM's name: as LLVM says, else from what the core says, else the best generic one."""
    if cpu.mcpu:
        return cpu.mcpu
    if arm:
        return core_name(entry.get("cpu implementer", ""), entry.get("cpu part", "")) or UNNAMED
    if {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"} <= features:
        return "x86-64-v4"
    return "x86-64-v3" if {"avx2", "fma", "bmi2"} <= features else "x86-64"


def _features(entry: Mapping[str, str], arm: bool, *, asking: bool) -> frozenset[str]:
    """Features that code may need. `asking`: the entry is of this very machine, whose system may refuse tiles."""
    found = shown_features((entry.get("features") if arm else entry.get("flags")) or "", arm)
    return found - TILES if asking and "amx-tile" in found and not gives_tiles() else found


def _identity(entry: Mapping[str, str]) -> CpuIdentity:
    return CpuIdentity(
        vendor=entry.get("vendor_id", entry.get("cpu implementer", "")),
        family=entry.get("cpu family", entry.get("cpu architecture", "")),
        model=entry.get("model", entry.get("cpu part", "")),
        stepping=entry.get("stepping", f"{entry.get('cpu variant', '')}.{entry.get('cpu revision', '')}".strip(".")),
        model_name=entry.get("model name", ""),
    )


def _caches(root: Path, core_of: Mapping[int, tuple[str, str]]) -> Caches:
    """Data caches of CPU 0, with the number of physical cores that share them."""
    sizes: dict[int, tuple[int, int]] = {}
    for index in sorted((root / "sys/devices/system/cpu/cpu0/cache").glob("index[0-9]*")):
        level, kind = read_text(index / "level"), read_text(index / "type")
        size = _kib(read_text(index / "size"))
        if level and level.isdigit() and kind in ("Data", "Unified") and size:
            sharers = _cpu_list(read_text(index / "shared_cpu_list") or "")
            sizes[int(level)] = (size, len({core_of.get(cpu, ("", str(cpu))) for cpu in sharers}) or 1)
    l2, l2_cores = sizes.get(2, (_UNKNOWN_L2_KIB, 1))
    l3, l3_cores = sizes.get(3, (0, 1))
    l1d, _ = sizes.get(1, (_UNKNOWN_L1D_KIB, 1))
    return Caches(l1d_kib=l1d, l2_kib=l2, l2_cores=l2_cores, l3_kib=l3, l3_cores=l3_cores)


def _kib(text: str | None) -> int:
    """Size as sysfs writes it ("512K", "32M") in KiB; 0 when unknown."""
    if not text or not text[:-1].isdigit():
        return 0
    return int(text[:-1]) * {"K": 1, "M": 1024, "G": 1024 * 1024}.get(text[-1], 0)


def _cpu_list(text: str) -> set[int]:
    """CPU numbers of a kernel list such as "0-3,8"."""
    cpus: set[int] = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        if first.isdigit() and (last.isdigit() or not last):
            cpus.update(range(int(first), int(last or first) + 1))
    return cpus


def _usable_cpus(root: Path) -> int:
    """CPUs that this process may use: its affinity, cut by the quota of its cgroup."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota, _, period = (read_text(root / "sys/fs/cgroup/cpu.max") or "").partition(" ")
    if quota.isdigit() and period.isdigit() and int(period) > 0:
        allowed = min(allowed, max(1, -(-int(quota) // int(period))))
    return allowed


def _memory_mib(root: Path) -> int | None:
    for line in (read_text(root / "proc/meminfo") or "").splitlines():
        key, _, value = line.partition(":")
        if key == "MemTotal" and value.split()[:1] and value.split()[0].isdigit():
            return max(1, int(value.split()[0]) // 1024)
    return None
