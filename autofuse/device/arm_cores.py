"""ARM cores by what they call themselves (implementer and part of MIDR_EL1, as /proc/cpuinfo shows them)."""

from __future__ import annotations

import ctypes
import mmap
import platform
import sys
from collections.abc import Mapping
from dataclasses import dataclass

# (implementer, part) -> LLVM's name. Sources: Linux arch/arm64/include/asm/cputype.h; LLVM Host.cpp.
CORES: Mapping[tuple[int, int], str] = {
    (0x41, 0xD02): "cortex-a34",
    (0x41, 0xD03): "cortex-a53",
    (0x41, 0xD04): "cortex-a35",
    (0x41, 0xD05): "cortex-a55",
    (0x41, 0xD07): "cortex-a57",
    (0x41, 0xD08): "cortex-a72",
    (0x41, 0xD09): "cortex-a73",
    (0x41, 0xD0A): "cortex-a75",
    (0x41, 0xD0B): "cortex-a76",
    (0x41, 0xD0C): "neoverse-n1",
    (0x41, 0xD0D): "cortex-a77",
    (0x41, 0xD0E): "cortex-a76ae",
    (0x41, 0xD40): "neoverse-v1",
    (0x41, 0xD41): "cortex-a78",
    (0x41, 0xD42): "cortex-a78ae",
    (0x41, 0xD44): "cortex-x1",
    (0x41, 0xD46): "cortex-a510",
    (0x41, 0xD47): "cortex-a710",
    (0x41, 0xD48): "cortex-x2",
    (0x41, 0xD49): "neoverse-n2",
    (0x41, 0xD4B): "cortex-a78c",
    (0x41, 0xD4D): "cortex-a715",
    (0x41, 0xD4E): "cortex-x3",
    (0x41, 0xD4F): "neoverse-v2",
    (0x41, 0xD80): "cortex-a520",
    (0x41, 0xD81): "cortex-a720",
    (0x41, 0xD82): "cortex-x4",
    (0x51, 0x802): "cortex-a75",  # Kryo 385 gold
    (0x51, 0x803): "cortex-a55",  # Kryo 385 silver
    (0x51, 0x804): "cortex-a76",  # Kryo 485 gold
    (0x51, 0x805): "cortex-a55",  # Kryo 485 silver
    (0x61, 0x022): "apple-m1",
    (0x61, 0x023): "apple-m1",
    (0x61, 0x024): "apple-m1",
    (0x61, 0x025): "apple-m1",
    (0x61, 0x028): "apple-m1",
    (0x61, 0x029): "apple-m1",
    (0x61, 0x032): "apple-m2",
    (0x61, 0x033): "apple-m2",
    (0x61, 0x034): "apple-m2",
    (0x61, 0x035): "apple-m2",
    (0xC0, 0xAC3): "ampere1",
}

# Bits of AT_HWCAP and AT_HWCAP2 -> the name in /proc/cpuinfo. Source: Linux arch/arm64/include/uapi/asm/hwcap.h.
_HWCAP = {
    1: "asimd", 9: "fphp", 10: "asimdhp", 14: "fcma", 17: "sha3", 20: "asimddp", 22: "sve", 23: "asimdfhm",
}  # fmt: skip
_HWCAP2 = {1: "sve2", 4: "svebitperm", 13: "i8mm", 14: "bf16", 34: "cssc", 43: "mops", 50: "asimdfaminmax"}
_AT_HWCAP, _AT_HWCAP2 = 16, 26
_CPUID = 1 << 11
_READ_MIDR = (0xD5380000, 0xD65F03C0)
"""`mrs x0, midr_el1; ret`: Linux answers it in user mode where HWCAP has CPUID."""


@dataclass(frozen=True)
class ArmIdentity:
    """Numbers of MIDR_EL1 (0: unknown) and the features as /proc/cpuinfo names them."""

    implementer: int
    variant: int
    part: int
    revision: int
    features: tuple[str, ...]


def core_name(implementer: str, part: str) -> str | None:
    """LLVM's name of a core, from numbers as /proc/cpuinfo writes them ("0x41", "0xd0b"); None when unknown."""
    try:
        return CORES.get((int(implementer, 0), int(part, 0)))
    except ValueError:
        return None


def ask_core() -> ArmIdentity | None:
    """What the core itself says, where /proc/cpuinfo does not (emulators); None on other machines."""
    if sys.platform != "linux" or platform.machine() != "aarch64":
        return None
    library = ctypes.CDLL(None)
    library.getauxval.restype = ctypes.c_ulong
    library.getauxval.argtypes = [ctypes.c_ulong]
    bits, more = int(library.getauxval(_AT_HWCAP)), int(library.getauxval(_AT_HWCAP2))
    features = [name for bit, name in _HWCAP.items() if bits >> bit & 1]
    features += [name for bit, name in _HWCAP2.items() if more >> bit & 1]
    midr = _midr() if bits & _CPUID else 0
    return ArmIdentity(midr >> 24 & 0xFF, midr >> 20 & 0xF, midr >> 4 & 0xFFF, midr & 0xF, tuple(features))


def _midr() -> int:
    try:
        page = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    except OSError:  # a system that allows no page that is writable and executable
        return 0
    page.write(b"".join(word.to_bytes(4, "little") for word in _READ_MIDR))
    held = ctypes.c_char.from_buffer(page)
    return int(ctypes.CFUNCTYPE(ctypes.c_uint64)(ctypes.addressof(held))())
