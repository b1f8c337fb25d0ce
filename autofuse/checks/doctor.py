"""`autofuse doctor`: is this machine ready? One line a check, with what to do about it."""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from autofuse.checks.check import Check
from autofuse.checks.remote import remote_checks
from autofuse.device.address import Address
from autofuse.device.provenance import governor, package_version
from autofuse.errors import AutofuseError
from autofuse.values.arguments import size
from autofuse.values.scratch import scratch_folder

if TYPE_CHECKING:
    from autofuse.device.profile import DeviceProfile

MIN_PYTHON = (3, 11)
LINKERS = ("g++", "gcc", "clang++", "clang", "c++", "cc")
"""Where TVM looks for a linker, after the variables CXX and CC."""

CHILD_SECONDS = 60.0
_GIB = 1024**3
_LITTLE_DISK, _NO_DISK = _GIB, _GIB // 5


def checks(database: str | None, device: str, address: Address | None = None) -> Iterator[Check]:
    """All checks in turn; one that breaks is itself a failed check. `address`: of a device elsewhere."""
    steps: list[tuple[str, Callable[[], Check]]] = [
        ("python", python),
        ("packages", packages),
        ("onnxruntime", onnxruntime),
        ("linker", linker),
        ("llvm", lambda: llvm(device)),
        *([("kernel", lambda: kernel(device))] if address is None else []),
        ("cores", cores),
        ("clock", clock),
        ("load", load),
        ("database", lambda: database_state(database)),
        ("disk", lambda: disk(database)),
    ]
    for name, step in steps:
        try:
            yield step()
        except AutofuseError as error:
            yield Check(name, "fail", str(error))
        except (ImportError, OSError) as error:
            yield Check(name, "fail", f"{type(error).__name__}: {error}", "reinstall autofuse: make setup")
    if address is not None:
        yield from remote_checks(address, device)


def python() -> Check:
    """New enough?"""
    found = f"Python {platform.python_version()} ({sys.executable})"
    if sys.version_info < MIN_PYTHON:
        return Check("python", "fail", found, "install Python 3.11 or newer")
    return Check("python", "ok", found)


def packages() -> Check:
    """Everything that autofuse requires is installed, and TVM with its ffi in the versions that work together."""
    required = {
        match["name"]: match["pin"]
        for text in metadata.requires("autofuse") or []
        if "extra ==" not in text and (match := re.match(r"(?P<name>[\w.-]+)(?:==(?P<pin>[\w.]+))?", text))
    }
    missing = [name for name in required if package_version(name) is None]
    if missing:
        return Check(
            "packages", "fail", f"not installed: {', '.join(missing)}", "run `make setup` or `pip install -e .`"
        )
    wrong = [
        f"{name} {package_version(name)}" for name, pin in required.items() if pin and package_version(name) != pin
    ]
    if wrong:
        pins = " ".join(f"{name}=={pin}" for name, pin in required.items() if pin)
        return Check("packages", "fail", f"{', '.join(wrong)}: crashes with this TVM", f"pip install {pins}")
    shown = ", ".join(f"{name} {package_version(name)}" for name, pin in required.items() if pin)
    return Check("packages", "ok", f"{shown}, and {len(required) - 2} others")


def onnxruntime() -> Check:
    """The reference that every result is checked against can be loaded."""
    output, problem = _child([sys.executable, "-c", "import onnxruntime; print(onnxruntime.__version__)"], "")
    if problem:
        return Check("onnxruntime", "fail", problem, "pip install --force-reinstall onnxruntime")
    return Check("onnxruntime", "ok", f"onnxruntime {output.strip()} loads")


def linker() -> Check:
    """Libraries are linked by a C compiler's driver."""
    named = os.environ.get("CXX") or os.environ.get("CC")
    found = next((path for name in (named, *LINKERS) if name and (path := shutil.which(name))), None)
    if found is None:
        return Check("linker", "fail", "no C linker", "install gcc or clang (Debian, Ubuntu: apt-get install gcc)")
    return Check("linker", "ok", found)


def llvm(device: str) -> Check:
    """TVM has LLVM, and LLVM knows this CPU; it would silently make generic, slow code for an unknown one."""
    from autofuse.backend.compile.host_cpu import accepts, device_named, llvm_version

    profile = device_named(device)
    version = llvm_version()
    if version is None:
        return Check("llvm", "fail", "this TVM was built without LLVM", "pip install --force-reinstall apache-tvm")
    target = profile.target()
    shown = f"LLVM {version}, {profile.mcpu} ({target.isa}, {target.lanes} lanes, {target.registers} registers)"
    if not accepts(profile):
        return Check("llvm", "fail", f"LLVM {version} does not know mcpu {profile.mcpu!r}", "choose another --device")
    if profile.lanes == 4 and profile.architecture == "x86_64":
        return Check("llvm", "warn", f"{shown}: no AVX2", "expect slow code, or choose a machine with AVX2")
    return Check("llvm", "ok", shown)


def kernel(device: str) -> Check:
    """A kernel compiles, links, loads and runs; in a child process, since bad code would kill this one."""
    from autofuse.backend.compile.host_cpu import device_named, local_device
    from autofuse.device.profile import require_measurable

    profile = device_named(device)
    require_measurable(profile, local_device())
    return run_kernel(profile)


def run_kernel(profile: DeviceProfile, seconds: float = CHILD_SECONDS) -> Check:
    """See `kernel`."""
    with scratch_folder() as folder:
        command = [sys.executable, "-m", "autofuse.backend.compile.smoke", str(folder)]
        output, problem = _child(command, json.dumps(asdict(profile.target())), seconds)
    if not problem:
        problem = str(json.loads(output.splitlines()[-1])["problem"])
    if problem:
        return Check("kernel", "fail", problem, "check the linker above; try --device generic-avx2")
    return Check("kernel", "ok", "a kernel compiles, links, runs and is right")


def cores() -> Check:
    """How many cores this process may use."""
    from autofuse.backend.compile.host_cpu import local_device

    profile = local_device()
    shown = f"{profile.cores} cores, {profile.threads} usable"
    if os.environ.get("TVM_NUM_THREADS"):
        return Check("cores", "warn", f"{shown}; TVM_NUM_THREADS is set", "unset TVM_NUM_THREADS and use --threads")
    if profile.threads < profile.cores:
        return Check(
            "cores", "warn", shown, "this process is confined (taskset, cgroup); times hold for this share only"
        )
    return Check("cores", "ok", shown)


def clock() -> Check:
    """A governor that saves power makes times noisy."""
    found = governor()
    if found is None:
        return Check("clock", "ok", "no frequency governor shown (a virtual machine); the clock is probed while timing")
    if found != "performance":
        return Check("clock", "warn", f"governor {found}", "steadier times: sudo cpupower frequency-set -g performance")
    return Check("clock", "ok", f"governor {found}")


def load() -> Check:
    """Other work on the machine disturbs timings."""
    one_minute = os.getloadavg()[0]
    cpus = psutil.cpu_count() or 1
    shown = f"load {one_minute:.2f} on {cpus} CPUs"
    if one_minute > 0.5 * cpus:
        return Check("load", "warn", shown, "stop other work while tuning; noisy measurements are flagged and repeated")
    return Check("load", "ok", shown)


def database_state(database: str | None) -> Check:
    """The profiling database can be opened and written; it is neither created nor changed for that."""
    from autofuse.database.connection import locate
    from autofuse.database.database import open_database

    location = locate(database)
    path = location.path
    if path is not None and not path.exists():
        folder = _existing(path)
        if not os.access(folder, os.W_OK):
            return Check("database", "fail", f"{path}: folder {folder} is read-only", "choose another place with --db")
        return Check("database", "ok", f"{path}: not there yet; `autofuse tune` creates it")
    with open_database(database, read_only=True) as opened:
        run = opened.run()
    shown = f"{location.text}: {'no run yet' if run is None else f'newest run {run.id} ({run.state})'}"
    if path is not None and not (os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)):
        return Check("database", "warn", f"{shown}, read-only", "tuning needs a writable one: --db")
    return Check("database", "ok", shown)


def disk(database: str | None) -> Check:
    """Room where the database and temporary libraries go."""
    from autofuse.database.connection import locate

    path = locate(database).path
    folders = [Path(tempfile.gettempdir()), *([_existing(path)] if path else [])]
    free, folder = min((shutil.disk_usage(folder).free, str(folder)) for folder in folders)
    shown = f"{size(free)} free in {folder}"
    if free < _NO_DISK:
        return Check("disk", "fail", shown, "free some space, or put the database elsewhere with --db")
    if free < _LITTLE_DISK:
        return Check("disk", "warn", shown, "a night of tuning may need more; free some space")
    return Check("disk", "ok", shown)


def _existing(path: Path) -> Path:
    """The nearest folder above `path` that is there."""
    return next(folder for folder in path.absolute().parents if folder.is_dir())


def _child(command: list[str], text: str, seconds: float = CHILD_SECONDS) -> tuple[str, str]:
    """(standard output, what went wrong or "") of a process that may crash or hang."""
    try:
        done = subprocess.run(
            command, input=text, capture_output=True, text=True, timeout=seconds, check=False, start_new_session=True
        )
    except subprocess.TimeoutExpired:
        return "", f"no answer within {seconds:g} s"
    if done.returncode < 0:
        return "", f"crashed: {signal.Signals(-done.returncode).name}"
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["no message"]
        return "", f"exit code {done.returncode}: {lines[-1]}"
    return done.stdout, ""
