"""Decision Transformers of Hugging Face transformers (`DecisionTransformerModel`), both ways.

    theirs                                            ours
    encoder: GPT-2's blocks, Conv1D matrices          decoder: Linear, transposed; one qkv matrix, rows by head
    embed_return, embed_state, embed_action           the same
    embed_timestep                                    time: a learned table
    embed_ln, then row 0 of wpe at every place        norm; that row is a constant and goes into its bias
    wte                                               none: no word is ever read
    predict_action.0, predict_state, predict_return   action, state, reward

Theirs pad short histories on the left, under a mask; ours on the right, by lengths: what is predicted is the same,
since a step knows its time from the table alone.

    model = decision.load("folder")                   a folder with config.json and model.safetensors
    decision.save("mine", model)                      DecisionTransformerModel.from_pretrained("mine") reads it

Chen et al.: Decision Transformer. NeurIPS 2021. arXiv:2106.01345
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from regard.core.config import from_dict
from regard.core.shapes import Tensor
from regard.core.undrawn import undrawn
from regard.models.decision import Config, DecisionTransformer
from regard.weights.folder import read_json, read_tensors, replacing, write_json, write_tensors
from regard.weights.gpt2 import FEEDS, FIXED, blocks, check_dropout
from regard.weights.table import Row, read, same, write, zero
from regard.weights.theirs import completed, feed_of, holds, one_of, refuse, softmax_only

KIND = "decision_transformer"
PLACES = 1024  # rows of a table that theirs has and never reads past the first


def table(config: Config) -> list[Row]:
    """The rows for a model of ours with this configuration; theirs as `named` gives them."""
    _check(config)
    rows = [
        Row("encoder.wte.weight", None, zero(1, config.width)),
        Row("encoder.wpe.weight", None, zero(PLACES, config.width)),
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


def named(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Their tensors with what is the same at every place where it acts, in the bias of the norm before it."""
    found = dict(state)
    if {"embed_ln.bias", "encoder.wpe.weight"} <= found.keys():
        found["embed_ln.bias"] = found["embed_ln.bias"] + found["encoder.wpe.weight"][0]
    for name in ("encoder.wpe.weight", "encoder.wte.weight"):
        if name in found:
            found[name] = torch.zeros_like(found[name])
    return {name: x for name, x in found.items() if not name.endswith((".attn.bias", ".attn.masked_bias"))}


def ours(theirs: Mapping[str, Any]) -> Config:
    """Our configuration from their config.json; what it does not say is what transformers takes it to be."""
    said = completed(theirs, KIND, _DEFAULTS, FIXED)
    check_dropout(said)
    feed = feed_of(said["activation_function"], FEEDS)
    values = {field: said[name] for field, name in _FIELDS.items()}
    kind = "tanh" if said["action_tanh"] else "linear"
    return from_dict(Config, values | {"feed": feed, "kind": kind})


def theirs(config: Config) -> dict[str, Any]:
    """Their config.json from our configuration."""
    _check(config)
    return {
        "model_type": KIND,
        "architectures": ["DecisionTransformerModel"],
        **{name: getattr(config, field) for field, name in _FIELDS.items()},
        "embd_pdrop": config.dropout,
        "action_tanh": config.kind == "tanh",
        "activation_function": {ours: theirs for theirs, ours in FEEDS.items()}[config.feed],
        "n_positions": PLACES,
        "vocab_size": 1,
        **FIXED,
    }


def load(folder: str | Path) -> DecisionTransformer:
    """A model from a local folder of theirs, in eval mode."""
    folder = Path(folder)
    config = ours(read_json(folder / "config.json"))
    state = named(read_tensors(folder))
    with undrawn():
        model = DecisionTransformer(config)
    read(table(config), state, model)
    return model.eval()


def save(folder: str | Path, model: DecisionTransformer) -> None:
    """Write a folder that transformers' `DecisionTransformerModel.from_pretrained` reads; all of it or nothing."""
    state = write(table(model.config), model)
    with replacing(Path(folder), holds(KIND, {"config.json", "model.safetensors"})) as new:
        write_json(new / "config.json", theirs(model.config))
        write_tensors(new / "model.safetensors", state)


_FIELDS = {  # ours -> theirs, where they mean the same
    "states": "state_dim",
    "actions": "act_dim",
    "width": "hidden_size",
    "heads": "n_head",
    "layers": "n_layer",
    "ffn": "n_inner",
    "length": "max_ep_len",
    "dropout": "resid_pdrop",
    "attention_dropout": "attn_pdrop",
}

# What transformers assumes of a config.json that does not say.
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
    "embd_pdrop": 0.1,
    "attn_pdrop": 0.1,
}


def _check(config: Config) -> None:
    """Refuse what theirs has no place for."""
    needed = {
        "kind": ("tanh or linear", config.kind != "classes"),
        "attention": softmax_only(config),
        "feed": one_of(FEEDS, config),
    }
    refuse("theirs", config, needed)
