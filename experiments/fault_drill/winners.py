"""Whether two jobs ended with winners that are equal within the noise: measured interleaved, now."""

from __future__ import annotations

from autofuse.backend.compile.host_cpu import local_device
from autofuse.graph.inputs import generate_inputs
from autofuse.graph.loading.load import load
from autofuse.measure.checking.reference import run_reference
from autofuse.measure.networks.bench import Contender, bench_contenders
from experiments.fault_drill.scene import Results

SECONDS, TOLERANCE = 4.0, 1.10
"""Of each comparison; a winner may take so many times the other's time, which is what noise left between two runs of
the same search here."""


def compare_winners(calm: Results, drill: Results) -> list[dict[str, object]]:
    """A row a model: the drill's winner over the undisturbed one's time, with its interval, and whether it is right."""
    found: list[dict[str, object]] = []
    for name, model in drill.models.items():
        graph = load(model, {})
        inputs = generate_inputs(graph, 7)
        expected = run_reference(graph, inputs)
        rivals = {"calm": calm.libraries[name], "drill": drill.libraries[name]}
        results = bench_contenders(
            [Contender(rival, "autofuse", library) for rival, library in rivals.items()],
            inputs, 1, SECONDS, target=local_device().target(), expected=[expected[out] for out in graph.outputs],
        )  # fmt: skip
        result = results["drill"]
        low = result.ci_lo if result.ci_lo is not None else float("inf")
        equal = not result.wrong and not result.error and low <= TOLERANCE
        found.append(
            {"model": name, "ratio": result.ratio, "ci_lo": result.ci_lo, "ci_hi": result.ci_hi,
             "trusted": result.trusted, "right": not result.wrong, "equal": equal}
        )  # fmt: skip
    return found
