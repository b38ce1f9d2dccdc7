"""DeiT of Hugging Face transformers, import and export.

    transformers                                  Regard
    embeddings.cls_token, distillation_token      first
    DeiTForImageClassificationWithTeacher         a DeiT: cls_classifier is head, distillation_classifier distilled_head
    DeiTForImageClassification                    a ViT with num_prefix_tokens=2: its head reads the class token alone
    all else                                      as in hf_vit

    model, task = hf_deit.load(folder)           config.json and model.safetensors, perhaps preprocessor_config.json
    hf_deit.save("mine", model)                   DeiTForImageClassification....from_pretrained("mine") reads it

Touvron et al.: Training data-efficient image transformers & distillation through attention. ICML 2021. arXiv:2012.12877
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from regard.core.config import from_dict
from regard.core.errors import Unsupported
from regard.core.shapes import Tensor
from regard.models import vit
from regard.models.deit import Config
from regard.models.vit import ViT
from regard.weights.checkpoint_formats import (
    Classifier,
    fill_defaults,
    hf_preprocessing,
    load_image_folder,
    save_for_transformers,
)
from regard.weights.hf import vit as hf_vit
from regard.weights.table import Row, linear
from regard.weights.timm.deit import build_model
from regard.weights.timm.vit import concat_prefix_tokens

normalize_keys = hf_vit.normalize_keys
PLAIN_CLASS, TEACHER_CLASS = "DeiTForImageClassification", "DeiTForImageClassificationWithTeacher"


def table(config: Config | vit.Config) -> list[Row]:
    """Return the rows for a DeiT, or a ViT with two prefix tokens, with this Config."""
    hf_vit.check(config, 2)
    if not config.num_classes:
        raise Unsupported("transformers' DeiT needs classes; this model has none")
    names = tuple(f"deit.embeddings.{name}" for name in ("cls_token", "distillation_token"))
    rows = [*hf_vit.shared_rows(config, "deit."), Row(names, "prefix_tokens", concat_prefix_tokens(1, 1))]
    if not isinstance(config, Config):
        return rows + linear("classifier", "head")
    heads = {"cls_classifier": "head", "distillation_classifier": "distilled_head"}
    return rows + [row for external, internal in heads.items() for row in linear(external, internal)]


def import_config(external: Mapping[str, Any]) -> Config | vit.Config:
    """Convert a config.json to a Config."""
    raw = fill_defaults(external, "deit", hf_vit.DEFAULTS, {})
    named = next(iter(raw.get("architectures") or ()), "DeiTModel")
    if named not in (PLAIN_CLASS, TEACHER_CLASS):
        raise Unsupported(f"{named} is not supported; choose one of: {PLAIN_CLASS}, {TEACHER_CLASS}")
    values = hf_vit.import_fields(raw, True) | {"num_prefix_tokens": 2}
    return from_dict(Config, values) if named == TEACHER_CLASS else from_dict(vit.Config, values)


def export_config(config: Config | vit.Config) -> dict[str, Any]:
    """Convert a Config to a config.json."""
    hf_vit.check(config, 2)
    named = TEACHER_CLASS if isinstance(config, Config) else PLAIN_CLASS
    return {"model_type": "deit", "architectures": [named], **hf_vit.export_fields(config)}


def load(folder: str | Path) -> tuple[ViT, dict[str, Any]]:
    """Load a local folder; return the model in eval mode, and its labels and preprocessing."""
    return load_image_folder(folder, _import_config, build_model, table, hf_preprocessing, hf_vit.add_missing_biases)


def save(folder: str | Path, what: ViT | Classifier) -> None:
    """Write a folder for transformers, atomically; of a classifier, with labels and preprocessing."""
    save_for_transformers(folder, what, ViT, export_config, table)


def _import_config(raw: Mapping[str, Any], state: Mapping[str, Tensor]) -> Config | vit.Config:
    hf_vit.check_biases(raw, state)
    return import_config(raw)
