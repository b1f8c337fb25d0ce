"""What TVM's importer was checked for: the variants that were checked against ONNX, as `checked.json` lists them.

`make importer-check` writes that file (experiments/importer_check); nobody edits it by hand.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import metadata, resources
from typing import Any

from autofuse.kernels.importer.variant import Variant, variant_of
from autofuse.kernels.workload.workload import Workload

Entry = Mapping[str, Any]
"""Facet -> values: every combination of them was checked. `because`: how the results differed, of a wrong one."""


@cache
def check_list() -> Mapping[str, Any]:
    """The whole file: `versions`, and operator -> entries under `right` and `wrong`."""
    text = resources.files("autofuse.kernels.importer").joinpath("checked.json").read_text(encoding="utf-8")
    found: Mapping[str, Any] = json.loads(text)
    return found


@cache
def _other_version() -> str:
    was, now = check_list()["versions"]["apache-tvm"], metadata.version("apache-tvm")
    return "" if was == now else f"TVM's importer was checked in version {was}, and {now} is installed"


def unchecked(workload: Workload) -> str | None:
    """Why the importer's result for `workload` may be wrong; None when each operator's variant was right."""
    if _other_version():
        return _other_version()
    for operator in workload.operators:
        reason = _reason(variant_of(workload, operator))
        if reason is not None:
            return f"{operator.op_type}: {reason}"
    return None


@cache
def _reason(variant: Variant) -> str | None:
    if _entry(check_list()["right"].get(variant.operator, ()), variant) is not None:
        return None
    if not any(variant.operator in check_list()[part] for part in ("right", "wrong")):
        return "TVM's importer has no kernel of it that agrees with ONNX"
    wrong = _entry(check_list()["wrong"].get(variant.operator, ()), variant)
    if wrong is not None:
        return f"what TVM computes differs from ONNX ({variant})"
    return f"what TVM computes was not checked against ONNX ({variant})"


def _entry(entries: Sequence[Entry], variant: Variant) -> Entry | None:
    """The entry that speaks for a variant."""
    facets = variant.facets
    return next((entry for entry in entries if _speaks_for(entry, facets)), None)


def _speaks_for(entry: Entry, facets: Mapping[str, str | int]) -> bool:
    listed = set(entry) - {"because"}
    return set(facets) <= listed and all(facets.get(name, "") in entry[name] for name in listed)


def merged(variants: Mapping[Variant, str]) -> list[dict[str, Any]]:
    """Entries that hold exactly these variants of one operator; the values are what goes to `because`."""
    names = sorted({name for variant in variants for name in variant.facets})
    rows = {(tuple((variant.facets.get(name, ""),) for name in names), why) for variant, why in variants.items()}
    for place in range(len(names)):
        groups: dict[Any, set[Any]] = {}
        for values, why in rows:
            rest = (values[:place], values[place + 1 :], why)
            groups.setdefault(rest, set()).update(values[place])
        rows = {((*a, tuple(sorted(found, key=str)), *b), why) for (a, b, why), found in groups.items()}
    entries = []
    for values, why in sorted(rows, key=str):
        entry: dict[str, Any] = {name: list(found) for name, found in zip(names, values, strict=True)}
        entries.append(entry | ({"because": why} if why else {}))
    return entries
