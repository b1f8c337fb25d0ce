"""The chosen plan against ONNX Runtime alone, at the very end of a search: raced, recorded, told in a line."""

from __future__ import annotations

from dataclasses import dataclass

from autofuse.environment.alone import OWN, alone_key, newest_alone, told
from autofuse.environment.outcomes import record_race
from autofuse.errors import DeviceError, InputError
from autofuse.graph.inputs import generate_inputs
from autofuse.measure.networks.bench import Contender
from autofuse.measure.networks.judgement import judged
from autofuse.search.budget.budget import Budget
from autofuse.search.budget.time_budget import ALONE_RACE_S
from autofuse.search.finals.finale import schedules_of
from autofuse.search.finals.finals import Finals
from autofuse.search.finals.verdict import Verdict
from autofuse.values.names import ONNX_RUNTIME

NOT_RACED = "not raced against ONNX Runtime alone: "
LEAST_S = 1.0
"""Seconds of the shortest race that is begun."""


@dataclass(frozen=True)
class AloneRace:
    """A race of a chosen plan's library with ONNX Runtime alone. `key`: what it is recorded under."""

    finals: Finals
    verdict: Verdict
    key: str

    @classmethod
    def of(cls, finals: Finals, verdict: Verdict) -> AloneRace | None:
        """The race of the library as it is built now; later times may make other schedules the best.

        None where none is wished, where there is no library, on a device elsewhere, and for a model that computes in
        bfloat16, which ONNX Runtime refuses.
        """
        evidence, plan = finals.evidence, verdict.plan
        here = evidence.environment.device.address is None
        if not (finals.estimates.alone_race_s and verdict.checked and here) or evidence.graph.widened:
            return None
        schedules, codes = schedules_of(evidence, verdict.name, plan), evidence.environment.codes
        digests = [codes.now(one.bound.workload, schedules[one.key]) for one in evidence.of(plan)]
        version = evidence.environment.provenance.onnxruntime
        return cls(finals, verdict, alone_key(evidence.graph, plan.key, digests, version))

    def run(self, budget: Budget) -> str:
        """Race and record, in what is left of the budget; what to say of it."""
        race_s = min(ALONE_RACE_S, budget.left() - 2 * self.finals.estimates.check_s())
        if race_s < LEAST_S:
            return f"{NOT_RACED}no time was left"
        self.finals.lab.tell("racing the chosen plan against ONNX Runtime alone")
        try:
            return self._raced(race_s, budget)
        except (DeviceError, InputError) as error:
            return f"{NOT_RACED}{error}"

    def _raced(self, race_s: float, budget: Budget) -> str:
        finals, evidence = self.finals, self.finals.evidence
        graph = evidence.graph
        contenders = [
            Contender(OWN, "autofuse", finals.library(self.verdict.name)),
            Contender(ONNX_RUNTIME, "onnxruntime", finals.model.plain_file(graph, finals.folder / "alone.onnx")),
        ]
        inputs = generate_inputs(graph, evidence.seed)
        expected = [finals.lab.reference.array(name) for name in graph.outputs]
        results = finals.lab.runner.race(contenders, inputs, race_s, expected=expected, left=budget.left)
        results = judged(results, graph, inputs)
        untimed = [one.wrong or one.error for one in results.values() if one.timed is None]
        if untimed:
            return f"{NOT_RACED}{next(filter(None, untimed), 'no time was left')}"
        record_race(evidence.database, evidence.environment.setting, self.key, results)
        # As a compile will read it: what is said here and there is one ratio.
        ratio = newest_alone(evidence.database, evidence.environment.setting, self.key)
        assert ratio is not None
        return told(ratio)
