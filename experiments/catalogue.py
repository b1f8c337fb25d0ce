"""Every network by its name: its family, its inputs, and what builds it. No library is imported to read this.

A network exists in up to three forms, each an ONNX file of its own:

- `written`: by a module of `experiments/architectures`, with NumPy and onnx alone; nothing is downloaded.
- `exported`: from a torch module of `experiments/models`, in an environment that has torch.
- `decomposed`: written as exporters did up to opset 14, normalisations and activations in primitive operators.

Weights are random, and the same every time. What is no network, a few operators that one experiment asks about, stands
in the `cases.py` of that experiment.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onnx import ModelProto

CONVOLUTIONAL, ATTENTION, POINTWISE = "convolutional", "attention", "pointwise"
"""Families: feature maps, sequences, or matrices that are only worked on element by element."""
WRITTEN, EXPORTED, DECOMPOSED = "written", "exported", "decomposed"
SEQUENCE = 128
SEED = 0
ARCHITECTURE = "autofuse.architecture"
"""Key of an exported file's metadata that holds the network's name here."""


@dataclass(frozen=True)
class Input:
    """An input of the network; `below`: exclusive upper bound of an integer input (None: float32)."""

    shape: tuple[int, ...]
    below: int | None = None


@dataclass(frozen=True)
class Network:
    """One network. `inputs`: by name; of a network that is drawn at random they are drawn, too, and not known here.

    `written`, `exported`, `decomposed`: "module:function" of what builds that form ("": there is none). `arguments`:
    of the exported form's builder, `sizes`: of the written form's. `operators`: libraries whose compiled operators a
    torch run needs besides torch's.
    """

    family: str
    inputs: Mapping[str, Input]
    written: str = ""
    exported: str = ""
    decomposed: str = ""
    arguments: Mapping[str, object] = field(default_factory=dict)
    sizes: Mapping[str, object] = field(default_factory=dict)
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


def _vision(name: str, written: str = "") -> Network:
    """A classifier of torchvision, by its name there."""
    return Network(CONVOLUTIONAL, image(3, 224, 224), written, "library:vision", arguments={"name": name})


def _language(name: str, inputs: dict[str, Input], written: str = "", decomposed: str = "") -> Network:
    """A model of transformers, by its name here."""
    return Network(ATTENTION, inputs, written, "language:build", decomposed, {"name": name})


def _module(module: str, *shape: int, written: str = "", function: str = "build", operators: str = "") -> Network:
    """A torch module that is written out in `experiments/models`."""
    return Network(CONVOLUTIONAL, image(*shape), written, f"{module}:{function}", operators=operators)


def _small(family: str, written: str, inputs: dict[str, Input], **sizes: object) -> Network:
    """A network of a published kind, cut down to a few distinct kernels."""
    return Network(family, inputs, written, sizes=sizes)


def _drawn(family: str, kind: str, count: int) -> dict[str, Network]:
    return {f"{kind}{seed}": Network(family, {}, f"generated:{kind}") for seed in range(count)}


PAPER: Mapping[str, Network] = {
    "efficientnet_b0": _vision("efficientnet_b0", "efficientnet_b0:build"),
    "vgg16": _vision("vgg16"),
    "mobilenetv1_ssd": _module("mobilenetv1_ssd", 3, 300, 300),
    "yolov4": _module("yolov4", 3, 320, 320),
    "c3d": _module("c3d", 3, 16, 112, 112),
    "s3d": _module("library", 3, 16, 224, 224, function="s3d"),
    "unet": _module("unet", 3, 384, 384),
    "faster_rcnn": _module("detectors", 3, 320, 320, function="faster_rcnn", operators="torchvision"),
    "mask_rcnn": _module("detectors", 3, 320, 320, function="mask_rcnn", operators="torchvision"),
    "tinybert": _language("tinybert", tokens(30522), "bert:tinybert", "decomposed:tinybert"),
    "distilbert": _language("distilbert", tokens(30522, types=False)),
    "albert_base": _language("albert_base", tokens(30000)),
    "bert_base": _language("bert_base", tokens(30522), "bert:bert_base"),
    "mobilebert": _language("mobilebert", tokens(30522), decomposed="decomposed:mobilebert"),
    "gpt2": _language("gpt2", tokens(50257, mask=False, types=False), decomposed="decomposed:gpt2"),
}
"""The fifteen networks of DNNFusion (Table 5), in its order."""

FURTHER: Mapping[str, Network] = {
    "resnet50": _vision("resnet50", "resnet50:build"),
    "mobilenet_v2": _vision("mobilenet_v2", "mobilenet_v2:build"),
    "squeezenet1_1": _vision("squeezenet1_1", "squeezenet1_1:build"),
    "vit": Network(
        ATTENTION, image(3, 224, 224), "attention_kinds:vision", "library:vision", arguments={"name": "vit_b_16"}
    ),
    "weenet": Network(CONVOLUTIONAL, {"image": Input((1, 64, 128, 128))}, "weenet:build"),
    "audio_encoder": Network(ATTENTION, {"samples": Input((1, 32_000))}, "audio_encoder:build"),
}

KINDS: Mapping[str, Network] = {
    "hierarchical": Network(ATTENTION, image(3, 224, 224), "attention_kinds:hierarchical"),
    "windowed": Network(ATTENTION, image(3, 224, 224), "attention_kinds:windowed"),
    "long_attention": Network(ATTENTION, {"frames": Input((1, 1500, 384))}, "attention_kinds:long_attention"),
    "shuffled": Network(CONVOLUTIONAL, image(3, 224, 224), "convolution_kinds:shuffled"),
    "dense": Network(CONVOLUTIONAL, image(3, 224, 224), "convolution_kinds:dense"),
    "grouped": Network(CONVOLUTIONAL, image(3, 224, 224), "convolution_kinds:grouped"),
}
"""One network each of further kinds, in which time goes into attention over many tokens or into moving maps."""

TEXT: Mapping[str, Network] = {
    "text_detector": Network(CONVOLUTIONAL, image(3, 320, 320), "text_reading:detector"),
    "text_recogniser": Network(ATTENTION, image(3, 48, 320), "text_reading:recogniser"),
    "text_recogniser_lstm": Network(
        CONVOLUTIONAL, image(3, 48, 320), "text_reading:recogniser", sizes={"sequence": "lstm"}
    ),
}
"""Readers of text as paddle2onnx writes them: old operators, and shapes that are computed in the graph."""

SMALL: Mapping[str, Network] = {
    "small_residual": _small(
        CONVOLUTIONAL, "resnet50:build", image(3, 64, 64), size=64, stages=((32, 1, 1), (64, 2, 2))
    ),
    "small_depthwise": _small(CONVOLUTIONAL, "mobilenet_v2:build", image(3, 64, 64), width=0.25, size=64),
    "small_squeezed": _small(
        CONVOLUTIONAL, "efficientnet_b0:build", image(3, 64, 64),
        size=64, blocks=((1, 3, 1, 16, 1), (6, 3, 2, 24, 1), (6, 5, 2, 40, 2)),
    ),
    "small_shuffled": _small(
        CONVOLUTIONAL, "convolution_kinds:shuffled", image(3, 112, 112), size=112, stages=((48, 3), (96, 2))
    ),
    "small_dense": _small(
        CONVOLUTIONAL, "convolution_kinds:dense", image(3, 96, 96), size=96, growth=16, blocks=(3, 2)
    ),
    "small_grouped": _small(
        CONVOLUTIONAL, "convolution_kinds:grouped", image(3, 64, 64), size=64, stages=((128, 1, 64), (256, 1, 128))
    ),
    "small_windowed": _small(
        ATTENTION, "attention_kinds:windowed", image(3, 56, 56), size=14, width=48, stages=1
    ),
    "small_transformer": _small(
        ATTENTION, "attention_kinds:long_attention", {"frames": Input((1, 196, 128))},
        tokens=196, width=128, heads=4, layers=1,
    ),
    "small_mixer": _small(ATTENTION, "attention_kinds:mixer", {"patches": Input((1, 64, 96))}),
}  # fmt: skip
"""Networks of 10 to 50 distinct kernels, one of each kind: all that a search may ask about them can be measured."""

GENERATED: Mapping[str, Network] = {
    **_drawn(CONVOLUTIONAL, "cnn", 12),
    **_drawn(ATTENTION, "attention", 8),
    **_drawn(POINTWISE, "pointwise", 6),
}
"""Small networks that are drawn at random from the blocks of real ones; the number is the seed."""

NETWORKS: Mapping[str, Network] = {**PAPER, **FURTHER, **KINDS, **TEXT, **SMALL, **GENERATED}


def with_form(form: str, networks: Mapping[str, Network] = NETWORKS) -> tuple[str, ...]:
    """The names of the networks that exist in a form."""
    return tuple(name for name, network in networks.items() if getattr(network, form))


TABLE = ("weenet", "resnet50", "mobilenet_v2", "squeezenet1_1", "efficientnet_b0", "tinybert", "bert_base")
"""The networks of the measured table, in its order: all that need no torch, but for the long audio encoder."""


def build(name: str, form: str = WRITTEN, **arguments: object) -> ModelProto:
    """A network that needs no torch, as an ONNX model; `arguments`: of its builder, for another size.

    KeyError when there is no such network, or not in this form.
    """
    builder: str = getattr(NETWORKS[name], form) if name in NETWORKS and form != EXPORTED else ""
    if not builder:
        raise KeyError(name)
    module, _, function = builder.partition(":")
    if name in GENERATED:
        arguments = {"name": name, "seed": int(name.removeprefix(function)), **arguments}
    arguments = {**NETWORKS[name].sizes, **arguments}
    made: Callable[..., ModelProto] = getattr(import_module(f"experiments.architectures.{module}"), function)
    return made(**arguments)
