"""Decision Transformers of Hugging Face transformers (`DecisionTransformerModel`), import and export.

    transformers                                      Regard
    encoder: GPT-2's blocks, Conv1D matrices          decoder: Linear, transposed; one qkv matrix, rows by head
    embed_return, embed_state, embed_action           the same
    embed_timestep                                    time: a learned table
    embed_ln, then row 0 of wpe at every position     norm; that row is a constant and is added to its bias
    wte                                               none: it is never used
    predict_action.0, predict_state, predict_return   action, state, reward

transformers pads short episodes on the left, Regard on the right: predictions are the same, since positions come from
the table of timesteps alone.

    model = decision_transformer.load("folder")       a folder with config.json and model.safetensors
    decision_transformer.save("mine", model)  DecisionTransformerModel.from_pretrained("mine") reads it

Chen et al.: Decision Transformer. NeurIPS 2021. arXiv:2106.01345
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from regard.core.config import from_dict
from regard.core.shapes import Tensor
from regard.models.decision_transformer import Config, DecisionTransformer
from regard.weights.checkpoint_formats import (
    BARE_FILES,
    build_model,
    check_requirements,
    feedforward_for,
    fill_defaults,
    is_hf_folder,
    requires_feedforward,
    requires_softmax,
    write_folder,
)
from regard.weights.folder import read_json, read_tensors
from regard.weights.hf.gpt2 import FEEDS, FIXED, blocks
from regard.weights.table import Row, export_state_dict, same, zero

MODEL_TYPE = "decision_transformer"
NUM_POSITIONS = 1024  # rows of wpe, of which transformers uses the first


def table(config: Config) -> list[Row]:
    """Return the rows for a model with this Config and a state dict from `normalize_keys`."""
    _check(config)
    rows = [
        Row("encoder.wte.weight", None, zero(1, config.width)),
        Row("encoder.wpe.weight", None, zero(NUM_POSITIONS, config.width)),
        Row("embed_timestep.weight", "time.table.weight", same),
    ]
    for kind in ("weight", "bias"):
        rows += [
            Row(f"embed_return.{kind}", f"embed_return.{kind}", same),
            Row(f"embed_state.{kind}", f"embed_state.{kind}", same),
            Row(f"embed_action.{kind}", f"embed_action.{kind}", same),
            Row(f"embed_ln.{kind}", f"norm.{kind}", same),
            *blocks("encoder.h.{}", kind, config.heads),
            Row(f"encoder.ln_f.{kind}", f"decoder.norm.{kind}", same),
            Row(f"predict_action.0.{kind}", f"action.{kind}", same),
            Row(f"predict_state.{kind}", f"state.{kind}", same),
            Row(f"predict_return.{kind}", f"reward.{kind}", same),
        ]
    return rows


def normalize_keys(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Add row 0 of wpe, which is added at every position, to the bias of the norm."""
    found = dict(state)
    if {"embed_ln.bias", "encoder.wpe.weight"} <= found.keys():
        found["embed_ln.bias"] = found["embed_ln.bias"] + found["encoder.wpe.weight"][0]
    for name in ("encoder.wpe.weight", "encoder.wte.weight"):
        if name in found:
            found[name] = torch.zeros_like(found[name])
    return {name: x for name, x in found.items() if not name.endswith((".attn.bias", ".attn.masked_bias"))}


def import_config(external: Mapping[str, Any]) -> Config:
    """Convert a config.json to a Config; missing fields have the defaults of transformers."""
    raw = fill_defaults(external, MODEL_TYPE, _DEFAULTS, FIXED)
    feed = feedforward_for(raw["activation_function"], FEEDS)
    values = {field: raw[name] for field, name in _FIELDS.items()}
    kind = "tanh" if raw["action_tanh"] else "linear"
    return from_dict(Config, values | {"feedforward": feed, "action_type": kind})


def export_config(config: Config) -> dict[str, Any]:
    """Convert a Config to a config.json."""
    _check(config)
    return {
        "model_type": MODEL_TYPE,
        "architectures": ["DecisionTransformerModel"],
        **{name: getattr(config, field) for field, name in _FIELDS.items()},
        "embd_pdrop": config.dropout,
        "action_tanh": config.action_type == "tanh",
        "activation_function": {internal: external for external, internal in FEEDS.items()}[config.feedforward],
        "n_positions": NUM_POSITIONS,
        "vocab_size": 1,
        **FIXED,
    }


def load(folder: str | Path) -> DecisionTransformer:
    """Load the model of a local folder, in eval mode."""
    folder = Path(folder)
    config = import_config(read_json(folder / "config.json"))
    model: DecisionTransformer = build_model(
        DecisionTransformer, config, table(config), normalize_keys(read_tensors(folder)), folder
    )
    return model


def save(folder: str | Path, model: DecisionTransformer) -> None:
    """Write a folder for transformers' `DecisionTransformerModel.from_pretrained`, atomically."""
    state = export_state_dict(table(model.config), model)
    write_folder(
        folder,
        {"config.json": export_config(model.config)},
        state,
        is_hf_folder(MODEL_TYPE, BARE_FILES),
    )


_FIELDS = {  # Config -> config.json
    "state_dim": "state_dim",
    "action_dim": "act_dim",
    "width": "hidden_size",
    "heads": "n_head",
    "layers": "n_layer",
    "ffn": "n_inner",
    "length": "max_ep_len",
    "dropout": "resid_pdrop",
    "attention_dropout": "attn_pdrop",
}

# Defaults of transformers.
_DEFAULTS: dict[str, Any] = {
    **FIXED,
    "state_dim": 17,
    "act_dim": 4,
    "hidden_size": 128,
    "max_ep_len": 4096,
    "action_tanh": True,
    "n_layer": 3,
    "n_head": 1,
    "n_inner": None,
    "activation_function": "relu",
    "resid_pdrop": 0.1,
    "attn_pdrop": 0.1,
}


def _check(config: Config) -> None:
    """Raise `Unsupported` for a model that the format cannot represent."""
    needed = {
        "action_type": ("tanh or linear", config.action_type != "discrete"),
        "attention": requires_softmax(config),
        "feedforward": requires_feedforward(FEEDS, config),
    }
    check_requirements("transformers' Decision Transformer", config, needed)
