"""Faster R-CNN and Mask R-CNN (Ren et al., 2015; He et al., 2017) with ResNet-50-FPN, their shapes made static.

Everything up to the heads is torchvision's. What depends on data in the original does not here: the best 20 proposals
are kept as they are (no suppression of overlapping ones), each is pooled from every level and the right one chosen,
and each keeps its best class. So there are always 20 detections.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from experiments.models import torchvision_operators, weights

SIZE, PROPOSALS = 320, 20
LARGEST_LOG = math.log(1000.0 / 16)
RPN_WEIGHTS, BOX_WEIGHTS = (1.0, 1.0, 1.0, 1.0), (10.0, 10.0, 5.0, 5.0)
LEVELS, CANONICAL_LEVEL, CANONICAL_SIZE = ("0", "1", "2", "3"), 4, 224


class StaticRcnn(nn.Module):
    """Around one of torchvision's models; `mask`: whether it has a mask head."""

    def __init__(self, model: Any, mask: bool) -> None:
        super().__init__()
        self.backbone, self.rpn_head = model.backbone, model.rpn.head
        self.box_head, self.box_predictor = model.roi_heads.box_head, model.roi_heads.box_predictor
        self.mask_head = model.roi_heads.mask_head if mask else None
        self.mask_predictor = model.roi_heads.mask_predictor if mask else None
        self.register_buffer("anchors", self._all_anchors(model.rpn.anchor_generator), persistent=False)

    def _all_anchors(self, generator: Any) -> Tensor:
        """[A, 4]: corners of all anchors, level by level, as the generator gives them for such an image."""
        from torchvision.models.detection.image_list import ImageList

        image = torch.zeros(1, 3, SIZE, SIZE)
        with torch.no_grad():
            levels = list(self.backbone(image).values())
        found: Tensor = generator(ImageList(image, [(SIZE, SIZE)]), levels)[0]
        return found

    def forward(self, image: Tensor) -> tuple[Tensor, ...]:
        """[1, 3, 320, 320] -> corners [20, 4], scores [20], labels [20] and perhaps masks [20, 1, 28, 28]."""
        features = self.backbone(image)
        rois = self._proposals(list(features.values()))
        scores, deltas = self.box_predictor(self.box_head(self._pooled(features, rois, 7)))
        best, label = scores.softmax(-1)[:, 1:].max(-1)
        label = label + 1
        rows = deltas.view(PROPOSALS, -1, 4)
        own = rows.gather(1, label.view(-1, 1, 1).expand(-1, 1, 4)).squeeze(1)
        boxes = _decoded(own, rois, BOX_WEIGHTS)
        best, order = best.topk(PROPOSALS)
        boxes, label = boxes[order], label[order]
        if self.mask_head is None or self.mask_predictor is None:
            return boxes, best, label
        masks = self.mask_predictor(self.mask_head(self._pooled(features, boxes, 14)))
        side = masks.shape[-1]
        chosen = masks.gather(1, label.view(-1, 1, 1, 1).expand(-1, 1, side, side))
        return boxes, best, label, chosen.sigmoid()

    def _proposals(self, levels: list[Tensor]) -> Tensor:
        """Corners of the 20 anchors that look most like objects, moved and sized."""
        logits, deltas = self.rpn_head(levels)
        objectness = torch.cat([x.permute(0, 2, 3, 1).reshape(-1) for x in logits])
        moves = torch.cat([x.view(1, -1, 4, *x.shape[2:]).permute(0, 3, 4, 1, 2).reshape(-1, 4) for x in deltas])
        chosen = objectness.topk(PROPOSALS)[1]
        return _decoded(moves[chosen], self.get_buffer("anchors")[chosen], RPN_WEIGHTS)

    def _pooled(self, features: dict[str, Tensor], boxes: Tensor, size: int) -> Tensor:
        """[20, 256, size, size]: RoiAlign on the level that fits each box."""
        area = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
        level = (CANONICAL_LEVEL + (area.sqrt() / CANONICAL_SIZE + 1e-8).log2() + 1e-6).floor().clamp(2, 5)
        rois = torch.cat([torch.zeros(PROPOSALS, 1), boxes], 1)
        found = torch.zeros(())
        for number, name in enumerate(LEVELS, 2):
            pooled = torch.ops.torchvision.roi_align(features[name], rois, 0.5**number, size, size, 2, False)
            found = found + pooled * (level == number).to(pooled.dtype).view(-1, 1, 1, 1)
        return found


def _decoded(moves: Tensor, boxes: Tensor, scale: tuple[float, ...]) -> Tensor:
    """Boxes [N, 4] moved and sized by [N, 4], as corners inside the image."""
    size = boxes[:, 2:] - boxes[:, :2]
    centre = boxes[:, :2] + 0.5 * size
    centre = moves[:, :2] / scale[0] * size + centre
    half = (moves[:, 2:] / scale[2]).clamp(max=LARGEST_LOG).exp() * size * 0.5
    return torch.cat([centre - half, centre + half], 1).clamp(0.0, float(SIZE))


def _static(model: Any, mask: bool) -> nn.Module:
    weights.fresh(model.backbone, (3, SIZE, SIZE))
    for head in (model.rpn.head, model.roi_heads):
        weights.he_normal(head)
    # Logits that differ: among equal ones every runtime would choose others.
    for logits in (model.rpn.head.cls_logits, model.roi_heads.box_predictor.cls_score):
        nn.init.normal_(logits.weight, 0.0, 2 / math.sqrt(logits.weight.shape[1]))
    for moves in (model.rpn.head.bbox_pred, model.roi_heads.box_predictor.bbox_pred):
        nn.init.normal_(moves.weight, 0.0, 0.1 / math.sqrt(moves.weight.shape[1]))
    return StaticRcnn(model, mask)


def faster_rcnn() -> nn.Module:
    """Faster R-CNN, 91 classes, with fresh weights."""
    torchvision_operators.declare()
    from torchvision.models.detection import fasterrcnn_resnet50_fpn

    return _static(fasterrcnn_resnet50_fpn(weights=None, weights_backbone=None).eval(), False)


def mask_rcnn() -> nn.Module:
    """Mask R-CNN, 91 classes, with fresh weights."""
    torchvision_operators.declare()
    from torchvision.models.detection import maskrcnn_resnet50_fpn

    return _static(maskrcnn_resnet50_fpn(weights=None, weights_backbone=None).eval(), True)
