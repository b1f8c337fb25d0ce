"""What a session on a device understands beside candidates and networks, and what it answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import PlainSerializer, PlainValidator

from autofuse.device.address import Address
from autofuse.device.description import DeviceDescription
from autofuse.device.target import Target
from autofuse.errors import DeviceError
from autofuse.measure.children.messages import Done, FilePath, Message, Request


def _described(body: Any) -> DeviceDescription:
    try:
        return DeviceDescription.from_json(body)
    except DeviceError as error:
        raise ValueError(str(error)) from error


Description = Annotated[DeviceDescription, PlainValidator(_described), PlainSerializer(DeviceDescription.to_json)]


@dataclass(frozen=True)
class Described(Message):
    """The device, and how the session before this one ended ("" for the first)."""

    device: Description
    before: str


@dataclass(frozen=True)
class Describe(Request[Described]):
    """Describe the device as it is now."""


@dataclass(frozen=True)
class Connect(Request[Described]):
    """Open the session on the device at `address`: asked of the child that will hold it."""

    address: Address


@dataclass(frozen=True)
class Wanted(Message):
    """Names of files that must be uploaded."""

    names: tuple[str, ...]


@dataclass(frozen=True)
class Missing(Request[Wanted]):
    """Say which of these files the device does not have."""

    names: tuple[str, ...]


@dataclass(frozen=True)
class Keep(Request[Done]):
    """Take an uploaded file over, when it is what its name says."""

    name: str


@dataclass(frozen=True)
class ProbeRun(Message):
    """Seconds of one run of the clock probe."""

    seconds: float


@dataclass(frozen=True)
class StartSession(Request[ProbeRun]):
    """Use these CPUs (none named: any) and so many threads, and start the clock probe, a library at `probe`."""

    target: Target
    threads: int
    probe: FilePath
    steps: int
    cpus: tuple[int, ...] = ()


@dataclass(frozen=True)
class RunProbe(Request[ProbeRun]):
    """Run the clock probe once."""


@dataclass(frozen=True)
class LoadKernel(Request[Done]):
    """Hold a kernel, a library, with its packed constants (.npy files) as candidate `id`."""

    id: int
    workload: str
    kernel: FilePath
    constants: tuple[FilePath, ...]
