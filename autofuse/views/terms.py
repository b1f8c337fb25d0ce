"""The words of the screens, each in one sentence; a screen ends with those that it uses."""

from __future__ import annotations

from collections.abc import Iterable

from autofuse.values.ratios import LONG_US, MIN_BLOCKS, MIN_LONG_BLOCKS

TERMS = {
    "median": "the median time of a call over the good blocks that all plans of a race have in common",
    "ratio": (
        "one median over another of the same blocks, with its 95 % interval; there is none below "
        f"{MIN_BLOCKS} good blocks ({MIN_LONG_BLOCKS} where a call takes {LONG_US / 1e6:g} s or more)"
    ),
    "trusted": "clock and noise were good enough for the time to count",
    "composed": "the sum of a plan's kernels, each timed alone: what the search ranks plans by",
    "bound": "no plan of the measured kernels can be faster than this sum",
    "gap": "how much faster the exactly composed plan is than the best sampled one",
    "tier": "how it is known: hit (measured here), stale, another CPU of the family, nearest shape, model, rule, none",
    "no fusion": "our kernels with their tuned schedules, one operator a kernel",
    "tvm-partition": "the kernels that TVM's own pass would fuse, built as ours",
    "tvm-untuned": "TVM's default pipeline as it comes, nothing tuned",
    "largest error": "against ONNX Runtime, as a part of the output's range",
    "over first schedule": "the chosen schedule against the first one that was measured for the group",
    "fixed rule": "the schedule that a kernel family takes where nothing was measured",
    "hollow dot": "a ratio of times that are not trusted",
    "of peak": "operations a second, of what the machine's probe reached; Winograd may go above 100 %",
    "of bandwidth": "bytes a second, of what the machine's memory probe reached; caches may go above 100 %",
    "#": "the first digits of a kernel's key, where two kernels have the same name",
}


def explained(terms: Iterable[str]) -> str:
    """One line a term."""
    return "\n".join(f"{term}: {TERMS[term]}" for term in terms)


def used_in(text: str) -> list[str]:
    """The terms that stand in a screen's text, in the order of `TERMS`."""
    return [term for term in TERMS if (" #" if term == "#" else term) in text.lower()]
