"""The networks by name, without importing any library: what builds each, what it reads, how it is exported."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

SEQUENCE = 128
SEED = 0
ARCHITECTURE = "autofuse.architecture"
"""Key of the ONNX file's metadata that holds the network's name here."""


@dataclass(frozen=True)
class Input:
    """An input of the network; `below`: exclusive upper bound of an integer input (None: float32)."""

    shape: tuple[int, ...]
    below: int | None = None


@dataclass(frozen=True)
class Recipe:
    """`builder`: "module:function" in this package; called with `arguments` it returns an untrained torch module.

    `transformer`: exported by dynamo (opset 18) and cleaned; else by the tracing exporter (opset 17). `operators`:
    libraries whose compiled operators a torch run needs besides torch's own.
    """

    builder: str
    inputs: Mapping[str, Input]
    transformer: bool = False
    arguments: Mapping[str, object] = field(default_factory=dict)
    operators: str = ""


def image(*shape: int) -> dict[str, Input]:
    """One float32 input named "image"."""
    return {"image": Input((1, *shape))}


def tokens(vocabulary: int, *, mask: bool = True, types: bool = True) -> dict[str, Input]:
    """The inputs of a language model: one sequence."""
    shape = (1, SEQUENCE)
    found = {"input_ids": Input(shape, vocabulary)}
    if mask:
        found["attention_mask"] = Input(shape, 2)
    if types:
        found["token_type_ids"] = Input(shape, 2)
    return found


def _vision(name: str, size: int = 224) -> Recipe:
    return Recipe("library:vision", image(3, size, size), arguments={"name": name})


def _language(name: str, inputs: dict[str, Input]) -> Recipe:
    return Recipe("language:build", inputs, transformer=True, arguments={"name": name})


NETWORKS: Mapping[str, Recipe] = {
    "efficientnet_b0": _vision("efficientnet_b0"),
    "vgg16": _vision("vgg16"),
    "mobilenetv1_ssd": Recipe("mobilenetv1_ssd:build", image(3, 300, 300)),
    "yolov4": Recipe("yolov4:build", image(3, 320, 320)),
    "c3d": Recipe("c3d:build", image(3, 16, 112, 112)),
    "s3d": Recipe("library:s3d", image(3, 16, 224, 224)),
    "unet": Recipe("unet:build", image(3, 384, 384)),
    "faster_rcnn": Recipe("detectors:faster_rcnn", image(3, 320, 320), operators="torchvision"),
    "mask_rcnn": Recipe("detectors:mask_rcnn", image(3, 320, 320), operators="torchvision"),
    "tinybert": _language("tinybert", tokens(30522)),
    "distilbert": _language("distilbert", tokens(30522, types=False)),
    "albert_base": _language("albert_base", tokens(30000)),
    "bert_base": _language("bert_base", tokens(30522)),
    "mobilebert": _language("mobilebert", tokens(30522)),
    "gpt2": _language("gpt2", tokens(50257, mask=False, types=False)),
    "resnet50": _vision("resnet50"),
    "mobilenet_v2": _vision("mobilenet_v2"),
    "squeezenet1_1": _vision("squeezenet1_1"),
}
"""The fifteen networks of DNNFusion (Table 5), then three more."""
