"""The model's file: it comes back as it was, and whatever else stands there is refused in one sentence."""

from __future__ import annotations

import io
import json
import random
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autofuse.errors import InputError
from autofuse.learning import stored
from autofuse.learning.dataset import Dataset
from autofuse.learning.model import ProfitabilityModel, gain_lesson
from autofuse.learning.stored import find_model, load_model, save

MUTATIONS = 150


@pytest.fixture
def path(model: ProfitabilityModel, tmp_path: Path) -> Path:
    save(model, tmp_path / "own.model")
    return tmp_path / "own.model"


def members(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        return {info.filename: archive.read(info) for info in archive.infolist()}


def write(path: Path, parts: Mapping[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in parts.items():
            archive.writestr(name, data)
    return path


def npy(array: Any, **options: Any) -> bytes:
    stream = io.BytesIO()
    np.lib.format.write_array(stream, array, **options)
    return stream.getvalue()


def rekeyed(path: Path, arrays: Mapping[str, np.ndarray], **changes: Any) -> Path:
    """A file whose hash is right although its content was changed: what somebody with bad intentions would send."""
    parts = members(path)
    body = {**json.loads(parts["metadata.json"]), **changes}
    body.pop("sha256")
    known = {name.removesuffix(".npy"): np.load(io.BytesIO(data)) for name, data in parts.items() if ".npy" in name}
    known |= arrays
    body["sha256"] = stored._key(known, body)
    return write(path, {"metadata.json": json.dumps(body).encode(), **{f"{n}.npy": npy(a) for n, a in known.items()}})


def test_a_model_comes_back_as_it_was(path: Path, model: ProfitabilityModel, dataset: Dataset, tmp_path: Path) -> None:
    again = load_model(path)
    rows = gain_lesson(dataset.decisions).rows
    for one, other in zip(model.gain.predict(rows), again.gain.predict(rows), strict=True):
        np.testing.assert_array_equal(one, other)
    assert again.about == dict(model.about) and again.families == model.families
    assert again.time.names == model.time.names and again.time.factor == model.time.factor
    save(again, tmp_path / "again.model")
    assert (tmp_path / "again.model").read_bytes() == path.read_bytes()


def test_a_model_of_other_features_is_refused_clearly(path: Path) -> None:
    rekeyed(path, {}, features_version=0)
    with pytest.raises(InputError, match=r"features of version 0.*has version \d+: train it again"):
        load_model(path)


def test_damage_is_noticed(path: Path) -> None:
    parts = members(path)
    name = next(name for name in parts if name.endswith("mean.value.npy"))
    changed = bytearray(parts[name])
    changed[-1] ^= 1
    write(path, {**parts, name: bytes(changed)})
    with pytest.raises(InputError, match="does not match its SHA-256"):
        load_model(path)


def test_trees_that_go_round_in_circles_or_astray_are_refused(path: Path) -> None:
    original = path.read_bytes()
    arrays = {n.removesuffix(".npy"): np.load(io.BytesIO(d)) for n, d in members(path).items() if n.endswith(".npy")}
    inner = int(np.flatnonzero(arrays["time.mean.left"] != np.arange(len(arrays["time.mean.left"])))[1])
    for part, place, wrong in (
        ("left", inner, 0), ("right", inner, 10**8), ("left", inner, -1), ("feature", inner, 10**6),
        ("feature", inner, -1), ("roots", 1, -5), ("roots", 1, 10**8), ("value", 0, np.nan), ("threshold", 0, np.inf),
    ):  # fmt: skip
        changed = arrays[f"time.mean.{part}"].copy()
        changed[place] = wrong
        path.write_bytes(original)
        rekeyed(path, {f"time.mean.{part}": changed})
        with pytest.raises(InputError, match=r"own\.model.*time\.mean"):
            load_model(path)
    path.write_bytes(original)
    rekeyed(path, {"time.mean.left": arrays["time.mean.left"][:-1]})
    with pytest.raises(InputError, match="different lengths"):
        load_model(path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": "something"}, "no autofuse-profitability file"),
        ({"schema": 99}, "of schema 1"),
        ({"families": "avx2"}, "does not say what it was trained on"),
        ({"time": []}, "no part 'time'"),
        ({"gain": {"names": ["speed"], "offset": "", "factor": 1.0}}, "gain"),
        ({"gain": {"names": [], "offset": "", "factor": 1.0}}, "no names"),
    ],
)
def test_metadata_that_is_none_is_refused(path: Path, changes: dict[str, Any], message: str) -> None:
    rekeyed(path, {}, **changes)
    with pytest.raises(InputError, match=message):
        load_model(path)


class Bomb:
    """What a pickle would run when it is loaded."""

    def __reduce__(self) -> tuple[Any, tuple[str, ...]]:
        return (Path.touch, (Path("exploded"),))  # type: ignore[return-value]


def test_nothing_in_a_file_is_run(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(path.parent)
    parts = members(path)
    name = next(name for name in parts if name.endswith("mean.value.npy"))
    bomb = npy(np.array([Bomb()], dtype=object), allow_pickle=True)
    write(path, {**parts, name: bomb})
    with pytest.raises(InputError, match="no list of numbers"):
        load_model(path)
    assert not Path("exploded").exists()


def test_headers_that_promise_too_much_are_refused(path: Path) -> None:
    parts = members(path)
    name = next(name for name in parts if name.endswith("mean.value.npy"))
    for lie in (b"(9,)", b"(0,)"):
        write(path, {**parts, name: npy(np.zeros(1)).replace(b"(1,)", lie)})
        with pytest.raises(InputError, match="no list of numbers"):
            load_model(path)


def test_a_file_that_unpacks_to_very_much_is_refused(path: Path) -> None:
    write(path, {**members(path), "more.npy": bytes(stored.MOST_BYTES + 1)})
    with pytest.raises(InputError, match="unpacks to more than"):
        load_model(path)


def test_mutated_files_are_refused_or_read_and_nothing_else(path: Path, tmp_path: Path) -> None:
    dice, original = random.Random(0), path.read_bytes()
    refused = 0
    for number in range(MUTATIONS):
        data = bytearray(original)
        for _ in range(dice.choice((1, 3, 30))):
            data[dice.randrange(len(data))] = dice.randrange(256)
        if number % 5 == 0:
            data = data[: dice.randrange(len(data))]
        (tmp_path / "mutated.model").write_bytes(bytes(data))
        try:
            load_model(tmp_path / "mutated.model")
        except InputError as error:
            refused += 1
            assert str(error).startswith("model ") and "\n" not in str(error)
    assert refused > MUTATIONS * 0.9


def test_what_is_no_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "text.model").write_text("hello")
    for place, reason in ((tmp_path / "none.model", "No such file"), (tmp_path, "no regular file"),
                          (tmp_path / "text.model", "damaged, or no model")):  # fmt: skip
        with pytest.raises(InputError, match=reason):
            load_model(place)


def test_models_are_found_by_name_and_path(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored, "named_files", lambda _folder, _suffix: {"default": path})
    assert find_model(None) == find_model("default") == path
    assert find_model("none") is None and find_model(str(path)) == path
    with pytest.raises(InputError, match=r"--model: 'nowhere' is no file; allowed: none, default, or a model file"):
        find_model("nowhere")
    monkeypatch.setattr(stored, "named_files", lambda _folder, _suffix: {})
    assert find_model(None) is None


def test_every_shipped_model_can_be_loaded() -> None:
    for place in stored.named_files(stored.FOLDER, stored.SUFFIX).values():
        assert load_model(place).families
