"""Why nothing is gained by narrow numbers: said where no contraction would multiply such, whatever may be lost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from autofuse.graph.transform.quantize.sites import Sites
from autofuse.precision.choices import Cast
from autofuse.precision.cost import DOUBTED, ESTIMATED, ContractionTime
from autofuse.precision.names import FLOAT


def no_gain(sites: Sites, times: Mapping[str, ContractionTime], casts: Sequence[Cast]) -> str:
    """The reason, by which times it is known, and what would help; data and a larger drop would not."""
    faster = {name: time for name, time in times.items() if time.is_faster(time.nearest)}
    said = _unpaid(sites, faster, casts) if faster else _slower(sites, times)
    return f"{said}; neither more data nor a larger --max-drop changes that, but {_help(times)}"


def _slower(sites: Sites, times: Mapping[str, ContractionTime]) -> str:
    nearest = min(times, key=lambda name: times[name].us[times[name].nearest] / times[name].us[FLOAT])
    time = times[nearest]
    allowed = " or ".join(dict.fromkeys(precision for _, precision in sites.options))
    beyond = " beyond noise" if time.saved_us(time.nearest) > 0 else ""
    return (
        f"no contraction is faster in {allowed}{beyond}: {nearest} comes nearest, with {_us(time.us[time.nearest])} in "
        f"{time.nearest} and {_us(time.us[FLOAT])} in float32 ({time.known})"
    )


def _unpaid(sites: Sites, faster: Mapping[str, ContractionTime], casts: Sequence[Cast]) -> str:
    read = {tensor for name in faster for tensor in sites.roots(sites.by_name[name])}
    made = sum(cast.us for cast in casts if cast.tensor in read and cast.maker not in faster)
    saved = sum(time.saved_us(time.nearest) for time in faster.values())
    return (
        f"what int8 saves does not pay for making bytes of what is read: {_us(saved)} at {len(faster)} of its "
        f"contractions ({', '.join(sorted({time.known for time in faster.values()}))}), against {_us(made)} "
        "(estimated)"
    )


def _help(times: Mapping[str, ContractionTime]) -> str:
    """What may change times of this kind."""
    known = {word for time in times.values() for word in time.words.values()}
    if known == {ESTIMATED}:
        return "a device that multiplies bytes faster may (--device)"
    if DOUBTED in known:
        return "times that are trusted may: measure on a machine that does nothing else (autofuse tune, both models)"
    return "tuning both models for longer may (autofuse tune), and so may a device that multiplies bytes faster"


def _us(value_us: float) -> str:
    return f"{value_us:.3g} µs"
