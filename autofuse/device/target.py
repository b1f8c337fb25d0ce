"""What code is generated for: an LLVM CPU with its vector width, registers and caches."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Target:
    """`lanes`: float32 elements of a vector register; `registers`: how many of them.

    `l1_bytes`, `l2_bytes`: data caches of one core. `mtriple`: None for the host's own.
    """

    mcpu: str
    lanes: int
    registers: int
    cores: int
    l1_bytes: int
    l2_bytes: int
    mtriple: str | None = None
    mattr: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """It as canonical JSON."""
        return json.dumps(asdict(self), sort_keys=True, separators=(",", ":"))

    @property
    def key(self) -> str:
        """SHA-256 of the canonical text."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    @property
    def isa(self) -> str:
        """Target class whose priors apply: "avx512", "avx2", "neon" or "generic"."""
        if self.mtriple is not None and self.mtriple.startswith(("aarch64", "arm64")):
            return "neon"
        return {16: "avx512", 8: "avx2"}.get(self.lanes, "generic")
