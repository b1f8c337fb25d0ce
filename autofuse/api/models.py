"""What is done with one model, or with the library that is made of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from autofuse.device.address import told_key
from autofuse.errors import InputError, UncoveredError
from autofuse.values.arguments import (
    DEFAULT_BENCH_BUDGET,
    DEFAULT_MAX_DROP,
    DEFAULT_ON_MISS,
    DEFAULT_RIVALS,
    Constants,
    Duration,
    Given,
    LibraryFormat,
    Shapes,
    StrPath,
    check_library_format,
    check_miss_policy,
    file_title,
    given_inputs,
    parse_duration,
    parse_percent,
    parse_rivals,
)
from autofuse.values.outputs import model_file

if TYPE_CHECKING:
    from autofuse.backend.library.compiled import Library
    from autofuse.backend.library.files import RunReport
    from autofuse.backend.library.parted import PartedLibrary
    from autofuse.benchmark import BenchReport, BenchRequest
    from autofuse.compiler import CompileReport, Context, Policy
    from autofuse.compiler.parts.open_head import OpenHead
    from autofuse.environment.place import Place
    from autofuse.graph.loading.given.sizes import OpenSize, Ranges
    from autofuse.graph.transform.open_sizes.caches import Caches
    from autofuse.opened.bench import SizesReport
    from autofuse.precision.metrics import Score
    from autofuse.precision.report import Quantized
    from autofuse.precision.samples import Source
    from autofuse.views.inspect import GraphSummary
    from autofuse.views.parts import PartsSummary


def inspect(
    model: StrPath,
    *,
    database: str | None = None,
    device: str = "local",
    threads: int | None = None,
    shapes: Shapes | None = None,
    constants: Constants | None = None,
    space: str | None = None,
) -> GraphSummary | PartsSummary:
    """What the model offers to a search: operators, costs, open decisions, and what cannot be tuned and why.

    Where ONNX Runtime has to run a part of the model: both sides, and why. `runs`: who runs the model as `compile`
    would take it from this database, and what their race said.
    """
    model = model_file(model, device)
    from autofuse.compiler import Context, who_runs, who_runs_parts
    from autofuse.environment.place import Place
    from autofuse.environment.space import load_space
    from autofuse.graph.loading.load import load as load_graph
    from autofuse.kernels.lowering.coverage import require_kernels
    from autofuse.segments.read import parts_of
    from autofuse.views.inspect import inspect as inspect_graph
    from autofuse.views.parts import inspect_parts

    fusion, given = load_space(space, "generic").fusion, given_inputs(shapes, constants)
    with Context(Place(database, device, threads)) as context:
        try:
            graph = load_graph(model, given)
            require_kernels(graph)
        except UncoveredError as error:
            choice, runs = who_runs_parts(context, parts_of(model, given, error))
            return inspect_parts(choice, file_title(model), fusion, runs)
        return inspect_graph(graph, fusion, who_runs(context, model, given, graph))


def quantize(
    model: StrPath,
    output: StrPath,
    *,
    calibration: Source,
    acceptance: Source | None = None,
    precision: str | Sequence[str] = "int8",
    max_drop: str | float = DEFAULT_MAX_DROP,
    metric: str | Score = "cosine",
    ranges: str = "best",
    database: str | None = None,
    device: str = "local",
    threads: int | None = None,
    shapes: Shapes | None = None,
    constants: Constants | None = None,
    progress: Callable[[str, int, int], None] | None = None,
) -> Quantized:
    """Write the model with those contractions in fewer bits that are faster so, as far as its accuracy bears it.

    `output` is a model of standard ONNX (QuantizeLinear and DequantizeLinear, Casts to bfloat16 and back), which is
    tuned and compiled as any other, and which other runtimes take, too; it has the shapes that were given, and its
    certificate among its metadata. `calibration`: a folder of .npy or .npz files, or an iterable of {input: array};
    ranges and sets are chosen by it. `acceptance`: other such data, which decide (None: every second sample of
    `calibration` is kept back). `precision`: what contractions may have besides float32: "int8", "bf16" and, of weights
    alone, "int8-weights" and "int4-weights" (a list, or with commas).
    `max_drop`: the most that the metric may lose on the acceptance data, in percent, with 95 % confidence. `metric`:
    "cosine", "top1", "kl", or a function that scores the outputs ({name: array}) for a sample (with whatever more the
    data has, such as a label): higher is better. `ranges`: "best", "min-max" or "percentile". Times of contractions are
    those that the database knows, else estimates. `progress`: called with what is done, and how many of how many.
    """
    model = model_file(model, device)
    from autofuse.environment.place import Place
    from autofuse.precision.metrics import metric_of
    from autofuse.precision.names import check_precisions
    from autofuse.precision.quantize import Wish
    from autofuse.precision.quantize import quantize as quantize_model

    wish = Wish(metric_of(metric), parse_percent(max_drop, "--max-drop"), ranges, check_precisions(precision))
    place, told = Place(database, device, threads), progress or (lambda _what, _done, _total: None)
    given = given_inputs(shapes, constants)
    return quantize_model(model, Path(output), given, (calibration, acceptance), wish, place, told)


def compile(  # noqa: A001 the verb's name, in a namespace of its own
    model: StrPath,
    output: StrPath | None = None,
    *,
    context: Context | None = None,
    database: str | None = None,
    threads: int | None = None,
    device: str = "local",
    rpc: str | None = None,
    rpc_tracker: str | None = None,
    rpc_key: str | None = None,
    rpc_key_file: StrPath | None = None,
    on_miss: str = DEFAULT_ON_MISS,
    strict: bool = False,
    require_complete: bool = False,
    exact: bool = False,
    weight_growth: float | None = None,
    trained: str | None = None,
    dry_run: bool = False,
    shapes: Shapes | Sequence[Shapes] | None = None,
    buckets: Mapping[str, Sequence[int]] | None = None,
    sizes: Ranges | None = None,
    caches: Mapping[str, str] | Iterable[str] | None = None,
    constants: Constants | None = None,
    plan: str | None = None,
    sign: StrPath | None = None,
    format: str | None = None,  # noqa: A002 the option's name
    progress: Callable[[str, int, int], None] | None = None,
) -> CompileReport:
    """Build the library `output` from the best plan and schedules of the database, without measuring.

    `dry_run` builds nothing, and only reports; else `output` must be named. `on_miss`, `strict`, `require_complete`:
    see `autofuse.compiler.context.Policy`. `exact`, `weight_growth`: see `autofuse.fusion.plan.ScheduleLimits`.
    `shapes`: several give a library that takes each of them, and so do `buckets`, which name open sizes of the model:
    {"batch": (1, 4, 8)}. `sizes`: one named size stays open, or those of images, and the library runs any of a range:
    {"batch": (1, 64), "seq": 128}, ["height=64:512:16"]. `caches`: outputs that extend an input, kept by the library:
    {"present.*": "past.*"}, see `Session.caches`. `constants`: values of inputs, which the library has no longer:
    {"axes": [0, 2]}. `plan`: "best" (None), "none", "tvm-partition", "dnnfusion", or the path of a plan file. `sign`: a
    private key (`autofuse key new` makes one) that signs the library, for those who load it with `trust`. `format`:
    "so" (None), a library that `load` and `Session` take; "c", a free-standing one with a C header; "ort", a model and
    an execution provider for ONNX Runtime (see `autofuse.ort.register`). `context`: made once for many models, in place
    of the arguments from `database` to `trained`. `progress`: called with a phase, and how many kernels are done.
    """
    if output is None and not dry_run:
        raise InputError("--output: the library to write is missing, such as --output model.so (or give --dry-run)")
    model = model_file(model, device)
    from autofuse.compiler import Policy, compile_in
    from autofuse.environment.place import Place
    from autofuse.fusion.plan import ScheduleLimits

    forms, target = _forms(model, shapes, buckets, constants), None if output is None or dry_run else Path(output)
    opened, kept = _opened(sizes, forms, buckets), _kept(caches, sizes, format)
    form, key = check_library_format(format), None if sign is None else Path(sign)
    limits = ScheduleLimits(weight_growth=weight_growth, exact=exact)
    policy = Policy(check_miss_policy(on_miss), strict, require_complete, limits, trained)
    place = Place(database, device, threads, rpc, rpc_tracker, told_key(rpc_key, rpc_key_file))
    with _context(context, place, policy) as made:
        if opened:
            return _compile_open(made, model, target, forms[0], opened, plan, key, progress, kept, form)
        return compile_in(made, model, target, forms, plan, key, progress, form)


def _compile_open(
    context: Context, model: Path, output: Path | None, given: Given, sizes: Sequence[OpenSize], plan: str | None,
    key: Path | None, progress: Callable[[str, int, int], None] | None, kept: Caches | None, form: LibraryFormat,
) -> CompileReport:  # fmt: skip
    """Compile a model with such sizes open: rows of a batch or of tokens, or images. Where it ends in what finds as
    many places as the data say, ONNX Runtime runs that end."""
    from autofuse.compiler import compile_in, compile_open
    from autofuse.compiler.open_sizes.head_race import HEAD, compile_alone, is_alike, newest_verdict
    from autofuse.compiler.parts.open_head import finds_places, of_a_head
    from autofuse.opened.grid_job import compile_grid
    from autofuse.opened.kinds import over_images
    from autofuse.values.names import ONNX_RUNTIME

    def compiled(read: Path, opened: Sequence[OpenSize] = sizes, head: OpenHead | None = None) -> CompileReport:
        known: Given = given if opened is sizes else {}
        make = compile_grid if over_images(read, known, opened) else compile_open
        return make(context, model, output, known, opened, plan, key, progress, kept, form, head)

    def compiled_head(head: OpenHead) -> CompileReport:
        verdict = newest_verdict(context, head, sizes) if plan is None else None
        if verdict is not None and verdict.side == ONNX_RUNTIME and is_alike(head):
            return compile_alone(context, model, output, head, f"measured: {verdict.text}", key)
        if verdict is not None and verdict.side == HEAD:
            head = replace(head, rowless=f"measured: {verdict.text}")
        return compiled(head.path, head.sizes or sizes, head)

    try:
        return compiled(model)
    except InputError as error:
        if form != "so" or kept or context.policy.require_complete or not finds_places(model):
            raise
        try:
            return of_a_head(model, given, sizes, error, compiled_head)
        except InputError:
            fixed = {size.name: size.low for size in sizes if size.is_fixed}
            with suppress(InputError):
                return compile_in(context, model, output, [given], plan, key, progress, form, fixed)
            raise


def _context(context: Context | None, place: Place, policy: Policy) -> AbstractContextManager[Context]:
    """The context that was given, or one for this verb alone."""
    from autofuse.compiler import Context, Policy
    from autofuse.environment.place import Place

    if context is None:
        return Context(place, policy=policy)
    if place != Place() or policy != Policy():
        raise InputError("context: it has its own database, device, threads and policy; give them to Context(...)")
    return nullcontext(context)


def _opened(
    sizes: Ranges | None,
    forms: Sequence[Given],
    buckets: Mapping[str, Sequence[int]] | None,
) -> Sequence[OpenSize]:
    """The sizes of a model that are open. InputError where something else is wished for that cannot be with them."""
    from autofuse.graph.loading.given.sizes import open_sizes

    found = open_sizes(sizes or {})
    if found and (buckets or len(forms) > 1):
        raise InputError("--sizes: a library with open sizes has one program; leave --buckets and further shapes out")
    return found


def _kept(
    caches: Mapping[str, str] | Iterable[str] | None, sizes: Ranges | None, form: str | None
) -> Mapping[str, str]:
    """The caches that a library keeps itself. InputError where no size is open along which they could grow, or nobody
    says whose they are."""
    from autofuse.graph.transform.open_sizes.caches import parse_caches

    found = parse_caches(caches or {})
    if found and not sizes:
        raise InputError("--cache: caches grow along an open size: give --sizes, too, such as past=0:1024")
    if found and form == "ort":
        raise InputError(
            "--cache: a session of ONNX Runtime may serve several sequences, and nobody tells its nodes which: compile "
            "without --cache, and hand the caches on as values"
        )
    return found


def _forms(
    model: Path,
    shapes: Shapes | Sequence[Shapes] | None,
    buckets: Mapping[str, Sequence[int]] | None,
    constants: Constants | None,
) -> Sequence[Given]:
    """What is given of the inputs for each program of a library: one for each set of their shapes."""
    sets = [shapes] if isinstance(shapes, Mapping) else list(shapes or [{}])
    given = [given_inputs(one, constants) for one in sets]
    if not buckets:
        return given
    from autofuse.graph.loading.given.buckets import bucket_shapes

    return [form for fixed in given for form in bucket_shapes(model, buckets, fixed)]


def load(library: StrPath, *, trust: Sequence[StrPath] = ()) -> Library | PartedLibrary:
    """A compiled library, ready to be called: `load("model.so")({"input": array})`.

    Loading runs its code, with all rights of this process. `trust`: files of public keys; a library that none of them
    signed is refused before anything of it runs.
    """
    from autofuse.backend.library.library import load as load_library

    return load_library(Path(library), trust=[Path(key) for key in trust])


def run(
    library: StrPath,
    *,
    inputs: Mapping[str, StrPath] | None = None,
    output_folder: StrPath | None = None,
    sizes: Ranges | None = None,
    trust: Sequence[StrPath] = (),
) -> RunReport:
    """Run a library once, from and to files; `load` calls it with arrays.

    Its code runs with all rights of this process; `trust`: as `load` has it. `inputs`: .npy files by the inputs' names;
    those left out are generated. `output_folder`: where each output is written as NAME.npy. `sizes`: of what the
    library leaves open, {"batch": 7} (else those of the files, or the largest).
    """
    from autofuse.backend.library.files import run_once
    from autofuse.graph.loading.given.sizes import single_sizes

    named, folder = {name: Path(file) for name, file in (inputs or {}).items()}, output_folder
    chosen = single_sizes(sizes or {})
    return run_once(load(library, trust=trust), Path(library), named, None if folder is None else Path(folder), chosen)


def bench(
    model: StrPath,
    *,
    library: StrPath | None = None,
    database: str | None = None,
    threads: int | None = None,
    device: str = "local",
    rpc: str | None = None,
    rpc_tracker: str | None = None,
    rpc_key: str | None = None,
    rpc_key_file: StrPath | None = None,
    on_miss: str = DEFAULT_ON_MISS,
    against: str | Iterable[str] = DEFAULT_RIVALS,
    budget: Duration = DEFAULT_BENCH_BUDGET,
    shapes: Shapes | None = None,
    sizes: Ranges | None = None,
    constants: Constants | None = None,
    trust: Sequence[StrPath] = (),
) -> BenchReport | SizesReport:
    """Check the model's compiled form against ONNX Runtime, and time it interleaved with its rivals.

    `library`: an artefact to be timed (None: compiled now, from the database). `trust`: files of public keys, one of
    which must have signed it. `sizes`: one named size stays open in a range, as for `compile`; up to nine sizes of it
    are raced, from the smallest to the largest, each as many times the one before, and share `budget`.
    """
    if trust and library is None:
        raise InputError("--trust: it is for the library that --library names; what is compiled now is not signed")
    policy, rivals, budget_s = check_miss_policy(on_miss), parse_rivals(against), parse_duration(budget, "--budget")
    model = model_file(model, device)
    from autofuse.benchmark import BenchRequest
    from autofuse.benchmark import bench as run_bench
    from autofuse.environment.place import Place

    place = Place(database, device, threads, rpc, rpc_tracker, told_key(rpc_key, rpc_key_file))
    request = BenchRequest(
        None if library is None else Path(library), policy, rivals, budget_s, given_inputs(shapes, constants),
        [Path(key) for key in trust],
    )  # fmt: skip
    if sizes:
        from autofuse.graph.loading.given.sizes import open_sizes

        return _bench_open(model, place, open_sizes(sizes), request)
    try:
        return run_bench(model, place, request)
    except UncoveredError as error:
        from autofuse.parted.bench import bench_parts

        return bench_parts(model, place, error, request)


def _bench_open(model: Path, place: Place, sizes: Sequence[OpenSize], request: BenchRequest) -> SizesReport:
    """Time a model with such sizes open, of which ONNX Runtime may run the end."""
    from autofuse.compiler.parts.open_head import finds_places
    from autofuse.opened.bench import bench_open

    try:
        return bench_open(model, place, sizes, request)
    except InputError:
        if not finds_places(model):
            raise
    from autofuse.parted.heads import bench_head

    def build(context: Context, library: Path, plan: str | None) -> CompileReport:
        return _compile_open(context, model, library, request.given, sizes, plan, None, None, None, "so")

    return bench_head(model, place, sizes, request, build)
