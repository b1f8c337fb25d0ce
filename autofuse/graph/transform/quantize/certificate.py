"""The certificate of a model that `quantize` wrote: what it may lose, on which data, and what was tried."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any

from pydantic import TypeAdapter, ValidationError

from autofuse.graph.model import Origin
from autofuse.values.arguments import micros
from autofuse.values.ratios import percent_text
from autofuse.values.statistics import MeanInterval

KEY = "autofuse.quantization"
"""Where the certificate stands among a model's metadata."""
CERTIFICATE = "certificate"
"""Where it stands in the provenance of a run, and in the file of a plan."""
_SHOWN_DIGITS = 16
"""Of a SHA-256, for people."""


@dataclass(frozen=True)
class Data:
    """Samples that were used. `sha256`: of their arrays; `held_out`: taken from the calibration data."""

    samples: int
    sha256: str
    held_out: bool = False


@dataclass(frozen=True)
class TriedSet:
    """A set of precisions that was tried: contractions in each besides float32, the sum of all contractions' times, and
    the mean drop on the calibration data."""

    counts: Mapping[str, int]
    time_us: float
    drop: float


@dataclass(frozen=True)
class Front:
    """A front of time against accuracy: what was `tried` on the calibration data, from `float_us` (all contractions in
    float32, nothing lost) to `chosen_us` (what was written). Times are sums of the contractions alone.

    `source`: key of the float model's graph (see `autofuse.graph.key`), by which models made of it are found.
    """

    float_us: float
    chosen_us: float
    source: str
    tried: tuple[TriedSet, ...] = ()


@dataclass(frozen=True)
class Certificate:
    """A certificate. `drop`: the metric's mean on the acceptance data, with bounds that it keeps with the confidence
    beside them; the upper one is at most `max_drop`.

    `counts`: contractions in each precision besides float32; `float32`: those that stayed so, and why. `front`: None
    in certificates of earlier versions.
    """

    metric: str
    meaning: str
    max_drop: float
    ranges: str
    drop: MeanInterval
    calibration: Data
    acceptance: Data
    float32: Mapping[str, str]
    counts: Mapping[str, int]
    front: Front | None = None

    def to_json(self) -> dict[str, Any]:
        """What stands in a model's metadata, in a run, and in a plan's file: as here, but for one entry a precision."""
        body = asdict(self)
        return {**{name: value for name, value in body.items() if name != "counts"}, **self.counts}

    def facts(self, kinds: Iterable[str] = ()) -> dict[str, str]:
        """What people are told, by name; `kinds`: precisions that are named though nothing has them."""
        total, drop = sum(self.counts.values()) + len(self.float32), self.drop
        named = [kind for kind, count in self.counts.items() if count or kind in set(kinds)]
        return {
            **{f"in {kind}": f"{self.counts[kind]} of {total} contractions" for kind in named},
            **self._times(),
            "metric": f"{self.metric}: {self.meaning}",
            "drop": f"{percent_text(drop.mean)} on {self.acceptance.samples} samples, at most {percent_text(drop.hi)} "
            f"with {drop.confidence:.0%} confidence (allowed: {percent_text(self.max_drop)})",
            "calibration": _data(self.calibration),
            "acceptance": _data(self.acceptance),
        }

    def _times(self) -> dict[str, str]:
        if self.front is None:
            return {}
        told = f"{micros(self.front.float_us)} in float32, {micros(self.front.chosen_us)} now (contractions only)"
        return {"times": told}

    def beside(self, text: str) -> str:
        """The file of a plan (JSON text) of this model, with the certificate beside the plan: it is no part of that."""
        return json.dumps({**json.loads(text), CERTIFICATE: self.to_json()}, indent=1) + "\n"


def certificate_of(origin: Origin) -> Certificate | None:
    """The certificate of a model, by its metadata; None where there is none, or none that can be read."""
    try:
        return read_certificate(json.loads(origin.custom_metadata_map[KEY], parse_constant=_no_number))
    except (KeyError, ValueError):
        return None


def kept_metadata(origin: Origin) -> dict[str, str]:
    """What a file that is written of a model keeps of its metadata: the certificate."""
    return {name: text for name, text in origin.custom_metadata_map.items() if name == KEY}


def read_certificate(body: object) -> Certificate | None:
    """The certificate that `Certificate.to_json` wrote; None for anything else: nothing is computed with it."""
    if not isinstance(body, Mapping):
        return None
    known = set(Certificate.__dataclass_fields__) - {"counts"}
    counts = {name: value for name, value in body.items() if name not in known and isinstance(value, int)}
    try:
        return _reader().validate_python({name: body[name] for name in known & set(body)} | {"counts": counts})
    except ValidationError:
        return None


def _no_number(text: str) -> float:
    raise ValueError(f"{text} is no number that a certificate holds")


def _data(data: Data) -> str:
    kept = " (kept back from the calibration data)" if data.held_out else ""
    return f"{data.samples} samples, sha256 {data.sha256[:_SHOWN_DIGITS]}{kept}"


@cache
def _reader() -> TypeAdapter[Certificate]:
    return TypeAdapter(Certificate)
