"""The identity of a device: measurements are reused only where it is equal."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from autofuse.device.profile import DeviceProfile


@dataclass(frozen=True)
class Fingerprint:
    """`key`: SHA-256 of `facts` as canonical JSON."""

    key: str
    facts: Mapping[str, object] = field(hash=False, compare=False)


def fingerprint(profile: DeviceProfile, host: DeviceProfile | None = None) -> Fingerprint:
    """Fingerprint of code for `profile`, timed on `host` (None: on a device of that profile).

    Counts what decides a kernel's time for good: the CPU's identity, the code's target, cores and caches. Leaves out
    what changes between boots or processes: clock, memory, microcode, affinity, default threads, and free text.
    """
    measured_on = host or profile
    code = profile.target()
    facts: dict[str, object] = {
        "cpu": measured_on.cpu.model_dump() if measured_on.cpu else {"profile": measured_on.name},
        "mcpu": code.mcpu,
        "architecture": profile.architecture,
        "mtriple": code.mtriple,
        "mattr": sorted(code.mattr),
        "lanes": code.lanes,
        "registers": code.registers,
        "features": sorted(measured_on.features),
        "cores": measured_on.cores,
        "caches": measured_on.caches.model_dump(),
    }
    text = json.dumps(facts, sort_keys=True, separators=(",", ":"))
    return Fingerprint(hashlib.sha256(text.encode()).hexdigest(), facts)
