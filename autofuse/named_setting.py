"""The circumstances of a job as the profiling database keys them: device, target, threads, versions."""

from __future__ import annotations

from dataclasses import dataclass

from autofuse.backend.host_cpu import device_named, llvm_version, local_device
from autofuse.device.fingerprint import fingerprint
from autofuse.device.profile import DeviceProfile, require_measurable
from autofuse.device.provenance import Provenance, collect
from autofuse.device.target import Target
from autofuse.profiling.database import ProfilingDatabase
from autofuse.profiling.records import Setting

CODE_VERSIONS = ("tvm", "tvm_ffi", "llvm")
KERNELS_VERSION = "1"
"""Changes with the code that kernels are generated as: older times are then stale."""


@dataclass(frozen=True)
class Circumstances:
    """A device with its target and what is recorded beside every time."""

    profile: DeviceProfile
    target: Target
    setting: Setting
    provenance: Provenance


def circumstances(database: ProfilingDatabase, device: str, threads: int, *, measuring: bool) -> Circumstances:
    """Resolve `device` ("local", a profile, a file). InputError when this machine cannot measure for it."""
    profile = device_named(device)
    host = local_device()
    if measuring:
        require_measurable(profile, host)
    provenance = collect(llvm_version())
    identity = fingerprint(profile, host)
    versions = {name: str(getattr(provenance, name)) for name in CODE_VERSIONS} | {"kernels": KERNELS_VERSION}
    target = profile.target()
    setting = database.setting(
        fingerprint=identity.key,
        device_name=profile.name,
        device_facts=identity.facts,
        target=target,
        threads=threads,
        versions=versions,
    )
    return Circumstances(profile, target, setting, provenance)
