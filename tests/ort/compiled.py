"""Models that are compiled for ONNX Runtime, and sessions over them with the provider."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime

import autofuse
import autofuse.ort
from autofuse.compiler.report import CompileReport
from tests.conftest import OnnxBuilder

Feeds = Mapping[str, Any]


def network(path: Path) -> Path:
    """Convolutions and a product: kernels of ours run all of it."""
    net = OnnxBuilder()
    net.op("Relu", "a", net.conv_bn("stem", "x", (3, 16)))
    net.op("Relu", "b", net.conv_bn("body", "a", (16, 24)))
    net.op("Flatten", "flat", net.op("GlobalAveragePool", "pool", "b"))
    return net.save(path, {"x": (1, 3, 24, 24)}, [net.op("Sigmoid", "y", net.dense("fc", "flat", (24, 4)))])


def compiled(model: Path, output: Path, threads: int = 1, **named: Any) -> CompileReport:
    """`output`, compiled with an empty database."""
    database = str(output.with_suffix(".db"))
    return autofuse.compile(model, output, database=database, threads=threads, format="ort", **named)


def options(threads: int = 1) -> Any:
    """Session options without the provider."""
    made = onnxruntime.SessionOptions()
    made.log_severity_level = 4
    made.intra_op_num_threads = threads
    return made


def session(model: Path | bytes, threads: int = 1, **named: Any) -> Any:
    """A session with the provider."""
    content = str(model) if isinstance(model, Path) else model
    return onnxruntime.InferenceSession(content, autofuse.ort.register(options(threads), **named))


def plain(model: Path) -> Any:
    """A session of ONNX Runtime alone."""
    return onnxruntime.InferenceSession(str(model), options(), providers=["CPUExecutionProvider"])


def agree(model: Path, tuned: Path, feeds: Feeds, threads: int = 1) -> None:
    """Both models give the same."""
    wanted, made = plain(model).run(None, dict(feeds)), session(tuned, threads).run(None, dict(feeds))
    for one, other in zip(wanted, made, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def changed(tuned: Path, output: Path, change: Callable[[onnx.ModelProto], None]) -> Path:
    """A compiled model with something in it changed."""
    model = onnx.load(tuned)
    change(model)
    onnx.save(model, output)
    return output


def attribute(model: onnx.ModelProto, name: str) -> onnx.AttributeProto:
    """An attribute of the first of our nodes."""
    node = next(node for node in model.graph.node if node.op_type == "EPContext")
    return next(found for found in node.attribute if found.name == name)


def image(seed: int = 0) -> dict[str, Any]:
    """Inputs of `network`."""
    return {"x": np.random.default_rng(seed).standard_normal((1, 3, 24, 24)).astype(np.float32)}
