"""Models that were trained without a network: what a user has who brings a new one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from autofuse.errors import InputError
from autofuse.learning.dataset import read_dataset
from autofuse.learning.model import train
from autofuse.learning.stored import save
from experiments.profitability.splits import splits


def models_without(networks: Iterable[str], databases: Sequence[Path], folder: Path) -> Iterator[tuple[str, Path]]:
    """(network, file of a model that saw nothing of it), trained on everything else in the databases, one by one.

    InputError for a network that no database knows: it would be nothing to hold out.
    """
    folder.mkdir(parents=True, exist_ok=True)
    data = read_dataset([str(path) for path in databases])
    held = {split.held: split.train for split in splits(data, (), "network", 0)}
    for network in networks:
        if network not in held:
            raise InputError(f"network {network!r} is in none of the databases; allowed: {', '.join(sorted(held))}")
        path = folder / f"without-{network}.model"
        save(train(held[network]), path)
        yield network, path
