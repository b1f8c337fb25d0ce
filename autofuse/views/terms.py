"""The words of the screens, each in one sentence; a screen ends with those that it uses."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache
from types import MappingProxyType

from autofuse.fusion.evidence import LAUNCH_US
from autofuse.values.ratios import LONG_US, MIN_BLOCKS, MIN_LONG_BLOCKS, TOLERANCE

TERMS: Mapping[str, str] = MappingProxyType(
    {
        "median": "the median time of a call over the good blocks that all plans of a race have in common",
        "ratio": (
            "one median over another of the same blocks, with its 95 % interval; there is none below "
            f"{MIN_BLOCKS} good blocks ({MIN_LONG_BLOCKS} where a call takes {LONG_US / 1e6:g} s or more)"
        ),
        "trusted": (
            "of a time: clock and noise were good enough for it to count; of a ratio of one race: its interval decides "
            f"it, as faster, as slower, or as no difference of more than {TOLERANCE:.0%}"
        ),
        "trusted decisions": (
            "the part of the time of the kernels decided on in which the decision is trusted: all of it where one race "
            "of whole networks decided the plan with its schedules, else those whose ratio to their first schedule is"
        ),
        "undecided": "the noise of a race leaves open which is faster; then the simpler plan is chosen",
        "composed": (
            f"the sum of a plan's kernels, each timed alone, plus {LAUNCH_US:g} µs for calling each; "
            "the search goes by it"
        ),
        "bound": "no plan of the measured kernels can be faster than this sum",
        "gap": "how much faster the exactly composed plan is than the best sampled one",
        "if fused, if apart": (
            "the kernels around the edge as one and as two, each timed alone, plus "
            f"{LAUNCH_US:g} µs for calling each; with 95 % intervals"
        ),
        "peak memory": "the most that the tensors between the kernels need at once; weights are not counted",
        "tier": (
            "how it is known: hit (measured here; tile: a tile of rows of an open size was), stale, similar device, "
            "nearest shape, model, rule, none"
        ),
        "no fusion": "plan none: our kernels with their tuned schedules, one operator a kernel",
        "default": "the plan of the fixed rules, where the search begins",
        "untuned": "the plan of the fixed rules with first schedules: what is compiled where nothing was measured",
        "search": "the best plan that was sampled",
        "previous": "the plan that an earlier run chose",
        "model": "the plan that a trained model chose",
        "dnnfusion": "the plan of the paper's rules",
        "always": "the plan that fuses whatever may be fused",
        "tvm-partition": "the kernels that TVM's own pass would fuse, built as ours",
        "tvm-untuned": "TVM's default pipeline as it comes, nothing tuned",
        "largest error": "against ONNX Runtime, as a part of the output's range",
        "known already": "found in the database and not measured again",
        "anchor": "the operator that shapes a kernel's loops; the others are computed along with it",
        "mapping type": "how an operator's outputs depend on its inputs, in DNNFusion's words",
        "open decisions": "what a search may decide, each at one place of the model or at several alike",
        "regions": (
            "parts of the model that can be decided one by one; there are more of them where nothing was measured that "
            "joins two"
        ),
        "distinct": "regions that differ: equal ones are decided once",
        "cuts": "groups that would wait for one another, and had to be forbidden",
        "share of the estimate": "of the time that FLOPs and bytes let expect; what is of open size counts for nothing",
        "workload": "equal kernels of one model or of several; it is measured once",
        "gain an hour": "part of the time that an hour more of search is expected to save",
        "expected of no fusion": "composed time of plan none over that of the best plan so far",
        "over first schedule": "the chosen schedule against the first one that was measured for the group",
        "fixed rule": "the schedule that a kernel family takes where nothing was measured",
        "hollow dot": "a ratio that is not trusted",
        "of peak": "operations a second, of what the machine's probe reached; Winograd may go above 100 %",
        "of bandwidth": "bytes a second, of what the machine's memory probe reached; caches may go above 100 %",
        "remainder": "what whole networks took beyond what the sums of their kernels say",
        "regrouped": "as many kernels as before, cut elsewhere",
        "added noise": (
            "what a contraction in its precision (in float32: in the quietest other one) alone changes in the outputs: "
            "squares of differences over squares of outputs"
        ),
        "mean drop": "what the metric loses against the float model, on average over the samples",
        "#": "the first digits of a kernel's key, where two kernels have the same name",
    }
)

_PLANS = ("default", "untuned", "search", "previous", "model", "dnnfusion", "always")
"""Names of plans that are words of everyday, too: a row of a table begins with them, and a number follows."""
_ROW = r"^(?:\| )?\**{}\**(?: \(chosen\))?[ |]+\d"
_MARKS: Mapping[str, str] = {
    "ratio": r"\bratio\b|(?<!expected )\bof (?:no fusion|ONNX Runtime)\b|rival / autofuse|\bA / B\b|\bas fast as\b",
    "composed": r"\bcomposed\b|sum of kernels",
    "if fused, if apart": r"\bif (?:fused|apart)\b",
    "no fusion": r"\b(?:no|without) fusion\b|" + _ROW.format("none"),
    "largest error": r"\blargest error\b|\bmax rel error\b",
    "anchor": r"\(anchors? ",
    "#": r" #[0-9a-f]{4}",
    **{name: _ROW.format(name) for name in _PLANS},
}


def explained(terms: Iterable[str]) -> str:
    """One line a term."""
    return "\n".join(f"{term}: {TERMS[term]}" for term in terms)


def used_in(text: str) -> list[str]:
    """The terms that stand in a screen's text, in the order of `TERMS`."""
    return [term for term in TERMS if _mark(term).search(text)]


@cache
def _mark(term: str) -> re.Pattern[str]:
    """What shows that a term stands in a text: the term itself as a word, or what is put for it."""
    text = _MARKS.get(term) or rf"(?<![\w-]){re.escape(term)}s?(?![\w-])"
    return re.compile(text, re.IGNORECASE | re.MULTILINE)
