"""Starting a job, or going on with it: its name, its tasks, its place in the database."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from autofuse.database.database import open_database
from autofuse.database.job_records import TaskStart
from autofuse.environment.space import load_space
from autofuse.errors import DatabaseError, InputError
from autofuse.graph.key import open_key
from autofuse.graph.loading.given.buckets import named_sizes, own_sizes
from autofuse.graph.loading.given.constants import model_sha256
from autofuse.graph.loading.given.sizes import OpenSize
from autofuse.job.coordinator import Coordinator, JobListener
from autofuse.job.outcome import JobOutcome
from autofuse.job.settings import JobSettings, WorkerSpec
from autofuse.job.worker import OPENER
from autofuse.values.arguments import file_title

NAME_LENGTH = 100


def run_job(
    models: Sequence[Path],
    workers: Sequence[WorkerSpec],
    settings: JobSettings,
    *,
    database: str | None,
    name: str | None,
    listener: JobListener,
    opener: str = OPENER,
    import_paths: Sequence[Path] = (),
) -> JobOutcome:
    """Tune `models` on the devices of `workers`; see `autofuse.api.tune_all`.

    `name` None: the newest job of the same models and devices that has not ended by itself, else a new one. A job that
    others work on already is joined. `opener`, `import_paths`: see `autofuse.job.worker.Setup`.
    """
    load_space(settings.space, "generic")
    names = {model: _names_of(model) for model in models} if settings.sizes else {}
    _require_names(names, settings.sizes)
    tasks = _tasks(models, settings, names, list(dict.fromkeys(worker.device for worker in workers)))
    if name is not None and not (name.isprintable() and 0 < len(name) <= NAME_LENGTH):
        raise InputError(f"--run: got {name!r}, allowed: up to {NAME_LENGTH} printable characters")
    with open_database(database) as base:
        if base.location.path is None and base.location.url is None:
            raise DatabaseError("--db: a job needs a file or a server, which several processes can open")
        queue = base.jobs
        chosen = name or queue.unfinished(tasks) or _fresh_name(models)
        job = queue.open_job(chosen, tasks, settings.to_json())
        return Coordinator(base, job, workers, listener, opener, import_paths).run()


Names = Mapping[Path, Sequence[str]]
"""The names of each model's open sizes, where sizes are named."""


def _require_names(names: Names, sizes: Sequence[OpenSize]) -> None:
    """InputError for a size that no model has."""
    for size in sizes:
        if not any(own_sizes([size], own) for own in names.values()):
            told = "; ".join(f"{model.name} has {', '.join(own) or 'none'}" for model, own in names.items())
            raise InputError(f"--sizes: no model of the job has an open size {size.name!r}: {told}")


def _names_of(model: Path) -> Sequence[str]:
    """The names of the open sizes of a model; none of one that cannot be read, which its search will say."""
    try:
        return named_sizes(model)
    except InputError:
        return ()


def _tasks(models: Sequence[Path], settings: JobSettings, names: Names, devices: Sequence[str]) -> list[TaskStart]:
    """Every model on every device; a file that is given twice counts once. The same file with other sizes is another
    model."""
    found: dict[tuple[str, str], TaskStart] = {}
    for model in models:
        if model.exists() and not model.is_file():
            raise InputError(f"{model}: not a file; give the path of an .onnx file")
        _refuse_no_text(model)
        try:
            sha = model_sha256(model.read_bytes(), settings.given)
        except OSError as error:
            raise InputError(f"{model}: cannot read the model: {error.strerror}") from error
        if own := own_sizes(settings.sizes, names.get(model, ())):
            sha = open_key(sha, (size.typed for size in own))
        for device in devices:
            found.setdefault((sha, device), TaskStart(str(model.absolute()), sha, device))
    if not found:
        raise InputError("no model is given; name at least one ONNX file")
    return list(found.values())


def _refuse_no_text(model: Path) -> None:
    """A job keeps the paths of its models, and goes on with them later."""
    try:
        str(model.absolute()).encode()
    except UnicodeEncodeError:
        reason = "its path is not UTF-8, and a job keeps the paths of its models; rename it"
        raise InputError(f"{model}: {reason}") from None


def _fresh_name(models: Sequence[Path]) -> str:
    rest = f"+{len(models) - 1}" if len(models) > 1 else ""
    return f"{file_title(models[0])[:60]}{rest}-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}"
