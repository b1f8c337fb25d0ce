"""The rates that the machine of a run reaches at best, probed once for each device and number of threads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict

from autofuse.database.database import ProfilingDatabase
from autofuse.environment.environment import Environment
from autofuse.errors import DeviceError
from autofuse.measure.machine import probe_machine
from autofuse.measure.remote.remote_rates import probe_device

RATES = "rates"
"""Key of the rates in a run's provenance."""


def machine_rates(base: ProfilingDatabase, environment: Environment) -> dict[str, float] | None:
    """Peak of arithmetic (GFLOP/s) and of memory (GB/s), see `autofuse.measure.machine.MachineRates`.

    Those of the newest run here that has them, else probed now on the device itself, in a few seconds; None where that
    fails.
    """
    place = environment.setting.device, environment.setting.threads
    for row in reversed(base.table("runs").records()):
        found = _rates(row["provenance"])
        if found and (row["device_fingerprint"], row["threads"]) == place:
            return found
    address, threads, cpus = environment.device.address, environment.setting.threads, environment.profile.pinning
    l3_bytes = environment.profile.caches.l3_kib << 10
    try:
        if address is None:
            return asdict(probe_machine(environment.target, threads, l3_bytes))
        pinned = cpus if isinstance(cpus, tuple) else ()
        return asdict(probe_device(address, environment.target, threads, pinned, l3_bytes=l3_bytes))
    except DeviceError:
        return None


def _rates(provenance: object) -> dict[str, float] | None:
    found = provenance.get(RATES) if isinstance(provenance, Mapping) else None
    return dict(found) if isinstance(found, Mapping) else None
