"""Where a linker may put the code of an object: at the same place in every library, as far as a CPU can tell.

A kernel's time depends on the low bits of its address. One of fifteen elementwise operators and a mean (Zen 4; the same
bytes) took 241 us at twelve of nineteen places, 290 us at two and 400 us at five, in every process: it had been
measured in a library of its own, at a good place, and was 1.7 times as slow in the network's. With one alignment for
all, what was measured is what is shipped.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path

CODE_ALIGNMENT = 1024
"""Bytes. Places that differ by a multiple of it were alike; a kernel's code begins that far from others at most."""
_MAGIC = b"\x7fELF\x02\x01"
"""An object in ELF's form of 64 bits, the lowest byte first: x86-64's and AArch64's."""
_SECTIONS_AT, _SECTION_COUNT_AT = 0x28, 0x3A
_FLAGS_AT, _SIZE_AT, _ALIGNMENT_AT = 0x08, 0x20, 0x30
_CODE = 4
"""The flag of a section whose bytes are instructions (SHF_EXECINSTR)."""


def keep_places(objects: Sequence[Path]) -> None:
    """Let the code in each of these object files begin at multiples of CODE_ALIGNMENT alone, wherever it is linked.

    What is no object in ELF's form is left as it is. (System V ABI, chapter 4: the section header's sh_addralign.)
    """
    for path in objects:
        with path.open("r+b") as file:
            head = file.read(64)
            if not head.startswith(_MAGIC):
                continue
            (start,) = struct.unpack_from("<Q", head, _SECTIONS_AT)
            length, count = struct.unpack_from("<HH", head, _SECTION_COUNT_AT)
            for at in range(start, start + length * count, length):
                file.seek(at)
                section = file.read(length)
                (flags,), (size,) = (struct.unpack_from("<Q", section, place) for place in (_FLAGS_AT, _SIZE_AT))
                if flags & _CODE and size:
                    file.seek(at + _ALIGNMENT_AT)
                    file.write(struct.pack("<Q", CODE_ALIGNMENT))
