"""What is asked of the child that has kernels built on a cluster, beside `children.requests`."""

from __future__ import annotations

from dataclasses import dataclass

from autofuse.device.target import Target
from autofuse.measure.children.messages import Message, Request


@dataclass(frozen=True)
class ClusterReady(Message):
    """The number of builds that the cluster does at once."""

    cores: int


@dataclass(frozen=True)
class StartClusterBuilder(Request[ClusterReady]):
    """Connect to the Dask scheduler at an address; `build_s`: the limit of a build there."""

    target: Target
    builder: str
    scheduler: str
    build_s: float
