"""Folders of other people's models over images: which table reads one, and what it holds.

    model, shown = pictures.load("vit_base_patch16_224.augreg_in21k_ft_in1k")
    shown       labels, image, channels, mean, std, crop, resample: how an ImageClassifier shows it an image

A folder of transformers says which it is by its `model_type`, one of timm by how its `architecture` begins, the longest
such beginning that is known.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

from torch import nn

from regard.core.errors import BadInput
from regard.weights.folder import CONFIG, read_json

TRANSFORMERS = {
    "swin": "regard.weights.hf_swin",
    "swinv2": "regard.weights.hf_swinv2",
    "vit": "regard.weights.hf_vit",
    "deit": "regard.weights.hf_deit",
}
TIMM = {
    "swin": "regard.weights.timm_swin",
    "swinv2": "regard.weights.timm_swinv2",
    "mvitv2": "regard.weights.timm_mvitv2",
    "vit": "regard.weights.timm_vit",
    "deit": "regard.weights.timm_deit",
    "deit3": "regard.weights.timm_vit",
    **{f"resnet{n}": "regard.weights.timm_resnet" for n in (18, 34, 50, 101, 152)},
    **{
        f"vit_{size}_{net}": "regard.weights.timm_hybrid"
        for size in ("tiny", "small", "base", "large")
        for net in ("r", "r26", "r50")
    },
}


def table(folder: Path) -> str | None:
    """The module that reads a folder; None where it is nobody's model over images."""
    said = read_json(folder / CONFIG) if (folder / CONFIG).is_file() else {}
    if "format" in said:  # one of ours
        return None
    if (kind := said.get("model_type")) in TRANSFORMERS:
        return TRANSFORMERS[kind]
    name = said.get("architecture")
    if not isinstance(name, str):
        return None
    known = [each for each in TIMM if name == each or name.startswith(f"{each}_")]
    if not known:
        families = "ViT, DeiT, Swin, Swin v2, MViT v2, ResNet-18 to -152 and the hybrids of both (vit_..._r50_...)"
        raise BadInput(f"{folder} holds timm's '{name}'; of timm can be read: {families}")
    return TIMM[max(known, key=len)]


def load(folder: Path) -> tuple[nn.Module, dict[str, Any]] | None:
    """The model of a folder, and how it is shown an image; None where it is nobody's model over images."""
    room = table(folder)
    if room is None:
        return None
    model, shown = import_module(room).load(folder)
    return model, shown
