"""Lower precisions, engine against engine: `python -m experiments precisions resnet50 tinybert --threads 1,2`.

Each network is written in float32, as ONNX Runtime quantises it (QDQ, and dynamically where it has no convolutions),
with contractions in bfloat16 and, without convolutions, with weights of 4 bits (MatMulNBits; float32 sums, or rows that
may be rounded to bytes). ONNX Runtime, OpenVINO and autofuse read the very same files; torch, LiteRT and ncnn quantise
the float32 one by their own tools. All take turns in one run, each in a process of its own. How far the outputs lie
from those of the float32 model stands beside each time.
`python -m experiments peers.environments openvino torch litert` makes the environments.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from autofuse import api
from autofuse.backend.compile.host_cpu import local_device
from autofuse.errors import AutofuseError, DeviceError
from autofuse.graph.inputs import generate_inputs
from autofuse.graph.loading.load import load
from autofuse.measure.checking.reference import run_reference
from autofuse.measure.networks.bench import Contender, ContenderResult, Host, bench_contenders, compared
from autofuse.measure.networks.judgement import judged
from autofuse.values.ratios import compare
from experiments.model_files import HELP, asked_for
from experiments.networks.row import sha256
from experiments.options import new_parser
from experiments.peers.environments import MissingEnvironmentError
from experiments.peers.prepare import Subject, prepare
from experiments.peers.rivals import RIVALS, host_of
from experiments.precisions.files import (
    BFLOAT16,
    DYNAMIC,
    FLOAT32,
    NIBBLES,
    QDQ,
    ROUGH_NIBBLES,
    has_convolutions,
    write,
)
from experiments.races import NO_RATIO
from experiments.records import Table, keep
from experiments.tables import head, line, ratio

SEED = 0
DEFAULT = ("resnet50", "mobilenet_v2", "efficientnet_b0", "yolov4", "tinybert", "bert_base", "vit")
INT8 = "int8"


@dataclass(frozen=True)
class Engine:
    """One column. `file`: the form that it reads. `precision`: what it is compared in. `own`: it is autofuse.

    `rival`: whose environment it needs, and whose tools make its form of the file ("": it reads the file as it is).
    """

    name: str
    kind: str
    file: str
    precision: str
    own: bool = False
    rival: str = ""


ENGINES = (
    Engine("ONNX Runtime", "onnxruntime", FLOAT32, FLOAT32),
    Engine("OpenVINO f32", "openvino", FLOAT32, FLOAT32),
    Engine("autofuse", "autofuse", FLOAT32, FLOAT32, own=True),
    Engine("OpenVINO, its own choice", "openvino:default", FLOAT32, BFLOAT16),
    Engine("torch.compile bf16", "torch.compile:bf16", FLOAT32, BFLOAT16, rival="torch.compile"),
    Engine("ncnn bf16", "ncnn:bf16", FLOAT32, BFLOAT16, rival="ncnn"),
    Engine("autofuse bf16", "autofuse", BFLOAT16, BFLOAT16, own=True),
    Engine("ONNX Runtime QDQ", "onnxruntime", QDQ, INT8),
    Engine("ONNX Runtime dynamic", "onnxruntime", DYNAMIC, INT8),
    Engine("OpenVINO QDQ", "openvino", QDQ, INT8),
    Engine("torch.compile int8", "torch.compile:int8", FLOAT32, INT8, rival="torch.compile"),
    Engine("LiteRT int8", "litert:int8", FLOAT32, INT8, rival="litert"),
    Engine("LiteRT dynamic", "litert:dynamic", FLOAT32, INT8, rival="litert"),
    Engine("ncnn int8", "ncnn:int8", FLOAT32, INT8, rival="ncnn"),
    Engine("autofuse QDQ", "autofuse", QDQ, INT8, own=True),
    Engine("autofuse dynamic", "autofuse", DYNAMIC, INT8, own=True),
    Engine("ONNX Runtime MatMulNBits", "onnxruntime", NIBBLES, NIBBLES),
    Engine("OpenVINO MatMulNBits", "openvino", NIBBLES, NIBBLES),
    Engine("autofuse MatMulNBits", "autofuse", NIBBLES, NIBBLES, own=True),
    Engine("ONNX Runtime MatMulNBits, rows in bytes", "onnxruntime", ROUGH_NIBBLES, ROUGH_NIBBLES),
    Engine("OpenVINO MatMulNBits, rows in bytes", "openvino", ROUGH_NIBBLES, ROUGH_NIBBLES),
    Engine("autofuse MatMulNBits, rows in bytes", "autofuse", ROUGH_NIBBLES, ROUGH_NIBBLES, own=True),
)
BASE = ENGINES[0].name


@dataclass(frozen=True)
class Row:
    """One engine on one network: `speed`: ONNX Runtime's time in float32 over its own, with the interval.

    `off`: the largest difference from the float32 model's outputs, as a part of their range. `peer`, `over`: for
    autofuse, the fastest other engine of that precision, and its time over autofuse's.
    """

    network: str
    threads: int
    engine: str
    median_us: float | None = None
    speed: float | None = None
    lo: float | None = None
    hi: float | None = None
    trusted: bool = False
    off: float | None = None
    problem: str = ""
    peer: str = ""
    over: float | None = None
    over_lo: float | None = None
    over_hi: float | None = None
    over_trusted: bool = False


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; 1 when no engine could be timed on some network."""
    parser = new_parser(__doc__, out="out/precisions", threads="1,2", budget="", bench="20s")
    parser.add_argument("models", nargs="*", default=list(DEFAULT), help=HELP, metavar="MODEL")
    options = parser.parse_args(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    done = True
    for model in asked_for(parser, options.models):
        for threads in options.threads:
            rows = measured(model, threads, options)
            done &= any(row.speed is not None for row in rows)
            keep(TABLE, rows)
            print(table(rows), flush=True)
    return 0 if done else 1


def measured(model: Path, threads: int, options: argparse.Namespace) -> list[Row]:
    """The rows of one network at one number of threads."""
    problems: dict[str, str] = {}
    contenders = []
    graph, target = load(model), local_device().target()
    inputs = generate_inputs(graph, SEED)
    folder, database = options.out / model.stem, options.out / f"{model.stem}.db"
    subject = Subject(model, sha256(model), threads, inputs, target, folder, database)
    for engine in ENGINES:
        if engine.file in (DYNAMIC, NIBBLES, ROUGH_NIBBLES) and has_convolutions(model):
            continue
        try:
            contenders.append(_contender(engine, subject, options))
        except (AutofuseError, MissingEnvironmentError) as error:
            problems[engine.name] = str(error).replace(f"{model.resolve().parent}/", "")
    reference = run_reference(graph, inputs)
    results = bench_contenders(
        contenders, inputs, threads, options.bench, target=target, expected=[reference[name] for name in graph.outputs]
    )
    results = apart(judged(results, graph, inputs))
    rows = [_row(model.stem, threads, engine, results, problems) for engine in ENGINES]
    return [row for row in rows if row.speed is not None or row.problem]


def _contender(engine: Engine, subject: Subject, options: argparse.Namespace) -> Contender:
    """An engine with its file made; ours tuned (with a budget) and compiled. AutofuseError where that is refused."""
    if engine.rival:
        return _converted(engine, subject)
    threads, database = subject.threads, str(subject.database)
    path = write(engine.file, subject.model, options.out, threads, subject.database)
    if engine.own:
        library = options.out / f"{path.stem}-{threads}.so"
        if options.budget:
            api.tune(path, database=database, threads=threads, budget=f"{options.budget:g}s")
        api.compile(path, library, database=database, threads=threads)
        return Contender(engine.name, engine.kind, library)
    rival = replace(RIVALS["openvino"], kind=engine.kind)
    host = host_of(rival, threads, options.out / "cache") if engine.kind.startswith("openvino") else Host()
    return Contender(engine.name, engine.kind, path, host)


def _converted(engine: Engine, subject: Subject) -> Contender:
    """An engine that reads no ONNX file: its own tools make, and quantise, its form of the model."""
    rival = replace(RIVALS[engine.rival], name=engine.kind.replace(":", "-"), title=engine.name, kind=engine.kind)
    made = prepare(rival, subject)
    if made.error:
        raise DeviceError(made.error)
    host = host_of(rival, subject.threads, subject.folder / "inductor")
    return Contender(engine.name, engine.kind, Path(made.path), host)


def apart(results: Mapping[str, ContenderResult]) -> dict[str, ContenderResult]:
    """The results, of which those in a lower precision are off, not wrong: how far, is a column of the table."""
    lower = {engine.name for engine in ENGINES if engine.precision != FLOAT32}
    found = {}
    for name, one in results.items():
        measured_off = name in lower and one.max_rel_error is not None and one.max_rel_error < float("inf")
        found[name] = replace(one, wrong="") if measured_off else one
    return compared(found)


def _row(
    network: str, threads: int, engine: Engine, results: Mapping[str, ContenderResult], problems: Mapping[str, str]
) -> Row:
    one = results.get(engine.name)
    if one is None:
        return Row(network, threads, engine.name, problem=problems.get(engine.name, ""))
    if one.error or one.wrong:
        return Row(network, threads, engine.name, problem=one.error or one.wrong)
    row = Row(network, threads, engine.name, one.median_us, off=one.max_rel_error)
    base = results[BASE].timed
    speed = compare(base, one.timed) if base is not None and one.timed is not None else None
    if speed is None or speed.value is None:
        row = replace(row, problem=one.reason or NO_RATIO)
    else:
        row = replace(row, speed=speed.value, lo=speed.lo, hi=speed.hi, trusted=speed.trusted)
    return _beside_peers(row, engine, results) if engine.own else row


def _beside_peers(row: Row, engine: Engine, results: Mapping[str, ContenderResult]) -> Row:
    """With the fastest other engine of the same precision."""
    others = [one.name for one in ENGINES if one.precision == engine.precision and not one.own and one.name in results]
    timed = {name: results[name].timed for name in others}
    own = results[engine.name].timed
    fastest = min((one.us.median, name) for name, one in timed.items() if one) if any(timed.values()) else None
    peer = timed[fastest[1]] if fastest else None
    if fastest is None or peer is None or own is None:
        return row
    found = compare(peer, own)
    return replace(
        row, peer=fastest[1], over=found.value, over_lo=found.lo, over_hi=found.hi, over_trusted=found.trusted
    )


def table(rows: Sequence[Row]) -> str:
    """Every engine's speed over ONNX Runtime in float32, how far it is off, and ours over the best of its kind."""
    titles = [
        "network",
        "threads",
        "engine",
        "over ONNX Runtime float32",
        "off",
        "best peer in that precision / autofuse",
    ]
    lines = head(titles)
    for row in rows:
        speed = row.problem.splitlines()[0][:100] if row.problem else ratio(row.speed, row.lo, row.hi, row.trusted)
        off = "" if row.off is None else f"{row.off:.0e}"
        over = ratio(row.over, row.over_lo, row.over_hi, row.over_trusted)
        shown = f"{over} {row.peer}" if over else ""
        lines.append(line([row.network, row.threads, row.engine, speed, off, shown]))
    return "\n".join(lines)


TABLE = Table(
    "precisions",
    Row,
    ("network", "threads", "engine"),
    table,
    order=lambda row: (row.network, row.threads, [one.name for one in ENGINES].index(row.engine)),
)
TABLES = (TABLE,)
