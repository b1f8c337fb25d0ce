"""What is attacked: each target makes an attempt of a seed, the same attempt for the same seed."""

from __future__ import annotations

import hashlib
import json
import random
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

from autofuse.database.tables.columns import SHARED
from autofuse.errors import AutofuseError, InputError
from experiments.fuzz import columns, forge, sockets, wire
from experiments.fuzz.contain import Attempt
from experiments.fuzz.mutate import NUMBERS, TEXTS, damage_database, damage_export, damaged, damaged_model
from experiments.fuzz.samples import models

if TYPE_CHECKING:
    from autofuse.database.database import ProfilingDatabase


@dataclass(frozen=True)
class Target:
    """`prepare(folder)` makes what is damaged, once; `attempt(folder, seed)` damages it and hands it in."""

    prepare: Callable[[Path], None]
    attempt: Callable[[Path, int], None]


def attempts(name: str, folder: Path, seed: int, count: int) -> list[Attempt]:
    """Attempts of seeds `seed`, `seed` + 1, ...; what they need is made in `folder`."""
    target = TARGETS[name]
    folder.mkdir(parents=True, exist_ok=True)
    target.prepare(folder)
    return [partial(target.attempt, folder, seed + number) for number in range(count)]


@cache
def _models() -> tuple[bytes, ...]:
    return tuple(models().values())


def _prepare_nothing(_: Path) -> None:
    """Everything is made of the seed."""


def _try_model(folder: Path, seed: int) -> None:
    from autofuse.graph.loading.load import load

    dice = random.Random(seed)
    path = folder / "damaged.onnx"
    path.write_bytes(damaged_model(dice, dice.choice(_models())))
    load(path)


def _inspect_model(folder: Path, seed: int) -> None:
    from autofuse import api

    dice = random.Random(seed)
    path = folder / "damaged.onnx"
    path.write_bytes(damaged_model(dice, dice.choice(_models())))
    api.inspect(path)


def _prepare_database(folder: Path) -> None:
    from autofuse.database.database import open_database
    from autofuse.database.files.upkeep import export_database
    from experiments.database.synthetic import write_database

    for name, seed in (("own", 1), ("source", 2)):
        if not (folder / f"{name}.db").exists():
            write_database(folder / f"{name}.db", 8, seed=seed, blocks=2)
    if not (folder / "export").exists():
        with open_database(folder / "source.db", read_only=True) as database:
            export_database(database, folder / "export")
            export_database(database, folder / "shared", share=True)


def _own(folder: Path) -> Path:
    """A fresh copy of the database that takes in what is damaged."""
    for old in folder.glob("target.db*"):
        old.unlink()
    return Path(shutil.copy(folder / "own.db", folder / "target.db"))


def _try_database(folder: Path, seed: int) -> None:
    """Reads it, checks it, and merges it into a sound one."""
    from autofuse.database.database import open_database
    from autofuse.database.files.upkeep import merge_database, row_counts

    for old in folder.glob("damaged.db*"):
        old.unlink()
    path = Path(shutil.copy(folder / "source.db", folder / "damaged.db"))
    damage_database(random.Random(seed), path)
    try:
        with open_database(path, read_only=True) as database:
            database.problems()
            row_counts(database)
    except AutofuseError:
        pass
    with open_database(_own(folder)) as database:
        merge_database(database, path)


def _try_export(folder: Path, seed: int) -> None:
    from autofuse.database.database import open_database
    from autofuse.database.files.upkeep import import_database

    source = _damaged_folder(folder / "export", random.Random(seed))
    with open_database(_own(folder)) as database:
        import_database(database, source)


def _try_shared(folder: Path, seed: int) -> None:
    """What others share, and what is taken as such: whatever it holds, nothing of it counts as measured here."""
    from autofuse.database.database import open_database
    from autofuse.database.files.upkeep import import_database

    dice = random.Random(seed)
    claims = dice.random() < 0.5
    source = _damaged_folder(folder / ("shared" if claims else "export"), dice)
    with open_database(_own(folder)) as database:
        before = _devices(database)
        import_database(database, source, shared=not claims or dice.random() < 0.5)
        assert database.problems(content=True) == [], "a sound database took damage in"
        strange = [name for name in _devices(database) - before if not name.startswith(SHARED)]
        assert not strange or claims, f"rows of others under a device of their own: {strange}"


def _devices(database: ProfilingDatabase) -> set[str]:
    return {str(row["fingerprint"]) for row in database.table("devices").records()}


def _damaged_folder(sound: Path, dice: random.Random) -> Path:
    """A damaged copy of an export; mostly its manifest is made to fit again."""
    source = sound.with_name("damaged")
    shutil.rmtree(source, ignore_errors=True)
    shutil.copytree(sound, source)
    damage_export(dice, source)
    if dice.random() < 0.8:
        _state_truth(source)
    return source


def _state_truth(folder: Path) -> None:
    """Make the manifest fit the files again, as somebody who means harm would."""
    path = folder / "manifest.json"
    try:
        body = json.loads(path.read_bytes())
        for entry in body["files"]:
            data = (folder / f"{entry['table']}.jsonl").read_bytes()
            entry |= {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest(), "rows": data.count(b"\n")}
        path.write_text(json.dumps(body))
    except (ValueError, LookupError, TypeError, OSError):
        return


def _prepare_library(folder: Path) -> None:
    if not (folder / "sound.so").exists():
        from autofuse import api

        (folder / "sound.onnx").write_bytes(_models()[0])
        api.compile(folder / "sound.onnx", folder / "sound.so", database=str(folder / "none.db"), threads=1)


def _try_library(folder: Path, seed: int) -> None:
    """Loads it; one that is damaged must not be."""
    from autofuse.backend.library.library import load

    dice, path = random.Random(seed), folder / "damaged.so"
    sound = (folder / "sound.so").read_bytes()
    content = damaged(dice, sound) if dice.random() < 0.5 else _damaged_end(dice, sound)
    path.write_bytes(content)
    load(path)
    assert content == sound, "a damaged library was loaded"  # some mutations put back the byte that was there


def _damaged_end(dice: random.Random, data: bytes) -> bytes:
    """Damage where the description stands: at the end of the file, and in its first page."""
    edge = dice.choice((64, 512, 4096))
    if dice.random() < 0.7:
        return data[:-edge] + damaged(dice, data[-edge:])
    return damaged(dice, data[:edge]) + data[edge:]


def _prepare_parts(folder: Path) -> None:
    if not (folder / "parts.so").exists():
        from autofuse import api

        (folder / "parts.onnx").write_bytes(forge.in_parts().SerializeToString())
        with forge.every_segment():
            api.compile(folder / "parts.onnx", folder / "parts.so", database=str(folder / "none.db"), threads=1)


def _try_parts(folder: Path, seed: int) -> None:
    """A library of a model in parts: other bytes, other connections, or another model in ONNX Runtime's place."""
    from autofuse.backend.library.library import load

    dice, path = random.Random(seed), folder / "damaged.so"
    sound = (folder / "parts.so").read_bytes()
    way = dice.randrange(6)
    if way == 0:
        content = _damaged_end(dice, sound)
    elif way <= 3:
        content = forge.with_other_connections(dice, sound)
    else:
        model = forge.model_of(sound)
        content = forge.with_model(sound, forge.greedy(model) if dice.random() < 0.02 else damaged_model(dice, model))
    path.write_bytes(content)
    library = load(path)
    assert way or content == sound, "a damaged library was loaded"
    library(library.example_inputs())


def _inspect_parts(folder: Path, seed: int) -> None:
    """A damaged model of which ONNX Runtime runs a part."""
    from autofuse import api

    dice = random.Random(seed)
    path = folder / "damaged.onnx"
    path.write_bytes(damaged_model(dice, forge.in_parts().SerializeToString()))
    with forge.every_segment():
        api.inspect(path)


VERBS = (
    "inspect", "compile", "run", "report", "explain", "status", "stop", "compare", "device list", "device show",
    "db info", "db check", "db export", "db import", "db merge", "db prune", "db migrate", "plan export", "plan diff",
    "plan pareto", "model list", "model show", "cflags",
)  # fmt: skip
OPTIONS = (
    "--shape", "--db", "--threads", "--device", "--format", "--plan", "--run", "--seed", "--bucket", "--on-miss",
    "--rpc", "--weight-growth", "--strict", "--dry-run", "--help", "-o", "--older-than", "--bogus", "--", "--operators",
)  # fmt: skip


def _try_command(folder: Path, seed: int) -> None:
    """A command line of the product, in this process."""
    from typer.testing import CliRunner

    from autofuse.cli.main import app

    dice = random.Random(seed)
    names = ("x.onnx", "x.db", ".", "missing", "x.so", *TEXTS, *map(str, NUMBERS))
    words = dice.choice(VERBS).split()
    for _ in range(dice.randrange(5)):
        words.append(dice.choice(OPTIONS) if dice.random() < 0.5 else dice.choice(names))
    (folder / "x.onnx").write_bytes(_models()[1])
    (folder / "x.db").write_bytes(dice.randbytes(100) if dice.random() < 0.5 else b"")
    environment = {"HOME": str(folder), "XDG_DATA_HOME": str(folder), "XDG_CACHE_HOME": str(folder)}
    found = CliRunner().invoke(app, [word.replace("..", "_") for word in words], env=environment)
    if found.exception is not None and not isinstance(found.exception, SystemExit | AutofuseError):
        raise found.exception
    if found.exit_code:
        raise InputError(f"exit {found.exit_code}")


TARGETS: Mapping[str, Target] = {
    "models": Target(_prepare_nothing, _try_model),
    "inspect": Target(_prepare_nothing, _inspect_model),
    "databases": Target(_prepare_database, _try_database),
    "columns": Target(columns.prepare, columns.attempt),
    "exports": Target(_prepare_database, _try_export),
    "shared": Target(_prepare_database, _try_shared),
    "libraries": Target(_prepare_library, _try_library),
    "parts": Target(_prepare_parts, _try_parts),
    "parts-inspect": Target(_prepare_parts, _inspect_parts),
    "messages": Target(_prepare_nothing, wire.try_message),
    "sockets": Target(_prepare_nothing, sockets.attempt),
    "commands": Target(_prepare_nothing, _try_command),
}
