"""Axis "hybrids": models of which ONNX Runtime runs a part, forged libraries of them, and what is shared."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from onnx import TensorProto, helper

from autofuse.errors import AutofuseError, InputError
from experiments.attack import libraries, models
from experiments.attack.models import STEPS, Odd
from experiments.attack.stage import (
    Answer,
    Broken,
    command,
    in_time,
    measured,
    require_untouched,
    room_of,
    state,
)
from experiments.fuzz import forge
from experiments.fuzz.mutate import damaged_model

LEAST_OPSET = 11
"""Of the operators that only ONNX Runtime runs."""
BASE = ("--db", "own.db", "-n", "1")


def attempt(folder: Path, seed: int) -> str:
    """One way to use or misuse a model in parts, or what somebody shared."""
    dice = random.Random(seed)
    with forge.every_segment():
        return dice.choice(WAYS)(folder, dice)


def _odd(folder: Path, dice: random.Random) -> str:
    """A random model with operators of both sides: its results are ONNX Runtime's."""
    seed = dice.randrange(2**32)
    made = Odd(seed)
    made.opset = dice.choice([opset for opset in models.OPSETS if opset >= LEAST_OPSET])
    for number in range(dice.choice((2, 3, 5, 8))):
        dice.choice(REST if number == 1 or dice.random() < 0.3 else STEPS)(made)
    return models.compared(folder, seed, models.finished(made))


def _through_a_sequence(m: Odd) -> None:
    name = f"s{len(m.nodes)}"
    m.nodes.append(helper.make_node("SequenceConstruct", [m.last, m.last], [name], f"n{len(m.nodes)}"))
    m.add("SequenceAt", [name, m.constant(1, "int64")], m.shape)


def _through_a_branch(m: Odd) -> None:
    """One branch or the other, by an input; what it reads, it captures."""
    condition = m.input((), "bool")
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(m.dtype))
    bodies = {}
    for name, op_type in (("then_branch", "Identity"), ("else_branch", "Neg" if m.dtype == "float32" else "Identity")):
        out = f"{name}{len(m.nodes)}"
        body = [helper.make_node(op_type, [m.last], [out])]
        bodies[name] = helper.make_graph(body, name, [], [helper.make_tensor_value_info(out, kind, m.shape)])
    m.add("If", [condition], m.shape, **bodies)


def _through_text(m: Odd) -> None:
    if m.dtype in ("float32", "int64"):
        name = f"s{len(m.nodes)}"
        m.nodes.append(helper.make_node("Cast", [m.last], [name], f"n{len(m.nodes)}", to=TensorProto.STRING))
        m.add("Cast", [name], m.shape, to=TensorProto.FLOAT if m.dtype == "float32" else TensorProto.INT64)


def _weighed_by_a_count(m: Odd) -> None:
    """How many elements are not zero depends on data; what is made of it has a static shape again."""
    if m.dtype == "float32" and m.shape:
        where, sizes, count = (f"{name}{len(m.nodes)}" for name in "sck")
        m.nodes.append(helper.make_node("NonZero", [m.last], [where], f"n{len(m.nodes)}"))
        m.nodes.append(helper.make_node("Shape", [where], [sizes], f"n{len(m.nodes)}"))
        m.nodes.append(helper.make_node("Cast", [sizes], [count], f"n{len(m.nodes)}", to=TensorProto.FLOAT))
        total = f"t{len(m.nodes)}"
        m.nodes.append(helper.make_node("ReduceMax", [count], [total], f"n{len(m.nodes)}", keepdims=0))
        m.add("Add", [m.last, total], m.shape)


REST: tuple[Callable[[Odd], None], ...] = (
    _through_a_sequence, _through_a_branch, _through_text, _weighed_by_a_count,
)  # fmt: skip


def _damaged(folder: Path, dice: random.Random) -> str:
    """Bytes changed and nothing made right again: refused before anything runs."""
    kind = dice.choice(("cut", "flipped", "appended"))
    return _loaded(folder, kind, libraries.KINDS[kind](dice, _library(folder)), refused=True)


def _described(folder: Path, dice: random.Random) -> str:
    """The connections between parts changed, checksums made right."""
    return _loaded(folder, "described", forge.with_other_connections(dice, _library(folder)))


def _another_model(folder: Path, dice: random.Random) -> str:
    """Another model in ONNX Runtime's place, checksums made right: a damaged one, or one that wants all memory."""
    sound = forge.model_of(_library(folder))
    way = dice.randrange(3)
    made = damaged_model(dice, sound) if way else forge.greedy(sound)
    return _loaded(folder, "another model" if way else "greedy model", forge.with_model(_library(folder), made))


def _library(folder: Path) -> bytes:
    return (folder / "stage" / "parts.so").read_bytes()


def _loaded(folder: Path, kind: str, made: bytes, *, refused: bool = False) -> str:
    """Loaded and called once; `refused`: it must be, for it is not what was written."""
    from autofuse import api

    path = room_of(folder) / "odd.so"
    path.write_bytes(made)
    try:
        with in_time():
            library = api.load(path)
            library(library.example_inputs())
    except AutofuseError as error:
        raise InputError(f"{kind}: {error}".replace("\n", " ")) from error
    if refused and made != _library(folder):
        raise Broken(f"{kind}: loaded, though it is not what was written")
    return kind


def _by_verbs(folder: Path, dice: random.Random) -> str:
    """Verbs that may write one file, or none: exactly that is changed, and the answer is the one that is documented."""
    room = room_of(folder)
    words, code, mine = dice.choice(VERBS)
    before = state(room)
    with in_time():
        answer = command(*words)
    what = f"{words} -> {answer.code}: {answer.last}"
    require_untouched(before, state(room), frozenset(("own.db-wal", "own.db-shm")), what)
    new = set(state(room)) - set(before) - {"own.db-wal", "own.db-shm"}
    if answer.code != code or new != (mine if code == 0 else set()):
        raise Broken(f"{what}; new: {sorted(new)}")
    return what


VERBS: tuple[tuple[tuple[str, ...], int, set[str]], ...] = (
    (("compile", "parts.onnx", "-o", "new.so", *BASE), 0, {"new.so"}),
    (("compile", "parts.onnx", "-o", "new.so", "--require-complete", *BASE), 2, set()),
    (("compile", "parts.onnx", "--require-complete", "--dry-run", *BASE), 2, set()),
    (("compile", "other.onnx", "-o", "new.so", "--require-complete", *BASE), 3, set()),
    (("compile", "parts.onnx", "--dry-run", *BASE), 0, set()),
    (("compile", "parts.onnx", "-o", "new.so", "--dry-run", *BASE), 0, set()),
    (("compile", "parts.onnx", "-o", "new.so", "--sign", "key", *BASE), 0, {"new.so"}),
    (("compile", "parts.onnx", "-o", "new.so", "--strict", *BASE), 3, set()),
    (("tune", "model.onnx", "--dry-run", "--budget", "1m", *BASE), 0, set()),
    (("tune", "model.onnx", "--dry-run", "--budget", "1m", "--db", "missing.db", "-n", "1"), 0, set()),
    (("inspect", "parts.onnx"), 0, set()),
    (("run", "parts.so", "-o", "arrays"), 0, {"arrays", "arrays/y.npy", "arrays/h.npy"}),
    (("library", "check", "parts.so"), 0, set()),
)  # fmt: skip
"""Command lines, their exit codes and the files that they make."""


def _shared(folder: Path, dice: random.Random) -> str:
    """What is shared names nobody; who takes it in keeps all that was there, and takes it in once."""
    room = room_of(folder)
    before = measured(room / "source.db")
    signed = ["--sign", "key"] if dice.random() < 0.3 else []
    packed = ["--compress"] if dice.random() < 0.3 else []
    with in_time():
        _sound(command("db", "export", "new", "--share", "--db", "own.db", *signed, *packed))
        source = "new"
        if dice.random() < 0.3:
            _sound(command("db", "export", "whole", "--db", "own.db"))
            source = "whole"
        words = ("db", "import", source, "--shared", "--db", "source.db")
        trust = ("--trust", "key.pub") if signed and source == "new" else ()
        _sound(command(*words, *trust, "--dry-run"))
        if measured(room / "source.db") != before:
            raise Broken("a dry run of an import wrote something")
        for _ in range(2):
            _sound(command(*words, *trust))
        _sound(command("db", "check", "--db", "source.db"))
    after = measured(room / "source.db")
    if before - after:
        raise Broken(f"destroyed: {len(before - after)} measurements by {words}")
    if not packed:
        _require_nameless(sorted((room / "new").iterdir()))
    return f"{source}: {len(after - before)} rows taken in"


def _sound(answer: Answer) -> None:
    if answer.code:
        raise Broken(f"refused: exit {answer.code}: {answer.last}")


def _require_nameless(files: Sequence[Path]) -> None:
    text = "\n".join(path.read_text() for path in files)
    for name in ("model.onnx", "run0", "net", str(Path.home()), str(Path.cwd())):
        if f'"{name}' in text:
            raise Broken(f"what is shared holds {name!r}")


Way = Callable[[Path, random.Random], str]
WAYS: tuple[Way, ...] = (
    _odd, _odd, _odd, _odd, _damaged, _described, _described, _described, _another_model, _another_model, _by_verbs,
    _by_verbs, _by_verbs, _shared,
)  # fmt: skip
