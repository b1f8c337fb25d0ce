"""The environment of a job as the profiling database keys it: device, target, threads, versions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from autofuse.database.ask.devices import last_measured
from autofuse.database.database import ProfilingDatabase
from autofuse.database.records import Setting
from autofuse.device.profile import DeviceProfile
from autofuse.device.provenance import Provenance
from autofuse.device.target import Target
from autofuse.environment.codes import Codes
from autofuse.environment.device import NamedDevice, as_named

CODE_VERSIONS = ("tvm", "tvm_ffi", "llvm")
"""What makes machine code of kernels, as packages. The kernels themselves are known by their digests."""


@dataclass(frozen=True)
class Environment:
    """An environment: a device, its target and what is recorded beside every time; `versions`: of `CODE_VERSIONS`."""

    device: NamedDevice
    profile: DeviceProfile
    target: Target
    setting: Setting
    provenance: Provenance
    versions: Mapping[str, str]

    @cached_property
    def codes(self) -> Codes:
        """The code of each candidate in this environment."""
        return Codes(self.target, self.versions)


def environment_of(
    database: ProfilingDatabase, device: str | NamedDevice, threads: int, *, measuring: bool
) -> Environment:
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
    versions = {name: str(getattr(provenance, name)) for name in CODE_VERSIONS}
    setting = database.setting(
        fingerprint=known or identity.key,
        device_name=profile.name,
        device_facts=identity.facts,
        target=target,
        threads=threads,
        versions=versions,
    )
    return Environment(named, profile, target, setting, provenance, versions)
