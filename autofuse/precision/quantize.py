"""Quantising a model: calibration, the fastest set under the bound, and its measurement on acceptance data."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from autofuse.database.database import open_for_lookup
from autofuse.environment.place import Place
from autofuse.errors import InputError
from autofuse.graph.key import graph_key
from autofuse.graph.loading.files import weight_files
from autofuse.graph.loading.load import load
from autofuse.graph.model import Graph
from autofuse.graph.transform.quantize.certificate import Data, TriedSet
from autofuse.graph.transform.quantize.sites import INT8, Site, Sites, find_sites, is_quantised, prepared
from autofuse.graph.transform.quantize.write import quantised_graph
from autofuse.precision.calibration import Calibration, calibrate
from autofuse.precision.choices import Cast, Choice, fastest_precisions
from autofuse.precision.cost import ContractionTime, Costs
from autofuse.precision.gain import no_gain
from autofuse.precision.metrics import Metric, Outputs, mean_drop
from autofuse.precision.names import FLOAT
from autofuse.precision.report import MODEL, ContractionReport, Quantized, counts, quantised_bytes
from autofuse.precision.runs import Progress, outputs_of
from autofuse.precision.samples import Sample, Source, digest, read_samples
from autofuse.precision.sensitivity import Sensitivity
from autofuse.values.arguments import Given
from autofuse.values.outputs import check_output, write_output
from autofuse.values.statistics import MeanInterval, least_count

LEAST_SAMPLES = 8
"""Samples of acceptance data below which a mean says nothing."""
Precisions = Mapping[str, str]
"""Of the contractions that are not in float32, by name."""
_KEPT_BACK = 2
"""One of so many calibration samples is kept for acceptance where no other data are given."""


@dataclass(frozen=True)
class Wish:
    """What is wanted of a quantised model: `max_drop` of the metric, at most; `ranges`: the rule of calibration;
    `precisions`: those that contractions may have besides float32."""

    metric: Metric
    max_drop: float
    ranges: str
    precisions: tuple[str, ...] = (INT8,)


@dataclass(frozen=True)
class Split:
    """The samples that ranges and sets are chosen by, and those that decide."""

    calibration: tuple[Sample, ...]
    acceptance: tuple[Sample, ...]
    held_out: bool


def quantize(
    path: Path, output: Path, given: Given, sources: tuple[Source, Source | None], wish: Wish, place: Place,
    progress: Progress,
) -> Quantized:  # fmt: skip
    """Write the model `path` with narrow contractions to `output`; `sources`: calibration and acceptance data.

    InputError when the data do not fit or are too few, and when no contraction can be narrow under the bound: then
    nothing is written.
    """
    read = {"the model": path} | {f"a file of the model's weights ({one.name})": one for one in weight_files(path)}
    check_output(output, MODEL, read)
    model = load(path, given)
    if is_quantised(model):
        raise InputError(f"{path}: the model is quantised already; give the float model that it was made from")
    if model.widened:
        raise InputError(f"{path}: the model computes in bfloat16; give the float32 model that it was made from")
    sites = find_sites(prepared(model), wish.precisions)
    if not sites.usable:
        raise InputError(f"{path}: no contraction of it can be in {_words(wish)}{_reasons(sites)}")
    split = _split(sources, model)
    work = _Work(model, sites, split, wish, place, progress)
    report, graph = work.result(path, output)
    write_output(output, quantised_bytes(graph, report), MODEL, read)
    return report


def _words(wish: Wish) -> str:
    return " or ".join(wish.precisions)


def _reasons(sites: Sites) -> str:
    each = dict.fromkeys(sites.refused.values())
    return f": {'; '.join(each)}" if each else ": it has none"


def _split(sources: tuple[Source, Source | None], graph: Graph) -> Split:
    calibration = read_samples(sources[0], graph, "--calibration")
    held_out = sources[1] is None
    if sources[1] is None:
        calibration, acceptance = calibration[::_KEPT_BACK], calibration[1::_KEPT_BACK]
    else:
        acceptance = read_samples(sources[1], graph, "--acceptance")
    if len(acceptance) < LEAST_SAMPLES:
        more = f" (every second of --calibration; give at least {2 * LEAST_SAMPLES})" if held_out else ""
        raise InputError(
            f"--acceptance: {len(acceptance)} samples{more}: at least {LEAST_SAMPLES} are needed, and a few hundred "
            "say more"
        )
    return Split(calibration, acceptance, held_out)


class _Work:
    """One model on its way; what is found stays for the next step."""

    def __init__(self, model: Graph, sites: Sites, split: Split, wish: Wish, place: Place, progress: Progress) -> None:
        self.model, self.sites, self.split, self.wish = model, sites, split, wish
        self.place, self.progress = place, progress
        self.front: list[TriedSet] = []
        self.rounds = 0
        self.noise: dict[tuple[str, str], float] = {}
        self.why: dict[str, str] = {}

    def result(self, path: Path, output: Path) -> tuple[Quantized, Graph]:
        """The report, and the graph that holds what it says."""
        self.reference = list(outputs_of(self.model, self.split.acceptance, self.progress, "accepted in float32"))
        self.require_enough()
        self.calibration: Calibration = calibrate(self.sites, self.split.calibration, self.wish.ranges, self.progress)
        self.times, self.casts = self.costs()
        self.require_gain()
        self.noises = Sensitivity(self.sites, self.calibration, self.split.calibration, self.progress)
        self.noise = self.noises.noises()
        chosen, drop, graph = self.accepted(self.within_calibration())
        return self.report(path, output, chosen, drop), graph

    def require_enough(self) -> None:
        """InputError where the acceptance data are so few that they could not show what is wanted."""
        metric, most = self.wish.metric, self.wish.max_drop
        count = len(self.drops(self.reference))
        needed = least_count(most) if metric.counts else 0
        if count < needed:
            raise InputError(
                f"--acceptance: {count} answers cannot show a drop of {metric.name} below {most:.3%}: that takes "
                f"{needed:,} without a difference; give more samples, a larger --max-drop, or --metric cosine"
            )

    def require_gain(self) -> None:
        """InputError where no contraction at all would be narrow, whatever may be lost: data change nothing of it."""
        if not self.fastest(float("inf")):
            raise InputError(f"{self.model.name}: {no_gain(self.sites, self.times, self.casts)}; nothing was written")

    def drops(self, outputs: Sequence[Outputs]) -> list[float]:
        """The drops of all acceptance samples."""
        triples = zip(self.reference, outputs, self.split.acceptance, strict=True)
        return [drop for one in triples for drop in self.wish.metric.drops(*one)]

    def costs(self) -> tuple[dict[str, ContractionTime], list[Cast]]:
        """Times of the contractions in all precisions, and of making bytes."""
        narrow = {
            wanted: quantised_graph(
                self.sites,
                {name: precision for name, precision in self.sites.options if precision == wanted},
                self.calibration.ranges,
            )
            for wanted in self.wish.precisions
        }
        with open_for_lookup(self.place.database) as base:
            costs = Costs(self.sites, base, self.place.environment(base, measuring=False))
            return costs.times(self.model, narrow), costs.casts()

    def within_calibration(self) -> Precisions:
        """The fastest set under the largest bound on noise at which the calibration data lose no more than allowed.

        The bounds are those of the quietest choices together, one more each time; by bisection. A set that loses
        more by chance alone, as of a few samples one may, stays: the acceptance data decide.
        """
        sums = [0.0]
        for noise in sorted(self.noise.values()):
            sums.append(sums[-1] + noise)
        good, bad = 0, len(sums)
        tried: dict[frozenset[tuple[str, str]], float] = {frozenset(): 0.0}
        place = len(sums) - 1
        while bad - good > 1:
            chosen = self.fastest(sums[place] * (1 + 1e-9))
            key = frozenset(chosen.items())
            if key not in tried:
                tried[key] = self.tried(chosen)
            good, bad = (place, bad) if tried[key] <= self.wish.max_drop else (good, place)
            place = (good + bad) // 2
        return self.fastest(sums[good] * (1 + 1e-9))

    def fastest(self, most_noise: float) -> Precisions:
        """The fastest set under a bound on noise."""
        return fastest_precisions([self.choice(*option) for option in self.sites.options], self.casts, most_noise)

    def choice(self, name: str, precision: str) -> Choice:
        """One contraction in one precision. Bytes apart, what makes narrow numbers is part of its kernel."""
        saved, site = self.times[name].counted_us(precision), self.sites.by_name[name]
        reads = self.sites.roots(site) if precision == INT8 else ()
        return Choice(name, saved, self.noise.get((name, precision), 0.0), reads, precision)

    def tried(self, chosen: Precisions) -> float:
        """What a set loses on the calibration data at least; its mean becomes a point of the front."""
        drop = self.noises.drop(chosen, self.wish.metric)
        self.front.append(TriedSet(counts(chosen.values()), self.sum_us(chosen), drop.mean))
        return drop.lo

    def sum_us(self, chosen: Precisions) -> float:
        """Time of all contractions with some of them in other precisions than float32."""
        return sum(time.us[chosen.get(name, FLOAT)] for name, time in self.times.items())

    def accepted(self, chosen: Precisions) -> tuple[Precisions, MeanInterval, Graph]:
        """The set that keeps the bound on the acceptance data: while it does not, the noisiest go back."""
        back = 1
        while chosen:
            graph = quantised_graph(self.sites, chosen, self.calibration.ranges)
            self.rounds += 1
            found = list(outputs_of(graph, self.split.acceptance, self.progress, f"accepted, {len(chosen)} narrow"))
            drop = mean_drop(self.drops(found))
            if drop.hi <= self.wish.max_drop:
                return chosen, drop, graph
            noisiest = sorted(chosen, key=lambda name: -self.noise[name, chosen[name]])[:back]
            self.why |= dict.fromkeys(noisiest, f"went back: with it the acceptance data lost up to {drop.hi:.3%}")
            chosen, back = self.without(chosen, noisiest), back * 2
        raise InputError(
            f"{self.model.name}: no contraction can be in {_words(self.wish)} with a drop of {self.wish.metric.name} "
            f"of at most {self.wish.max_drop:.3%} {self.hint()}; nothing was written"
        )

    def without(self, chosen: Precisions, noisiest: Collection[str]) -> Precisions:
        """A set whose noisiest contractions are in the fastest quieter precision that pays, else in float32."""
        kept = {name: precision for name, precision in chosen.items() if name not in noisiest}
        for name in noisiest:
            time, most = self.times[name], self.noise[name, chosen[name]]
            quieter = [kind for kind in self.sites.by_name[name].precisions if self.noise[name, kind] < most]
            paying = [kind for kind in quieter if time.is_faster(kind)]
            if paying:
                kept[name] = max(paying, key=time.saved_us)
        return kept

    def hint(self) -> str:
        """What the last measurement said, or that not even the calibration data allowed any, and what would help."""
        if not self.rounds:
            least = min((point.drop for point in self.front), default=0.0)
            return f"(the calibration data lose {least:.3%} with the fewest); allow a larger --max-drop"
        return f"({len(self.split.acceptance)} acceptance samples); allow a larger --max-drop, or give more data"

    def report(self, path: Path, output: Path, chosen: Precisions, drop: MeanInterval) -> Quantized:
        """All that is said of the result."""
        split, wish = self.split, self.wish
        rows = [self.row(site, chosen.get(site.name, FLOAT)) for site in self.sites.usable]
        kinds = self.sites.graph.by_name
        rows += [ContractionReport(name, kinds[name].op_type, FLOAT, why) for name, why in self.sites.refused.items()]
        position = self.sites.graph.position
        return Quantized(
            str(path), str(output), wish.metric.name, wish.metric.meaning, wish.max_drop, drop,
            Data(len(split.calibration), digest(split.calibration)),
            Data(len(split.acceptance), digest(split.acceptance), split.held_out), wish.ranges,
            tuple(sorted(rows, key=lambda row: position[row.operator])), self.sum_us({}), self.sum_us(chosen),
            tuple(sorted(self.front, key=lambda point: point.time_us)), self.rounds, graph_key(self.model),
        )  # fmt: skip

    def row(self, site: Site, precision: str) -> ContractionReport:
        """What is said of one contraction that could be narrow."""
        time, name = self.times[site.name], site.name
        noises = {kind: self.noise[name, kind] for kind in site.precisions}
        why = "faster, and within what may be lost"
        if precision == FLOAT:
            why = self.why.get(name) or self.reason(site)
        elif name in self.why:
            why = self.why[name]
        noise = noises.get(precision, min(noises.values()))
        return ContractionReport(name, site.op_type, precision, why, noise, time.us, time.known)

    def reason(self, site: Site) -> str:
        """Why a contraction was never chosen."""
        time, allowed = self.times[site.name], " or ".join(site.precisions)
        if not time.is_faster(time.nearest):
            return f"no faster in {allowed}{' beyond noise' if time.saved_us(time.nearest) > 0 else ''}"
        pays = site.name in self.fastest(float("inf"))
        return "too noisy for what may be lost" if pays else "what it saves does not pay for making bytes"
