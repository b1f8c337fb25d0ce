"""Sessions of ONNX Runtime, as everything here opens them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autofuse.errors import InputError

SILENT = 4
"""The logger severity that writes fatal errors only; what we need to know comes as exceptions."""

NAMES = frozenset((
    "ExecutionMode", "GraphOptimizationLevel", "OrtValue", "RunOptions", "SessionOptions", "get_available_providers",
    "get_device", "set_default_logger_severity",
))  # fmt: skip
"""What a program goes on using of ONNX Runtime after `import autofuse as onnxruntime`; see `own_name`."""

_NUMPY_NAMES = {"tensor(float)": "float32", "tensor(double)": "float64"} | {
    f"tensor({name})": name
    for name in ("float16", "bool", *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)))
}


@dataclass(frozen=True)
class ValueType:
    """The type of a value in ONNX Runtime's words, such as "tensor(float)" or "seq(tensor(string))".

    `shape`: sizes; a text or None for one that is open, None for a rank that is unknown and for what is no tensor.
    """

    text: str
    shape: tuple[int | str | None, ...] | None


def open_session(
    name: str,
    model: bytes | Path,
    *,
    threads: int | None = None,
    optimise: bool = True,
    spinning: bool = True,
    provider: Callable[[Any], object] | None = None,
) -> Any:
    """A session over `model` on the CPU with `threads` threads (None: ONNX Runtime's default).

    `optimise`: with all of its optimisations, as it is shipped. `spinning`: whether its idle threads wait actively.
    `provider`: adds the execution provider that has nodes of the model to the session's options.
    InputError that starts with `name` when ONNX Runtime refuses the model, or is not installed.
    """
    try:
        import onnxruntime
    except ModuleNotFoundError as error:  # a board that measures, or a program's machine, may go without
        raise InputError(
            f"{name}: ONNX Runtime has to run this, and is not installed here; install onnxruntime where it is to run"
        ) from error
    options = onnxruntime.SessionOptions()
    options.log_severity_level = SILENT
    levels = onnxruntime.GraphOptimizationLevel
    options.graph_optimization_level = levels.ORT_ENABLE_ALL if optimise else levels.ORT_DISABLE_ALL
    if threads is not None:
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
    if not spinning:
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    content = str(model) if isinstance(model, Path) else model
    named: dict[str, Any] = {} if provider else {"providers": ["CPUExecutionProvider"]}
    if provider:
        provider(options)
    try:
        return onnxruntime.InferenceSession(content, options, **named)
    except Exception as error:  # onnxruntime's own exception classes share no base but Exception
        raise InputError(f"{name}: ONNX Runtime cannot load the model: {first_line(error)}") from error


def own_name(name: str) -> Any:
    """What ONNX Runtime calls `name`, one of `NAMES`."""
    import onnxruntime

    return getattr(onnxruntime, name)


def value_types(name: str, model: bytes) -> dict[str, ValueType]:
    """The type of each input and output of a model, as ONNX Runtime infers it. InputError: see `open_session`."""
    session = open_session(name, model, threads=1, optimise=False)
    return {value.name: value_type(value) for value in (*session.get_inputs(), *session.get_outputs())}


def value_type(argument: Any) -> ValueType:
    """The type of an input or output of a session."""
    is_tensor = argument.type.startswith("tensor(")
    sizes: Sequence[int | str | None] | None = argument.shape if is_tensor else None
    return ValueType(argument.type, None if sizes is None else tuple(sizes))


def numpy_name(text: str) -> str:
    """numpy's name of the elements of a tensor such as "tensor(float)"; "" for all that numpy lacks."""
    return _NUMPY_NAMES.get(text, "")


def first_line(error: Exception) -> str:
    """What an exception of ONNX Runtime says, at most 500 letters."""
    return str(error).strip().splitlines()[0][:500] if str(error).strip() else type(error).__name__


def ort_value(array: Any) -> Any:
    """A value of ONNX Runtime's over the memory of a contiguous numpy array of numbers."""
    import onnxruntime

    return onnxruntime.OrtValue.ortvalue_from_numpy(array)
