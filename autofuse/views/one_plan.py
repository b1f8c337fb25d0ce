"""One plan of a model as people ask for it: why each edge is as it is, and a file or picture of the partition."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from autofuse.database.connection import locate
from autofuse.database.database import open_database, open_for_lookup
from autofuse.database.records import Json
from autofuse.environment.named_plans import limited_plan
from autofuse.environment.place import Place
from autofuse.environment.plan_evidence import groups_of, known_limits, known_pieces, lowered_plans, stored_plans
from autofuse.environment.worth import Waterfall, waterfall_of
from autofuse.errors import InputError
from autofuse.fusion.evidence import Evidence, GroupTime
from autofuse.fusion.explain import EdgeReason, PlanDiff, describe, explain, plan_diff
from autofuse.fusion.legality import check_plan
from autofuse.fusion.plan import FusionPlan, ScheduleLimits
from autofuse.fusion.skeleton import folded_into, realise, settled
from autofuse.graph.key import graph_key
from autofuse.graph.model import Graph
from autofuse.graph.submodel import annotated_model
from autofuse.graph.transform.quantize.certificate import Certificate, certificate_of, kept_metadata
from autofuse.kernels.lowering.lower import Lowering
from autofuse.values.outputs import Inputs, Kind, check_output, database_files, has_mark, has_metadata, write_output
from autofuse.values.reasons import REASON_CODES
from autofuse.views.picture import picture

BEST = "best"
PREFIX = "autofuse."
"""Start of every metadata key in an exported file."""


@dataclass(frozen=True)
class Explanation:
    """An explanation: every edge between two operators of the model, and what a plan does with it.

    `waterfall`: what each decision of the plan that a run chose was worth, as it was told at that run's end. `alone`:
    who runs the model, and what its newest race with ONNX Runtime alone said, as a compile takes it now. `certificate`:
    what a quantised model may lose.
    """

    plan_key: str
    operators: frozenset[str]
    edges: tuple[EdgeReason, ...]
    waterfall: Waterfall | None = None
    alone: str = ""
    certificate: Certificate | None = None

    def of(self, names: str) -> Explanation:
        """Only the edges of one or two operators, by comma; InputError for one that the model has not."""
        wanted = set(names.split(",")) if names else set()
        for name in sorted(wanted - self.operators):
            raise InputError(f"--edge: the model has no operator {name!r} (`autofuse inspect --operators` lists them)")
        return replace(self, edges=tuple(row for row in self.edges if wanted <= {row.producer, row.consumer}))

    @staticmethod
    def meaning(code: str) -> str:
        """What a reason code says."""
        return REASON_CODES.get(code, "")


@dataclass(frozen=True)
class ShownPlan:
    """A plan under the name that it was asked by, and the limits of its schedules; `text`: its kernels, for people.
    `certificate`: of the model, where it was quantised."""

    name: str
    plan: FusionPlan
    text: str
    limits: ScheduleLimits
    certificate: Certificate | None = None

    def to_json(self) -> str:
        """What stands in a plan file: the plan, and beside it the limits and the certificate."""
        text = self.plan.to_json(self.limits)
        return text if self.certificate is None else self.certificate.beside(text)


@dataclass(frozen=True)
class PlanDifference:
    """The difference between the plans called `first` and `second`."""

    first: str
    second: str
    found: PlanDiff


@dataclass(frozen=True)
class PlanExport:
    """A written file. `kind`: "onnx" or "svg"; `timed`: kernels whose time the database knows."""

    file: str
    kind: str
    plan_key: str
    operators: int
    kernels: int
    timed: int


def chosen_plan(graph: Graph, plan: str, place: Place) -> tuple[FusionPlan, ScheduleLimits]:
    """The plan called `plan`: "best" (what `compile` would take here), another name, or a file; with its limits."""
    if plan != BEST:
        return limited_plan(graph, plan)
    with open_database(place.database, read_only=True) as base:
        setting = place.environment(base, measuring=False).setting
        choice = base.best_plan(setting, graph_key(graph))
        limits = known_limits(base, setting, graph_key(graph))
        text = base.location.text
    if choice is None:
        raise InputError(
            f"--plan best: {text} knows no plan for this model on device {place.device} with {setting.threads} "
            "threads; run `autofuse tune` with the same --device and --threads"
        )
    found = FusionPlan.from_json(choice.plan)
    check_plan(graph, found)
    return found, limits


def shown(graph: Graph, name: str, place: Place) -> ShownPlan:
    """The plan called `name`, with its kernels."""
    plan, limits = chosen_plan(graph, name, place)
    return ShownPlan(name, plan, describe(graph, plan, limits), limits, certificate_of(graph.origin))


def difference(graph: Graph, first: str, second: str, place: Place) -> PlanDifference:
    """What differs between two plans, by their names."""
    (a, limits_a), (b, limits_b) = chosen_plan(graph, first, place), chosen_plan(graph, second, place)
    return PlanDifference(first, second, plan_diff(a, b, (limits_a, limits_b)))


def explained(graph: Graph, name: str, place: Place, alone: str = "") -> Explanation:
    """Every edge under the plan called `name`, with its reason code and both its times where the database has them.

    `alone`: see `Explanation`.
    """
    plan, _ = chosen_plan(graph, name, place)
    chosen = "chosen_measured" if name == BEST else "chosen_rule"
    rows = explain(graph, plan, chosen, evidence(graph, plan, place))
    names = {*graph.by_name, *settled(graph, plan)[0].by_name}
    summary = _told(place, plan) if name == BEST else {}
    return Explanation(plan.key, frozenset(names), rows, waterfall_of(summary), alone, certificate_of(graph.origin))


def _told(place: Place, plan: FusionPlan) -> Mapping[str, Json]:
    """What the newest run that ended with `plan` here said at its end."""
    with open_database(place.database, read_only=True) as base:
        setting = place.environment(base, measuring=False).setting
        here = [
            row["run_id"]
            for row in base.table("choices").records()
            if row["plan_key"] == plan.key
            and (row["device_fingerprint"], row["threads"]) == (setting.device, setting.threads)
        ]
        info = base.run(number=int(str(here[-1]))) if here else None
    return (info.summary or {}) if info is not None else {}


def evidence(graph: Graph, plan: FusionPlan, place: Place) -> Evidence:
    """Times of the plan's groups, and of those of every other plan in the database that rewrites the graph alike."""
    variant, _ = settled(graph, plan)
    with open_for_lookup(place.database) as base:
        environment = place.environment(base, measuring=False)
        plans = {known.key: known for known in stored_plans(graph, base) if known.rewrites == plan.rewrites}
        if not plans:
            return Evidence(variant, ())
        plans[plan.key] = plan
        lowered = lowered_plans(Lowering(graph, environment.target), plans.values())
        limits = known_limits(base, environment.setting, graph_key(graph))
        return Evidence(variant, known_pieces(graph, lowered, base, environment.setting, limits))


def check_export(output: Path, place: Place, read: Inputs) -> Inputs:
    """What an export to `output` must not replace: `read` and the database; InputError when it would."""
    if kind_of(output) not in EXPORTS:
        raise InputError(f"--output: got {output.name!r}, allowed: a file that ends in .onnx or .svg")
    inputs = {**read, **database_files(locate(place.database).path)}
    check_output(output, EXPORTS[kind_of(output)], inputs)
    return inputs


def kind_of(output: Path) -> str:
    """What an exported file is, by the end of its name: "onnx" or "svg"."""
    return output.suffix.lstrip(".").lower()


def export(
    graph: Graph, plan: FusionPlan, place: Place, output: Path, weights: bool, inputs: Inputs | None = None
) -> PlanExport:
    """Write a plan to `output`: an .onnx file whose nodes name their kernel, or an .svg picture of the partition.

    `inputs`: what it must not replace, see `check_export`.
    """
    kind = kind_of(output)
    times = times_of(graph, plan, place)
    if kind == "svg":
        drawn = picture(graph, plan, {operators: f"{span.us:.1f} us" for operators, span in times.items()})
        write_output(output, drawn + DRAWN + "\n", EXPORTS[kind], inputs)
    else:
        about = {PREFIX + "plan": plan.key, PREFIX + "kernels": str(len(plan.groups)), **kept_metadata(graph.origin)}
        model = annotated_model(settled(graph, plan)[0], notes(graph, plan, times), about, weights)
        write_output(output, model.SerializeToString(), EXPORTS[kind], inputs)
    return PlanExport(str(output), kind, plan.key, len(graph.operators), len(plan.groups), len(times))


def times_of(graph: Graph, plan: FusionPlan, place: Place) -> dict[tuple[str, ...], GroupTime]:
    """Known times of a plan's groups, without the call, by their operators."""
    known = evidence(graph, plan, place)
    return {
        piece.operators: span.without_call() for piece in groups_of(graph, plan) if (span := known.of(piece.covers))
    }


def notes(graph: Graph, plan: FusionPlan, times: Mapping[tuple[str, ...], GroupTime]) -> dict[str, dict[str, str]]:
    """What an exported node says: number of its kernel, the operators in it, its time; or what it is folded into."""
    graph, plan = settled(graph, plan)
    made = realise(graph, plan)
    found: dict[str, dict[str, str]] = {}
    for number, group in enumerate(plan.groups, 1):
        note = {
            PREFIX + "kernel": str(number),
            PREFIX + "operators": " + ".join(group.operators),
            PREFIX + "kinds": "+".join(made.by_name[name].op_type for name in group.operators),
        }
        if group.operators in times:
            span = times[group.operators]
            note[PREFIX + "time_us"] = f"{span.us:.3f} ({span.lo:.3f} to {span.hi:.3f})"
        found.update({name: dict(note) for name in group.operators})
    for name, owner in folded_into(graph, plan.folds).items():
        found[name] = {**found[owner], PREFIX + "folded_into": owner}
    for copy in plan.copies:
        note = found.setdefault(copy.operator, {})
        kernels = (note.get(PREFIX + "copied_into", ""), found[copy.name][PREFIX + "kernel"])
        note[PREFIX + "copied_into"] = ", ".join(filter(None, kernels))
    return found


DRAWN = "<!-- drawn by autofuse -->"
EXPORTS = {
    "onnx": Kind("a plan that autofuse exported", lambda path: has_metadata(path, f"{PREFIX}plan")),
    "svg": Kind("a picture that autofuse drew", lambda path: has_mark(path, DRAWN.encode())),
}
