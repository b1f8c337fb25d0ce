"""Device profiles: what a CPU offers to generated code, and how kernels are timed on it."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, PlainValidator, ValidationError, field_validator, model_validator

from autofuse.device.address import Address, choose_address, environment_key
from autofuse.device.target import Target
from autofuse.errors import DeviceError, InputError
from autofuse.values.outputs import read_text
from autofuse.values.resources import named_files

SCHEMA = 1
LOCAL = "local"
FOLDER = "profiles/devices"

_KIB = 1024
UNNAMED = "generic"
"""LLVM's name of a core that it has no name for: any of its architecture, with the features that a profile adds."""
_GENERIC = frozenset({UNNAMED, "x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4"})
"""Names of LLVM that stand for any CPU with certain features."""


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
    """The identity that the CPU states; on ARM the implementer, part and variant numbers."""

    vendor: str = ""
    family: str = ""
    model: str = ""
    stepping: str = ""
    model_name: str = ""


class Cluster(_Frozen):
    """Cores of one kind: `core` is LLVM's name, `cpus` the numbers that the system gives them (empty: unknown)."""

    core: Annotated[str, Field(min_length=1)]
    cores: Annotated[int, Field(ge=1, le=4096)]
    cpus: tuple[Annotated[int, Field(ge=0)], ...] = ()
    mhz: Annotated[int, Field(ge=1)] | None = None

    @field_validator("cpus", mode="before")
    @classmethod
    def _list_is_tuple(cls, value: object) -> object:
        return tuple(value) if isinstance(value, list) else value


class ProbedRates(_Frozen):
    """What `autofuse device probe --rates` found, see `autofuse.measure.machine.MachineRates`; 0.0: not probed."""

    threads: Annotated[int, Field(ge=1)]
    gflops_1: Annotated[float, Field(ge=0)] = 0.0
    gflops_n: Annotated[float, Field(ge=0)] = 0.0
    l2_gbs_1: Annotated[float, Field(ge=0)] = 0.0
    l2_gbs_n: Annotated[float, Field(ge=0)] = 0.0
    dram_gbs_1: Annotated[float, Field(ge=0)] = 0.0
    dram_gbs_n: Annotated[float, Field(ge=0)] = 0.0
    add_gflops_1: Annotated[float, Field(ge=0)] = 0.0
    divide_gflops_1: Annotated[float, Field(ge=0)] = 0.0
    dots_gflops_1: Annotated[float, Field(ge=0)] = 0.0
    l1_gbs_1: Annotated[float, Field(ge=0)] = 0.0
    l3_gbs_1: Annotated[float, Field(ge=0)] = 0.0
    l1_ns: Annotated[float, Field(ge=0)] = 0.0
    l2_ns: Annotated[float, Field(ge=0)] = 0.0
    l3_ns: Annotated[float, Field(ge=0)] = 0.0
    dram_ns: Annotated[float, Field(ge=0)] = 0.0
    dispatch_us: Annotated[float, Field(ge=0)] = 0.0


class Connection(_Frozen):
    """The way to the device when the command does not say: "local", "rpc" (its server), "tracker".

    `key`: of the server, or the name under which the tracker knows devices of this kind; better kept out of shared
    files, and given as `--rpc-key`.
    """

    kind: Literal["local", "rpc", "tracker"] = "local"
    address: str | None = None
    key: str | None = None

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.kind == "local" and (self.address or self.key):
            raise ValueError("kind = 'local' takes neither an address nor a key")
        if self.kind != "local" and not self.address:
            raise ValueError(f"kind = {self.kind!r} needs an address, such as '127.0.0.1:9091'")
        return self

    def address_or_none(self, key: str | None) -> Address | None:
        """Where the device is; `key`, or the environment's, replaces the profile's. None for this machine."""
        rpc, tracker = (self.address if self.kind == kind else None for kind in ("rpc", "tracker"))
        return choose_address(rpc, tracker, key or environment_key() or self.key) if self.address else None


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
    `--threads`. `pinning`: "cores" (one thread a physical core), "none", or a tuple of CPU numbers. `clusters`:
    where cores differ, the kind that `mcpu` names and the others. `governor`: the frequency governor wished for;
    `cool_down_s`: seconds of rest when it has become too hot. `connection`: how it is reached. `rates`: how fast it is,
    where that was probed: what tells which known device it is most like.
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
    governor: str | None = None
    cool_down_s: Annotated[float, Field(ge=0, le=3600)] = 30.0
    caches: Caches
    connection: Connection = Connection()
    cpu: CpuIdentity | None = None
    clusters: tuple[Cluster, ...] = ()
    rates: ProbedRates | None = None

    @field_validator("mattr", "features", "clusters", mode="before")
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
        if self.clusters and sum(cluster.cores for cluster in self.clusters) != self.cores:
            held = " + ".join(str(cluster.cores) for cluster in self.clusters)
            raise ValueError(f"cores = {self.cores}, but its clusters have {held}")
        if self.clusters and self.mcpu not in {cluster.core for cluster in self.clusters}:
            raise ValueError(f"mcpu = {self.mcpu!r} is the core of no cluster")
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
        tables = {key: body.pop(key) for key in ("caches", "connection", "cpu", "rates") if key in body}
        clusters = body.pop("clusters")
        lines = [f"schema = {SCHEMA}", *(f"{key} = {_toml(value)}" for key, value in body.items())]
        for table, entries in tables.items():
            lines += ["", f"[{table}]", *(f"{key} = {_toml(value)}" for key, value in entries.items())]
        for entries in clusters:
            lines += ["", "[[clusters]]", *(f"{key} = {_toml(value)}" for key, value in entries.items())]
        return "\n".join(lines) + "\n"


def load_profile(path: Path) -> DeviceProfile:
    """The profile in a TOML file; InputError names the file, the key, the bad value and what is allowed."""
    try:
        body = tomllib.loads(read_text(path))
    except OSError as error:
        raise InputError(f"{path}: cannot read the device profile: {error.strerror}") from error
    except (ValueError, RecursionError) as error:  # no TOML, no text, or beyond what Python reads
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


def require_measurable(profile: DeviceProfile, host: DeviceProfile, where: str = "this machine") -> None:
    """DeviceError with the reason when code for `profile` is not to be timed on `host`.

    It must run there, and the CPU must be the one that the profile says: times on another would pass for its.
    """
    if profile.architecture != host.architecture:
        raise DeviceError(
            f"device {profile.name!r} is {profile.architecture} and {where} is {host.architecture}: "
            f"it can be compiled for, but not measured {_there(where)}"
        )
    missing = [feature for feature in profile.features if feature not in host.features]
    if missing:
        raise DeviceError(
            f"device {profile.name!r} needs {', '.join(missing)}, which {_of(where)} CPU does not offer: "
            f"it can be compiled for, but not measured {_there(where)}"
        )
    differences = list(_differences(profile, host))
    if differences:
        raise DeviceError(
            f"device {profile.name!r} is another CPU than {_of(where)}: {'; '.join(differences)}. Its times would be "
            "wrong for the profile: choose another --device, or write a profile with `autofuse device probe`"
        )


def require_features(profile: DeviceProfile, known: Collection[str]) -> None:
    """InputError when the profile uses a feature that its core lacks; `known`: those that LLVM gives to its `mcpu`.

    Of a core without a name nobody knows what it lacks.
    """
    if profile.mcpu == UNNAMED:
        return
    wanted = [item[1:] for item in profile.mattr if item.startswith("+")]
    for key, names in (("mattr", wanted), ("features", profile.features)):
        lacking = sorted(name for name in names if name not in known)
        if lacking:
            raise InputError(
                f"device {profile.name!r}: key {key!r}: {profile.mcpu} has no {', '.join(lacking)}; code that uses it "
                f"would crash there. Its features: {', '.join(sorted(known))}"
            )


def _differences(profile: DeviceProfile, host: DeviceProfile) -> Iterator[str]:
    """Why the CPU of `host` is not that of `profile`; generic profiles fit any CPU with their features."""
    cores = {profile.mcpu, *(cluster.core for cluster in profile.clusters)}
    if not {profile.mcpu, host.mcpu} & _GENERIC and host.mcpu not in cores:
        yield f"the profile is for {profile.mcpu}, the CPU is {host.mcpu}"
    if profile.cpu is None or host.cpu is None:
        return
    for key in ("vendor", "family", "model"):
        wanted, found = getattr(profile.cpu, key), getattr(host.cpu, key)
        if wanted and found and wanted != found:
            yield f"{key} {wanted} in the profile, {found} in the CPU"
    if profile.cores != host.cores:
        yield f"{profile.cores} cores in the profile, {host.cores} in the machine"
    for key in Caches.model_fields:
        wanted, found = getattr(profile.caches, key), getattr(host.caches, key)
        if wanted != found:
            yield f"{key} {wanted} in the profile, {found} in the machine"


def _there(where: str) -> str:
    if where == "this machine":
        return "here (use --device local to measure on this machine)"
    return "there (leave --device out to measure for the device that answers)"


def _of(where: str) -> str:
    return f"{where}'s"


def _toml(value: object) -> str:
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{"".join(letter for letter in escaped if letter.isprintable())}"'
    if isinstance(value, tuple | list):
        return f"[{', '.join(_toml(item) for item in value)}]"
    return str(value)


def _explain(error: ValidationError) -> list[str]:
    """One line a mistake: the key, the bad value, what is allowed."""
    return [_explain_one(".".join(map(str, item["loc"])), item) for item in error.errors(include_url=False)]


def _explain_one(key: str, item: Any) -> str:
    if item["type"] == "missing":
        return f"key {key!r} is missing"
    if item["type"] == "extra_forbidden":
        models: dict[str, type[BaseModel]] = {
            "caches": Caches,
            "cpu": CpuIdentity,
            "connection": Connection,
            "clusters": Cluster,
            "rates": ProbedRates,
        }
        tables = {name: list(model.model_fields) for name, model in models.items()}
        allowed = ", ".join(tables.get(key.split(".")[0], ["schema", *DeviceProfile.model_fields]))
        return f"key {key!r} is unknown, allowed: {allowed}"
    reason = item["msg"].removeprefix("Value error, ").replace("Input should be", "it should be")
    return f"key {key!r}: got {item['input']!r}, {reason}" if key else reason
