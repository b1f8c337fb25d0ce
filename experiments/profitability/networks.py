"""The networks that times are collected from, each with the family that it is held out with."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from autofuse.errors import InputError
from experiments.catalogue import GENERATED, NETWORKS, SMALL, TABLE
from experiments.model_files import write

FAMILIES: Mapping[str, str] = {name: NETWORKS[name].family for name in (*TABLE, *SMALL, *GENERATED)}
"""Family of each network."""


def in_turn() -> tuple[str, ...]:
    """Every network, families in turn: however early the collecting ends, each family is there."""
    queues = [[name for name in FAMILIES if FAMILIES[name] == family] for family in dict.fromkeys(FAMILIES.values())]
    places = [(place / len(queue), name) for queue in queues for place, name in enumerate(queue)]
    return tuple(name for _, name in sorted(places, key=lambda item: item[0]))


def find(network: str, folder: Path) -> Path:
    """The ONNX file of a network in `folder`, made there if need be; InputError for an unknown name."""
    if network not in FAMILIES:
        raise InputError(f"network {network!r} is unknown; allowed: {', '.join(FAMILIES)}")
    return write(network, folder)
