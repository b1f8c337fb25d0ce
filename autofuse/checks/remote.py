"""The part of `doctor` about a device elsewhere: each hop on the way to it, so that the broken one is named."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from autofuse.checks.check import Check
from autofuse.device.address import Address
from autofuse.errors import AutofuseError
from autofuse.values.scratch import scratch_folder

if TYPE_CHECKING:
    from autofuse.device.profile import DeviceProfile

_ELEMENTS = 4096
_HOT_C = 75.0


def remote_checks(address: Address, device: str) -> Iterator[Check]:
    """The hops in turn; nothing beyond a broken one is tried. `device`: as `--device`."""
    hops: list[tuple[str, Callable[[], Check]]] = [("rpc address", lambda: reached(address))]
    if address.tracker:
        hops.append(("rpc tracker", lambda: offered(address)))
    hops += [
        ("rpc session", lambda: session(address)),
        ("rpc device", lambda: device_there(address, device)),
        ("rpc linker", lambda: linker(address, device)),
        ("rpc kernel", lambda: kernel(address, device)),
    ]
    for name, hop in hops:
        try:
            check = hop()
        except AutofuseError as error:
            check = Check(name, "fail", str(error))
        yield check
        if check.status == "fail":
            return


def reached(address: Address) -> Check:
    """Something listens there."""
    from autofuse.backend.rpc.client import dial

    problem = dial(address.host, address.port)
    if problem:
        what = "the tracker" if address.tracker else "`autofuse serve`"
        return Check("rpc address", "fail", problem, f"start {what} there, or open the tunnel (ssh -L) again")
    shown = f"{address.host}:{address.port} answers"
    if not address.is_local:
        return Check("rpc address", "warn", f"{shown}, without encryption", "better through a tunnel: ssh -L")
    return Check("rpc address", "ok", shown)


def offered(address: Address) -> Check:
    """The tracker knows devices of that kind, and one is free."""
    from autofuse.backend.rpc.client import ConnectionLostError, tracker_devices

    try:
        known = tracker_devices(address.host, address.port)
    except ConnectionLostError as error:
        return Check("rpc tracker", "fail", str(error), "name the address of a tracker")
    total, free = known.get(address.key, (0, 0))
    if not total:
        names = ", ".join(sorted(key for key, (count, _) in known.items() if count)) or "no device at all"
        advice = f"on the device: autofuse serve --tracker {address.host}:{address.port} --key {address.key}"
        return Check("rpc tracker", "fail", f"no device of kind {address.key!r}; it knows {names}", advice)
    shown = f"{total} of kind {address.key}, {free} free"
    if not free:
        return Check("rpc tracker", "warn", shown, "wait until one is free; a request waits for it")
    return Check("rpc tracker", "ok", shown)


def session(address: Address) -> Check:
    """The key is right, and a session opens."""
    from autofuse.measure.remote.link import describe_device

    described = describe_device(address)
    provenance = described.provenance
    return Check("rpc session", "ok", f"kernel {provenance.kernel}, tvm {provenance.tvm}, python {provenance.python}")


def device_there(address: Address, device: str) -> Check:
    """It is the device that is meant, at the clock that is wished, and cool."""
    from autofuse.environment.device import ask_device

    named = ask_device(address, _profile(device))
    named.require_measurable()
    told = named.described
    assert told is not None
    host, now = told.host, told.provenance
    shown = f"{host.mcpu}, {host.cores} cores, {host.memory_mib} MiB, {', '.join(host.features) or 'no features'}"
    wished = named.profile.governor
    if wished and now.governor and now.governor != wished:
        advice = f"there: sudo cpupower frequency-set -g {wished}"
        return Check("rpc device", "warn", f"{shown}; governor {now.governor}", advice)
    if now.temperature_c is not None and now.temperature_c > _HOT_C:
        return Check("rpc device", "warn", f"{shown}; {now.temperature_c:.0f} °C", "let it cool down")
    return Check("rpc device", "ok", shown)


def linker(address: Address, device: str) -> Check:
    """Code for it can be linked on this machine."""
    from autofuse.environment.device import ask_device
    from autofuse.link.architecture import architecture_of, host_architecture
    from autofuse.link.linking import cross_linker

    architecture = architecture_of(ask_device(address, _profile(device)).profile.target())
    if architecture == host_architecture():
        return Check("rpc linker", "ok", f"{architecture}, as this machine")
    return Check("rpc linker", "ok", f"{architecture}: {' '.join(cross_linker(architecture).command)}")


def kernel(address: Address, device: str) -> Check:
    """A kernel is made here, runs there and is right."""
    import numpy as np

    from autofuse.environment.device import RunnerOptions, ask_device, open_runner
    from autofuse.kernels.workload.workload import Value, Workload, WorkloadOperator
    from autofuse.measure.measurement import Case, MeasureRequest
    from autofuse.measure.timing.sampling import SamplingPolicy

    values = tuple(Value(kind, (_ELEMENTS,), "float32") for kind in ("input", "input", "output"))
    workload = Workload(values, (WorkloadOperator("Add", (0, 1), (2,)),), 17)
    named = ask_device(address, _profile(device))
    with scratch_folder() as folder:
        numbers = np.arange(_ELEMENTS, dtype=np.float32)
        paths = [folder / f"{name}.npy" for name in ("a", "b", "sum")]
        for path, array in zip(paths, (numbers, numbers * 2, numbers * 3), strict=True):
            np.save(path, array)
        request = MeasureRequest(workload, {}, (Case((paths[0], paths[1]), (paths[2],)),))
        with open_runner(named, 1, RunnerOptions(SamplingPolicy(cap_s=0.2))) as runner:
            (measured,) = runner.measure([request])
    if measured.failure is not None:
        return Check("rpc kernel", "fail", f"{measured.failure.kind}: {measured.failure.message}")
    return Check("rpc kernel", "ok", "a kernel made here runs there and is right")


def _profile(device: str) -> DeviceProfile | None:
    from autofuse.backend.compile.host_cpu import device_named
    from autofuse.device.profile import LOCAL

    return None if device == LOCAL else device_named(device)
