"""What `quantize` says: every contraction with its precision and why, the sets that were tried, the certificate."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.text import Text

from autofuse.cli.screens.render import describe, plain, records
from autofuse.values.ratios import percent_text

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
            | {"time_us": one.time_us, "mean drop": percent_text(one.drop)}
            for one in found.front
        ]
        parts += ["", records(plain(tried), "sets tried, on the calibration data")]
    return Group(*parts, "", describe({"written": found.output, **found.certificate.facts(kinds)}), *_warnings(found))


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
