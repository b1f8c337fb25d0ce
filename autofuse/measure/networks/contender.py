"""The child that holds one contender, or the clock probe: `python -m autofuse.measure.networks.contender`."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from autofuse.device.target import Target
from autofuse.measure.checking.tolerance import compare
from autofuse.measure.children.child import Handler, RefusedError, serve
from autofuse.measure.children.codec import target_from_json
from autofuse.measure.children.messages import Message
from autofuse.measure.networks.network import Array, Network, open_network
from autofuse.measure.timing.clock import PROBE_STEPS, pin_main_thread, waited_ns

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

    def handlers(self) -> Mapping[str, Handler]:
        """Requests by name."""
        return {
            "load": self.load,
            "probe": self.probe,
            "check": self.check,
            "outputs": self.outputs,
            "block": self.block,
        }

    def load(self, request: Message) -> Message:
        """Open the network on its inputs and run it once; the seconds of both."""
        arrays: Any = request["inputs"]
        inputs = {name: np.asarray(np.load(path), order="C") for name, path in arrays.items()}
        target, threads = target_from_json(request["target"]), int(str(request["threads"]))
        start = time.perf_counter()
        network = self._opener(str(request["kind"]), Path(str(request["path"])), target, threads, inputs)
        loaded = time.perf_counter()
        network.run()
        self._network = network
        self._begin(network.run, time.perf_counter() - loaded)
        return {"load_s": loaded - start, "first_s": self._call_s}

    def probe(self, request: Message) -> Message:
        """Become the clock probe of all cores."""
        from autofuse.backend.compile.probes import FmaProbe

        probe = FmaProbe(target_from_json(request["target"]), int(str(request["threads"])), PROBE_STEPS)
        probe.seconds()
        self._begin(probe.run, WARM_BELOW_S)
        return {}

    def _begin(self, run: Callable[[], None], call_s: float) -> None:
        self._run, self._call_s = run, call_s
        self._pinned.enter_context(pin_main_thread())

    def check(self, request: Message) -> Message:
        """Compare the results of the last run with reference files, in the model's order of outputs."""
        paths: Any = request["expected"]
        results = self.results()
        if len(results) != len(paths):
            raise RefusedError("wrong", f"{len(results)} outputs, the reference has {len(paths)}")
        verdicts = [compare(result, np.load(path)) for result, path in zip(results, paths, strict=True)]
        worst = max((verdict.max_rel_error for verdict in verdicts), default=0.0)
        reasons = [f"output {index}: {verdict.reason}" for index, verdict in enumerate(verdicts) if not verdict.ok]
        return {"max_rel_error": worst, "reason": "; ".join(reasons)}

    def outputs(self, request: Message) -> Message:
        """Results of the last run as .npy files in `folder`, in the model's order of outputs."""
        paths = []
        for number, array in enumerate(self.results()):
            paths.append(str(Path(str(request["folder"])) / f"result-{number}.npy"))
            np.save(paths[-1], array, allow_pickle=False)
        return {"paths": paths}

    def results(self) -> list[Array]:
        """Results of the last run, in the model's order of outputs."""
        if self._network is None:
            raise RefusedError("run_error", "nothing is loaded")
        return self._network.outputs()

    def block(self, request: Message) -> Message:
        """Time `calls` calls in a row after one that warms the caches; mean seconds, part waited."""
        run, calls = self._run, int(str(request["calls"]))
        if run is None:
            raise RefusedError("run_error", "nothing is loaded")
        if self._call_s < WARM_BELOW_S:
            run()
        waited, start = waited_ns(), time.perf_counter_ns()
        for _ in range(calls):
            run()
        spent = time.perf_counter_ns() - start
        waited = waited_ns() - waited
        self._call_s = spent / calls / 1e9
        return {"seconds": self._call_s, "waited": max(0.0, waited / spent)}


def main() -> None:
    """Serve one coordinator until it goes away."""
    serve(ContenderSession().handlers())


if __name__ == "__main__":
    main()
