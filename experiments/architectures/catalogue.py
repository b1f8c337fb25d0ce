"""The networks by name, made without any download: numpy and onnx are all they need.

Weights are random. BatchNormalization stays in the graphs, with statistics that are not trivial, so that folding it
is a real decision.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import onnx
from onnx import ModelProto

from experiments.architectures import bert, efficientnet_b0, mobilenet_v2, resnet50, squeezenet1_1, weenet

NETWORKS: dict[str, Callable[[], ModelProto]] = {
    "weenet": weenet.build,
    "resnet50": resnet50.build,
    "mobilenet_v2": mobilenet_v2.build,
    "squeezenet1_1": squeezenet1_1.build,
    "efficientnet_b0": efficientnet_b0.build,
    "tinybert": bert.tinybert,
    "bert_base": bert.bert_base,
}


def write(name: str, folder: Path) -> Path:
    """`folder/name.onnx`, built unless it is there already; KeyError for a name that is not in `NETWORKS`."""
    path = folder / f"{name}.onnx"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(".part")
        onnx.save(NETWORKS[name](), part)
        part.replace(path)
    return path
