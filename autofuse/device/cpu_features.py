"""Features of a CPU, in LLVM's spelling: what the system shows and gives of them, which of them code may need, which
stand in a profile."""

from __future__ import annotations

import ctypes
import sys

_TILES = {"amx_tile": "amx-tile", "amx_int8": "amx-int8", "amx_bf16": "amx-bf16"}
TILES = frozenset(_TILES.values())
"""Features of the tile registers of x86 (AMX), which Linux gives a process only when it asks."""
ARCH_PRCTL, REQUEST, TILE_DATA = 158, 0x1023, 18
"""The system call, its request for registers that are not given unasked (ARCH_REQ_XCOMP_PERM), and which they are."""
X86_SPELLING = {
    "sse4_1": "sse4.1",
    "sse4_2": "sse4.2",
    "bmi1": "bmi",
    "pni": "sse3",
    "abm": "lzcnt",
    **_TILES,
}
"""Names of Linux that differ from LLVM's; those that begin with "avx" differ by their underscores."""
_APX = frozenset({"ccmp", "cf", "egpr", "ndd", "nf", "ppx", "push2pop2", "zu"})
"""What LLVM has a name for each, and Linux one for all."""
ARM_SPELLING = {
    "asimd": "neon",
    "neon": "neon",
    "asimdhp": "fullfp16",
    "asimddp": "dotprod",
    "asimdfhm": "fp16fml",
    "asimdfaminmax": "faminmax",
    "fcma": "complxnum",
    "sve": "sve",
    "sve2": "sve2",
    "svebitperm": "sve-bitperm",
    "i8mm": "i8mm",
    "bf16": "bf16",
    "sha3": "sha3",
    "cssc": "cssc",
    "mops": "mops",
}
_X86_NAMED = frozenset({"sse4.1", "sse4.2", "fma", "f16c", "bmi", "bmi2", *TILES})
_ARM_NAMED = frozenset({"neon", "fullfp16", "dotprod", "fp16fml", "sve", "sve2", "i8mm", "bf16"})
_X86_EMITTED = ("avx", "sse4", "bmi", "fma", "f16c", *sorted(TILES))
_X86_EMITTED_ALONE = frozenset({"sse3", "ssse3", "lzcnt", "popcnt", "movbe", "gfni", "xop", "tbm", *_APX})
_ARM_EMITTED = ("neon", "fullfp16", "fp16fml", "dotprod", "sve", "i8mm", "bf16")
_ARM_EMITTED_ALONE = frozenset({"complxnum", "cssc", "faminmax", "mops", "sha3"})
"""Each of the names, and each name that begins so."""

_RENAMED = {"sse3": "pni", "lzcnt": "abm", "complxnum": "fcma", "faminmax": "asimdfaminmax"}
_RENAMED |= dict.fromkeys(_APX, "apx")


def shown_features(flags: str, arm: bool) -> frozenset[str]:
    """Those that code may need of the `flags` of a processor in /proc/cpuinfo."""
    if arm:
        return frozenset(ARM_SPELLING[flag] for flag in flags.split() if flag in ARM_SPELLING)
    spelled = (
        X86_SPELLING.get(flag, flag.replace("_", "") if flag.startswith("avx") else flag) for flag in flags.split()
    )
    found = frozenset(name for name in spelled if may_be_needed(name, arm=False))
    return found | _APX if "apx" in flags.split() else found


def may_be_needed(name: str, arm: bool) -> bool:
    """Whether LLVM may write instructions of this feature into a kernel for a CPU that has it, or a kernel asks for
    them. Atomic instructions, and those that only a call of their own makes (of cryptography, say), are in none."""
    if arm:
        return name.startswith(_ARM_EMITTED) or name in _ARM_EMITTED_ALONE
    return name.startswith(_X86_EMITTED) or name in _X86_EMITTED_ALONE


def system_name(name: str) -> str:
    """What Linux calls a feature, where a reader of /proc/cpuinfo would not find it by leaving out "_", "." and "-"."""
    return _RENAMED.get(name, name)


def is_named(name: str, arm: bool) -> bool:
    """Whether a feature stands in a device's profile, and so in what its times are kept under: those that decide how
    fast kernels are."""
    return name in _ARM_NAMED if arm else name in _X86_NAMED or name.startswith("avx")


def gives_tiles() -> bool:
    """Whether the system gives this process tile registers: it is asked, and the answer holds for all its threads.

    False on a system that does not know the question. For x86-64 only, where the call has this number.
    """
    if not sys.platform.startswith("linux"):
        return False
    call = ctypes.CDLL(None, use_errno=True).syscall
    return int(call(ctypes.c_long(ARCH_PRCTL), ctypes.c_long(REQUEST), ctypes.c_long(TILE_DATA))) == 0
