"""What Linux gives a process only when it asks: the tile registers of x86 (AMX)."""

from __future__ import annotations

import ctypes
import sys

ARCH_PRCTL, REQUEST, TILE_DATA = 158, 0x1023, 18
"""The system call, its request for registers that are not given unasked (ARCH_REQ_XCOMP_PERM), and which they are."""


def gives_tiles() -> bool:
    """Whether the system gives this process tile registers: it is asked, and the answer holds for all its threads.

    False on a system that does not know the question. For x86-64 only, where the call has this number.
    """
    if not sys.platform.startswith("linux"):
        return False
    call = ctypes.CDLL(None, use_errno=True).syscall
    return int(call(ctypes.c_long(ARCH_PRCTL), ctypes.c_long(REQUEST), ctypes.c_long(TILE_DATA))) == 0
