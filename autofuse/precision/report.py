"""What `quantize` says of a model: the certificate, which also stands in the written file, and every contraction."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from autofuse.graph.model import Graph
from autofuse.graph.submodel import annotated_model
from autofuse.graph.transform.quantize.certificate import KEY, Certificate, Data, Front, TriedSet
from autofuse.graph.transform.quantize.nibbles import pack_nibbles
from autofuse.graph.transform.quantize.sites import BF16, INT8, NARROW
from autofuse.precision.names import FLOAT
from autofuse.values.outputs import Kind, has_metadata
from autofuse.values.statistics import MeanInterval

MODEL = Kind("a model that autofuse quantised", lambda path: has_metadata(path, KEY))


@dataclass(frozen=True)
class ContractionReport:
    """A contraction's precision, and why. `noise`: what it alone adds to the outputs in that precision, or in the
    quietest where it is float32 (None: it was not tried). `us`: of its kernel in each precision that it may have, and
    `times`: how they are known ("measured": all, in the database; "measured, not trusted")."""

    operator: str
    op_type: str
    precision: str
    why: str
    noise: float | None = None
    us: Mapping[str, float] = field(default_factory=dict)
    times: str = ""


def counts(precisions: Iterable[str]) -> dict[str, int]:
    """How many contractions have each precision besides float32."""
    given = list(precisions)
    return {kind: given.count(kind) for kind in NARROW}


@dataclass(frozen=True)
class Quantized:
    """A quantised model that was written.

    `drop`: the metric's mean on the acceptance data, with bounds that it keeps with the confidence beside them; the
    upper one is at most `max_drop`. `float_us`, `chosen_us`: sums of the contractions' times before and after.
    `front`: what was tried on the calibration data. `rounds`: measurements on the acceptance data until the bound held.
    `source`: key of the float model's graph.
    """

    model: str
    output: str
    metric: str
    meaning: str
    max_drop: float
    drop: MeanInterval
    calibration: Data
    acceptance: Data
    ranges: str
    contractions: tuple[ContractionReport, ...]
    float_us: float
    chosen_us: float
    front: tuple[TriedSet, ...]
    rounds: int
    source: str

    @property
    def counts(self) -> dict[str, int]:
        """Contractions in each precision besides float32."""
        return counts(one.precision for one in self.contractions)

    @property
    def int8(self) -> int:
        """Contractions that multiply integers."""
        return self.counts[INT8]

    @property
    def bf16(self) -> int:
        """Contractions that multiply bfloat16."""
        return self.counts[BF16]

    @property
    def certificate(self) -> Certificate:
        """What stands in the written model, and from there in libraries, runs and plans."""
        stayed = {one.operator: one.why for one in self.contractions if one.precision == FLOAT}
        front = Front(self.float_us, self.chosen_us, self.source, self.front)
        return Certificate(
            self.metric, self.meaning, self.max_drop, self.ranges, self.drop, self.calibration, self.acceptance,
            stayed, self.counts, front,
        )  # fmt: skip


def quantised_bytes(graph: Graph, report: Quantized) -> bytes:
    """The file of a quantised graph: with the metadata of the model that it was, and the certificate."""
    about: Mapping[str, str] = {**graph.origin.custom_metadata_map, KEY: json.dumps(report.certificate.to_json())}
    model = annotated_model(graph, {}, about)
    pack_nibbles(model)
    data: bytes = model.SerializeToString()
    return data
