"""What quantised models lose, and the fronts of time against accuracy: as their runs' certificates have it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from autofuse.graph.transform.quantize.certificate import CERTIFICATE, Certificate, read_certificate

if TYPE_CHECKING:
    from autofuse.database.records import RunInfo
    from autofuse.views.frames.analysis import Analysis

FLOAT, TRIED, WRITTEN = "float32", "tried", "written"
"""What a point of a front is: the float model, a set that was tried on calibration data, a model that was written."""


def certificate_of_run(info: RunInfo) -> Certificate | None:
    """The certificate of the model that a run tuned; None of models that `quantize` did not write."""
    return read_certificate(info.provenance.get(CERTIFICATE))


def front_of_contractions(certificate: Certificate) -> list[dict[str, Any]]:
    """The sets of precisions that `quantize` weighed, by the sum of the contractions' times; see `_point`."""
    front = certificate.front
    if front is None:
        return []
    tried = [_point(TRIED, _words(one.counts), one.time_us, one.drop) for one in front.tried]
    ends = [_point(FLOAT, "all in float32", front.float_us, 0.0), _written(certificate, front.chosen_us)]
    return sorted([*tried, *ends], key=lambda point: (-point["us"], point["drop"]))


def front_of_models(analysis: Analysis, info: RunInfo) -> list[dict[str, Any]]:
    """The models that were made of one float model and tuned where `info` was, and that model itself, each by the time
    of its newest chosen plan as a whole; empty where there is one alone. See `_point`."""
    own, runs = certificate_of_run(info), analysis.runs
    source = _source(own, info.graph_key)
    place = (info.setting.device, info.setting.target, info.setting.threads)
    here = [
        (row, told)
        for row in runs.sort_values("run_id").to_dict("records")
        if (row["device_fingerprint"], row["target_key"], row["threads"]) == place
        and _source(told := read_certificate(row["provenance"].get(CERTIFICATE)), row["graph_key"]) == source
    ]
    if not source or all(told is None for _, told in here):
        return []
    chosen = analysis.choices.dropna(subset=["median_us"])
    times = {row["run_id"]: (float(row["median_us"]), bool(row["trusted"])) for row in chosen.to_dict("records")}
    found: dict[str, dict[str, Any]] = {}
    for row, told in here:
        if row["run_id"] in times:
            us, trusted = times[row["run_id"]]
            point = _point(FLOAT, "", us, 0.0) if told is None else _written(told, us)
            found[row["model_sha256"]] = point | {"label": str(row["model_name"]), "trusted": trusted}
    return sorted(found.values(), key=lambda point: -point["us"]) if len(found) > 1 else []


def _source(certificate: Certificate | None, graph_key: str) -> str:
    """Key of the float model's graph: of one that has no certificate, its own."""
    if certificate is None:
        return graph_key
    return "" if certificate.front is None else certificate.front.source


def _written(certificate: Certificate, us: float) -> dict[str, Any]:
    """A model that was written, with the bounds of its drop on the acceptance data."""
    drop = certificate.drop
    label = _words(certificate.counts)
    return _point(WRITTEN, label, us, drop.mean) | {"lo": drop.lo, "hi": drop.hi}


def _point(kind: str, label: str, us: float, drop: float) -> dict[str, Any]:
    """A point of a front: microseconds, and what is lost, with its bounds where they are known."""
    return {"kind": kind, "label": label, "us": us, "drop": drop, "lo": None, "hi": None, "trusted": True}


def _words(counts: Any) -> str:
    return ", ".join(f"{count} in {kind}" for kind, count in counts.items() if count) or "all in float32"
