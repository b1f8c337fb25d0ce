"""One row of the table: what is known of a network at a number of threads, kept in a JSON file of its own."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Self

from autofuse.values.names import rival_name

RIVALS = ("onnxruntime", "tvm-untuned", "none")


@dataclass(frozen=True)
class Ratio:
    """A rival's time over autofuse's, with its 95 % interval; `error`: why there is none."""

    us: float | None = None
    ratio: float | None = None
    ci_lo: float | None = None
    ci_hi: float | None = None
    trusted: bool = False
    error: str = ""


@dataclass(frozen=True)
class Row:
    """`error`: why the row is not finished; "" for one that waits or is finished.

    `tuning_s`: of all attempts. `candidates`: schedules measured, `failed` of them without a time.
    `kernels_none`: without fusion. `busy_before`: percent of the machine's CPUs at work before the row began.
    """

    network: str
    threads: int
    model_sha256: str
    error: str = ""
    tuned: bool = False
    tuning_s: float = 0.0
    candidates: int = 0
    failed: int = 0
    operators: int | None = None
    kernels_none: int | None = None
    kernels: int | None = None
    plan: str = ""
    compile_s: float | None = None
    autofuse_us: float | None = None
    max_rel_error: float | None = None
    rivals: dict[str, Ratio] = field(default_factory=dict)
    busy_before: float | None = None
    measured_at: str = ""
    facts: dict[str, str] = field(default_factory=dict)

    @property
    def finished(self) -> bool:
        """Whether there is nothing left to do."""
        return self.autofuse_us is not None and not self.error

    @classmethod
    def read(cls, path: Path) -> Self | None:
        """The row of a file; None when there is none, or when it is not a row of this program."""
        try:
            body = json.loads(path.read_text(encoding="utf-8"))
            body["rivals"] = {rival_name(name): Ratio(**rival) for name, rival in body["rivals"].items()}
            return cls(**body)
        except (FileNotFoundError, ValueError, KeyError, TypeError, AttributeError):
            return None

    def write(self, path: Path) -> Self:
        """Store the row; a reader never sees half of it."""
        write_json(path, asdict(self))
        return self

    def flat(self) -> dict[str, object]:
        """The row as columns of a CSV file: a column for each fact and for each property of each rival."""
        plain: dict[str, object] = {
            item.name: getattr(self, item.name) for item in fields(self) if item.name not in ("rivals", "facts")
        }
        for name in RIVALS:
            plain |= {f"{name}_{key}": value for key, value in asdict(self.rivals.get(name, Ratio())).items()}
        return plain | self.facts


@dataclass(frozen=True)
class Job:
    """What a child process is asked for: one row.

    `library`, `unfused`: where the best plan and the plan without fusion are compiled to. `trials`: None for no
    limit but the budget.
    """

    model: str
    threads: int
    database: str
    library: str
    unfused: str
    row: str
    budget_s: float
    bench_s: float
    trials: int | None
    only_bench: bool


def write_json(path: Path, body: Mapping[str, Any]) -> None:
    """Put a JSON file in the place of an older one; a reader never sees half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    part.write_text(json.dumps(body, indent=1), encoding="utf-8")
    part.replace(path)


def title(network: str, threads: int) -> str:
    """ "resnet50, 2 threads"."""
    return f"{network}, {threads} thread{'s' if threads > 1 else ''}"


def sha256(path: Path) -> str:
    """Of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
