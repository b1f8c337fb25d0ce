"""Device profiles: what a CPU offers to generated code, and how kernels are timed on it."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, PlainValidator, ValidationError, field_validator, model_validator

from autofuse.device.target import Target
from autofuse.errors import DeviceError, InputError
from autofuse.resources import named_files

SCHEMA = 1
LOCAL = "local"
FOLDER = "profiles/devices"

_KIB = 1024


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Caches(_Frozen):
    """Data caches in KiB; `l2_cores`, `l3_cores`: how many cores share one."""

    l1d_kib: Annotated[int, Field(ge=4, le=4096)]
    l2_kib: Annotated[int, Field(ge=16, le=262144)]
    l2_cores: Annotated[int, Field(ge=1)] = 1
    l3_kib: Annotated[int, Field(ge=0)] = 0
    l3_cores: Annotated[int, Field(ge=1)] = 1


class CpuIdentity(_Frozen):
    """What the CPU says it is; on ARM the implementer, part and variant numbers."""

    vendor: str = ""
    family: str = ""
    model: str = ""
    stepping: str = ""
    model_name: str = ""


def _pinning(value: object) -> str | tuple[int, ...]:
    if isinstance(value, str) and value in ("cores", "none"):
        return value
    numbers = tuple(value) if isinstance(value, list | tuple) else ()
    if numbers and all(isinstance(item, int) and not isinstance(item, bool) and item >= 0 for item in numbers):
        return numbers
    raise ValueError("it should be 'cores', 'none' or a list of CPU numbers")


class DeviceProfile(_Frozen):
    """A CPU.

    `lanes`: float32 elements of a vector register, `registers`: how many of them. `mtriple`: None for LLVM's own,
    `mattr`: LLVM features added ("+x") or removed ("-x"). `features`: those (in LLVM's spelling) that generated
    code may use; a machine without one of them cannot measure for this device. `threads`: the default of
    `--threads`. `pinning`: "cores" (one thread a physical core), "none", or a tuple of CPU numbers.
    """

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]*$")]
    description: str = ""
    architecture: Literal["x86_64", "aarch64"]
    mcpu: Annotated[str, Field(min_length=1)]
    mtriple: str | None = None
    mattr: tuple[str, ...] = ()
    lanes: Literal[4, 8, 16]
    registers: Literal[16, 32]
    cores: Annotated[int, Field(ge=1, le=4096)]
    threads: Annotated[int, Field(ge=1, le=4096)]
    features: tuple[str, ...] = ()
    pinning: Annotated[str | tuple[int, ...], PlainValidator(_pinning)] = "cores"
    memory_mib: Annotated[int, Field(ge=1)] | None = None
    caches: Caches
    cpu: CpuIdentity | None = None

    @field_validator("mattr", "features", mode="before")
    @classmethod
    def _list_is_tuple(cls, value: object) -> object:
        return tuple(value) if isinstance(value, list) else value

    @field_validator("mattr")
    @classmethod
    def _signed(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for item in value:
            if not re.fullmatch(r"[+-][a-z0-9._-]+", item):
                raise ValueError(f"{item!r} must be a feature with its sign, such as '+avx2' or '-avx512f'")
        return value

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.mtriple is None and self.architecture != "x86_64":
            raise ValueError(f"key 'mtriple' is missing: {self.architecture} needs one, such as 'aarch64-linux-gnu'")
        if self.mtriple is not None and self.mtriple.split("-")[0] != self.architecture:
            raise ValueError(f"mtriple = {self.mtriple!r} is not of architecture = {self.architecture!r}")
        if self.threads > self.cores:
            raise ValueError(f"threads = {self.threads} is more than cores = {self.cores}")
        if isinstance(self.pinning, tuple) and len(set(self.pinning)) < self.threads:
            raise ValueError(f"pinning names {len(set(self.pinning))} CPUs for threads = {self.threads}")
        return self

    def target(self) -> Target:
        """What code is generated for; a shared L2 counts with one core's share."""
        return Target(
            mcpu=self.mcpu,
            lanes=self.lanes,
            registers=self.registers,
            cores=self.cores,
            l1_bytes=self.caches.l1d_kib * _KIB,
            l2_bytes=self.caches.l2_kib * _KIB // self.caches.l2_cores,
            mtriple=self.mtriple,
            mattr=self.mattr,
        )

    def to_toml(self) -> str:
        """The text of a profile file that `load_profile` reads back as an equal profile."""
        body = self.model_dump(exclude_none=True)
        tables = {key: body.pop(key) for key in ("caches", "cpu") if key in body}
        lines = [f"schema = {SCHEMA}", *(f"{key} = {_toml(value)}" for key, value in body.items())]
        for table, entries in tables.items():
            lines += ["", f"[{table}]", *(f"{key} = {_toml(value)}" for key, value in entries.items())]
        return "\n".join(lines) + "\n"


def load_profile(path: Path) -> DeviceProfile:
    """The profile in a TOML file; InputError names the file, the key, the bad value and what is allowed."""
    try:
        body = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{path}: cannot read the device profile: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: not a TOML file: {error}") from error
    schema = body.pop("schema", None)
    if schema != SCHEMA:
        raise InputError(f"{path}: key 'schema': got {schema!r}, allowed: {SCHEMA}")
    try:
        return DeviceProfile.model_validate(body)
    except ValidationError as error:
        raise InputError("\n".join(f"{path}: {line}" for line in _explain(error))) from None


def shipped_profiles() -> dict[str, Path]:
    """Files of the profiles that come with autofuse, by name."""
    return named_files(FOLDER)


def resolve_profile(device: str, host: DeviceProfile) -> DeviceProfile:
    """The profile that `--device` means: "local" (`host`), the name of a shipped one, or a TOML file."""
    if device == LOCAL:
        return host
    path = Path(device)
    if path.suffix == ".toml":
        return load_profile(path)
    shipped = shipped_profiles()
    if device not in shipped:
        known = ", ".join([LOCAL, *shipped])
        raise InputError(f"--device: {device!r} is unknown; allowed: {known}, or the path of a .toml file")
    return load_profile(shipped[device])


def require_measurable(profile: DeviceProfile, host: DeviceProfile) -> None:
    """DeviceError with the reason when code for `profile` cannot run, and so not be timed, on `host`."""
    if profile.architecture != host.architecture:
        raise DeviceError(
            f"device {profile.name!r} is {profile.architecture} and this machine is {host.architecture}: "
            "it can be compiled for, but not measured here (use --device local to measure on this machine)"
        )
    missing = [feature for feature in profile.features if feature not in host.features]
    if missing:
        raise DeviceError(
            f"device {profile.name!r} needs {', '.join(missing)}, which this machine's CPU does not offer: "
            "it can be compiled for, but not measured here (use --device local to measure on this machine)"
        )


def _toml(value: object) -> str:
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{"".join(letter for letter in escaped if letter.isprintable())}"'
    if isinstance(value, tuple):
        return f"[{', '.join(_toml(item) for item in value)}]"
    return str(value)


def _explain(error: ValidationError) -> list[str]:
    """One line a mistake: the key, the bad value, what is allowed."""
    return [_explain_one(".".join(map(str, item["loc"])), item) for item in error.errors(include_url=False)]


def _explain_one(key: str, item: Any) -> str:
    if item["type"] == "missing":
        return f"key {key!r} is missing"
    if item["type"] == "extra_forbidden":
        tables = {"caches": list(Caches.model_fields), "cpu": list(CpuIdentity.model_fields)}
        allowed = ", ".join(tables.get(key.split(".")[0], ["schema", *DeviceProfile.model_fields]))
        return f"key {key!r} is unknown, allowed: {allowed}"
    reason = item["msg"].removeprefix("Value error, ").replace("Input should be", "it should be")
    return f"key {key!r}: got {item['input']!r}, {reason}" if key else reason
