"""ImageGPT of Hugging Face transformers, import and export.

    transformers                                      Regard
    Conv1D: x W                                       Linear: transposed
    c_attn (q, k, v by thirds)                        one qkv matrix, rows by head
    wte (the last row begins an image), wpe           embed, learned positions
    lm_head, or score of a classifier                 head
    clusters of the image processor, from -1 to 1     palette.colors, from 0 to 1
    resid_pdrop, embd_pdrop                           dropout: the first of them

    model, task = image_gpt.load("imagegpt-small")    config.json, model.safetensors, preprocessor_config.json
    image_gpt.save("mine", model)                     ImageGPTForCausalImageModeling.from_pretrained("mine") reads it

Without a preprocessor_config.json the colours are unknown: a lattice, with which pictures have wrong colours.

Chen et al.: Generative Pretraining from Pixels. ICML 2020
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from regard.core.config import from_dict
from regard.core.errors import BadInput, Unsupported
from regard.core.shapes import Tensor, pair
from regard.models.image_gpt import Config, ImageGPT
from regard.tokens.color_palette import lattice
from regard.weights.checkpoint_formats import (
    IMAGE_FILES,
    build_model,
    check_requirements,
    check_single_label,
    count_labels,
    feedforward_for,
    fill_defaults,
    is_hf_folder,
    label_maps,
    label_names,
    requires_feedforward,
    requires_softmax,
    write_folder,
)
from regard.weights.folder import config_errors, read_json, read_tensors
from regard.weights.table import Row, export_state_dict, same, transpose, view

log = logging.getLogger("regard")

PROCESSOR = "preprocessor_config.json"
COLORS = "clusters"  # among the tensors here; in a folder they are in preprocessor_config.json

# transformers -> Regard; of two, the last is exported
FEEDS = {
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_new": "gelu_tanh",
    "quick_gelu": "quick_gelu",
    "gelu": "gelu",
    "relu": "relu",
    "swish": "silu",
    "silu": "silu",
}


def table(config: Config) -> list[Row]:
    """Return the rows for a model with this Config."""
    _check(config)
    there, here, qkv = "transformer.h.{}", "decoder.blocks.{}", {"three": 3, "h": config.heads}
    rows = [
        Row(COLORS, "palette.colors", same),
        Row("transformer.wte.weight", "embed.weight", same),
        Row("transformer.wpe.weight", "decoder.positions.table.weight", same),
        Row(f"{there}.ln_1.weight", f"{here}.mix_norm.weight", same),
        Row(f"{there}.ln_2.weight", f"{here}.feed_norm.weight", same),
        Row("transformer.ln_f.weight", "decoder.norm.weight", same),
        Row("score.weight" if config.num_classes else "lm_head.weight", "head.weight", same),
    ]
    for kind, op, by_thirds in (
        ("weight", transpose, "c (three h d) -> (h three d) c"),
        ("bias", same, "(three h d) -> (h three d)"),
    ):
        rows += [
            Row(f"{there}.attn.c_attn.{kind}", f"{here}.mix.project.qkv.{kind}", view(by_thirds, **qkv)),
            Row(f"{there}.attn.c_proj.{kind}", f"{here}.mix.join.out.{kind}", op),
            Row(f"{there}.mlp.c_fc.{kind}", f"{here}.feed.up.{kind}", op),
            Row(f"{there}.mlp.c_proj.{kind}", f"{here}.feed.down.{kind}", op),
        ]
    return rows


def import_config(external: Mapping[str, Any]) -> Config:
    """Convert a config.json to a Config; missing fields have the defaults of transformers."""
    named = next(iter(external.get("architectures") or ()), "ImageGPTForCausalImageModeling")
    if named not in ("ImageGPTForCausalImageModeling", "ImageGPTForImageClassification"):
        raise Unsupported(
            f"{named} is not supported; choose one of: ImageGPTForCausalImageModeling, ImageGPTForImageClassification"
        )
    raw = fill_defaults(external, "imagegpt", _DEFAULTS, FIXED)
    side = math.isqrt(raw["n_positions"])
    if side**2 != raw["n_positions"]:
        raise Unsupported(f"n_positions={raw['n_positions']} in config.json is not the pixels of a square image")
    values = {field: raw[name] for field, name in _FIELDS.items()} | {
        "image_size": side,
        "levels": raw["vocab_size"] - 1,
        "feedforward": feedforward_for(raw["activation_function"], FEEDS),
        "num_classes": count_labels(raw) if named.endswith("Classification") else 0,
    }
    return from_dict(Config, values)


def export_config(config: Config) -> dict[str, Any]:
    """Convert a Config to a config.json."""
    _check(config)
    kind = "ImageClassification" if config.num_classes else "CausalImageModeling"
    return {
        "model_type": "imagegpt",
        "architectures": [f"ImageGPTFor{kind}"],
        **{name: getattr(config, field) for field, name in _FIELDS.items()},
        "vocab_size": config.levels + 1,
        "n_positions": pair(config.image_size)[0] ** 2,
        "embd_pdrop": config.dropout,
        "activation_function": {internal: external for external, internal in FEEDS.items()}[config.feedforward],
        **label_maps(config.num_classes),
        **FIXED,
    }


def load(folder: str | Path) -> tuple[ImageGPT, dict[str, Any]]:
    """Load a local folder; return the model in eval mode, and the arguments of its predictor."""
    folder = Path(folder)
    raw, state = read_json(folder / "config.json"), normalize_keys(read_tensors(folder))
    with config_errors(folder):
        config = import_config(raw)
        state[COLORS] = _read_colors(folder, config)
        model = build_model(ImageGPT, config, table(config), state, folder)
    if not config.num_classes:
        return model, {"name": "image_generation"}
    check_single_label(raw)
    how: dict[str, Any] = {"size": pair(config.image_size), "mean": [0.5] * 3, "std": [0.5] * 3, "resample": "bilinear"}
    how |= {"channels": 3, "crop_mode": "squash"}
    return model, {"labels": label_names(raw, config.num_classes), "preprocess": how}


def save(folder: str | Path, model: ImageGPT) -> None:
    """Write a folder for transformers, atomically."""
    state = export_state_dict(table(model.config), model)
    colors, (height, width) = 2 * state.pop(COLORS).double() - 1, pair(model.config.image_size)
    processor = {
        "image_processor_type": "ImageGPTImageProcessor", "clusters": colors.tolist(), "do_color_quantize": True,
        "do_normalize": True, "do_resize": True, "resample": 2, "size": {"height": height, "width": width},
    }  # fmt: skip
    files = {"config.json": export_config(model.config), PROCESSOR: processor}
    write_folder(folder, files, state, is_hf_folder("imagegpt", IMAGE_FILES))


def normalize_keys(state: Mapping[str, Any]) -> dict[str, Any]:
    """Drop the causal masks of old files."""
    return {name: value for name, value in state.items() if not name.endswith((".attn.bias", ".attn.masked_bias"))}


def _read_colors(folder: Path, config: Config) -> Tensor:
    """Return the colours of the image processor, from 0 to 1."""
    found = read_json(folder / PROCESSOR).get("clusters") if (folder / PROCESSOR).is_file() else None
    if found is None:
        log.warning("%s has no colours (clusters in %s): a lattice of colours is used", folder, PROCESSOR)
        return lattice(config.levels, config.channels)
    try:
        colors = (torch.tensor(found, dtype=torch.float32) + 1) / 2
    except (TypeError, ValueError):
        colors = torch.zeros(0)
    if colors.shape != (config.levels, config.channels):
        raise BadInput(f"clusters in {folder / PROCESSOR} must be {config.levels:,} rows of {config.channels} numbers")
    return colors


def _check(config: Config) -> None:
    """Raise `Unsupported` for a model that the format cannot represent."""
    rows, columns = pair(config.image_size)
    needed = {
        "attention": requires_softmax(config),
        "feedforward": requires_feedforward(FEEDS, config),
        "channels": (3, config.channels == 3),
        "image_size": ("a square", rows == columns),
    }
    check_requirements("transformers' ImageGPT", config, needed)


_FIELDS = {  # Config -> config.json
    "width": "n_embd",
    "heads": "n_head",
    "layers": "n_layer",
    "ffn": "n_inner",
    "dropout": "resid_pdrop",
    "attention_dropout": "attn_pdrop",
    "norm_eps": "layer_norm_epsilon",
}

# Required values of a config.json.
FIXED: dict[str, Any] = {
    "scale_attn_weights": True,
    "scale_attn_by_inverse_layer_idx": False,
    "add_cross_attention": False,
    "tie_word_embeddings": False,
}

# Defaults of transformers.
_DEFAULTS: dict[str, Any] = {
    **FIXED,
    "vocab_size": 513,
    "n_embd": 512,
    "n_head": 8,
    "n_layer": 24,
    "n_inner": None,
    "n_positions": 1024,
    "activation_function": "quick_gelu",
    "resid_pdrop": 0.1,
    "attn_pdrop": 0.1,
    "layer_norm_epsilon": 1e-5,
}
