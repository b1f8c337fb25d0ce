"""The circumstances of a job as the profiling database keys them: device, target, threads, versions."""

from __future__ import annotations

from dataclasses import dataclass

from autofuse.database.ask.devices import last_measured
from autofuse.database.database import ProfilingDatabase
from autofuse.database.records import Setting
from autofuse.device.profile import DeviceProfile
from autofuse.device.provenance import Provenance
from autofuse.device.target import Target
from autofuse.environment.device import NamedDevice, as_named

CODE_VERSIONS = ("tvm", "tvm_ffi", "llvm")
KERNELS_VERSION = "7"
"""Changes with the code that kernels are generated as: older times are then stale."""


@dataclass(frozen=True)
class Circumstances:
    """A device with its target and what is recorded beside every time."""

    device: NamedDevice
    profile: DeviceProfile
    target: Target
    setting: Setting
    provenance: Provenance


def circumstances(
    database: ProfilingDatabase, device: str | NamedDevice, threads: int, *, measuring: bool
) -> Circumstances:
    """Resolve `device` ("local", a profile, a file). DeviceError when it is `measuring` that it cannot do.

    Otherwise a device that is not at hand is the one of that name which was measured last.
    """
    named = as_named(device)
    if measuring:
        named.require_measurable()
    profile, provenance, identity = named.profile, named.provenance, named.fingerprint
    target = profile.target()
    known = None
    if not measuring and not named.is_known:
        with database.reading() as sql:
            known = last_measured(sql, profile.name, target.key, threads)
    versions = {name: str(getattr(provenance, name)) for name in CODE_VERSIONS} | {"kernels": KERNELS_VERSION}
    setting = database.setting(
        fingerprint=known or identity.key,
        device_name=profile.name,
        device_facts=identity.facts,
        target=target,
        threads=threads,
        versions=versions,
    )
    return Circumstances(named, profile, target, setting, provenance)
