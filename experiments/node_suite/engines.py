"""What runs a case: autofuse with a fresh database (its own driver, or ONNX Runtime's), and ONNX Runtime."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from autofuse.errors import AutofuseError
from experiments.node_suite.cases import NodeCase, difference

STATES = ("right", "wrong", "refused", "error", "crash", "time-out")
"""`error`: it raised what no user should see. `crash`: its process died. `time-out`: it was killed."""


@dataclass(frozen=True)
class Row:
    """What one engine made of one case; `alone`: no part of it ran in ONNX Runtime."""

    case: str
    engine: str
    state: str
    reason: str = ""
    seconds: float = 0.0
    alone: bool = True

    def record(self) -> dict[str, object]:
        """The row as a JSON object."""
        return asdict(self)


def run_case(engine: str, case: NodeCase) -> Row:
    """The row of a case; never raises but for an interrupt."""
    started = time.monotonic()
    state, reason, alone = _state(engine, case)
    text = " ".join(reason.replace(case.name, "MODEL").split())[:400]
    return Row(case.name, engine, state, text, round(time.monotonic() - started, 3), alone)


def _state(engine: str, case: NodeCase) -> tuple[str, str, bool]:
    try:
        results, rest = (ENGINES | {CONSTANTS: _with_constants, PROVIDER: _through_provider})[engine](case)
        reason = difference(case, results)
    except AutofuseError as error:
        return "refused", str(error), True
    except Exception as error:  # noqa: BLE001 ONNX Runtime refuses by many classes; of ours it is a defect
        refusal = engine == "onnxruntime"
        return ("refused" if refusal else "error"), f"{type(error).__name__}: {str(error).strip()[:300]}", True
    return ("wrong", reason, not rest) if reason else ("right", rest, not rest)


def _autofuse(case: NodeCase, constants: Collection[str] = ()) -> tuple[list[Any], str]:
    """The results, and why ONNX Runtime has a part in them ("" when it has none). `constants`: inputs that are such."""
    import autofuse

    with tempfile.TemporaryDirectory() as folder:
        library, feeds, rest = _compiled(case, Path(folder), "case.so", constants)
        return list(autofuse.Session(library).run(None, feeds)), rest


def _through_provider(case: NodeCase) -> tuple[list[Any], str]:
    """The results of ONNX Runtime's session over our model, with our execution provider."""
    import onnxruntime

    import autofuse.ort

    with tempfile.TemporaryDirectory() as folder:
        model, feeds, rest = _compiled(case, Path(folder), "case.tuned.onnx", format="ort")
        options = autofuse.ort.register(_options())
        return list(onnxruntime.InferenceSession(str(model), options).run(None, feeds)), rest


def _compiled(
    case: NodeCase, folder: Path, file: str, constants: Collection[str] = (), **named: Any
) -> tuple[Path, dict[str, Any], str]:
    """A case compiled to `file`, what to feed it with, and why ONNX Runtime has a part in it."""
    import autofuse

    feeds = dict(_feeds(case))
    given = {name: feeds.pop(name) for name in constants}
    path = folder / f"{case.name}.onnx"
    path.write_bytes(case.model)
    arrays = {name: value for name, value in feeds.items() if isinstance(value, np.ndarray)}
    shapes = {name: value.shape for name, value in arrays.items() if _is_open(case, name)}
    report = autofuse.compile(
        path, folder / file, database=f"{folder}/fresh.db", threads=1, shapes=shapes, constants=given, **named
    )
    return folder / file, feeds, "; ".join(f"{row.op_type}: {row.reason}" for row in report.rest)


def deciding_inputs(case: NodeCase) -> tuple[str, ...]:
    """Inputs of a case that decide what an operator does, such as the axes of a sum; those that the case gives."""
    from autofuse.graph.loading.given.parameters import Parameters, plain_operators, types_of_inputs

    graph = onnx.load_from_string(case.model).graph
    weights = [tensor.name for tensor in graph.initializer]
    names = Parameters(plain_operators(graph), types_of_inputs(graph.input), weights).inputs()
    return tuple(name for name in names if isinstance(_feeds(case).get(name), np.ndarray))


def _with_constants(case: NodeCase) -> tuple[list[Any], str]:
    return _autofuse(case, deciding_inputs(case))


def _is_open(case: NodeCase, name: str) -> bool:
    """Whether the model leaves a size of this input open."""
    graph = onnx.load_from_string(case.model).graph
    value = next(value for value in graph.input if value.name == name)
    kind = value.type.tensor_type
    return not kind.HasField("shape") or not all(dim.HasField("dim_value") for dim in kind.shape.dim)


def _onnxruntime(case: NodeCase) -> tuple[list[Any], str]:
    import onnxruntime

    session = onnxruntime.InferenceSession(case.model, _options(), providers=["CPUExecutionProvider"])
    return list(session.run(None, _feeds(case))), ""


def _options() -> Any:
    """Of a session of one thread that says nothing."""
    import onnxruntime

    onnxruntime.set_default_logger_severity(4)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return options


def _feeds(case: NodeCase) -> Mapping[str, Any]:
    names = [value.name for value in onnx.load_from_string(case.model).graph.input]
    return dict(zip(names, case.inputs, strict=False))


ENGINES: dict[str, Callable[[NodeCase], tuple[list[Any], str]]] = {
    "autofuse": _autofuse,
    "onnxruntime": _onnxruntime,
}
CONSTANTS = "autofuse, inputs as constants"
"""The engine of the cases of `deciding_inputs`."""
PROVIDER = "autofuse, in ONNX Runtime"
"""The engine that compiles for our execution provider."""
