"""Options that several verbs share: one spelling and one sentence of help each."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from autofuse.cli.failures import say
from autofuse.cli.screens.render import Format
from autofuse.values.arguments import DEFAULT_BUDGET, MOST_SEED, MissPolicy

Model = Annotated[
    Path, typer.Argument(metavar="MODEL", help="An ONNX file.", exists=False, dir_okay=True, show_default=False)
]
_DATABASE = "The profiling database: an SQLite file or a database URL. [default: in your data folder]"
Database = Annotated[str | None, typer.Option("--db", metavar="PATH-or-URL", help=_DATABASE)]


def tell_missing(database: str | None) -> str | None:
    """Say so at a terminal where a database that is named, and is only asked, is not there: it may be mistyped."""
    if database is None or database == ":memory:" or "://" in database or not sys.stderr.isatty():
        return database
    if not Path(database).exists():
        say(f"note: --db {database}: no such file; nothing that was measured is used")
    return database


AskedDatabase = Annotated[
    str | None, typer.Option("--db", metavar="PATH-or-URL", help=_DATABASE, callback=tell_missing)
]
"""Of verbs that record nothing."""
Threads = Annotated[
    int | None,
    typer.Option(
        "--threads", "-n", min=1, metavar="N", help="Threads that run the model. [default: the device's cores]"
    ),
]
Device = Annotated[
    str, typer.Option("--device", metavar="NAME", help="local, a profile (`autofuse device list`) or a .toml file.")
]
Rpc = Annotated[
    str | None, typer.Option("--rpc", metavar="HOST:PORT", help="A device elsewhere, where `autofuse serve` runs.")
]
RpcTracker = Annotated[
    str | None, typer.Option("--rpc-tracker", metavar="HOST:PORT", help="A TVM tracker that hands out such devices.")
]
RpcKey = Annotated[
    str | None,
    typer.Option(
        "--rpc-key",
        metavar="KEY",
        help="Of the server; behind a tracker, the kind of device. The list of processes shows it, unlike "
        "--rpc-key-file and AUTOFUSE_RPC_KEY in the environment.",
    ),
]
RpcKeyFile = Annotated[Path | None, typer.Option("--rpc-key-file", metavar="FILE", help="A file of one line, the key.")]
Shapes = Annotated[
    list[str] | None,
    typer.Option("--shape", metavar="NAME=SIZES", help="Shape of a dynamic input: image=1,3,224,224. May repeat."),
]
SeveralShapes = Annotated[
    list[str] | None,
    typer.Option(
        "--shape",
        metavar="NAME=SIZES",
        help="Shape of a dynamic input: image=1,3,224,224. An input given twice makes a library for two shapes.",
    ),
]
Constants = Annotated[
    list[str] | None,
    typer.Option(
        "--constant",
        metavar="NAME=VALUE",
        help="Value of an input, which becomes a constant: axes=[0,2], k=5 or axes=@axes.npy. May repeat.",
    ),
]
Buckets = Annotated[
    list[str] | None,
    typer.Option("--buckets", metavar="NAME=SIZES", help="Sizes of a named dimension: batch=1,4,8. May repeat."),
]
Sizes = Annotated[
    list[str] | None,
    typer.Option(
        "--sizes",
        metavar="NAME=LOW:HIGH[:STEP]",
        help="A named dimension that stays open: batch=1:64 (alone: 1:32); of images two, in multiples of STEP: "
        "height=64:512:16,width=64:512:16. NAME=SIZE fixes one. May repeat.",
    ),
]
CalledSizes = Annotated[
    list[str] | None,
    typer.Option(
        "--sizes",
        metavar="NAME=SIZE",
        help="A size that the library leaves open: batch=7 (default: that of --input, or the largest).",
    ),
]
RequireComplete = Annotated[
    bool, typer.Option("--require-complete", help="Stop unless a tuning job ended, with the versions installed now.")
]
Caches = Annotated[
    list[str] | None,
    typer.Option(
        "--cache",
        metavar="OUTPUT=INPUT",
        help="With --sizes: an output that extends an input, updated in place: 'present.*=past.*'. May repeat.",
    ),
]
Trace = Annotated[
    Path | None,
    typer.Option(
        "--trace", metavar="FILE", help="Sizes that happen, with --sizes: a CSV file as Session.write_sizes writes it."
    ),
]
WeightGrowth = Annotated[
    float | None,
    typer.Option(
        "--weight-growth",
        metavar="TIMES",
        help="Most that the kernels' weights may be, times the model's (Winograd's are 1.8 or 4). [default: any]",
    ),
]
OnMiss = Annotated[
    MissPolicy,
    typer.Option(
        "--on-miss",
        help="Where nothing like it was measured: rule = the fixed plan and schedules, model = a plan predicted by a "
        "trained model, none = unfused, fail = stop.",
    ),
]
TrainedModel = Annotated[
    str | None,
    typer.Option(
        "--model", metavar="FILE", help="A trained model (`autofuse model train`), or none. [default: the shipped one]"
    ),
]
Guide = Annotated[
    str | None,
    typer.Option(
        "--model",
        metavar="FILE",
        help="A trained model (`autofuse model train`) to guide it, or default, the shipped one. [default: none]",
    ),
]
OutputFormat = Annotated[Format, typer.Option("--format", help="Text for people, or one JSON object.")]


class CompileFormat(StrEnum):
    """What `compile --format` names; typer takes an option that may repeat as an enumeration only."""

    SO = "so"
    C = "c"
    ORT = "ort"
    TEXT = "text"
    JSON = "json"


CompileFormats = Annotated[
    list[CompileFormat] | None,
    typer.Option(
        "--format",
        help="The library: so, for Python and TVM's runtime; c, plain C with a header; ort, a model that ONNX Runtime "
        "runs with the provider beside it. The screen: text for people, or one JSON object. May be given for both. "
        "[default: so, text]",
    ),
]
Plan = Annotated[
    str | None,
    typer.Option(
        "--plan",
        metavar="PLAN",
        help="none, tvm-partition, dnnfusion, best, or a file. With --sizes a plan for each part of the range, such as "
        "none@64,default: none up to 64 rows. [default: best]",
    ),
]

LibraryOutput = Annotated[
    Path | None, typer.Option("--output", "-o", metavar="FILE", help="The library to write, such as model.so.")
]
Sign = Annotated[
    Path | None,
    typer.Option("--sign", metavar="KEYFILE", help="A private key to sign it with (`autofuse key new` makes one)."),
]
Trust = Annotated[
    list[Path] | None,
    typer.Option(
        "--trust", metavar="PUBKEY", help="A public key: refuse what none of those given has signed. May repeat."
    ),
]

Budget = Annotated[
    str | None,
    typer.Option(
        "--budget",
        metavar="DURATION",
        help=f"Wall time, such as 90s, 10m or 8h. [default: {DEFAULT_BUDGET} unless --trials or --until is given]",
    ),
]
Trials = Annotated[
    int | None, typer.Option("--trials", min=1, metavar="N", help="Stop after this many new candidates.")
]
Devices = Annotated[
    list[str] | None,
    typer.Option(
        "--device", metavar="NAME", help="local, a profile (`autofuse device list`) or a .toml file. May repeat."
    ),
]
Addresses = Annotated[
    list[str] | None,
    typer.Option("--rpc", metavar="HOST:PORT", help="A device elsewhere, where `autofuse serve` runs. May repeat."),
]
WorkerCount = Annotated[
    int | None,
    typer.Option("--workers", min=1, metavar="N", help="How many devices behind --rpc-tracker. [default: 1]"),
]
Seed = Annotated[int, typer.Option("--seed", min=0, max=MOST_SEED, help="Of the samplers and of generated inputs.")]
Space = Annotated[
    str | None, typer.Option("--space", metavar="NAME", help="A search space, or a .toml file. [default: default]")
]
Exact = Annotated[
    bool,
    typer.Option(
        "--exact", help="Before planning, do nothing that changes rounding: no such rewrite, no folded BatchNorm."
    ),
]
Pareto = Annotated[
    bool, typer.Option("--pareto", help="Search plans that need little memory, too; end with time against peak memory.")
]
JobName = Annotated[
    str | None, typer.Option("--run", metavar="NAME", help="Name of the job: it goes on, or is joined.")
]
Until = Annotated[
    str | None, typer.Option("--until", metavar="HH:MM", help="A job that ends then, instead of --budget.")
]
EarlyStopping = Annotated[
    str | None,
    typer.Option("--early-stopping", metavar="PERCENT", help="Least gain that an hour more must promise a model."),
]
MemoryLimit = Annotated[
    str | None, typer.Option("--memory-limit", metavar="SIZE", help="Of each device's search process: 4G.")
]
DiskLimit = Annotated[
    str | None, typer.Option("--disk-limit", metavar="SIZE", help="Of the database, then the job stops: 2G.")
]
Executor = Annotated[
    str | None,
    typer.Option("--executor", metavar="dask://HOST:PORT", help="A Dask cluster that builds for devices elsewhere."),
]
Forecast = Annotated[
    bool, typer.Option("--dry-run", help="Only say what the budget will reach; nothing is measured or written.")
]
OnFinish = Annotated[
    str | None,
    typer.Option("--on-finish", metavar="CMD", help="Shell command at the end; the JSON summary is its input."),
]
Log = Annotated[
    Path | None, typer.Option("--log", metavar="FILE", help="One line a minute, also here (rotated at 1 MiB).")
]
