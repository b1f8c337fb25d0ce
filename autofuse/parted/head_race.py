"""The race at the end of `tune --sizes` of a model of which ONNX Runtime runs a part, with ONNX Runtime alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from autofuse.backend.library.library import read_metadata
from autofuse.compiler import Context, Policy, compile_open
from autofuse.compiler.open_sizes.head_race import HEAD, HeadVerdict, head_key, is_alike, verdict_of_sizes
from autofuse.compiler.parts.open_head import OpenHead
from autofuse.compiler.parts.rest import SEGMENTS
from autofuse.database.database import open_database
from autofuse.environment.alone import ALONE
from autofuse.environment.environment import environment_of
from autofuse.environment.outcomes import AtSize, newest_races, record_races
from autofuse.environment.place import Place
from autofuse.errors import AutofuseError
from autofuse.fusion.plan import ScheduleLimits
from autofuse.graph.loading.given.buckets import form_of
from autofuse.graph.loading.given.sizes import open_ones
from autofuse.graph.loading.given.trace import shares
from autofuse.measure.measurement import Left
from autofuse.measure.networks.bench import Contender, ContenderResult
from autofuse.opened.grid_job import compile_grid
from autofuse.opened.kinds import over_images
from autofuse.opened.search.sections import sections
from autofuse.parted.cases import sized_task
from autofuse.parted.race import raced
from autofuse.search.progress import SearchRequest
from autofuse.values.arguments import Given
from autofuse.values.names import ONNX_RUNTIME
from autofuse.values.scratch import scratch_folder

NOT_RACED = "not raced with ONNX Runtime alone: "


@dataclass(frozen=True)
class HeadRace:
    """A race of a model whose `head` is ours. `has_rows`: whether it has segments of rows."""

    model: Path
    head: OpenHead
    place: Place
    request: SearchRequest
    has_rows: bool

    def run(self, race_s: float, left: Left, run_id: int) -> HeadVerdict | str:
        """Builds, checks and times both, and the head alone, at sizes that stand for those that happen; recorded, with
        what is said of the run. Why there is no verdict, where there is none. `race_s`: seconds of timing; `left`:
        seconds that it may still take."""
        if not is_alike(self.head):
            return f"{NOT_RACED}it computes some operators otherwise than ONNX says"
        try:
            races = self._raced(race_s, left)
        except AutofuseError as error:
            return f"{NOT_RACED}{error}"
        untimed = (
            f"{name} at {one.size}: {result.wrong or result.error or 'no time was left'}"
            for one in races
            for name, result in one.found.items()
            if result.timed is None
        )
        return self._recorded(races, run_id) or f"{NOT_RACED}{next(untimed, 'too few good blocks')}"

    def _raced(self, race_s: float, left: Left) -> list[AtSize[Mapping[str, ContenderResult]]]:
        """What was measured at each size."""
        policy = Policy(limits=ScheduleLimits(exact=self.request.exact), every_segment=True)
        found = []
        with ExitStack() as stack:
            context = stack.enter_context(Context(self.place, policy=policy))
            folder = stack.enter_context(scratch_folder())
            whole = folder / "whole.onnx"
            whole.write_bytes(self.head.source.whole())
            contenders = [*self._libraries(context, folder), Contender(ONNX_RUNTIME, "onnxruntime", whole)]
            metadata = read_metadata(contenders[0].path)
            drawn = [*self._drawn()]
            for size, share, form in drawn:
                choice, task = sized_task(self.model, form, metadata, folder / f"{size}.onnx")
                results = raced(context, choice, contenders, task, race_s / len(drawn), left)
                found.append(AtSize[Mapping[str, ContenderResult]](size, share, results))
        return found

    def _libraries(self, context: Context, folder: Path) -> Iterator[Contender]:
        """Our libraries: with segments of rows, and without."""
        heads = {SEGMENTS: self.head, HEAD: replace(self.head, rowless="the race of the head alone")}
        opened, given = self.head.sizes or self.request.sizes, self.request.given if not self.head.sizes else {}
        make = compile_grid if over_images(self.head.path, given, opened) else compile_open
        for name, head in heads.items() if self.has_rows else [(HEAD, self.head)]:
            path = folder / f"{name}.so"
            make(context, self.model, path, given, opened, None, head=head)
            yield Contender(name, "autofuse", path)

    def _drawn(self) -> Iterator[tuple[str, float, Given]]:
        """A small size, a middle and a large one of those that happen, each with its part of all calls and what is
        given there."""
        opened = open_ones(self.request.sizes)
        happening = shares(opened, None if self.head.sizes else self.request.trace)
        of_calls = [*happening.values()]
        for section in sections(happening):
            named = {size.name: value for size, value in zip(opened, section.middle, strict=True)}
            share = sum(of_calls[place] for place in section.places)
            form = form_of(self.model, self.request.sizes, named, self.request.given)
            yield "x".join(map(str, section.middle)), share, form

    def _recorded(self, races: Sequence[AtSize[Mapping[str, ContenderResult]]], run_id: int) -> HeadVerdict | None:
        """Keeps the race, and what it said as a compile will read it."""
        with Context(self.place) as context, open_database(self.place.database) as base:
            environment = environment_of(base, context.environment.device, context.threads, measuring=False)
            key = head_key(self.head, self.request.sizes, context.environment.provenance.onnxruntime)
            record_races(base, environment.setting, key, races)
            verdict = verdict_of_sizes(newest_races(base, environment.setting, key))
            if verdict is not None:
                base.finish_run(run_id, "finished", {ALONE: verdict.text})
            return verdict
