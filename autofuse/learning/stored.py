"""A model as a file: numbers in numpy's own format and one JSON text, in a zip archive; nothing in it is ever run."""

from __future__ import annotations

import hashlib
import io
import json
import os
import struct
import zipfile
import zlib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autofuse.errors import InputError
from autofuse.kernels.workload.workload import Value, Workload, WorkloadOperator
from autofuse.learning.calibrated import Calibrated
from autofuse.learning.features import FEATURES_VERSION, Machine, cut_features, facts_of, on_machine
from autofuse.learning.model import ProfitabilityModel
from autofuse.values.outputs import Kind, output_file
from autofuse.values.resources import named_files

SUFFIX = ".model"
FOLDER = "profiles/models"
DEFAULT = "default"
FORMAT = "autofuse-profitability"
SCHEMA = 1
MOST_BYTES = 256 << 20
_METADATA = "metadata.json"
_DAMAGE = (
    OSError, ValueError, LookupError, TypeError, EOFError, RuntimeError, MemoryError, OverflowError, SyntaxError,
    zipfile.BadZipFile, zlib.error, struct.error,
)  # fmt: skip


def save(model: ProfitabilityModel, path: Path) -> str:
    """Write `model` to `path` (replaced whole, if it is a model); its SHA-256. InputError where it cannot be."""
    arrays = {**model.time.arrays("time"), **model.gain.arrays("gain")}
    body: dict[str, Any] = {
        "format": FORMAT,
        "schema": SCHEMA,
        "features_version": FEATURES_VERSION,
        "time": model.time.about(),
        "gain": model.gain.about(),
        "families": list(model.families),
        "about": dict(model.about),
    }
    key = _key(arrays, body)
    with output_file(path, TRAINED_MODEL) as part, zipfile.ZipFile(part, "w") as archive:
        parts = {_METADATA: json.dumps({**body, "sha256": key}, indent=1).encode()}
        parts |= {f"{name}.npy": _bytes(array) for name, array in arrays.items()}
        for name, data in parts.items():
            archive.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_DEFLATED)
    return key


def _is_model(path: Path) -> bool:
    """Whether a file says that it is a trained model, of whatever version."""
    try:
        with zipfile.ZipFile(path) as archive, archive.open(_METADATA) as file:
            body = json.loads(file.read(MOST_BYTES))
    except _DAMAGE:
        return False
    return isinstance(body, dict) and body.get("format") == FORMAT


TRAINED_MODEL = Kind("a trained model of autofuse", _is_model)


def load_model(path: str | os.PathLike[str]) -> ProfitabilityModel:
    """The model in a file; InputError when it is no model, is damaged, or has other features."""
    place = Path(path)
    if place.exists() and not place.is_file():
        raise InputError(f"model {str(place)!r}: it is no regular file")
    try:
        with zipfile.ZipFile(place) as archive:
            body, arrays = _contents(archive)
        version = body.get("features_version")
        if body.get("format") != FORMAT or body.get("schema") != SCHEMA:
            raise InputError(f"it is no {FORMAT} file of schema {SCHEMA}")
        if version != FEATURES_VERSION:
            raise InputError(
                f"it was trained on features of version {version!r}, this autofuse has version {FEATURES_VERSION}: "
                "train it again (`autofuse model train`)"
            )
        if body.pop("sha256", None) != _key(arrays, body):
            raise InputError("its content does not match its SHA-256")
        return _model(arrays, body)
    except InputError as error:
        raise InputError(f"model {str(place)!r}: {error}") from error
    except _DAMAGE as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else "it is damaged, or no model"
        raise InputError(f"model {str(place)!r}: {reason}") from error


def find_model(asked: str | None) -> Path | None:
    """The file that `--model` means: "none", a path, the name of a shipped model, or None: the shipped default.

    None where no model is wanted, or nothing was asked for and none is shipped.
    """
    shipped = named_files(FOLDER, SUFFIX)
    if asked is None:
        return shipped.get(DEFAULT)
    if asked == "none":
        return None
    if asked in shipped:
        return shipped[asked]
    if not Path(asked).exists():
        raise InputError(f"--model: {asked!r} is no file; allowed: none, {', '.join((*shipped, 'or a model file'))}")
    return Path(asked)


def _model(arrays: Mapping[str, NDArray[Any]], body: Mapping[str, Any]) -> ProfitabilityModel:
    families, about = body.get("families"), body.get("about")
    if (
        not isinstance(families, list)
        or not all(isinstance(one, str) for one in families)
        or not isinstance(about, dict)
    ):
        raise InputError("it does not say what it was trained on")
    made = []
    for name, known in (("time", time_names()), ("gain", gain_names())):
        described = body.get(name)
        if not isinstance(described, dict):
            raise InputError(f"it has no part {name!r}")
        learned = Calibrated.from_parts(name, arrays, described)
        unknown = sorted(set(learned.names) - known)
        if unknown:
            raise InputError(f"{name}: {unknown[0]!r} is no feature")
        made.append(learned)
    return ProfitabilityModel(made[0], made[1], tuple(families), about)


def _contents(archive: zipfile.ZipFile) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    members = archive.infolist()
    if sum(member.file_size for member in members) > MOST_BYTES:
        raise InputError(f"it unpacks to more than {MOST_BYTES >> 20} MB")
    body: Any = None
    arrays = {}
    for member in members:
        if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise InputError(f"{member.filename}: it is packed in a way that models are not")
        data = archive.read(member)
        if member.filename == _METADATA:
            body = json.loads(data)
        else:
            arrays[member.filename.removesuffix(".npy")] = _array(member.filename, data)
    if not isinstance(body, dict):
        raise InputError(f"it has no {_METADATA}")
    return body, arrays


def _bytes(array: NDArray[Any]) -> bytes:
    stream = io.BytesIO()
    np.lib.format.write_array(stream, np.ascontiguousarray(array), version=(1, 0), allow_pickle=False)
    return stream.getvalue()


def _array(name: str, data: bytes) -> NDArray[Any]:
    """A list of numbers, of exactly the length that its header states."""
    stream = io.BytesIO(data)
    if np.lib.format.read_magic(stream) != (1, 0):
        raise InputError(f"{name}: it is in another version of numpy's format")
    shape, _, dtype = np.lib.format.read_array_header_1_0(stream)
    rest = memoryview(data)[stream.tell() :]
    if dtype.hasobject or dtype.kind not in "fi" or len(shape) != 1 or shape[0] * dtype.itemsize != len(rest):
        raise InputError(f"{name}: it is no list of numbers")
    return np.frombuffer(rest, dtype)


def _key(arrays: Mapping[str, NDArray[Any]], body: Mapping[str, Any]) -> str:
    """SHA-256 of everything that the file says."""
    digest = hashlib.sha256(json.dumps(body, sort_keys=True, separators=(",", ":")).encode())
    for name in sorted(arrays):
        digest.update(f"{name} {arrays[name].dtype.str} {len(arrays[name])}\n".encode())
        digest.update(np.ascontiguousarray(arrays[name]).tobytes())
    return digest.hexdigest()


@cache
def _sample() -> tuple[dict[str, float], Machine]:
    """Facts of the smallest workload there is, on some machine: what features are called does not depend on either."""
    values = (Value("input", (8,), "float32"), Value("output", (8,), "float32"))
    workload = Workload(values, (WorkloadOperator("Relu", (0,), (1,)),), 18)
    return facts_of(workload), Machine("generic", 4, 16, 1, 1 << 15, 1 << 18, 1 << 18, 1)


def time_names() -> frozenset[str]:
    """Names of the features of a workload."""
    facts, machine = _sample()
    return frozenset(on_machine(facts, machine))


def gain_names() -> frozenset[str]:
    """Names of the features of a cut."""
    facts, machine = _sample()
    return frozenset(cut_features(facts, [facts], machine, 1))
