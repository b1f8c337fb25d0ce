"""The child that holds one contender, or the clock probe: `python -m autofuse.measure.networks.contender`."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from autofuse.device.target import Target
from autofuse.measure.checking.tolerance import compare
from autofuse.measure.children.child import Handlers, RefusedError, serve
from autofuse.measure.children.messages import Done
from autofuse.measure.networks.network import Array, Network, open_network
from autofuse.measure.networks.requests import (
    CallsTimed,
    Compared,
    CompareOutputs,
    Loaded,
    LoadNetwork,
    Saved,
    SaveOutputs,
    StartProbe,
    TimeCalls,
)
from autofuse.measure.timing.clock import PROBE_STEPS, pin_main_thread, waited_ns

LEAVE_S = 5e-4
"""Before its block a contender leaves the core to whoever asked for it, and has something to do before it waits for the
answer: on one core that would take a part of a third of all blocks."""
WARM_BELOW_S = 0.5
"""A block starts with an untimed call, because rivals emptied the caches, unless a call is longer than this."""


Opener = Callable[[str, Path, Target, int, Mapping[str, Array]], Network]
"""See `autofuse.measure.networks.network.open_network`."""


class ContenderSession:
    """One loaded network (or probe), pinned once it is warm. `opener`: makes the network of each kind."""

    def __init__(self, opener: Opener = open_network) -> None:
        self._opener = opener
        self._network: Network | None = None
        self._run: Callable[[], None] | None = None
        self._call_s = 0.0
        self._pinned = ExitStack()

    def handlers(self) -> Handlers:
        """What it does, by the kind of request."""
        return {
            LoadNetwork: self.load,
            StartProbe: self.start_probe,
            CompareOutputs: self.compare,
            SaveOutputs: self.save,
            TimeCalls: self.time_calls,
        }

    def load(self, request: LoadNetwork) -> Loaded:
        """Open the network on its inputs and run it once; the seconds of both."""
        inputs = {name: np.asarray(np.load(path), order="C") for name, path in request.inputs.items()}
        start = time.perf_counter()
        network = self._opener(request.kind, request.path, request.target, request.threads, inputs)
        loaded = time.perf_counter()
        network.run()
        self._network = network
        self._begin(network.run, time.perf_counter() - loaded)
        return Loaded(loaded - start, self._call_s)

    def start_probe(self, request: StartProbe) -> Done:
        """Become the clock probe of all cores."""
        from autofuse.backend.compile.probes import FmaProbe

        probe = FmaProbe(request.target, request.threads, PROBE_STEPS)
        probe.seconds()
        self._begin(probe.run, WARM_BELOW_S)
        return Done()

    def _begin(self, run: Callable[[], None], call_s: float) -> None:
        self._run, self._call_s = run, call_s
        self._pinned.enter_context(pin_main_thread())

    def compare(self, request: CompareOutputs) -> Compared:
        """Compare the results of the last run with reference files, in the model's order of outputs."""
        results = self.results()
        if len(results) != len(request.expected):
            raise RefusedError("wrong", f"{len(results)} outputs, the reference has {len(request.expected)}")
        verdicts = [compare(result, np.load(path)) for result, path in zip(results, request.expected, strict=True)]
        worst = max((verdict.max_rel_error for verdict in verdicts), default=0.0)
        reasons = [f"output {index}: {verdict.reason}" for index, verdict in enumerate(verdicts) if not verdict.ok]
        return Compared(worst, "; ".join(reasons))

    def save(self, request: SaveOutputs) -> Saved:
        """Results of the last run as .npy files in `folder`, in the model's order of outputs."""
        results = self.results()
        paths = tuple(request.folder / f"result-{number}.npy" for number in range(len(results)))
        for path, array in zip(paths, results, strict=True):
            np.save(path, array, allow_pickle=False)
        return Saved(paths)

    def results(self) -> list[Array]:
        """Results of the last run, in the model's order of outputs."""
        if self._network is None:
            raise RefusedError("run_error", "nothing is loaded")
        return self._network.outputs()

    def time_calls(self, request: TimeCalls) -> CallsTimed:
        """Time `calls` calls in a row after one that warms the caches; mean seconds, part waited.

        Where a network has more threads than cores (ONNX Runtime's beside ours), they wait for each other, and nobody
        disturbs them: others can have had no more than what this process left of its cores.
        """
        run, calls = self._run, request.calls
        if run is None:
            raise RefusedError("run_error", "nothing is loaded")
        time.sleep(LEAVE_S)
        if self._call_s < WARM_BELOW_S:
            run()
        waited, busy, start = waited_ns(), time.process_time_ns(), time.perf_counter_ns()
        for _ in range(calls):
            run()
        spent = time.perf_counter_ns() - start
        left = (os.cpu_count() or 1) * spent - (time.process_time_ns() - busy)
        waited = min(waited_ns() - waited, left)
        self._call_s = spent / calls / 1e9
        return CallsTimed(self._call_s, max(0.0, waited / spent))


def main() -> None:
    """Serve one coordinator until it goes away."""
    serve(ContenderSession().handlers())


if __name__ == "__main__":
    main()
