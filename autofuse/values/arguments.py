"""The values of what users write for durations, shapes and lists; the same on the command line and in Python."""

from __future__ import annotations

import json
import math
import os
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Literal, get_args

from autofuse.errors import InputError
from autofuse.values.names import NO_FUSION, ONNX_RUNTIME, TVM_UNTUNED, rival_name

StrPath = str | os.PathLike[str]
Shapes = Mapping[str, tuple[int, ...]]
Constants = Mapping[str, Any]
"""Values of inputs by name: a number, nested lists, an array, or a text such as "[0,2]" or "@axes.npy"."""
Duration = str | float | int
DEFAULT_BUDGET = "10m"
DEFAULT_PORT = 9091  # of `autofuse serve`; that of TVM's own server
DEFAULT_BENCH_BUDGET = "60s"
DEFAULT_MAX_DROP = "0.5%"
RIVALS = (ONNX_RUNTIME, TVM_UNTUNED, NO_FUSION)
DEFAULT_RIVALS = ",".join(RIVALS)
MissPolicy = Literal["rule", "model", "none", "fail"]
MISS_POLICIES = get_args(MissPolicy)
DEFAULT_ON_MISS: MissPolicy = "rule"
ScreenFormat = Literal["text", "json"]
SCREEN_FORMATS: tuple[ScreenFormat, ...] = get_args(ScreenFormat)
LibraryFormat = Literal["so", "c", "ort"]
"""Of a library: one that TVM's runtime runs, plain C with a header, or a model that ONNX Runtime runs."""
LIBRARY_FORMATS: tuple[LibraryFormat, ...] = get_args(LibraryFormat)

MOST_SEED = 2**32 - 1
MOST_SECONDS = 36500 * 86400.0
_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


@dataclass(frozen=True)
class Constant:
    """The value of a model's input, which makes a constant of it: its `numbers` in row-major order.

    `dtype`: numpy's name of an array's elements; "" for numbers that were written, which become what the input takes.
    """

    shape: tuple[int, ...]
    numbers: tuple[bool | int | float, ...]
    dtype: str = ""

    @property
    def text(self) -> str:
        """The value as `--constant` takes it."""
        left: list[Any] = list(self.numbers)
        for size in reversed(self.shape[1:]):
            left = [left[place : place + size] for place in range(0, len(left), size)] if size else left
        return json.dumps(left if self.shape else left[0], separators=(",", ":"))

    def to_json(self) -> dict[str, Any]:
        """Plain values, which `from_json` reads; numbers that JSON has not are texts."""
        numbers = [number if math.isfinite(number) else str(number) for number in self.numbers]
        return {"shape": list(self.shape), "numbers": numbers, "dtype": self.dtype}

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Constant:
        """The inverse of `to_json`."""
        numbers = tuple(float(number) if isinstance(number, str) else number for number in body["numbers"])
        return cls(tuple(body["shape"]), numbers, body["dtype"])


Given = Mapping[str, tuple[int, ...] | Constant]  # what is said of inputs by name: a shape, or the value itself


def named_inputs(given: Given) -> dict[str, dict[str, Any]]:
    """`given` as plain values: "shapes" and "constants"."""
    shapes = {name: list(one) for name, one in given.items() if isinstance(one, tuple)}
    constants = {name: one.to_json() for name, one in given.items() if isinstance(one, Constant)}
    return {"shapes": shapes, "constants": constants}


def parse_duration(duration: Duration, name: str = "duration") -> float:
    """Seconds of "90s", "10m", "8h", "1h30m" or a plain number of seconds; InputError names `name`."""
    if isinstance(duration, int | float) and not isinstance(duration, bool):
        seconds = float(duration)
    else:
        text = str(duration).strip().lower()
        parts = re.findall(r"(\d+(?:\.\d+)?)([smhd])", text)
        if text and "".join(number + unit for number, unit in parts) == text:
            seconds = sum(float(number) * _SECONDS[unit] for number, unit in parts)
        elif re.fullmatch(r"\d+(\.\d+)?", text):
            seconds = float(text)
        else:
            raise InputError(f"{name}: got {duration!r}, allowed: a duration such as 90s, 10m, 8h or 1h30m")
    if not 0 < seconds <= MOST_SECONDS:
        raise InputError(f"{name}: got {duration!r:.60}, allowed: a duration above zero, up to 100 years (36500d)")
    return seconds


def parse_size(text: str | int, name: str = "size") -> int:
    """Bytes of "500M", "2G", "512 KiB" or a plain number of bytes (K, M and G are powers of 1024)."""
    if isinstance(text, int) and not isinstance(text, bool):
        count = float(text)
    else:
        found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmg]?)(?:i?b)?", str(text).strip().lower())
        if found is None:
            raise InputError(f"{name}: got {text!r}, allowed: a size such as 500M, 2G or a number of bytes")
        count = float(found[1]) * 1024 ** " kmg".index(found[2] or " ")
    if not 0 < count < 2**63:
        raise InputError(f"{name}: got {text!r}, allowed: a size above zero")
    return int(count)


def micros(value_us: float | None) -> str:
    """A time with one digit (µs) or three behind the point: "812.0 µs", "6.712 ms", "1.250 s"."""
    if value_us is None or not math.isfinite(value_us):
        return "-"
    for limit, scale, unit in ((1e3, 1.0, "µs"), (1e6, 1e3, "ms")):
        if abs(value_us) < limit:
            scaled = value_us / scale
            return f"{scaled:.1f} {unit}" if unit == "µs" else f"{scaled:.3f} {unit}"
    return f"{value_us / 1e6:.3f} s"


def size(count: float) -> str:
    """Bytes in binary units: "512 B", "3.4 MiB"."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(count) < 1024 or unit == "GiB":
            return f"{count:.0f} B" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    raise AssertionError("unreachable")


def format_duration(seconds: float) -> str:
    """Two significant units: "4 s", "2 min 05 s", "1 h 30 min"."""
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def parse_until(text: str, now: datetime) -> float:
    """Seconds since 1970 of the next "06:30" after `now`, in its zone; InputError for what is no time of a day."""
    found = re.fullmatch(r"([01]?\d|2[0-3]):([0-5]\d)", text.strip())
    if found is None:
        raise InputError(f"--until: got {text!r}, allowed: a time of the day such as 06:30")
    end = now.replace(hour=int(found[1]), minute=int(found[2]), second=0, microsecond=0)
    return (end if end > now else end + timedelta(days=1)).timestamp()


def parse_percent(text: str | float, name: str) -> float:
    """A part between 0 and 1 of "0.5%" or "0.5" (percent both); InputError names `name`."""
    try:
        percent = float(str(text).strip().removesuffix("%"))
    except ValueError:
        percent = -1.0
    if not 0 < percent < 100:
        raise InputError(f"{name}: got {text!r}, allowed: percent between 0 and 100, such as 0.5")
    return percent / 100


def parse_executor(text: str | None) -> str | None:
    """Address of a Dask scheduler from "dask://HOST:PORT"; None for "local" and None (processes of this machine)."""
    if text is None or text == "local":
        return None
    found = re.fullmatch(r"dask://([A-Za-z0-9.:\[\]_-]+:\d{1,5})", text.strip())
    if found is None:
        raise InputError(f"--executor: got {text!r}, allowed: local, or dask://HOST:PORT of a Dask scheduler")
    return f"tcp://{found[1]}"


def parse_shapes(texts: Iterable[str]) -> dict[str, tuple[int, ...]]:
    """Shapes of model inputs from texts such as "image=1,3,224,224"; "scalar=" is the empty shape."""
    shapes: dict[str, tuple[int, ...]] = {}
    for text in texts:
        name, shape = _shape(text)
        if name in shapes:
            raise InputError(f"--shape: input {name!r} is given twice")
        shapes[name] = shape
    return shapes


def parse_shape_sets(texts: Iterable[str]) -> list[dict[str, tuple[int, ...]]]:
    """One or several sets of shapes: the second "image=..." belongs to the second set, and so on.

    An input that is given once has that shape in all of them.
    """
    given: dict[str, list[tuple[int, ...]]] = {}
    for text in texts:
        name, shape = _shape(text)
        given.setdefault(name, []).append(shape)
    count = max(map(len, given.values()), default=1)
    for name, shapes in given.items():
        if len(shapes) not in (1, count):
            raise InputError(
                f"--shape: {name!r} is given {len(shapes)} times, another input {count}: give each as often"
            )
    return [{name: shapes[number % len(shapes)] for name, shapes in given.items()} for number in range(count)]


def parse_constants(texts: Iterable[str]) -> dict[str, str]:
    """Values of inputs, as they are written, from texts such as "axes=[0,2]" and "axes=@axes.npy"."""
    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=@") if "=@" in text else text.rpartition("=")
        if not equals or not name or not value:
            raise InputError(f"--constant: got {text!r:.200}, allowed: NAME=VALUE such as axes=[0,2] or axes=@axes.npy")
        if name in found:
            raise InputError(f"--constant: input {name!r} is given twice")
        found[name] = f"{equals[1:]}{value}"
    return found


def given_inputs(shapes: Shapes | None, constants: Constants | None) -> dict[str, tuple[int, ...] | Constant]:
    """Shapes and values of inputs as one; InputError for an input that has both, and for a value that is none."""
    given: dict[str, tuple[int, ...] | Constant] = dict(shapes or {})
    for name, value in (constants or {}).items():
        if name in given:
            raise InputError(f"--constant {name}: the input is given a shape, too; its value is enough")
        given[name] = _constant(name, value)
    return given


def _constant(name: str, value: Any) -> Constant:
    if isinstance(value, str):
        at, path = value.startswith("@"), Path(value[1:])
        value = read_array(path, f"--constant {name}") if at else _read_numbers(name, value)
    import numpy as np  # here: most commands need no arrays

    try:
        array = np.asarray(value)
    except ValueError as error:  # rows of several lengths
        raise InputError(f"--constant {name}: got {value!r:.200}, allowed: rows of one length") from error
    typed = hasattr(value, "dtype")
    numbers = array.reshape(-1).tolist()
    if not all(isinstance(number, bool | int | float) for number in numbers):
        raise InputError(f"--constant {name}: got {value!r:.200}, allowed: {_VALUES}")
    if not typed and array.dtype.kind == "f":  # as they were written: numpy makes floats of all
        numbers = _leaves(value)
    return Constant(array.shape, tuple(numbers), array.dtype.name if typed else "")


_VALUES = "a number, true, false, lists of these such as [0,2], or @FILE.npy"


def _read_numbers(name: str, text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"--constant {name}: got {text!r:.200}, allowed: {_VALUES}") from error


def _leaves(value: Any) -> list[Any]:
    """The numbers of nested lists, each as it was written."""
    return [leaf for one in value for leaf in _leaves(one)] if isinstance(value, list | tuple) else [value]


def parse_buckets(texts: Iterable[str]) -> dict[str, tuple[int, ...]]:
    """Sizes by name from texts such as "batch=1,4,8"."""
    buckets: dict[str, tuple[int, ...]] = {}
    for text in texts:
        name, equals, sizes = text.rpartition("=")
        parts = [part.strip() for part in sizes.split(",")]
        if not equals or not name or not all(map(whole_number, parts)):
            raise InputError(f"--buckets: got {text!r:.200}, allowed: NAME=SIZES such as batch=1,4,8")
        if name in buckets:
            raise InputError(f"--buckets: {name!r} is given twice")
        buckets[name] = tuple(map(int, parts))
    return buckets


def whole_number(text: str) -> int | None:
    """A whole number in digits, such that every database and array can hold it; None for another text."""
    return int(text) if re.fullmatch(r"[0-9]{1,18}", text) else None


def file_title(path: Path) -> str:
    """The name of a file without its suffix, as text: names of files need not be that, what databases hold must."""
    return os.fsencode(path.stem).decode("utf-8", "replace")


def parse_files(texts: Iterable[str]) -> dict[str, str]:
    """Files by name from texts such as "image=cat.npy"; what names nothing stands under ""."""
    return {name: file for name, _, file in (text.rpartition("=") for text in texts)}


def read_array(file: Path, name: str) -> Any:
    """The array in a .npy file, which the option `name` names. InputError when it holds none of numbers."""
    import numpy as np

    try:
        if not file.is_file():
            raise OSError("no such file")
        array = np.load(file, allow_pickle=False)
    except Exception as error:  # NumPy's parsers raise what they like: zlib.error, TokenError, NotImplementedError, ...
        reason = error if isinstance(error, OSError) else "it is damaged, or holds no numbers"
        raise InputError(f"{name}: {file}: not a readable .npy file: {reason}") from error
    if not isinstance(array, np.ndarray):
        raise InputError(f"{name}: {file}: an archive of several arrays; name a .npy file")
    return array


def _shape(text: str) -> tuple[str, tuple[int, ...]]:
    name, equals, sizes = text.rpartition("=")
    if not equals or not name:
        raise InputError(f"--shape: got {text!r}, allowed: NAME=SIZES such as image=1,3,224,224")
    parts = [part.strip() for part in re.split(r"[,x]", sizes)] if sizes.strip() else []
    if not all(map(whole_number, parts)):
        raise InputError(
            f"--shape: sizes of {name!r}: got {sizes!r:.200}, allowed: positive integers such as 1,3,224,224"
        )
    return name, tuple(int(part) for part in parts)


def parse_rivals(text: str | Iterable[str]) -> tuple[str, ...]:
    """Rivals of a bench from "onnxruntime,tvm-untuned,none" (or a list), each once, in the order given."""
    names = [rival_name(name.strip()) for name in (text.split(",") if isinstance(text, str) else text)]
    for name in names:
        if name not in RIVALS:
            raise InputError(f"--against: got {name!r}, allowed: {', '.join(RIVALS)}")
    return tuple(dict.fromkeys(names))


def check_seed(seed: int) -> int:
    """`seed`, when all generators of random numbers take it."""
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed <= MOST_SEED:
        raise InputError(f"--seed: got {seed!r:.60}, allowed: an integer from 0 to {MOST_SEED}")
    return seed


def check_trials(trials: int | None) -> int | None:
    """`trials`, when it is None or a number of candidates."""
    if trials is not None and (isinstance(trials, bool) or not isinstance(trials, int) or trials < 1):
        raise InputError(f"--trials: got {trials!r:.60}, allowed: an integer from 1")
    return trials


def check_library_format(text: str | None) -> LibraryFormat:
    """The format of a library; None: "so"."""
    for known in LIBRARY_FORMATS:
        if text in (known, None):
            return known
    raise InputError(f"--format: got {text!r}, allowed: {', '.join(LIBRARY_FORMATS)}")


def parse_formats(texts: Sequence[str]) -> tuple[LibraryFormat | None, ScreenFormat]:
    """The formats of a library (None: not named) and of the screen ("text" where it is not named)."""
    library = [known for known in LIBRARY_FORMATS if known in texts]
    screen = [known for known in SCREEN_FORMATS if known in texts]
    for found in (library, screen):
        if len(found) > 1:
            raise InputError(f"--format: got {' and '.join(found)}, allowed: one of them")
    return (library[0] if library else None), (screen[0] if screen else "text")


def check_miss_policy(policy: str) -> str:
    """`policy`, when it is one of `MISS_POLICIES`: the last rung of the ladder for what was never measured here.

    Schedules of a similar device and of the nearest shape come before it. "rule": the default plan and the fixed
    schedule of a kernel family; "model": the plan that a trained model expects to be fast, and the same schedules;
    "none": no fusion, with fixed schedules; "fail": stop with a strict miss, also where another device or shape was
    measured.
    """
    if policy not in MISS_POLICIES:
        raise InputError(f"--on-miss: got {policy!r}, allowed: {', '.join(MISS_POLICIES)}")
    return policy


def without_secrets(words: Sequence[str]) -> list[str]:
    """A command line whose keys are hidden."""
    hidden = []
    secret = False
    for word in words:
        name, equals, _ = word.partition("=")
        is_key = name in ("--key", "--rpc-key")
        hidden.append("..." if secret else f"{name}=..." if is_key and equals else word)
        secret = is_key and not equals
    return hidden


def command_line(words: Iterable[str]) -> str:
    """Words as a shell reads them: a name that is no text, or has control characters, as its bytes in `$'...'`."""
    return " ".join(shlex.quote(word) if word.isprintable() else f"$'{''.join(map(_escaped, word))}'" for word in words)


def _escaped(char: str) -> str:
    """A character between the quotes of `$'...'`; Python has a byte that is no text as one of 128 surrogates."""
    if char in "'\\":
        return f"\\{char}"
    if char.isprintable():
        return char
    alone = 0xDC80 <= ord(char) <= 0xDCFF
    return "".join(f"\\{byte:03o}" for byte in char.encode("utf-8", "surrogateescape" if alone else "surrogatepass"))
