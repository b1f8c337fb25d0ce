"""The family of recurrences: their knobs, when each has an effect, and what it refuses."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from autofuse.device.target import Target
from autofuse.graph.own.recurrence import RECURRENCES
from autofuse.kernels.families.contraction.guesses.first import LEAST_PART_BYTES
from autofuse.kernels.families.protocol import Case, Declared, Family, Guess, Knob, Schedule, Unit, Values, up_to
from autofuse.kernels.families.recurrent.emitter import RecurrenceEmitter
from autofuse.kernels.families.recurrent.form import Recurrence, recurrence_form
from autofuse.kernels.nest.evaluate import Scope
from autofuse.kernels.nest.nest import Nest
from autofuse.kernels.workload.workload import Workload, WorkloadOperator

NAME = "recurrent"
SPARE = 2
"""Registers that a tile needs beside its sums: for weights and for the old state."""
CHAINS = 8
"""Sums that have to be under way at once, for a multiply-add takes four cycles and a core begins two in each (Zen 5,
weights in the second cache: an RNN of 128 units with 8 sums takes half as long as with 2)."""
MOST_TOGETHER = 8
"""Sequences that a tile works on at once, at most."""
UNROLLED = 8
"""Elements of the old state that are written out (Zen 5: a tenth faster than 4 with weights in the second cache)."""


class RecurrentFamily(Family):
    """LSTM, GRU and RNN after their input products."""

    name = NAME
    knobs: ClassVar[Declared] = {
        "vectors": Knob((2, 4, 1, 8), "vectors of hidden units of a tile, with all their gates", tile=True, packs=True),
        "rows": Knob((1, 2, 4, 8), "sequences of the batch that a tile works on at once", tile=True),
        "unroll": Knob((4, 8, 2, 1), "elements of the old state whose products are written out in a row", tile=True),
        "sweep": Knob(("alternating", "forward"), "order in which the steps go through the weights"),
        "split": Knob((1, 2, 4, 8), "parts of the hidden units that threads compute in each step"),
    }
    anchors = frozenset(RECURRENCES)
    closed = True

    def refusal(self, workload: Workload, operator: WorkloadOperator) -> str | None:
        """See Family."""
        try:
            recurrence_form(workload, operator)
        except ValueError as error:
            return f"{operator.op_type} with {error} has no definition here"
        return None

    def useful(self, case: Case, unit: Unit, knob: str, values: Values) -> Iterable[int | str]:
        """See Family."""
        form, lanes = _form(case.workload, unit), case.target.lanes
        gates = max(len(gates) for gates in form.passes)
        match knob:
            case "vectors":
                fitting = max(1, (case.target.registers - SPARE) // gates)
                return up_to(values, min(fitting, -(-form.hidden // lanes)))
            case "rows":
                return up_to(values, min(form.batch, max(1, (case.target.registers - SPARE) // gates)))
            case "unroll":
                return up_to(values, form.hidden)
            case "sweep":
                return values if form.hidden >= 2 * lanes else values[:1]
        alone = case.target.cores < 2 or len(form.directions) > 1 or form.hidden < 2 * lanes
        return values[:1] if alone else up_to(values, min(2 * case.target.cores, form.hidden // lanes))

    def guesses(self, case: Case, found: list[Guess]) -> list[Guess]:
        """See Family: enough sums to hide how long a multiply-add takes; weights are read once for several sequences;
        threads share the units where that is much work."""
        unit = next((nest for nest in case.nests if self.takes(case.workload, nest)), None)
        if unit is None:
            return found
        form = _form(case.workload, unit)
        gates = max(len(gates) for gates in form.passes)
        most = max(1, (case.target.registers - SPARE) // gates)
        vectors = sorted(int(value) for value in case.knobs.get(self.full("vectors"), ()))
        wide: Guess = {self.full("vectors"): v for v in vectors[-1:]}
        wide |= {self.full("vectors"): v for v in vectors[::-1] if v * gates >= CHAINS}
        wide |= {self.full("unroll"): v for v in case.knobs.get(self.full("unroll"), ()) if v == UNROLLED}
        found = [found[0] | wide, *found]
        rows = [int(value) for value in case.knobs.get(self.full("rows"), ()) if 1 < int(value) <= most]
        if rows:
            found = [found[0] | {self.full("rows"): max(rows), self.full("vectors"): 1}, *found]
        parts = [int(value) for value in case.knobs.get(self.full("split"), ()) if 1 < int(value) <= case.threads]
        if not parts:
            return found
        split = found[0] | {self.full("split"): max(parts)}
        enough = 4 * form.gates * form.hidden**2 // max(parts) >= LEAST_PART_BYTES
        return [split, *found] if enough else [*found, split]

    def emit(self, scope: Scope, unit: Unit, schedule: Schedule) -> None:
        """See Family."""
        RecurrenceEmitter(scope, _form(scope.workload, unit), self.chosen(schedule)).emit()


def together(form: Recurrence, knobs: Schedule, target: Target) -> Schedule:
    """The knobs of one sequence as they are for several that a tile computes together: as many as registers hold.

    Weights are packed alike where that leaves two sequences at least.
    """
    gates, most = max(len(gates) for gates in form.passes), target.registers - SPARE
    vectors = min(int(knobs["vectors"]), -(-form.hidden // target.lanes))
    for kept in (vectors, 1):
        rows = most // (gates * kept)
        if rows > 1:
            return {**knobs, "rows": min(rows, MOST_TOGETHER), "vectors": kept}
    return knobs


def _form(workload: Workload, unit: Unit) -> Recurrence:
    assert isinstance(unit, Nest) and unit.anchor is not None
    return recurrence_form(workload, unit.anchor)


RECURRENT = RecurrentFamily()
