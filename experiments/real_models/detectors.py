"""torchvision's detectors as the tracing exporter writes them: what they find depends on the image, and so do sizes."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from experiments.models import torchvision_operators, weights
from experiments.real_models import torch_export
from experiments.real_models.cases import SIDE

FOUND = 20
"""Most boxes of an image: among many, two scores are so near that each runtime puts another first."""
LOGITS = 1.5
"""How far scores are spread before a sigmoid or a softmax."""
OUTPUTS = {"maskrcnn_resnet50_fpn": ("boxes", "labels", "scores", "masks")}
TWO_STAGES = ("boxes", "labels", "scores")
ONE_STAGE = ("boxes", "scores", "labels")


def export(path: Path, name: str, open_sizes: bool = False) -> None:
    """One image of 320 x 320 to its boxes, their labels and scores. `open_sizes`: height and width are open."""
    torchvision_operators.declare()
    _suppress()
    import torchvision

    torch_export.seeded()
    sizes = {} if name.startswith("ssd") else {"min_size": SIDE, "max_size": SIDE}
    sizes["box_detections_per_img" if "rcnn" in name else "detections_per_img"] = FOUND
    model = torchvision.models.get_model(name, weights=None, weights_backbone=None, **sizes).eval()
    _fresh(model)
    results = OUTPUTS.get(name, TWO_STAGES if "rcnn" in name else ONE_STAGE)
    axes = {"image": {1: "height", 2: "width"}} if open_sizes else None
    if axes is not None:
        axes |= {result: {0: "found"} for result in results}
    torch_export.traced(model, ([torch.rand(3, SIDE, SIDE)],), path, ["image"], results, axes)


def _fresh(model: Any) -> None:
    """Weights under which a detector finds something, but not everything, and nothing equal."""
    weights.he_normal(model)
    weights.scale_and_shift(model.backbone)
    weights.calibrate(model.backbone, (3, SIDE, SIDE))
    last = {name: part for name, part in model.named_modules() if _is_last(name, part)}
    second = {name: part for name, part in last.items() if "roi_heads" in name}
    _spread(model, {name: part for name, part in last.items() if name not in second})
    _spread(model, second)  # it sees what the first stage proposes


def _spread(model: Any, last: dict[str, Any]) -> None:
    """Weights of layers that make scores and moves, by how large the values are that they read."""
    heard: dict[str, float] = {}
    hooks = [part.register_forward_pre_hook(_listen(heard, name)) for name, part in last.items()]
    with torch.no_grad():
        model([torch.randn(3, SIDE, SIDE)])
    for hook in hooks:
        hook.remove()
    for name, part in last.items():
        moves = "bbox" in name or "regression" in name
        one_stage = "roi_heads" not in name and "rpn" not in name
        spread = (0.1 if moves else LOGITS / 2 if one_stage else LOGITS) / heard.get(name, 1.0)
        nn.init.normal_(part.weight, 0.0, spread / math.sqrt(part.weight[0].numel()))
        if not moves and one_stage:
            nn.init.constant_(part.bias, -4.0)


def _listen(heard: dict[str, float], name: str) -> Any:
    """What writes down how large the values are that a layer reads."""

    def listen(_part: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        heard[name] = float(inputs[0].square().mean().sqrt()) + 1e-6

    return listen


def _is_last(name: str, part: nn.Module) -> bool:
    """Whether a layer makes scores or moves of boxes."""
    if not isinstance(part, nn.Conv2d | nn.Linear) or part.bias is None:
        return False
    last = ("cls_logits", "bbox_pred", "cls_score", "bbox_reg", "bbox_ctrness")
    heads = ("classification_head.module_list", "regression_head.module_list")
    return name.endswith(last) or any(head in name for head in heads)


def _suppress() -> None:
    """Suppression of overlapping boxes in Python, where torchvision's own library did not load."""
    if torch._C._dispatch_has_kernel_for_dispatch_key("torchvision::nms", "CPU"):
        return
    torchvision_operators._LIBRARY.impl("nms", suppressed, "CPU")
    import torchvision

    for part in (torchvision.extension, torchvision.ops.roi_align.__globals__):
        (part if isinstance(part, dict) else vars(part))["_has_ops"] = _there_are


def _there_are() -> bool:
    return True


def suppressed(boxes: Tensor, scores: Tensor, most: float) -> Tensor:
    """Places of the boxes [N, 4] that no better one overlaps by more than `most`, best first."""
    order = scores.argsort(descending=True, stable=True)
    area = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    kept = []
    while len(order):
        first, order = order[0], order[1:]
        kept.append(first)
        low = torch.maximum(boxes[first, :2], boxes[order, :2])
        high = torch.minimum(boxes[first, 2:], boxes[order, 2:])
        shared = (high - low).clamp(min=0).prod(1)
        order = order[shared / (area[first] + area[order] - shared) <= most]
    return torch.stack(kept) if kept else order
