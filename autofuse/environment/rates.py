"""What the machine of a run can do at best, probed once for each device and number of threads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict

from autofuse.database.database import ProfilingDatabase
from autofuse.environment.circumstances import Circumstances
from autofuse.errors import DeviceError
from autofuse.measure.machine import probe_machine

RATES = "rates"
"""Key of the rates in a run's provenance."""


def machine_rates(base: ProfilingDatabase, around: Circumstances) -> dict[str, float] | None:
    """Peak of arithmetic (GFLOP/s) and of memory (GB/s), see `autofuse.measure.machine.MachineRates`.

    Those of the newest run here that has them, else probed now, in a few seconds; None for a device elsewhere.
    """
    place = around.setting.device, around.setting.threads
    for row in reversed(base.table("runs").records()):
        found = _rates(row["provenance"])
        if found and (row["device_fingerprint"], row["threads"]) == place:
            return found
    if around.device.address is not None:
        return None
    try:
        return asdict(probe_machine(around.target, around.setting.threads))
    except DeviceError:
        return None


def _rates(provenance: object) -> dict[str, float] | None:
    found = provenance.get(RATES) if isinstance(provenance, Mapping) else None
    return dict(found) if isinstance(found, Mapping) else None
