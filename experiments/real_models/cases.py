"""The models, and how each is made: by which function, in which environment, with which sizes of its open axes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

SIDE = 320
"""Height and width of images."""
IMAGE = (3, SIDE, SIDE)
TOKENS, FRAMES = 32, 1500
"""Tokens of a text, and what Whisper's encoder makes of 30 seconds of sound."""
ROWS, COLUMNS = 64, 30
"""Of a table that a pipeline of scikit-learn is called with."""
CITIES = ("Basel", "Bern", "Genf", "Chur")
TRACED, DYNAMO = "torch, traced", "torch, dynamo"


@dataclass(frozen=True)
class Case:
    """One model. `exporter`: what writes it; `maker`: "module:function" in this folder, called with the path and
    `arguments` in the environment called `environment`.

    `shapes`: of inputs whose sizes are open in the file; `constants`: values of inputs; `texts`: what an input of texts
    is drawn from. `raced`: whether everything that goes in and comes out is a tensor of numbers, as races need it.
    """

    exporter: str
    maker: str
    arguments: Mapping[str, object] = field(default_factory=dict)
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    constants: Mapping[str, object] = field(default_factory=dict)
    environment: str = "torch"
    texts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    raced: bool = True


def _detector(name: str, **arguments: object) -> Case:
    return Case(TRACED, "detectors:export", {"name": name, **arguments}, {"image": IMAGE} if arguments else {})


def _classified(name: str, shape: tuple[int, ...] = (1, *IMAGE)) -> Case:
    return Case(DYNAMO, "vision:export", {"name": name}, {"image": shape})


def _sklearn(function: str, **arguments: object) -> Case:
    maker, raced = f"tables_of_numbers:{function}", "zipmap" not in arguments
    return Case("skl2onnx", maker, arguments, {"X": (ROWS, COLUMNS)}, environment="sklearn", raced=raced)


CASES: Mapping[str, Case] = {
    "fasterrcnn_dynamic": _detector("fasterrcnn_resnet50_fpn", open_sizes=True),
    "maskrcnn_dynamic": _detector("maskrcnn_resnet50_fpn", open_sizes=True),
    "fasterrcnn": _detector("fasterrcnn_resnet50_fpn"),
    "maskrcnn": _detector("maskrcnn_resnet50_fpn"),
    "retinanet": _detector("retinanet_resnet50_fpn"),
    "fcos": _detector("fcos_resnet50_fpn"),
    "ssd300_vgg16": _detector("ssd300_vgg16"),
    "ssdlite320": _detector("ssdlite320_mobilenet_v3_large"),
    "deeplabv3": _classified("deeplabv3_mobilenet_v3_large"),
    "fcn": _classified("fcn_resnet50"),
    "lraspp": _classified("lraspp_mobilenet_v3_large"),
    "convnext_dynamo": _classified("convnext_tiny", (1, 3, 224, 224)),
    "vit_dynamo": _classified("vit_b_16", (1, 3, 224, 224)),
    "whisper_encoder": Case(DYNAMO, "language:whisper_encoder"),
    "whisper_decoder": Case(DYNAMO, "language:whisper_decoder", {}, {"ids": (1, TOKENS), "heard": (1, FRAMES, 384)}),
    "whisper_step": Case(TRACED, "language:whisper_step"),
    "t5_encoder": Case(DYNAMO, "language:t5_encoder", {}, {"ids": (1, TOKENS), "mask": (1, TOKENS)}),
    "t5_decoder": Case(
        DYNAMO, "language:t5_decoder", {}, {"ids": (1, TOKENS), "read": (1, TOKENS, 512), "mask": (1, TOKENS)}
    ),
    "ocr_crnn": Case(TRACED, "signals:recogniser", {}, {"image": (1, 3, 48, SIDE)}),
    "vad": Case(TRACED, "signals:vad", {}, {"input": (1, 576), "state": (2, 1, 128)}),
    "vad_16khz": Case(TRACED, "signals:vad", {}, {"input": (1, 576), "state": (2, 1, 128)}, {"sr": 16000}),
    "logistic": _sklearn("logistic"),
    "logistic_zipmap": _sklearn("logistic", zipmap=True),
    "boosting": _sklearn("boosting"),
    "forest": _sklearn("forest"),
    "columns": Case(
        "skl2onnx",
        "tables_of_numbers:columns",
        {},
        {"amount": (ROWS, 1), "city": (ROWS, 1)},
        {},
        "sklearn",
        {"city": CITIES},
        raced=False,
    ),
}
"""By name; those that were hardest first."""
