"""The device that a command means: its profile, the CPU that really answers, and how it is reached."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from autofuse.backend.compile.host_cpu import device_named, llvm_version, local_device
from autofuse.device.address import Address, choose_address
from autofuse.device.description import DeviceDescription
from autofuse.device.fingerprint import Fingerprint, fingerprint
from autofuse.device.profile import LOCAL, DeviceProfile, require_measurable
from autofuse.device.provenance import Provenance, collect
from autofuse.errors import DeviceError, InputError
from autofuse.measure.cluster.farm import BuildFarm
from autofuse.measure.local_runner import LocalRunner
from autofuse.measure.remote.link import Link, LinkLimits, describe_device
from autofuse.measure.remote.remote_runner import RemoteRunner
from autofuse.measure.runner import Runner
from autofuse.measure.timing.race import InterleavingPolicy
from autofuse.measure.timing.sampling import SamplingPolicy

DEFAULT_ROUNDS = InterleavingPolicy()


@dataclass(frozen=True)
class NamedDevice:
    """A device under the name that a command gave. `profile`: what code is made for. `address`: None for this machine.

    `described`: what the device said of itself; None when it was not asked, because it is this machine.
    """

    profile: DeviceProfile
    address: Address | None = None
    described: DeviceDescription | None = None

    @property
    def host(self) -> DeviceProfile:
        """The CPU that answers."""
        return self.described.host if self.described else local_device()

    @property
    def where(self) -> str:
        """It, in a sentence."""
        return f"the device at {self.address.text}" if self.address else "this machine"

    @property
    def provenance(self) -> Provenance:
        """Versions of the code's makers, which are here; clock, kernel and heat of the device."""
        own = collect(llvm_version())
        if self.described is None:
            return own
        told = self.described.provenance.as_dict()
        here = ("autofuse", "git", "python", "tvm", "tvm_ffi", "llvm", "optuna", "onnx", "onnxruntime", "numpy")
        return Provenance(**{**told, **{name: getattr(own, name) for name in here}})

    @property
    def fingerprint(self) -> Fingerprint:
        """The identity that times are kept under."""
        return fingerprint(self.profile, self.host)

    @property
    def is_known(self) -> bool:
        """Whether the CPU that answers is that of the profile; else only its code can be made here."""
        try:
            self.require_measurable()
        except DeviceError:
            return False
        return True

    def require_measurable(self) -> None:
        """DeviceError when times of the device that answers would not be those of the profile."""
        require_measurable(self.profile, self.host, self.where)


def find_device(
    device: str = LOCAL,
    rpc: str | None = None,
    rpc_tracker: str | None = None,
    rpc_key: str | None = None,
    *,
    measuring: bool = True,
) -> NamedDevice:
    """The device that `--device`, `--rpc`, `--rpc-tracker` and `--rpc-key` mean; one elsewhere is asked what it is.

    Without an address the profile's own connection counts, where something is to be measured. InputError for what
    cannot be meant; DeviceError when the device does not answer, or has other versions than this machine.
    """
    wanted = None if device == LOCAL else device_named(device)
    address = choose_address(rpc, rpc_tracker, rpc_key if rpc or rpc_tracker or not _connected(wanted) else None)
    if address is None and wanted is not None and measuring:
        address = wanted.connection.address_or_none(rpc_key)
    return NamedDevice(wanted or local_device()) if address is None else ask_device(address, wanted)


def ask_device(address: Address, wanted: DeviceProfile | None = None) -> NamedDevice:
    """The device at `address`, as `wanted` says, or else as it says itself."""
    described = describe_device(address)
    theirs, ours = described.provenance, collect()
    for name in ("tvm", "tvm_ffi"):
        if getattr(theirs, name) != getattr(ours, name):
            raise DeviceError(
                f"{address.text} has {name} {getattr(theirs, name)}, this machine {getattr(ours, name)}: "
                "install the same version there"
            )
    return NamedDevice(wanted or _as_it_says(described.host), address, described)


def as_named(device: str | NamedDevice) -> NamedDevice:
    """`device` itself, or the profile of that name, with nobody asked."""
    return device if isinstance(device, NamedDevice) else find_device(device, measuring=False)


def thread_count(threads: int | None, device: str | NamedDevice) -> int:
    """`threads`, or the device's own number; InputError when it has fewer cores."""
    profile = as_named(device).profile
    if threads is None:
        return profile.threads
    if not 1 <= threads <= profile.cores:
        raise InputError(f"--threads: got {threads}, allowed: 1 to {profile.cores} (the cores of {profile.name})")
    return threads


@dataclass(frozen=True)
class RunnerOptions:
    """Settings by which a runner measures: `policy` candidates, `rounds` whole networks; `link`: of a device elsewhere.

    `scheduler`: of a Dask cluster that builds for a device elsewhere (None: processes of this machine). `objects`:
    folder that keeps what is compiled for this machine (None: nothing is kept).
    """

    policy: SamplingPolicy = field(default_factory=SamplingPolicy)
    rounds: InterleavingPolicy = DEFAULT_ROUNDS
    link: LinkLimits = field(default_factory=LinkLimits)
    scheduler: str | None = None
    objects: Path | None = None


def open_runner(device: NamedDevice, threads: int, options: RunnerOptions) -> Runner:
    """A runner for `device`, to be used as a context manager."""
    target = device.profile.target()
    cpus = device.profile.pinning if isinstance(device.profile.pinning, tuple) else ()
    if device.address is None:
        if options.scheduler is not None:
            raise InputError(
                "--executor: kernels for this machine's own CPU are built where they are measured; a cluster builds "
                "for a device elsewhere (--rpc, --rpc-tracker; `autofuse serve` makes one of any machine)"
            )
        return LocalRunner(
            target, threads, policy=options.policy, rounds=options.rounds, cpus=cpus, objects=options.objects
        )
    return RemoteRunner(
        Link(device.address, options.link),
        BuildFarm(target, scheduler=options.scheduler),
        target,
        threads,
        cpus=cpus,
        policy=options.policy,
        rounds=options.rounds,
    )


def _connected(profile: DeviceProfile | None) -> bool:
    return profile is not None and profile.connection.kind != "local"


def _as_it_says(host: DeviceProfile) -> DeviceProfile:
    """The profile of a device that none was named for, called by its CPU."""
    name = re.sub(r"[^a-z0-9._-]+", "-", host.mcpu.lower()).strip("-") or "remote"
    return host.model_copy(update={"name": name})
