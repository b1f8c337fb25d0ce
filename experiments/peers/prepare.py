"""What each rival starts from (a converted file, a warm cache, a tuned library), made once and kept, failures too."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from autofuse.device.target import Target
from autofuse.errors import DeviceError
from autofuse.measure.children.process import Child, ask
from autofuse.measure.measurement import Failure
from autofuse.measure.networks.network import Array
from autofuse.values.processes import default_memory
from experiments.index import ROOT
from experiments.peers.environments import ENVIRONMENTS, MissingEnvironmentError, interpreter
from experiments.peers.requests import Prepare
from experiments.peers.rivals import OWN, Rival, host_of

LIMIT_S = 3600.0
"""Of one conversion, beside what it may tune."""
PACKAGE = ROOT / "autofuse"


@dataclass(frozen=True)
class Prepared:
    """`path`: what the rival is opened from; `error`: why there is none. `key`: of all that it was made from.

    `tuned_s`: seconds that autofuse's own search has had.
    """

    key: str = ""
    path: str = ""
    note: str = ""
    error: str = ""
    tuned_s: float = 0.0

    @classmethod
    def read(cls, path: Path) -> Prepared:
        """The stored one; an empty one when there is none."""
        with suppress(FileNotFoundError, ValueError, TypeError):
            return cls(**json.loads(path.read_text(encoding="utf-8")))
        return cls()

    def write(self, path: Path) -> Prepared:
        """Store it."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(asdict(self), indent=1), encoding="utf-8")
        return self


@dataclass(frozen=True)
class Subject:
    """A model at a number of threads. `inputs`: valid ones by name. `folder`: for everything made from it."""

    model: Path
    sha256: str
    threads: int
    inputs: Mapping[str, Array]
    target: Target
    folder: Path
    database: Path
    budget_s: float = 0.0
    metaschedule_s: float = 0.0


def prepare(rival: Rival, subject: Subject, retry: bool = False) -> Prepared:
    """Make what is not there or made from something else; `retry`: also what failed."""
    name = f"{rival.name.replace(':', '-')}-{subject.threads}t" if rival.per_threads else rival.name
    record = subject.folder / f"{name}.json"
    stored = Prepared.read(record)
    if rival.name == OWN and subject.budget_s:
        stored = _tuned(subject, stored, record)
    key = _key(rival, subject)
    if stored.key == key and (stored.path or not retry):
        return stored
    if rival.environment:
        try:
            interpreter(rival.environment)
        except MissingEnvironmentError as error:
            return Prepared(error=str(error))  # not kept: it may be there the next time
    print(f"  {rival.title}: making it ready", flush=True)
    if rival.plan is not None:
        found = _compiled(rival, subject, subject.folder / f"{name}.so")
    elif rival.foreign:
        found = _converted(rival, subject, subject.folder / name)
    else:
        found = Prepared(path=str(subject.model))
    if found.error:
        print(f"  {rival.title}: {found.error.splitlines()[0][:200]}", flush=True)
    if stored.tuned_s and not found.error:
        found = replace(found, note=f"{found.note}, tuned for {stored.tuned_s / 60:.1f} min here")
    return replace(found, key=_key(rival, subject), tuned_s=stored.tuned_s).write(record)


def _key(rival: Rival, subject: Subject) -> str:
    """Changes with the model, and with what else a rival is made of."""
    parts = [subject.sha256]
    if rival.environment:
        parts.append(ENVIRONMENTS[rival.environment].key)
    if rival.kind == "metaschedule":
        parts.append(f"{subject.metaschedule_s:g}")
    if rival.plan is not None:
        kept = [subject.database, Path(f"{subject.database}-wal")]
        parts += [str(path.stat().st_mtime_ns) for path in kept if path.exists() and path.stat().st_size]
        parts.append(str(max(path.stat().st_mtime_ns for path in PACKAGE.rglob("*.py"))))
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def _tuned(subject: Subject, stored: Prepared, record: Path) -> Prepared:
    """Search for what earlier calls left of the budget; an error of it shows when the plan is compiled."""
    left = subject.budget_s - stored.tuned_s
    if left <= 0:
        return stored
    print(f"  autofuse: tuning for {left:.0f} s", flush=True)
    arguments = ["tune", str(subject.model), "--db", str(subject.database), "--threads", str(subject.threads)]
    subprocess.run([sys.executable, "-m", "autofuse", *arguments, "--budget", f"{left:.0f}s"], cwd=ROOT, check=False)
    return replace(stored, key="", tuned_s=subject.budget_s).write(record)


def _compiled(rival: Rival, subject: Subject, library: Path) -> Prepared:
    """autofuse's own, in a process of its own; its best plan only where the database knows it."""
    if not subject.database.exists() and not rival.plan:
        return Prepared(error=f"not tuned: no database {subject.database.name}; give --budget, or --databases")
    library.parent.mkdir(parents=True, exist_ok=True)
    arguments = [
        "compile", str(subject.model), "-o", str(library), "--db", str(subject.database),
        "--threads", str(subject.threads), *(["--plan", rival.plan] if rival.plan else ["--on-miss", "fail"]),
    ]  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-m", "autofuse", *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if done.returncode:
        told = [line for line in (done.stderr or done.stdout).splitlines() if line.strip()]
        return Prepared(error=told[-1].strip() if told else f"exit code {done.returncode}")
    return Prepared(path=str(library), note=f"plan {rival.plan}" if rival.plan else "best plan of the database")


def _converted(rival: Rival, subject: Subject, folder: Path) -> Prepared:
    """A foreign rival's form of the model, made in its own environment."""
    folder.mkdir(parents=True, exist_ok=True)
    host = host_of(rival, subject.threads, subject.folder / "inductor")
    places = {name: folder / f"input-{index}.npy" for index, name in enumerate(subject.inputs)}
    for name, array in subject.inputs.items():
        np.save(places[name], array, allow_pickle=False)
    request = Prepare(
        rival.kind, subject.model, folder, subject.threads, places, subject.target, subject.metaschedule_s
    )
    environment = {"TVM_NUM_THREADS": str(subject.threads), **host.environment}
    try:
        child = Child(host.module, default_memory(1), environment, (), host.python)
    except DeviceError as error:
        return Prepared(error=str(error))
    try:
        reply = ask(child, request, LIMIT_S + subject.metaschedule_s, "build_error")
    finally:
        child.kill()
    if isinstance(reply, Failure):
        return Prepared(error=reply.message)
    return Prepared(path=str(reply.path), note=reply.note)
