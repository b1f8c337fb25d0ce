"""What `quantize` says: every contraction with its precision and why, the sets that were tried, the certificate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.text import Text

from autofuse.cli.screens.render import describe, plain, records
from autofuse.values.arguments import micros

if TYPE_CHECKING:
    from autofuse.api.results import Quantized


def quantize_body(found: Quantized) -> dict[str, Any]:
    """The object of `quantize --format json`: the report, and how many contractions are in each precision."""
    return {**vars(found), "counts": found.counts}


def quantize_text(found: Quantized) -> Group:
    """Tables of the contractions and of the sets that were tried, then the certificate."""
    kinds = [kind for kind in found.counts if any(kind in one.us for one in found.contractions)]
    rows = [
        {
            "operator": one.operator,
            "type": one.op_type,
            "precision": one.precision,
            "why": one.why,
            "added noise": "-" if one.noise is None else f"{one.noise:.1e}",
            **{f"{kind}_us": one.us.get(kind) for kind in ("float32", *kinds)},
            "times": one.times,
        }
        for one in found.contractions
    ]
    parts: list[RenderableType] = [records(plain(rows), "contractions")]
    if found.front:
        tried = [
            {f"in {kind}": one.counts[kind] for kind in kinds}
            | {"time_us": one.time_us, "mean drop": _percent(one.drop)}
            for one in found.front
        ]
        parts += ["", records(plain(tried), "sets tried, on the calibration data")]
    return Group(*parts, "", describe(_certificate(found, kinds)), *_warnings(found))


def _certificate(found: Quantized, kinds: Sequence[str]) -> dict[str, str]:
    drop, total = found.drop, len(found.contractions)
    return {
        "written": found.output,
        **{f"in {kind}": f"{found.counts[kind]} of {total} contractions" for kind in kinds},
        "times": f"{micros(found.float_us)} in float32, {micros(found.chosen_us)} now (contractions only)",
        "metric": f"{found.metric}: {found.meaning}",
        "drop": f"{_percent(drop.mean)} on {found.acceptance.samples} samples, at most {_percent(drop.hi)} "
        f"with {drop.confidence:.0%} confidence (allowed: {_percent(found.max_drop)})",
        "calibration": f"{found.calibration.samples} samples, sha256 {found.calibration.sha256[:16]}",
        "acceptance": f"{found.acceptance.samples} samples, sha256 {found.acceptance.sha256[:16]}"
        + (" (kept back from the calibration data)" if found.acceptance.held_out else ""),
    }


def _warnings(found: Quantized) -> list[Text]:
    """What makes the times less than measured ones that are trusted."""
    words = {one.times for one in found.contractions}
    texts = []
    if words & {"estimated", "measured in part"}:
        texts.append("Some times are estimates: tune the float model and this one, then quantize again to choose by "
                     "measured times.")  # fmt: skip
    if "measured, not trusted" in words:
        texts.append("Some times are not trusted: what they decide is known when both models were tuned on a machine "
                     "that does nothing else.")  # fmt: skip
    return [Text(), *(Text(text, style="dim") for text in texts)] if texts else []


def _percent(part: float) -> str:
    return f"{100 * part:.3g} %"
