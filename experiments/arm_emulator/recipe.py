"""Making an emulated ARM device: QEMU, an aarch64 Python and its wheels in a folder, without root.

Everything comes from where this machine gets its packages anyway: apt's sources and pip's index. About 150 MB are
downloaded and 350 MB kept, once, in the user's cache folder.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import platformdirs
from filelock import FileLock

from experiments.index import ROOT

VERSION = "2"
"""Changes with this file: an older folder is then made again."""

EMULATORS = ("qemu-user-static", "qemu-user")
LINKER = "binutils-aarch64-linux-gnu"
DEVICE_PACKAGES = ("python3-minimal", "libpython3-stdlib", "libstdc++6")
NEVER_UNPACKED = re.compile(r"(libc6|libc-bin|libc-l10n|locales|libgcc-s1|gcc-\d+-base|libstdc\+\+6|dpkg|tar)_")
"""Of what apt would install beside the tools: the C library and its kin, which must be the host's own."""
WHEELS = ("apache-tvm", "apache-tvm-ffi", "numpy", "psutil", "pydantic", "filelock", "typer", "rich", "platformdirs")
PLATFORMS = ("manylinux_2_28_aarch64", "manylinux_2_17_aarch64", "manylinux2014_aarch64")
NOT_ON_DEVICES = ("tvm/lib/libtvm_compiler.so", "tvm/lib/libtvm_runtime_cuda.so")
COMMAND_S = 600


class UnavailableError(Exception):
    """The emulated device cannot be made on this machine; the text says what is missing."""


@dataclass(frozen=True)
class Emulator:
    """`python`: the launcher of the emulated interpreter, after `-cpu NAME`. `linker_folder`: to be put on PATH."""

    qemu: Path
    root: Path
    python: Path
    site: Path
    linker_folder: Path | None
    cache: Path

    def command(self, cpu: str) -> list[str]:
        """Command line of the emulated Python on a core of that name."""
        return [str(self.qemu), "-cpu", cpu, "-L", str(self.root), str(self.python)]

    def environment(self) -> dict[str, str]:
        """Of an emulated process that runs this checkout."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "TVM_", "LD_"))}
        return {
            **kept,
            "PYTHONPATH": os.pathsep.join([str(self.site), str(ROOT)]),
            "PYTHONPYCACHEPREFIX": str(self.cache / "bytecode"),
            "PYTHONUNBUFFERED": "1",
            "TVM_USE_RUNTIME_LIB": "1",
            "OPENBLAS_NUM_THREADS": "1",
        }


def prepared(folder: Path | None = None) -> Emulator:
    """The emulator in `folder` (None: in the user's cache), made now unless it is there; UnavailableError: why not."""
    base = folder or Path(platformdirs.user_cache_dir("autofuse")) / "arm"
    base.mkdir(parents=True, exist_ok=True)
    wheels = [_requirement(name) for name in WHEELS]
    digest = hashlib.sha256("\n".join([VERSION, platform.machine(), *wheels]).encode()).hexdigest()[:16]
    made = base / digest
    with FileLock(base / "making.lock"):
        if not made.exists():
            with tempfile.TemporaryDirectory(prefix="making-", dir=base) as scratch:
                _make(Path(scratch), wheels)
                Path(scratch, "done").rename(made)
    return _found(made)


def _make(scratch: Path, wheels: Sequence[str]) -> None:
    for tool in ("apt-get", "dpkg-deb"):
        if shutil.which(tool) is None:
            raise UnavailableError(f"{tool} is missing: the emulated device is made of Debian's packages")
    done = scratch / "done"
    done.mkdir()
    apt = _Apt(scratch / "apt")
    apt.update()
    host = apt.architecture
    emulator = next((name for name in EMULATORS if apt.knows(f"{name}:{host}")), EMULATORS[-1])
    _unpack(apt.fetch(emulator, host, alone=True), done / "host")
    for other in (done / "host/usr/bin").glob("qemu-*"):
        if not re.fullmatch(r"qemu-aarch64(-static)?", other.name):
            other.unlink()
    if shutil.which("aarch64-linux-gnu-ld") is None:
        _unpack(apt.fetch(LINKER, host, alone=False), done / "host", NEVER_UNPACKED)
    for package in DEVICE_PACKAGES:
        _unpack(apt.fetch(package, "arm64", alone=False), done / "root")
    version = re.fullmatch(r"python3\.(\d+)", _python(done / "root").name)
    assert version
    _install(wheels, f"3.{version[1]}", done / "site")
    for name in NOT_ON_DEVICES:
        (done / "site" / name).unlink(missing_ok=True)


def _found(made: Path) -> Emulator:
    qemu = next(iter(sorted((made / "host").glob("usr/bin/qemu-aarch64*"))), None)
    if qemu is None:
        raise UnavailableError(f"{made} has no qemu-aarch64: remove the folder, and it is made again")
    linker = made / "host/usr/bin/aarch64-linux-gnu-ld"
    return Emulator(
        _wrapped(made, qemu, "qemu-aarch64"),
        made / "root",
        _python(made / "root"),
        made / "site",
        _wrapped(made, linker, "aarch64-linux-gnu-ld").parent if linker.exists() else None,
        made,
    )


def _wrapped(made: Path, program: Path, name: str) -> Path:
    """A script that runs a program with the libraries that came with it."""
    folder = made / "bin"
    folder.mkdir(exist_ok=True)
    script = folder / name
    if not script.exists():
        libraries = ":".join(str(path) for path in sorted((made / "host").glob("usr/lib/*-linux-gnu")))
        script.write_text(f'#!/bin/sh\nLD_LIBRARY_PATH={libraries} exec {program} "$@"\n')
        script.chmod(0o755)
    return script


def _python(root: Path) -> Path:
    found = [path for path in root.glob("usr/bin/python3.*") if re.fullmatch(r"python3\.\d+", path.name)]
    if not found:
        raise UnavailableError("the arm64 Python of this system's packages was not found")
    return found[0]


def _requirement(name: str) -> str:
    """`name` with the range that autofuse asks for."""
    for text in metadata.requires("autofuse") or []:
        if re.match(rf"{re.escape(name)}\b(?!-)", text) and "extra ==" not in text:
            return text
    return name


def _install(wheels: Sequence[str], version: str, goal: Path) -> None:
    options = ["--quiet", "--no-warn-script-location", "--only-binary", ":all:", "--implementation", "cp"]
    options += [word for name in PLATFORMS for word in ("--platform", name)]
    command = [sys.executable, "-m", "pip", "install", *options, "--python-version", version, "--target", str(goal)]
    _run([*command, *wheels], "the aarch64 wheels cannot be had from pip's index")


def _unpack(packages: Sequence[Path], goal: Path, but: re.Pattern[str] | None = None) -> None:
    goal.mkdir(parents=True, exist_ok=True)
    for package in packages:
        if but is None or not but.match(package.name):
            _run(["dpkg-deb", "-x", str(package), str(goal)], "a package cannot be unpacked")


class _Apt:
    """A private root of apt for this architecture and arm64, with the host's own sources: needs no privileges."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.architecture = _run(["dpkg", "--print-architecture"], "dpkg does not run").strip()
        for folder in ("etc", "lists/partial", "archives/partial"):
            (root / folder).mkdir(parents=True)
        (root / "status").touch()
        settings = {
            "Dir::State": str(root),
            "Dir::State::lists": str(root / "lists"),
            "Dir::State::status": str(root / "status"),
            "Dir::Cache": str(root),
            "Dir::Cache::archives": str(root / "archives"),
            "APT::Architecture": self.architecture,
            "APT::Architectures": f"{self.architecture},arm64",
            "APT::Install-Recommends": "false",
            "APT::Sandbox::User": "",
            "Debug::NoLocking": "true",
            "Acquire::Retries": "2",
        }
        self._options = [word for key, value in settings.items() for word in ("-o", f"{key}={value}")]

    def update(self) -> None:
        self._call("update", "-q")

    def knows(self, package: str) -> bool:
        done = subprocess.run(["apt-cache", *self._options, "show", package], capture_output=True, check=False)
        return done.returncode == 0 and bool(done.stdout)

    def fetch(self, package: str, architecture: str, alone: bool) -> list[Path]:
        """Files of a package, with those that it depends on unless `alone`."""
        archives = self._root / "archives"
        for old in archives.glob("*.deb"):
            old.unlink()
        if alone:
            self._call("download", f"{package}:{architecture}", folder=archives)
        else:
            self._call("install", "--download-only", "-y", "-q", f"{package}:{architecture}")
        found = sorted(archives.glob("*.deb"))
        kept = [path for path in found if path.stem.endswith((f"_{architecture}", "_all"))]
        moved = self._root / f"{package}-{architecture}"
        moved.mkdir()
        return [path.rename(moved / path.name) for path in kept]

    def _call(self, *arguments: str, folder: Path | None = None) -> None:
        said = "Debian's packages cannot be had (are apt's sources reachable?)"
        _run(["apt-get", *self._options, *arguments], said, folder)


def _run(command: Sequence[str], problem: str, folder: Path | None = None) -> str:
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=COMMAND_S,
            check=False,
            cwd=folder,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UnavailableError(f"{problem}: {error}") from error
    if done.returncode:
        lines = list(_errors(done.stderr)) or done.stderr.strip().splitlines() or ["no message"]
        raise UnavailableError(f"{problem}: {lines[-1]}")
    return done.stdout


def _errors(text: str) -> Iterator[str]:
    yield from (line for line in text.splitlines() if line.startswith(("E:", "ERROR")))
