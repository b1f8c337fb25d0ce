"""Options that several verbs share: one spelling and one sentence of help each."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from autofuse.arguments import RIVALS, MissPolicy
from autofuse.cli.render import Format

Model = Annotated[
    Path, typer.Argument(metavar="MODEL", help="An ONNX file.", exists=False, dir_okay=True, show_default=False)
]
Database = Annotated[
    str | None,
    typer.Option(
        "--db",
        metavar="PATH-or-URL",
        help="The profiling database: an SQLite file or a database URL. [default: in your data folder]",
    ),
]
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
    str | None, typer.Option("--rpc-key", metavar="KEY", help="Of the server; behind a tracker, the kind of device.")
]
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
Buckets = Annotated[
    list[str] | None,
    typer.Option("--buckets", metavar="NAME=SIZES", help="Sizes of a named dimension: batch=1,4,8. May repeat."),
]
OnMiss = Annotated[
    MissPolicy,
    typer.Option(
        "--on-miss",
        help="What nothing like it was measured: rule = the fixed plan and schedules, none = unfused, fail = stop.",
    ),
]
OutputFormat = Annotated[Format, typer.Option("--format", help="Text for people, or one JSON object.")]
Plan = Annotated[
    str | None,
    typer.Option("--plan", metavar="PLAN", help="none, tvm, dnnfusion, best, or a plan file. [default: best]"),
]

DEFAULT_RIVALS = ",".join(RIVALS)
