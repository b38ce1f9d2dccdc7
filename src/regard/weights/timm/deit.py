"""DeiT of timm, with its distillation token and head, import and export.

    timm                         Regard
    cls_token, dist_token        first
    head, head_dist              head, distilled_head
    all else                     as in timm_vit

    model, task = timm_deit.load(folder)         a DeiT, or a ViT without a distillation token
    timm_deit.save("mine", model)                 timm.create_model("local-dir:mine", pretrained=True) reads it

Touvron et al.: Training data-efficient image transformers & distillation through attention. ICML 2021. arXiv:2012.12877
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from regard.core.config import from_dict
from regard.core.shapes import Tensor
from regard.core.spec import Spec
from regard.models import vit
from regard.models.deit import Config, DeiT
from regard.models.vit import ViT
from regard.weights.checkpoint_formats import (
    Classifier,
    check_requirements,
    load_image_folder,
    save_for_timm,
    timm_preprocessing,
)
from regard.weights.table import Row, linear
from regard.weights.timm import vit as timm_vit


def table(config: Config | vit.Config) -> list[Row]:
    """Return the rows for a model with this Config; for a ViT, those of timm.vit."""
    if not isinstance(config, Config):
        return timm_vit.table(config)
    _check(config)
    rows = [
        *timm_vit.shared_rows(config),
        Row(("cls_token", "dist_token"), "prefix_tokens", timm_vit.concat_prefix_tokens(1, 1)),
    ]
    return rows + (linear("head_dist", "distilled_head") if config.num_classes else [])


def import_config(raw: Mapping[str, Any], state: Mapping[str, Tensor]) -> Config | vit.Config:
    """Convert a config.json and its tensors to a Config; with a distillation token, a DeiT's."""
    return from_dict(Config if "dist_token" in state else vit.Config, timm_vit.import_fields(raw, state))


def export_config(config: Config) -> dict[str, Any]:
    """Convert a Config to a config.json."""
    _check(config)
    return timm_vit.folder_config("deit_base_distilled_patch16_224", config)


def load(folder: str | Path) -> tuple[ViT, dict[str, Any]]:
    """Load a local folder; return the model in eval mode, and its labels and preprocessing."""
    return load_image_folder(folder, import_config, build_model, table, timm_preprocessing, timm_vit.add_missing_biases)


def save(folder: str | Path, what: DeiT | Classifier) -> None:
    """Write a folder for timm, atomically; of a classifier, with labels and preprocessing."""
    save_for_timm(folder, what, DeiT, export_config, table)


def build_model(config: Config | vit.Config) -> ViT:
    """Build a model from its Config."""
    return DeiT(config) if isinstance(config, Config) else ViT(config)


def _check(config: Config) -> None:
    """Raise `Unsupported` for a model that timm's DeiT cannot represent."""
    timm_vit.check(config)
    needed = {
        "num_prefix_tokens": (2, config.num_prefix_tokens == 2),
        "positions": ("learned", Spec.parse(config.positions).kwargs.get("prefix", 2) == 2),
    }
    check_requirements("timm's DeiT", config, needed)
