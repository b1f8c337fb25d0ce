"""The rates that the machine of a run reaches at best, probed once for each device and number of threads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from functools import cache

from autofuse.database.ask.devices import RATES, probed_rates
from autofuse.database.database import ProfilingDatabase
from autofuse.device.likeness import DeviceNumbers
from autofuse.device.profile import DeviceProfile, ProbedRates, load_profile, shipped_profiles
from autofuse.device.rates import CoreRates
from autofuse.environment.environment import Environment
from autofuse.errors import DeviceError
from autofuse.measure.machine import LIMIT_S, probe_machine
from autofuse.measure.remote.remote_rates import probe_device

__all__ = ["RATES", "Neighbours", "core_rates", "known_rates", "machine_rates", "will_probe", "with_rates"]

PROBING_SHARE, LEAST_PROBING_S = 0.15, 5.0
"""Part of a budget that probing takes at most; it is not begun where that is less than the second: nothing but a report
misses the rates, and the next run probes them."""


def known_rates(base: ProfilingDatabase, environment: Environment) -> dict[str, object]:
    """What arithmetic, memory and a dispatch take, see `autofuse.measure.machine.MachineRates`.

    Those of the newest run here that has them, else of the device's profile; none where nobody probed it.
    """
    threads, profile = environment.setting.threads, environment.profile
    with base.reading() as sql:
        found = probed_rates(sql).get((environment.setting.device, threads))
    if not found and profile.rates is not None and profile.rates.threads == threads:
        found = profile.rates.model_dump()
    return found or {}


def machine_rates(
    base: ProfilingDatabase, environment: Environment, budget_s: float | None = None
) -> dict[str, object] | None:
    """`known_rates`, or else what is probed now on the device itself, in a few seconds; None where that fails, or would
    take more than a part of the budget (None: it has no end)."""
    if found := known_rates(base, environment):
        return found
    limit_s = _limit_s(budget_s)
    if limit_s < LEAST_PROBING_S:
        return None
    threads, profile = environment.setting.threads, environment.profile
    address, cpus, l3_bytes = environment.device.address, profile.pinning, profile.caches.l3_kib << 10
    try:
        if address is None:
            return asdict(probe_machine(environment.target, threads, l3_bytes, limit_s))
        pinned = cpus if isinstance(cpus, tuple) else ()
        return asdict(probe_device(address, environment.target, threads, pinned, l3_bytes=l3_bytes, limit_s=limit_s))
    except DeviceError:
        return None


def will_probe(base: ProfilingDatabase, environment: Environment, budget_s: float | None) -> bool:
    """Whether `machine_rates` probes."""
    return _limit_s(budget_s) >= LEAST_PROBING_S and not known_rates(base, environment)


def _limit_s(budget_s: float | None) -> float:
    """Seconds that probing may take out of a budget."""
    return LIMIT_S if budget_s is None else min(LIMIT_S, PROBING_SHARE * budget_s)


def core_rates(base: ProfilingDatabase, environment: Environment) -> CoreRates:
    """What is known of one core: of a run here that probed it, else of the device's profile, else of the shipped
    profile of the same kind of core, else what is usual. Nothing is measured."""
    with base.reading() as sql:
        every = probed_rates(sql)
    device, threads = environment.setting.device, environment.setting.threads
    ours = [every.get((device, threads)), *(rates for (other, _), rates in every.items() if other == device)]
    profile, target = environment.profile.rates, environment.target
    known = (CoreRates.of(rates) for rates in (*ours, profile.model_dump() if profile else None))
    found = next((rates for rates in known if rates is not None), None)
    return found or _shipped_rates().get(target.mcpu) or CoreRates.usual(target.lanes)


@cache
def _shipped_rates() -> Mapping[str, CoreRates]:
    """What was probed of the cores of shipped profiles, by LLVM's name of the core."""
    profiles = (load_profile(path) for path in shipped_profiles().values())
    probed = {one.mcpu: CoreRates.of(one.rates.model_dump()) for one in profiles if one.rates is not None}
    return {core: rates for core, rates in probed.items() if rates is not None}


def with_rates(profile: DeviceProfile) -> DeviceProfile:
    """The profile of this machine with its rates, probed now on its threads; DeviceError when that fails."""
    found = asdict(probe_machine(profile.target(), profile.threads, profile.caches.l3_kib << 10))
    rounded = {name: float(f"{rate:.4g}") for name, rate in found.items() if name != "threads"}
    return profile.model_copy(update={"rates": ProbedRates(threads=profile.threads, **rounded)})


class Neighbours:
    """How far other devices of a database are from the one of an environment; nothing is measured."""

    def __init__(self, base: ProfilingDatabase, environment: Environment) -> None:
        setting, profile = environment.setting, environment.profile
        with base.reading() as sql:
            every = probed_rates(sql)
        self._rates: dict[str, Mapping[str, object]] = {device: rates for (device, _), rates in every.items()}
        own = self._rates.get(setting.device) or (profile.rates.model_dump() if profile.rates else {})
        facts = environment.device.fingerprint.facts
        self._own = DeviceNumbers.of(facts, environment.target.text, own)

    def doublings(self, device: str, facts: Mapping[str, object], target: str) -> float | None:
        """See `DeviceNumbers.doublings`; `device`: a fingerprint, `facts`: what it is made of."""
        other = DeviceNumbers.of(facts, target, self._rates.get(device))
        return None if other is None or self._own is None else self._own.doublings(other)
