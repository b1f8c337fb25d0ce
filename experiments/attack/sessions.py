"""Axis "sessions": inputs of odd types, shapes, orders and places, and threads side by side."""

from __future__ import annotations

import random
import threading
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from autofuse.errors import AutofuseError, InputError
from experiments.attack.stage import Broken, in_time

SHAPE = (1, 2, 4, 4)


@cache
def _session(path: Path) -> Any:
    from autofuse import Session

    return Session(path)


class _Liar:
    """Says that it is an array."""

    def __init__(self, what: Any) -> None:
        self.what = what

    def __dlpack__(self, *_: Any, **__: Any) -> Any:
        return self.what

    def __dlpack_device__(self) -> Any:
        return (2, 0)


class _Raises:
    def __array__(self, *_: Any, **__: Any) -> Any:
        raise RuntimeError("no array today")


def odd(dice: random.Random) -> Any:
    """Something that may be given for the input, sound or not."""
    sound = np.random.default_rng(dice.randrange(100)).standard_normal(SHAPE).astype(np.float32)
    big = np.random.default_rng(1).standard_normal((2, 4, 8, 8)).astype(np.float32)
    record = np.zeros(SHAPE, [("a", "f4"), ("b", "i4")])
    unaligned = np.frombuffer(b"x" + sound.tobytes(), np.uint8)[1:].view(np.float32).reshape(SHAPE)
    frozen = sound.copy()
    frozen.flags.writeable = False
    choices: tuple[Any, ...] = (
        sound, sound[::-1], big[:1, ::2, ::2, ::2], np.asfortranarray(sound), big[:1, :2, ::-2, :4], unaligned, frozen,
        np.broadcast_to(np.float32(3), SHAPE), record["a"], sound.T, sound.astype(">f4"), sound.astype(np.float64),
        sound.astype(np.float16), sound.astype(np.int64), sound.astype(complex), sound.astype(object),
        sound.astype("U"),
        sound.astype("S"), sound > 0, sound.astype("M8[s]"), record, sound[0], sound[None], sound[:, :, :3], sound[:0],
        np.float32(1), 1, 1.5, "x", b"x", None, [], {}, set(), sound.tolist(), [[[[1]]]], [[1], [1, 2]], range(32),
        memoryview(sound.data), sound.tobytes(), np.ma.masked_array(sound), np.matrix([[1]]), sound.view(np.recarray),
        object(),
        _Liar(None), _Liar(3), _Raises(), lambda: sound, Ellipsis, np.nan, float("inf"), 10**400,
        np.full(SHAPE, np.nan, "f4"),
        np.full(SHAPE, 3e38, "f4"), iter([sound]), Exception, sound.dtype, np.array(sound, dtype="=f4", order="F"),
        np.lib.stride_tricks.as_strided(sound, SHAPE, (0, 0, 0, 0)), sound.astype(np.longdouble),
    )  # fmt: skip
    return dice.choice(choices)


def attempt(folder: Path, seed: int) -> str:
    """One call: refused, or the same as for the plain array."""
    dice = random.Random(seed)
    session = _session(folder / "stage" / "model.so")
    way = dice.randrange(12)
    with in_time():
        if way == 0:
            return _side_by_side(session, seed)
        if way == 1:
            return _odd_names(session, dice)
        value = odd(dice)
        feed: Any = {"x": value}
        if way == 2:
            feed = dice.choice((value, [value], {"X": value}, {}, {"x": value, "y": value}, {b"x": value}, {0: value}))
        try:
            results = session.run(None, feed) if way < 9 else _other_door(session, dice, feed)
        except AutofuseError as error:
            if way > 2 and _sound(value):
                raise Broken(f"a sound input is refused: {error}") from error
            raise InputError(str(error).replace("\n", " ")) from error
    _require_plain(session, feed, results)
    return "equal"


def _sound(value: Any) -> bool:
    return type(value) is np.ndarray and value.dtype == np.float32 and value.dtype.isnative and value.shape == SHAPE


def _other_door(session: Any, dice: random.Random, feed: Any) -> Any:
    if dice.random() < 0.5:
        return [np.from_dlpack(result) for result in session.run_dlpack(None, feed)]
    prepared = session._library.prepared(feed)
    prepared.run()
    return prepared.outputs()


def _require_plain(session: Any, feed: Any, results: Any) -> None:
    given = next(iter(feed.values())) if isinstance(feed, dict) else feed[0]
    plain = np.array(np.asarray(given), dtype=np.float32, order="C")
    if plain.shape != SHAPE:
        raise Broken(f"an input of shape {plain.shape} was taken")
    (wanted,) = session.run(None, {"x": plain})
    if not np.array_equal(results[0], wanted, equal_nan=True):
        raise Broken(f"wrong result: {type(given).__name__}: {results[0].ravel()[:4]}, not {wanted.ravel()[:4]}")


def _odd_names(session: Any, dice: random.Random) -> str:
    names: Any = dice.choice(
        ("y", ["y", "y"], [], ["z"], [None], [0], 3, (n for n in "y"), {"y"}, b"y", ["\x1b"], ("y",))
    )
    options = dice.choice((None, None, None, object(), {}, 0))
    try:
        results = session.run(names, {"x": np.zeros(SHAPE, np.float32)}, options)
    except AutofuseError as error:
        raise InputError(str(error).replace("\n", " ").replace("\x1b", "")) from error
    if len(results) != len(names):
        raise Broken(f"{len(results)} results for {names!r}")
    return "equal"


def _side_by_side(session: Any, seed: int) -> str:
    """Threads with inputs of their own, and some that are refused among them."""
    wrong: list[str] = []
    inputs = [np.random.default_rng(seed + i).standard_normal(SHAPE).astype(np.float32) for i in range(4)]
    wanted = [session.run(None, {"x": value})[0].copy() for value in inputs]

    def work(number: int) -> None:
        try:
            for turn in range(20):
                if turn % 7 == 3:
                    try:
                        session.run(None, {"x": None})
                    except InputError:
                        continue
                got = session.run(None, {"x": inputs[number]})[0]
                if not np.array_equal(got, wanted[number]):
                    wrong.append(f"thread {number}")
        except BaseException as error:  # noqa: BLE001 told below, by the main thread
            wrong.append(repr(error))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    if wrong:
        raise Broken(f"side by side: {wrong[:3]}")
    return "equal"
