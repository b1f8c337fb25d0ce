"""The places that a job's options mean, and the workers at those that answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from autofuse.environment.place import Place
from autofuse.errors import DeviceError, InputError
from autofuse.job.settings import WorkerSpec


def places(
    devices: Sequence[str], rpc: Sequence[str], rpc_tracker: str | None, rpc_key: str | None, count: int | None
) -> list[Place]:
    """One place a device; or one an address of `rpc`, of one device or each of its own; or `count` behind a tracker.

    InputError for what cannot be meant.
    """
    if rpc and rpc_tracker:
        raise InputError("--rpc and --rpc-tracker exclude each other: name the devices, or their tracker")
    if count is not None and not rpc_tracker:
        raise InputError("--workers needs --rpc-tracker: it says how many of the tracker's devices work")
    if rpc and len(devices) not in (1, len(rpc)):
        raise InputError(f"--device: got {len(devices)} for {len(rpc)} addresses of --rpc, allowed: one, or as many")
    if rpc_tracker and len(devices) != 1:
        raise InputError(f"--device: got {len(devices)}, allowed with --rpc-tracker: one (the kind is its --rpc-key)")
    if rpc:
        named = devices if len(devices) == len(rpc) else [devices[0]] * len(rpc)
        return [Place(device=one, rpc=address, rpc_key=rpc_key) for one, address in zip(named, rpc, strict=True)]
    if rpc_tracker:
        return [Place(device=devices[0], rpc_tracker=rpc_tracker, rpc_key=rpc_key)] * (count or 1)
    return [Place(device=one, rpc_key=rpc_key) for one in devices]


def answering(wanted: Sequence[Place], say: Callable[[str], None]) -> list[WorkerSpec]:
    """The workers at these places; each device is asked what it is.

    One that does not answer is left out with a word; DeviceError is raised when none does.
    """
    workers: list[WorkerSpec] = []
    problems: list[DeviceError] = []
    for number, place in enumerate(wanted, 1):
        try:
            found = place.find(measuring=True)
            found.require_measurable()
        except DeviceError as error:
            problems.append(error)
            continue
        name = f"{place.device} {number}" if found.address is None else found.address.text
        name = f"{name} ({number})" if place.rpc_tracker else name
        kind = place.device if found.address is None else found.profile.name
        workers.append(WorkerSpec(name, kind, place))
    if not workers:
        raise problems[0]
    for problem in problems:
        say(f"goes on without a device: {problem}")
    return workers
