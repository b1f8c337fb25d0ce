"""What sharing workloads saves when many models are tuned in one database: `python -m experiments scale.sharing`.

Families of architectures with their usual variants (depth, width, resolution, sequence length): each model's groups
under the default plan, and how many of them another model has brought already.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import onnx
from onnx import ModelProto

from autofuse.device.profile import load_profile, shipped_profiles
from autofuse.fusion.planner.baselines import default_plan
from autofuse.graph.loading.load import load
from autofuse.kernels.lowering.lower import lower
from experiments.architectures import bert
from experiments.catalogue import build
from experiments.options import new_parser
from experiments.scale.figures import keep_figures


def variants() -> Iterator[tuple[str, Callable[[], ModelProto]]]:
    """(family, builder) of each model."""
    for width in (0.35, 0.5, 0.75, 1.0, 1.3, 1.4):
        for size in (96, 128, 160, 192, 224):
            yield "mobilenet_v2", partial(build, "mobilenet_v2", width=width, size=size)
    for size in (128, 160, 192, 224):
        yield "squeezenet1_1", partial(build, "squeezenet1_1", size=size)
    for channels in (16, 32, 64):
        for size in (64, 128):
            yield "weenet", partial(build, "weenet", channels=channels, size=size)
    for layers in (2, 4, 6, 8, 12):
        for sequence in (64, 128):
            one = replace(bert.TINY, layers=layers, sequence=sequence)
            yield "bert", partial(bert.build, f"bert{layers}", one)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print, for each family and all of them, distinct workloads over the sum of each model's own."""
    new_parser(__doc__).parse_args(arguments)
    target = load_profile(shipped_profiles()["generic-avx2"]).target()
    seen: set[str] = set()
    families: dict[str, list[int]] = {}
    models = 0
    with tempfile.TemporaryDirectory(prefix="autofuse-sharing-") as name:
        for family, make in variants():
            path = Path(name) / "model.onnx"
            onnx.save(make(), path)
            graph = load(path, {})
            plan = default_plan(graph)
            lowered = lower(graph, plan, target, [group.operators for group in plan.groups])
            keys = {bound.workload.key for bound in lowered.kernels}
            count = families.setdefault(family, [0, 0, 0])
            count[0] += 1
            count[1] += len(keys)
            count[2] += len(keys - seen)
            seen |= keys
            models += 1
    total = sum(count[1] for count in families.values())
    rows = {family: {"models": c[0], "workloads": c[1], "measured": c[2]} for family, c in families.items()}
    whole, saved = {"models": models, "workloads": total, "measured": len(seen)}, round(1 - len(seen) / total, 3)
    keep_figures("sharing", {**whole, "saved": saved})
    print(json.dumps({**rows, "all": whole, "saved": saved}, indent=1))
    return 0
