"""What a check of `doctor` says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Status = Literal["ok", "warn", "fail"]


@dataclass(frozen=True)
class Check:
    """`advice`: what to do; empty when all is well."""

    name: str
    status: Status
    found: str
    advice: str = ""
