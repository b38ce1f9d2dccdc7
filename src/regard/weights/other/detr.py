"""DETR of the original repository (facebookresearch/detr; torch.hub's ``detr_resnet50`` and its relatives).

    original                                      Regard
    backbone.0.body (torchvision's ResNet)        stem.backbone
    input_proj                                    stem.project
    transformer.encoder, decoder                  encoder, decoder: those of `torch.nn.Transformer` (torch_transformer)
    query_embed                                   queries
    class_embed, bbox_embed                       class_head, box_head
    detr.* and bbox_attention, mask_head          masks=True: as in weights.hf.detr

    state = torch.load("detr-r50-e632da11.pth", weights_only=True)["model"]
    model = DETR(detr.import_config(state))
    import_state_dict(detr.table(model.config), state, model)

Shapes give the Config; heads have 32 numbers in all published models. A dilated last stage has the same shapes as one
that is not: pass ``dilated=True`` for the DC5 models.

Carion et al.: End-to-End Object Detection with Transformers. ECCV 2020. arXiv:2005.12872
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from regard.core.config import from_dict
from regard.core.errors import BadInput, Unsupported
from regard.core.shapes import Tensor
from regard.models.detr import Config
from regard.models.resnet import Config as ResNetConfig
from regard.weights.checkpoint_formats import check_requirements, requires_softmax
from regard.weights.hf.detr import mask_head_rows, requires_plain_queries, resnet_of
from regard.weights.other.torch_transformer import stack_rows
from regard.weights.table import Row, linear, nested, same
from regard.weights.timm import resnet


def table(config: Config) -> list[Row]:
    """Return the rows for a model with this Config."""
    needed = {"attention": requires_softmax(config), "feedforward": ("relu", config.feedforward == "relu")}
    needed |= requires_plain_queries(config)
    check_requirements("the original DETR", config, needed)
    rows = [
        *nested(resnet.table(resnet_of(config)), "backbone.0.body.", "stem.backbone."),
        *linear("input_proj", "stem.project"),
        *nested(stack_rows(config.heads), "transformer.", ""),
        Row("query_embed.weight", "queries", same),
        *linear("class_embed", "class_head"),
        *linear("bbox_embed.layers.{}", "box_head.layers.{}"),
    ]
    return nested(rows, "detr.", "") + mask_head_rows() if config.masks else rows


def import_config(state: Mapping[str, Tensor], heads: int | None = None, dilated: bool = False) -> Config:
    """Return the Config of a state dict; `heads`: one for every 32 numbers of the width, unless given."""
    masks = any(name.startswith("mask_head.") for name in state)
    part = {name.removeprefix("detr."): value for name, value in state.items()} if masks else state
    if "query_embed.weight" not in part or "backbone.0.body.conv1.weight" not in part:
        raise BadInput("expected the state dict of an original DETR, with query_embed.weight and backbone.0.body.conv1")
    if "transformer.encoder.norm.weight" in part:
        raise Unsupported("the original DETR with pre_norm is not supported; published models have norms after the sum")
    num_queries, width = part["query_embed.weight"].shape
    values = {
        "num_classes": part["class_embed.weight"].shape[0] - 1,
        "num_queries": num_queries,
        "backbone": _import_backbone(part, dilated),
        "width": width,
        "heads": heads or width // 32,
        "ffn": part["transformer.encoder.layers.0.linear1.weight"].shape[0],
        "encoder_layers": _count(part, r"transformer\.encoder\.layers\.(\d+)\."),
        "decoder_layers": _count(part, r"transformer\.decoder\.layers\.(\d+)\."),
        "masks": masks,
    }
    return from_dict(Config, values)


def _import_backbone(state: Mapping[str, Tensor], dilated: bool) -> ResNetConfig:
    conv = state["backbone.0.body.conv1.weight"]
    is_bottleneck = "backbone.0.body.layer1.0.conv3.weight" in state
    values: dict[str, Any] = {
        "num_classes": 0,
        "channels": conv.shape[1],
        "width": conv.shape[0],
        "block": "bottleneck" if is_bottleneck else "basic",
        "layers": [_count(state, rf"backbone\.0\.body\.layer{n}\.(\d+)\.") for n in range(1, 5)],
        "norm": "frozen",
        "dilated": dilated,
    }
    return from_dict(ResNetConfig, values)


def _count(state: Mapping[str, Tensor], pattern: str) -> int:
    return 1 + max((int(found[1]) for name in state if (found := re.match(pattern, name))), default=-1)
