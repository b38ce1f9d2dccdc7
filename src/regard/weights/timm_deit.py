"""DeiT of timm, with its distillation token and head, both ways.

    theirs                       ours
    cls_token, dist_token        first
    head, head_dist              head, distilled_head
    all else                     as in timm_vit

    model, shown = timm_deit.load(folder)         a DeiT; a ViT where the folder's has no distillation token
    timm_deit.save("mine", model)                 timm.create_model("local-dir:mine", pretrained=True) reads it

Touvron et al.: Training data-efficient image transformers & distillation through attention. ICML 2021. arXiv:2012.12877
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from regard.core.config import from_dict
from regard.core.errors import Unsupported
from regard.models.deit import Config, DeiT
from regard.models.vit import ViT
from regard.weights import timm_vit
from regard.weights.folder import read_json, read_tensors, replacing, write_json, write_tensors
from regard.weights.table import Row, read, write
from regard.weights.theirs import holds_timm, shown_by_timm


def table(config: Config) -> list[Row]:
    """The rows for a model of ours with this configuration."""
    timm_vit.check(config)
    if config.prefix != 2:
        raise Unsupported(f"timm's DeiT has prefix=2, this model prefix={config.prefix}")
    rows = [*timm_vit.body(config), Row(("cls_token", "dist_token"), "first", timm_vit.firsts(1, 1))]
    return rows + (timm_vit.linear("head_dist", "distilled_head") if config.classes else [])


def theirs(config: Config) -> dict[str, Any]:
    """Their config.json from our configuration."""
    return timm_vit.folder_config("deit_base_distilled_patch16_224", config)


def load(folder: str | Path) -> tuple[ViT, dict[str, Any]]:
    """A model from a local folder of theirs, in eval mode, and how images are shown to it: labels, mean, crop, ..."""
    folder = Path(folder)
    said, state = read_json(folder / "config.json"), read_tensors(folder)
    if "dist_token" not in state:
        return timm_vit.load(folder)
    config = from_dict(Config, timm_vit.described(said, state))
    with torch.random.fork_rng(devices=[]):
        model = DeiT(config)
    read(table(config), timm_vit.with_biases(state), model)
    return model.eval(), shown_by_timm(said, config)


def save(folder: str | Path, model: DeiT) -> None:
    """Write a folder that timm reads; all of it or nothing."""
    state = write(table(model.config), model)
    with replacing(Path(folder), holds_timm(timm_vit.FILES)) as new:
        write_json(new / "config.json", theirs(model.config))
        write_tensors(new / "model.safetensors", state)
