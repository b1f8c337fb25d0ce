"""What families of narrow products share: their knobs, when each has an effect, and first guesses."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from math import prod

from autofuse.device.target import Target
from autofuse.kernels.families.narrow.instructions import Multiplier, wanted
from autofuse.kernels.families.narrow.products.emitter import NarrowEmitter
from autofuse.kernels.families.narrow.products.form import NarrowContraction
from autofuse.kernels.families.protocol import Case, Declared, Family, Guess, Knob, Schedule, Unit, Values, up_to
from autofuse.kernels.nest.evaluate import Scope
from autofuse.kernels.nest.nest import Nest
from autofuse.kernels.nest.tiles import longest_row
from autofuse.kernels.workload.workload import Workload, WorkloadOperator

KNOBS: Declared = {
    "vectors": Knob((4, 2, 3, 1), "vectors of columns of a tile", tile=True),
    "pixels": Knob((6, 4, 5, 7, 3, 2, 8), "pixels or rows of a tile, held in registers with its vectors", tile=True),
    "rows_per_task": Knob((0, 1, 2, 4, 8), "rows of results a parallel task computes (0: all)"),
    "pixel_rows": Knob((1, 2, 4, 8, 16), "rows that the pixels of a product without a window are cut into"),
}


class NarrowFamily(Family):
    """Products and convolutions of narrow numbers. `algorithms`: names of their instructions, the fastest first."""

    algorithms: Sequence[str] = ()

    @abstractmethod
    def form(self, workload: Workload, operator: WorkloadOperator, split: int = 1) -> NarrowContraction:
        """What an operator computes; `split`: see `contraction_form`."""

    @abstractmethod
    def able(self, workload: Workload, product: NarrowContraction, target: Target) -> Mapping[str, Multiplier]:
        """The instructions that compute a product exactly on a target."""

    def useful(self, case: Case, unit: Unit, knob: str, values: Values) -> Iterable[int | str]:
        """See Family."""
        product, lanes = self._product(case.workload, unit), case.target.lanes
        form = product.form
        if knob == "algorithm":
            able = self.able(case.workload, product, case.target)
            return [value for value in values if value in able]
        if knob == "vectors":
            return up_to(values, -(-form.columns // lanes))
        if knob == "pixels":
            return up_to(values, longest_row(form.windows))
        flat = len(form.windows) == 1 and form.windows[-1].outputs > 1 and form.rows == (1,)
        if knob == "pixel_rows":
            return _dividing(values, form.windows[-1].outputs) if flat and _can_split(product) else values[:1]
        rows = prod(form.rows)
        return _dividing(values, rows) if rows > 1 else values[:1]

    def guesses(self, case: Case, found: list[Guess]) -> list[Guess]:
        """See Family: threads share the pixels where the columns make fewer panels than there are threads."""
        unit = next((nest for nest in case.nests if self.takes(case.workload, nest)), None)
        knob = self.full("pixel_rows")
        if unit is None or case.threads < 2 or knob not in case.knobs:
            return found
        form = self._product(case.workload, unit).form
        panels = -(-form.columns // (case.target.lanes * int(self.chosen(found[0])["vectors"])))
        rows = [value for value in case.knobs[knob] if int(value) >= case.threads]
        if panels >= case.threads or not rows:
            return found
        return [found[0] | {knob: min(rows, key=int)}, *found]

    def fits(self, schedule: Schedule, target: Target) -> bool:
        """See Family."""
        vectors, pixels = schedule.get(self.full("vectors")), schedule.get(self.full("pixels"))
        if not isinstance(vectors, int) or not isinstance(pixels, int):
            return True
        return vectors * (pixels + 1) + 1 <= target.registers

    def emit(self, scope: Scope, unit: Unit, schedule: Schedule) -> None:
        """See Family."""
        assert isinstance(unit, Nest) and unit.anchor is not None
        knobs = self.chosen(schedule)
        plain = self._product(scope.workload, unit)
        split = int(knobs["pixel_rows"]) if _can_split(plain) else 1
        product = self.form(scope.workload, unit.anchor, split)
        able = self.able(scope.workload, plain, scope.emitter.target)
        NarrowEmitter(scope, unit, product, wanted(knobs["algorithm"], able, self.algorithms), knobs).emit()

    def _product(self, workload: Workload, unit: Unit) -> NarrowContraction:
        assert isinstance(unit, Nest) and unit.anchor is not None
        return self.form(workload, unit.anchor)


def _can_split(product: NarrowContraction) -> bool:
    """Whether pixels can be cut into rows: those of a product without a window that shares its columns."""
    return bool(getattr(product.form, "flat", False))


def _dividing(values: Values, total: int) -> list[int | str]:
    """Values of parts that `total` can be cut into; 0 stands for all."""
    return [value for value in values if isinstance(value, int) and (value == 0 or total % value == 0)]
