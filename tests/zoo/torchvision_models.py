"""Models of torchvision: of each family the smaller ones, with small images and random weights.

Models of detection take lists of images, and in training a dictionary of boxes, labels, masks or keypoints for each.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from tests.zoo.models import Inputs, Model

# name, size of the image, arguments of torchvision.models.get_model beside it
CLASSIFICATION: list[tuple[str, int, dict[str, Any]]] = [
    ("alexnet", 64, {}),
    ("convnext_tiny", 64, {}),
    ("densenet121", 64, {}),
    ("densenet169", 64, {}),
    ("efficientnet_b0", 64, {}),
    ("efficientnet_b1", 64, {}),
    ("efficientnet_v2_s", 64, {}),
    ("googlenet", 96, {"init_weights": False}),
    ("inception_v3", 128, {"init_weights": False}),
    ("maxvit_t", 224, {}),
    ("mnasnet0_5", 64, {}),
    ("mnasnet1_0", 64, {}),
    ("mobilenet_v2", 64, {}),
    ("mobilenet_v3_large", 64, {}),
    ("mobilenet_v3_small", 64, {}),
    ("regnet_x_400mf", 64, {}),
    ("regnet_x_800mf", 64, {}),
    ("regnet_y_400mf", 64, {}),
    ("regnet_y_800mf", 64, {}),
    ("resnet18", 64, {}),
    ("resnet34", 64, {}),
    ("resnet50", 64, {}),
    ("resnext50_32x4d", 64, {}),
    ("wide_resnet50_2", 64, {}),
    ("shufflenet_v2_x0_5", 64, {}),
    ("shufflenet_v2_x1_0", 64, {}),
    ("shufflenet_v2_x1_5", 64, {}),
    ("squeezenet1_0", 64, {}),
    ("squeezenet1_1", 64, {}),
    ("swin_t", 64, {}),
    ("swin_v2_t", 64, {}),
    ("vgg11", 64, {}),
    ("vgg11_bn", 64, {}),
    ("vgg13", 64, {}),
    ("vit_b_16", 64, {"image_size": 64}),
    ("vit_b_32", 64, {"image_size": 64}),
]
SEGMENTATION: list[tuple[str, int, dict[str, Any]]] = [
    ("deeplabv3_mobilenet_v3_large", 64, {}),
    ("deeplabv3_resnet50", 64, {"aux_loss": True}),
    ("fcn_resnet50", 64, {"aux_loss": True}),
    ("lraspp_mobilenet_v3_large", 64, {}),
]
VIDEO: list[tuple[str, int, dict[str, Any]]] = [
    ("mc3_18", 32, {}),
    ("r3d_18", 32, {}),
    ("r2plus1d_18", 32, {}),
    ("mvit_v1_b", 224, {}),
    ("mvit_v2_s", 224, {}),
    ("s3d", 224, {}),
    ("swin3d_t", 32, {}),
]
QUANTIZABLE = [
    ("quantized_googlenet", 96, {"init_weights": False}),
    ("quantized_mobilenet_v2", 64, {}),
    ("quantized_mobilenet_v3_large", 64, {}),
    ("quantized_resnet18", 64, {}),
    ("quantized_shufflenet_v2_x0_5", 64, {}),
]
FLOW = [("raft_large", 128, {}), ("raft_small", 128, {})]
# Detections of random weights have low scores; few proposals are as good as many here.
FEW = {
    "rpn_pre_nms_top_n_train": 100, "rpn_pre_nms_top_n_test": 100, "rpn_post_nms_top_n_train": 50,
    "rpn_post_nms_top_n_test": 50, "box_score_thresh": 0.1, "min_size": 64, "max_size": 64,
}  # fmt: skip
DENSE = {"score_thresh": 0.005, "topk_candidates": 50, "min_size": 64, "max_size": 64}
DETECTION: list[tuple[str, int, dict[str, Any]]] = [
    ("fasterrcnn_mobilenet_v3_large_320_fpn", 64, FEW),
    ("fasterrcnn_mobilenet_v3_large_fpn", 64, FEW),
    ("fasterrcnn_resnet50_fpn", 64, FEW),
    ("fasterrcnn_resnet50_fpn_v2", 64, FEW),
    ("fcos_resnet50_fpn", 64, DENSE),
    ("keypointrcnn_resnet50_fpn", 64, FEW),
    ("maskrcnn_resnet50_fpn", 64, FEW),
    ("maskrcnn_resnet50_fpn_v2", 64, FEW),
    ("retinanet_resnet50_fpn", 64, DENSE),
    ("retinanet_resnet50_fpn_v2", 64, DENSE),
    ("ssd300_vgg16", 64, {"score_thresh": 0.005, "topk_candidates": 50}),
    ("ssdlite320_mobilenet_v3_large", 64, {"score_thresh": 0.005, "topk_candidates": 50}),
]
CLASSES = 3  # of detection; 2 for keypoints


def build(name: str, **options: Any) -> Any:
    import torchvision

    return torchvision.models.get_model(name, weights=None, **options)


def build_detection(name: str, **options: Any) -> Any:
    classes = 2 if "keypoint" in name else CLASSES
    return build(name, weights_backbone=None, num_classes=classes, **options)


def numbers(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def batches(*shape: int) -> Callable[[int], Inputs]:
    return lambda seed: {"x": torch.randn(*shape, generator=numbers(seed))}


def segmented(name: str, size: int) -> Callable[[int], Inputs]:
    given = "input" if "lraspp" in name else "x"
    return lambda seed: {given: torch.randn(2, 3, size, size, generator=numbers(seed))}


def frames(size: int) -> Callable[[int], Inputs]:
    def inputs(seed: int) -> Inputs:
        drawn = torch.rand(2, 1, 3, size, size, generator=numbers(seed)) * 2 - 1
        return {"image1": drawn[0], "image2": drawn[1], "num_flow_updates": 2}

    return inputs


def pictures(size: int, seed: int) -> list[torch.Tensor]:
    return list(torch.rand(2, 3, size, size, generator=numbers(seed)))


def seen(size: int) -> Callable[[int], Inputs]:
    return lambda seed: {"images": pictures(size, seed)}


def with_targets(name: str, size: int) -> Callable[[int], Inputs]:
    """Two images and the two objects of each."""

    def inputs(seed: int) -> Inputs:
        drawn = numbers(seed + 100)
        targets = []
        for _ in range(2):
            corners = torch.rand(2, 2, generator=drawn) * size / 2
            extents = size / 4 + torch.rand(2, 2, generator=drawn) * size / 4
            target = {"boxes": torch.cat([corners, corners + extents], 1)}
            target["labels"] = torch.randint(1, CLASSES, (2,), generator=drawn)
            if "mask" in name:
                target["masks"] = (torch.rand(2, size, size, generator=drawn) > 0.5).to(torch.uint8)
            if "keypoint" in name:
                target["labels"] = torch.ones(2, dtype=torch.int64)
                places = corners[:, None] + torch.rand(2, 17, 2, generator=drawn) * size / 4
                target["keypoints"] = torch.cat([places, torch.ones(2, 17, 1)], 2)
            targets.append(target)
        return {"images": pictures(size, seed), "targets": targets}

    return inputs


def model(kind: str, name: str, inputs: Any, options: Any, trained_with: Any = None) -> Model:
    make = build_detection if kind == "detection" else build
    return Model("torchvision", kind, name, partial(make, name, **options), inputs, trained_with)


MODELS = [
    *(model("classification", n, batches(2, 3, s, s), o) for n, s, o in CLASSIFICATION),
    *(model("segmentation", n, segmented(n, s), {"weights_backbone": None, **o}) for n, s, o in SEGMENTATION),
    *(model("video", n, batches(1, 3, 16 if s == 224 else 8, s, s), o) for n, s, o in VIDEO),
    *(model("quantizable", n, batches(2, 3, s, s), {"quantize": False, **o}) for n, s, o in QUANTIZABLE),
    *(model("optical flow", n, frames(s), o) for n, s, o in FLOW),
    *(model("detection", n, seen(s), o, with_targets(n, s)) for n, s, o in DETECTION),
]  # fmt: skip
