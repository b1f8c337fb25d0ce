"""What the search asks of a device, wherever it stands: the protocol of runners."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

import numpy as np
from numpy.typing import NDArray

from autofuse.device.description import DeviceDescription
from autofuse.measure.children.ahead import Ahead, nothing_ahead
from autofuse.measure.measurement import Left, Measurement, MeasureRequest, no_end
from autofuse.measure.networks.bench import Contender, ContenderResult

Array = NDArray[np.generic]


class Runner(Protocol):
    """Measures candidates and whole networks on one device, one at a time; a context manager, used from one thread.

    `name`: of the device, for people ("local", or its address). Failures of candidates are values. A device that
    is lost gives its candidates back: each comes as a measurement with failure kind "device_lost", which says
    nothing about the candidate, so that another runner, or this one later, can measure it. DeviceError only
    where nothing at all can be measured: the device does not answer when it is first used, or is another one
    than its profile says.
    """

    name: str

    def describe(self) -> DeviceDescription:
        """The device as it is now: identity, clock, governor, temperature. DeviceError when it does not answer."""

    def measure(self, batch: Sequence[MeasureRequest]) -> list[Measurement]:
        """One measurement a request, in the order of `batch`."""

    def stream(
        self, batch: Sequence[MeasureRequest], left: Left = no_end, ahead: Ahead = nothing_ahead
    ) -> Iterator[tuple[int, Measurement]]:
        """(index in `batch`, measurement) as each becomes known, each index at most once.

        `ahead`: what the next batch will probably ask for; a runner may build it where it has nothing else to build.

        It ends early when no time is `left`: what has no measurement then was not measured. An abandoned iterator
        leaves nothing running.
        """

    def race(
        self,
        contenders: Sequence[Contender],
        inputs: Mapping[str, Array],
        budget_s: float,
        *,
        expected: Sequence[Array] | None = None,
        left: Left = no_end,
    ) -> dict[str, ContenderResult]:
        """Whole networks interleaved, checked against `expected`; see `networks.bench.bench_contenders`.

        The race ends with what is known when no time is `left`.
        """

    def outputs(self, library: Path, inputs: Mapping[str, Array], left: Left = no_end) -> list[Array]:
        """Outputs of a compiled library, run once on the device, in the model's order.

        DeviceError when it fails, and when no time is `left`.
        """

    def close(self) -> None:
        """End whatever runs for it; the runner starts anew when it is used again."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
