"""The networks that times are collected from, each with the family that it is held out with."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from autofuse.errors import InputError
from experiments.architectures import catalogue
from experiments.profitability import generated

CONVOLUTIONAL, ATTENTION, POINTWISE = "convolutional", "attention", "pointwise"

FAMILIES: Mapping[str, str] = {
    "weenet": CONVOLUTIONAL,
    "squeezenet1_1": CONVOLUTIONAL,
    "tinybert": ATTENTION,
    "mobilenet_v2": CONVOLUTIONAL,
    "efficientnet_b0": CONVOLUTIONAL,
    "resnet50": CONVOLUTIONAL,
    "bert_base": ATTENTION,
    **dict.fromkeys(generated.CONVOLUTIONAL, CONVOLUTIONAL),
    **dict.fromkeys(generated.ATTENTION, ATTENTION),
    **dict.fromkeys(generated.POINTWISE, POINTWISE),
}
"""Family of each network: feature maps, sequences, or matrices that are only worked on element by element."""


def in_turn() -> tuple[str, ...]:
    """Every network, families in turn: however early the collecting ends, each family is there."""
    queues = [[name for name in FAMILIES if FAMILIES[name] == family] for family in dict.fromkeys(FAMILIES.values())]
    places = [(place / len(queue), name) for queue in queues for place, name in enumerate(queue)]
    return tuple(name for _, name in sorted(places, key=lambda item: item[0]))


def find(network: str, folder: Path) -> Path:
    """The ONNX file of a network in `folder`, made there if need be; InputError for an unknown name."""
    if network in generated.NAMES:
        return generated.write(network, folder)
    if network in catalogue.NETWORKS:
        return catalogue.write(network, folder)
    raise InputError(f"network {network!r} is unknown; allowed: {', '.join(FAMILIES)}")
