"""The circumstances of a run: versions, kernel, clock, heat. Any of them may be unknown (None)."""

from __future__ import annotations

import platform
import subprocess
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path

from autofuse.device.host import ROOT, read_text

_PACKAGES = {
    "autofuse": "autofuse",
    "tvm": "apache-tvm",
    "tvm_ffi": "apache-tvm-ffi",
    "optuna": "optuna",
    "onnx": "onnx",
    "onnxruntime": "onnxruntime",
    "numpy": "numpy",
}
_GIT_SECONDS = 5


@dataclass(frozen=True)
class Provenance:
    """`git`: commit of autofuse's checkout, with "-dirty" when edited. `mhz`, `temperature_c`: at this moment."""

    autofuse: str | None = None
    git: str | None = None
    python: str | None = None
    tvm: str | None = None
    tvm_ffi: str | None = None
    llvm: str | None = None
    optuna: str | None = None
    onnx: str | None = None
    onnxruntime: str | None = None
    numpy: str | None = None
    kernel: str | None = None
    microcode: str | None = None
    governor: str | None = None
    mhz: float | None = None
    temperature_c: float | None = None
    boot_id: str | None = None
    hypervisor: str | None = None

    def as_dict(self) -> dict[str, str | float | None]:
        """Field by field, fit for JSON."""
        return asdict(self)


def collect(llvm: str | None = None, *, root: Path = ROOT, checkout: Path | None = None) -> Provenance:
    """The circumstances now. `llvm`: TVM's LLVM version, which only the backend can tell."""
    checkout = checkout or Path(__file__).resolve().parents[2]
    versions = {name: package_version(package) for name, package in _PACKAGES.items()}
    return Provenance(
        **versions,
        git=_git_commit(checkout),
        python=platform.python_version(),
        llvm=llvm,
        kernel=read_text(root / "proc/sys/kernel/osrelease"),
        microcode=_cpuinfo(root, "microcode"),
        governor=governor(root),
        mhz=_mhz(root),
        temperature_c=_temperature_c(root),
        boot_id=read_text(root / "proc/sys/kernel/random/boot_id"),
        hypervisor=_hypervisor(root),
    )


def package_version(package: str) -> str | None:
    """Installed version of a distribution; None when it is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def governor(root: Path = ROOT) -> str | None:
    """Frequency governor of CPU 0; None where the kernel does not show one (virtual machines)."""
    return read_text(root / "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")


def _git_commit(checkout: Path) -> str | None:
    if not (checkout / ".git").exists():
        return None
    commit = _git(checkout, "rev-parse", "HEAD")
    if commit is None:
        return None
    changed = _git(checkout, "status", "--porcelain", "--untracked-files=no")
    return f"{commit}-dirty" if changed else commit


def _git(checkout: Path, *arguments: str) -> str | None:
    command = ["git", "--no-optional-locks", "-C", str(checkout), *arguments]  # `status` would write to the checkout
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_GIT_SECONDS, check=False)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _cpuinfo(root: Path, wanted: str) -> str | None:
    for line in (read_text(root / "proc/cpuinfo") or "").splitlines():
        key, _, value = line.partition(":")
        if key.strip() == wanted:
            return value.strip() or None
    return None


def _number(text: str | None, scale: float = 1.0) -> float | None:
    try:
        return float(text) * scale if text else None
    except ValueError:
        return None


def _mhz(root: Path) -> float | None:
    """Clock of CPU 0: what the frequency driver reports, or else the kernel's estimate."""
    khz = _number(read_text(root / "sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq"), 1e-3)
    return khz if khz is not None else _number(_cpuinfo(root, "cpu MHz"))


def _temperature_c(root: Path) -> float | None:
    """Hottest sensor, in degrees Celsius."""
    sensors = [*root.glob("sys/class/thermal/thermal_zone*/temp"), *root.glob("sys/class/hwmon/hwmon*/temp*_input")]
    readings = [value for path in sensors if (value := _number(read_text(path), 1e-3)) is not None]
    plausible = [value for value in readings if 0 < value < 150]
    return max(plausible, default=None)


def _hypervisor(root: Path) -> str | None:
    """What virtualises this machine; None on bare metal."""
    kind = read_text(root / "sys/hypervisor/type")
    if kind:
        return kind
    if "hypervisor" not in (_cpuinfo(root, "flags") or "").split():
        return None
    vendor = read_text(root / "sys/class/dmi/id/sys_vendor")
    product = read_text(root / "sys/class/dmi/id/product_name")
    return " ".join(part for part in (vendor, product) if part) or "unknown"
