"""Segments of rows of a model in parts: proved to keep their rows apart, and compiled as programs of an open size."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from autofuse.backend.compile.open_sizes.open_program import OpenPart, OpenTile, row_program
from autofuse.backend.compile.rest import RowProgram
from autofuse.compiler.context import Context
from autofuse.compiler.open_sizes.plans import find_open_plans
from autofuse.compiler.open_sizes.reading import OpenModel, read_open
from autofuse.compiler.open_sizes.tiles import reports_of_rows
from autofuse.compiler.open_sizes.tiling import Tiled, form_of_rows, tiled
from autofuse.compiler.parts.open_head import OpenHead
from autofuse.compiler.report import MEASURED_HERE, CompileReport
from autofuse.errors import AutofuseError, InputError
from autofuse.graph.loading.given.sizes import OpenSize
from autofuse.graph.model import Graph
from autofuse.graph.parts.source import serialised
from autofuse.graph.submodel import OnnxModel
from autofuse.graph.transform.open_sizes.rows import check_rows
from autofuse.kernels.emission import Emission
from autofuse.kernels.schedule.weight_size import held_bytes, model_bytes
from autofuse.segments.choice import Choice, Piece
from autofuse.segments.rows import ROWS, USUAL_ROWS, may_have_rows, with_rows
from autofuse.values.scratch import scratch_folder

Ends = tuple[tuple[str, ...], tuple[str, ...]]
"""What a segment takes and makes, which says what it is."""


@dataclass
class RowSegments:
    """What finds and compiles the segments of rows of one model."""

    context: Context
    emission: Emission
    made: dict[Ends, Tiled] = field(default_factory=dict)
    files: dict[Ends, bytes] = field(default_factory=dict)
    """The segment of each as an ONNX file whose inputs and outputs say where its rows are."""

    def found(self, choice: Choice) -> Choice:
        """The choice with its segments of rows; as it is where there can be none, or only measured schedules will do,
        for nothing measures theirs."""
        if self.context.policy.measured_only or not may_have_rows(choice):
            return choice
        return with_rows(choice, self._examined)

    def of_head(self, head: OpenHead, graph: Graph) -> Choice:
        """The parts of a model of open sizes, whose head has this graph; without segments of rows where these are left
        to ONNX Runtime."""
        choice = head.choice(graph)
        found = self.found(choice)
        if not head.rowless:
            return found
        places = [node.place for piece in found.rows for node in piece.nodes]
        return replace(choice, reasons={**choice.reasons, **dict.fromkeys(places, head.rowless)})

    def programs(self, choice: Choice) -> tuple[RowProgram, ...]:
        """The programs of the segments of rows, in their order."""
        return tuple(row_program(self.part(piece)) for piece in choice.rows)

    def part(self, piece: Piece) -> OpenPart:
        """The program of a segment."""
        return self.made[piece.inputs, piece.outputs][0]

    def told(self, report: CompileReport, choice: Choice | None) -> CompileReport:
        """The report of a model's library with the kernels of its segments of rows."""
        firsts, groups = list[OpenTile](), [*report.groups]
        for number, piece in enumerate(() if choice is None else choice.rows, len(report.plans)):
            part, found = self.made[piece.inputs, piece.outputs]
            firsts += [group.tiles[0] for group in part.groups if group.tiles]
            groups += reports_of_rows(part, found, number, f"up to {piece.most_rows} rows")
        hits = sum(group.tier in MEASURED_HERE for group in groups)
        target = self.context.environment.target
        held = sum(held_bytes(tile.bound.workload, tile.schedule, target) for tile in firsts)
        return replace(
            report, kernels=report.kernels + len(firsts), groups=tuple(groups), hits=hits,
            weights_bytes=report.weights_bytes + sum(model_bytes(tile.bound.workload) for tile in firsts),
            held_weights_bytes=report.held_weights_bytes + held,
        )  # fmt: skip

    def file(self, piece: Piece) -> bytes:
        """A segment as an ONNX file with an open size, `ROWS`."""
        return self.files[piece.inputs, piece.outputs]

    def _examined(self, model: OnnxModel, most: int) -> Graph | str:
        ends = tuple(one.name for one in model.graph.input), tuple(one.name for one in model.graph.output)
        try:
            with scratch_folder() as folder:
                path = folder / "rows.onnx"
                self.files[ends] = serialised(model)
                path.write_bytes(self.files[ends])
                read = read_open(path, {}, [OpenSize(ROWS, 1, most)])
            _check_apart(read)
            plan = replace(find_open_plans(self.context, form_of_rows(self.context, read), None)[-1], most=None)
            self.made[ends] = tiled(self.context, read, plan, {}, self.emission)
        except AutofuseError as error:
            return str(error)
        return read.opened.at({0: min(USUAL_ROWS, most)})


def _check_apart(read: OpenModel) -> None:
    """InputError unless each row of all results is made of one row: without any, there is no result either."""
    view = read.opened.views[0]
    check_rows(view, apart=True)
    for name in view.graph.outputs:
        if name not in view.axes:
            raise InputError(f"{name!r} has no rows")


def with_row_segments(context: Context, choice: Choice) -> Choice:
    """The choice with its segments of rows, as `compile` takes them."""
    return RowSegments(context, Emission(context.environment.target)).found(choice)
