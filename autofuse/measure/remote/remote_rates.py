"""The rates of a device elsewhere: its probes are built here, and run there by the same code as on this machine."""

from __future__ import annotations

from collections.abc import Sequence

from autofuse.device.address import Address
from autofuse.device.target import Target
from autofuse.errors import DeviceError
from autofuse.measure.machine import LIMIT_S, MachineRates, MeasureRates, export_probes
from autofuse.measure.measurement import Failure
from autofuse.measure.remote.link import DEFAULT_LIMITS, Link, LinkLimits
from autofuse.values.scratch import scratch_folder


def probe_device(
    address: Address, target: Target, threads: int, cpus: Sequence[int] = (), limits: LinkLimits = DEFAULT_LIMITS,
    l3_bytes: int = 0, limit_s: float = LIMIT_S,
) -> MachineRates:  # fmt: skip
    """Measure the rates of the device at `address` on its `cpus` (none: any); DeviceError when that fails, or when the
    probes are not built, or do not run, within `limit_s`."""
    link = Link(address, limits)
    with scratch_folder() as folder:
        try:
            kernels = export_probes(target, threads, folder, l3_bytes, limit_s)
            link.connected()
            reply = link.ask(MeasureRates(target, threads, tuple(cpus), l3_bytes, kernels), limit_s)
        finally:
            link.close()
    if isinstance(reply, Failure):
        raise DeviceError(f"cannot measure the rates of {address.text}: {reply.message}")
    return reply.rates
