"""Verbs over one model or its library: `inspect`, `compile`, `run`, `bench`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeGuard, cast

import typer
from rich.console import Group
from rich.text import Text

from autofuse import api
from autofuse.cli.options import (
    AskedDatabase,
    Buckets,
    Caches,
    CalledSizes,
    CompileFormats,
    Constants,
    Device,
    Exact,
    LibraryOutput,
    Model,
    OnMiss,
    OutputFormat,
    Plan,
    RequireComplete,
    Rpc,
    RpcKey,
    RpcKeyFile,
    RpcTracker,
    SeveralShapes,
    Shapes,
    Sign,
    Sizes,
    Space,
    Threads,
    TrainedModel,
    Trust,
    WeightGrowth,
)
from autofuse.cli.screens.compile_view import compile_text, verb_progress
from autofuse.cli.screens.next_steps import after_bench, after_compiling, after_inspecting
from autofuse.cli.screens.parts_view import is_in_parts, runs_facts, summary_text
from autofuse.cli.screens.render import beside, describe, plain, records, show
from autofuse.values.arguments import (
    DEFAULT_BENCH_BUDGET,
    DEFAULT_ON_MISS,
    DEFAULT_RIVALS,
    micros,
    parse_buckets,
    parse_constants,
    parse_files,
    parse_formats,
    parse_shape_sets,
    parse_shapes,
    size,
)

if TYPE_CHECKING:
    from autofuse.api.results import BenchReport, GraphSummary, RivalReport, SizesReport

MAX_DECISIONS_SHOWN = 20


def inspect(
    model: Model,
    database: AskedDatabase = None,
    threads: Threads = None,
    device: Device = "local",
    shape: Shapes = None,
    constant: Constants = None,
    space: Space = None,
    operators: Annotated[bool, typer.Option("--operators", help="List every operator, too.")] = False,
    form: OutputFormat = "text",
) -> None:
    """Show what a model offers to a search.

    Operators, costs, open decisions, what cannot be tuned and why, the size of the search, and who runs the model: our
    kernels, or ONNX Runtime where a race here says that it is faster.
    """
    named: dict[str, Any] = {
        "database": database, "threads": threads, "device": device, "shapes": parse_shapes(shape or []),
        "constants": parse_constants(constant or []), "space": space,
    }  # fmt: skip
    summary = api.inspect(model, **named)
    then = after_inspecting(model, named)
    if is_in_parts(summary):
        show(summary, form, summary_text(summary), then)
    else:
        show(summary, form, _summary_text(cast("GraphSummary", summary), operators), then)


def _summary_text(summary: GraphSummary, every_operator: bool) -> Group:
    facts = {
        "model": summary.name,
        "operators": len(summary.operators),
        "GFLOPs": summary.flops / 1e9,
        "intermediate results": size(summary.intermediate_bytes),
        "left by the default plan": size(summary.intermediate_bytes_default),
        "kernels of the default plan": summary.kernels_default,
        "distinct workloads to start with": summary.workloads,
        "regions": beside(summary.regions, summary.distinct_regions, "of which {} differ"),
        "open decisions": beside(len(summary.decisions), summary.sites, "for {} places"),
        "plans": f"at most 10^{summary.log10_plans:.1f}",
        **runs_facts(summary.runs, summary.wide_levels, summary.certificate),
    }
    parts: list[Any] = [describe(facts)]
    types: dict[tuple[str, str], list[int]] = {}
    for row in summary.operators:
        types.setdefault((row.op_type, str(plain(row.mapping))), []).append(row.flops)
    kinds = [
        {"operator": kind, "mapping type": mapping, "count": len(flops), "MFLOPs": sum(flops) / 1e6}
        for (kind, mapping), flops in types.items()
    ]
    parts += ["", records(kinds)]
    if every_operator:
        parts += ["", records([plain(row) for row in summary.operators], "operators")]
    if summary.decisions:
        rows = [
            {
                "decision": d.kind,
                "choices": d.choices,
                "sites": max(1, len(d.sites)),
                "first site": d.sites[0].text if d.sites else "wherever no other decision says",
            }
            for d in summary.decisions[:MAX_DECISIONS_SHOWN]
        ]
        more = len(summary.decisions) - len(rows)
        parts += [
            "",
            records(plain(rows), "open decisions" + (f" (and {more} more, see --format json)" if more else "")),
        ]
    if summary.rewrites:
        rules = [
            {
                "rewrite": row.rule,
                "sites": row.sites,
                "by default": row.default,
                "exact": row.exact,
                "MFLOPs saved": row.flops_saved / 1e6,
                "MB saved": row.bytes_saved / 1e6,
                "before -> after": row.text,
            }
            for row in summary.rewrites
        ]
        parts += ["", records(plain(rules), "rewrites")]
    alone = [{"operator": row.name, "type": row.op_type, "why": row.untunable} for row in summary.untunable]
    parts += ["", records(alone, "always in a kernel of their own") if alone else "every operator can be fused"]
    return Group(*parts)


def compile_(
    model: Model,
    output: LibraryOutput = None,
    database: AskedDatabase = None,
    threads: Threads = None,
    device: Device = "local",
    rpc: Rpc = None,
    rpc_tracker: RpcTracker = None,
    rpc_key: RpcKey = None,
    rpc_key_file: RpcKeyFile = None,
    on_miss: OnMiss = DEFAULT_ON_MISS,
    strict: Annotated[
        bool, typer.Option("--strict", help="Stop unless every schedule was measured on this device.")
    ] = False,
    require_complete: RequireComplete = False,
    exact: Exact = False,
    weight_growth: WeightGrowth = None,
    trained: TrainedModel = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be built from where; build nothing.")
    ] = False,
    plan: Plan = None,
    shape: SeveralShapes = None,
    buckets: Buckets = None,
    sizes: Sizes = None,
    cache: Caches = None,
    constant: Constants = None,
    sign: Sign = None,
    format: CompileFormats = None,  # noqa: A002 the option's name
) -> None:
    """Build a library from what the database knows; measures nothing, and says how each plan and group is known."""
    sets, constants = parse_shape_sets(shape or []), parse_constants(constant or [])
    library_format, form = parse_formats(format or [])
    place: dict[str, Any] = {"database": database, "threads": threads, "device": device, "on_miss": on_miss}
    reached: dict[str, Any] = {"rpc": rpc, "rpc_tracker": rpc_tracker, "rpc_key": rpc_key, "rpc_key_file": rpc_key_file}
    opened: dict[str, Any] = {"sizes": sizes or [], "caches": cache or []}
    report = api.compile(
        model,
        output,
        **{**place, **reached, **opened},
        strict=strict,
        require_complete=require_complete,
        exact=exact,
        weight_growth=weight_growth,
        trained=trained,
        dry_run=dry_run,
        shapes=sets,
        buckets=parse_buckets(buckets or []),
        constants=constants,
        plan=plan,
        sign=sign,
        format=library_format,
        progress=verb_progress("compile"),
    )
    shapes = sets[0] if len(sets) == 1 else {}
    named = {**place, **reached, **opened, "shapes": shapes, "constants": constants, "format": library_format}
    show(report, form, compile_text(report), after_compiling(model, report.library, report.untuned, named))


def run(
    library: Annotated[Path, typer.Argument(metavar="LIBRARY", help="What `autofuse compile` wrote.")],
    inputs: Annotated[
        list[str] | None,
        typer.Option("--input", metavar="NAME=FILE.npy", help="An input; generated where left out. May repeat."),
    ] = None,
    output_folder: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FOLDER", help="Write each output as NAME.npy.")
    ] = None,
    sizes: CalledSizes = None,
    trust: Trust = None,
    form: OutputFormat = "text",
) -> None:
    """Run a library once and show its outputs.

    Its code runs with all your rights: run those that you made, or --trust the keys of those who did.
    """
    files = parse_files(inputs or [])
    report = api.run(library, inputs=files, output_folder=output_folder, sizes=sizes or [], trust=trust or ())
    rows = [{name: value for name, value in vars(output).items() if value is not None} for output in report.outputs]
    show({"library": report.library, "outputs": rows}, form, records(plain(rows)))


def package(
    library: Annotated[
        Path, typer.Argument(metavar="LIBRARY", help="What `autofuse compile --format c` wrote.", show_default=False)
    ],
    output_folder: Annotated[
        Path, typer.Option("--output", "-o", metavar="FOLDER", help="The folder to write.", show_default=False)
    ],
    form: OutputFormat = "text",
) -> None:
    """Make a folder in which C and C++ projects find a free-standing library.

    The library, its header, an example, and files for CMake (find_package) and pkg-config.
    """
    report = api.package(library, output_folder)
    show(report, form, describe({**vars(report), "files": "\n".join(report.files)}))


def bench(
    model: Model,
    library: Annotated[
        Path | None, typer.Option("--library", metavar="FILE", help="A compiled library; compiled now when left out.")
    ] = None,
    against: Annotated[str, typer.Option("--against", metavar="LIST", help="Rivals, by comma.")] = DEFAULT_RIVALS,
    budget: Annotated[
        str, typer.Option("--budget", metavar="DURATION", help="Time for measuring, such as 30s or 2m.")
    ] = DEFAULT_BENCH_BUDGET,
    database: AskedDatabase = None,
    threads: Threads = None,
    device: Device = "local",
    rpc: Rpc = None,
    rpc_tracker: RpcTracker = None,
    rpc_key: RpcKey = None,
    rpc_key_file: RpcKeyFile = None,
    on_miss: OnMiss = DEFAULT_ON_MISS,
    shape: Shapes = None,
    sizes: Sizes = None,
    constant: Constants = None,
    trust: Trust = None,
    form: OutputFormat = "text",
) -> None:
    """Compare the compiled model with its rivals.

    Its outputs are checked against ONNX Runtime; times are interleaved, with their interval.
    """
    named: dict[str, Any] = {
        "database": database, "threads": threads, "device": device, "shapes": parse_shapes(shape or []),
        "constants": parse_constants(constant or []),
    }  # fmt: skip
    report = api.bench(
        model,
        library=library,
        rpc=rpc,
        rpc_tracker=rpc_tracker,
        rpc_key=rpc_key,
        rpc_key_file=rpc_key_file,
        on_miss=on_miss,
        against=against,
        budget=budget,
        sizes=sizes or [],
        trust=trust or (),
        **named,
    )
    if is_of_sizes(report):
        show(sizes_body(report), form, sizes_text(report))
    else:
        one = cast("BenchReport", report)
        show(bench_body(one), form, bench_text(one), after_bench(model, one.recorded, named))


def bench_body(report: BenchReport) -> dict[str, object]:
    """The object that `bench --format json` prints; ratio = rival / autofuse, so above 1 is a win."""
    rivals = {
        name: {
            "median_us": rival.median_us,
            "ratio": rival.ratio,
            "ci_lo": rival.ci_lo,
            "ci_hi": rival.ci_hi,
            "trusted": rival.trusted,
            "autofuse_us": rival.autofuse_us,
            "verdict": rival.verdict,
            "error": rival.error,
        }
        for name, rival in report.rivals.items()
    }
    return {
        "model": report.model,
        "threads": report.threads,
        "device": report.device,
        "autofuse_us": report.autofuse_us,
        "max_rel_error": report.max_rel_error,
        "kernels": report.kernels,
        "rivals": rivals,
    }


def bench_text(report: BenchReport) -> Group:
    """A table of the rivals below one line of facts."""
    head = (
        f"{report.model}: {report.kernels} kernels, {report.threads} thread{'s' if report.threads > 1 else ''}, "
        f"device {report.device}, largest error {report.max_rel_error:.1e} of the output's range"
    )
    rows: list[dict[str, object]] = [{"": "autofuse", "median": micros(report.autofuse_us)}]
    rows += [{"": name, **_rival_row(rival)} for name, rival in report.rivals.items()]
    return Group(Text(head), "", records(rows))


def _rival_row(rival: RivalReport) -> dict[str, object]:
    row: dict[str, object] = {"median": micros(rival.median_us)}
    if rival.autofuse_us is not None:
        row["autofuse beside it"] = micros(rival.autofuse_us)
    if rival.ratio is not None and rival.ci_lo is not None and rival.ci_hi is not None:
        row["rival / autofuse"] = f"{rival.ratio:.3f}"
        row["interval"] = f"{rival.ci_lo:.3f} - {rival.ci_hi:.3f}"
    row["verdict"] = _VERDICTS.get(rival.verdict, rival.verdict) or f"not measured: {rival.error or 'unknown'}"
    return row


def is_of_sizes(report: BenchReport | SizesReport) -> TypeGuard[SizesReport]:
    """Whether a comparison is one of several sizes; nothing is loaded to find out."""
    return hasattr(report, "mix")


def sizes_body(report: SizesReport) -> dict[str, object]:
    """The object that `bench --sizes --format json` prints: what `bench` prints for each size, and the mix."""
    return {
        "model": report.model,
        "open_size": report.name,
        "low": report.low,
        "high": report.high,
        "sizes": [{"size": size, **bench_body(one)} for size, one in report.sizes.items()],
        "mix": {name: vars(mix) for name, mix in report.mix.items()},
    }


def sizes_text(report: SizesReport) -> Group:
    """A row for each size and rival, then one for each rival over all sizes."""
    first, error = next(iter(report.sizes.values())), max(one.max_rel_error for one in report.sizes.values())
    head = (
        f"{report.model}: one library for {report.name} {report.low} to {report.high}, {first.kernels} kernels, "
        f"{first.threads} thread{'s' if first.threads > 1 else ''}, device {first.device}, "
        f"largest error {error:.1e} of the output's range"
    )
    rows = [
        {report.name: size, "": name, **_rival_row(rival)}
        for size, one in report.sizes.items()
        for name, rival in one.rivals.items()
    ]
    over = [
        {"over all sizes": name}
        | ({"verdict": f"not measured: {mix.error or 'a size has no ratio'}"} if mix.ratio is None else {
            "rival / autofuse": f"{mix.ratio:.3f}", "least": f"{mix.least:.3f} at {mix.least_size}",
            "trusted": "all" if mix.trusted else "not all", "p50": micros(mix.p50_us), "p90": micros(mix.p90_us),
            "autofuse p50": micros(mix.autofuse_p50_us), "autofuse p90": micros(mix.autofuse_p90_us),
        })
        for name, mix in report.mix.items()
    ]  # fmt: skip
    told = "rival / autofuse over all sizes: geometric mean; p50, p90: percentiles of the times, each size counted once"
    return Group(Text(head), "", records(rows), "", records(over), "", Text(told))


_VERDICTS = {
    "faster": "autofuse is faster",
    "slower": "autofuse is slower",
    "not trusted": "not trusted (noise)",
    "undecided": "undecided (noise)",
}
