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
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from regard.core.config import from_dict
from regard.core.errors import BadInput, Unsupported
from regard.core.shapes import Tensor
from regard.core.spec import Spec
from regard.models.decision import Config, DecisionTransformer
from regard.weights.folder import only_holds, read_json, read_tensors, replacing, write_json, write_tensors
from regard.weights.gpt2 import FEEDS
from regard.weights.table import Row, read, same, transpose, view, write, zero

KIND = "decision_transformer"
PLACES = 1024  # rows of a table that theirs has and never reads past the first


def table(config: Config) -> list[Row]:
    """The rows for a model of ours with this configuration; theirs as `named` gives them."""
    _check(config)
    there, here = "encoder.h.{}", "decoder.blocks.{}"
    by_head = {"three": 3, "h": config.heads}
    rows = [
        Row("encoder.wte.weight", None, zero(1, config.width)),
        Row("encoder.wpe.weight", None, zero(PLACES, config.width)),
        Row("embed_timestep.weight", "time.table.weight", same),
    ]
    for kind in ("weight", "bias"):
        turned = transpose if kind == "weight" else same
        by_thirds = "c (three h d) -> (h three d) c" if kind == "weight" else "(three h d) -> (h three d)"
        rows += [
            Row(f"embed_return.{kind}", f"embed_return.{kind}", same),
            Row(f"embed_state.{kind}", f"embed_state.{kind}", same),
            Row(f"embed_action.{kind}", f"embed_action.{kind}", same),
            Row(f"embed_ln.{kind}", f"norm.{kind}", same),
            Row(f"{there}.ln_1.{kind}", f"{here}.mix_norm.{kind}", same),
            Row(f"{there}.attn.c_attn.{kind}", f"{here}.mix.project.qkv.{kind}", view(by_thirds, **by_head)),
            Row(f"{there}.attn.c_proj.{kind}", f"{here}.mix.join.out.{kind}", turned),
            Row(f"{there}.ln_2.{kind}", f"{here}.feed_norm.{kind}", same),
            Row(f"{there}.mlp.c_fc.{kind}", f"{here}.feed.up.{kind}", turned),
            Row(f"{there}.mlp.c_proj.{kind}", f"{here}.feed.down.{kind}", turned),
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
    if (kind := theirs.get("model_type")) != KIND:
        raise Unsupported(f"their config.json is that of a {kind!r} model; this table reads '{KIND}' ones")
    said = _DEFAULTS | dict(theirs)
    for name, wanted in _FIXED.items():
        if said[name] != wanted:
            raise Unsupported(f"their config has {name}={said[name]!r}; only {wanted!r} can be read")
    if said["embd_pdrop"] != said["resid_pdrop"]:
        raise Unsupported(
            f"their embd_pdrop and resid_pdrop differ ({said['embd_pdrop']} and {said['resid_pdrop']}); ours are one"
        )
    if said["activation_function"] not in FEEDS:
        raise Unsupported(f"their activation '{said['activation_function']}' is not among: {', '.join(FEEDS)}")
    values = {field: said[name] for field, name in _FIELDS.items()}
    kind = "tanh" if said["action_tanh"] else "linear"
    return from_dict(Config, values | {"feed": FEEDS[said["activation_function"]], "kind": kind})


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
        **_FIXED,
    }


def load(folder: str | Path) -> DecisionTransformer:
    """A model from a local folder of theirs, in eval mode."""
    folder = Path(folder)
    config = ours(read_json(folder / "config.json"))
    state = named(read_tensors(folder))
    with torch.random.fork_rng(devices=[]):
        model = DecisionTransformer(config)
    read(table(config), state, model)
    return model.eval()


def save(folder: str | Path, model: DecisionTransformer) -> None:
    """Write a folder that transformers' `DecisionTransformerModel.from_pretrained` reads; all of it or nothing."""
    state = write(table(model.config), model)
    with replacing(Path(folder), _is_theirs) as new:
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

# What theirs must have for ours to be the same.
_FIXED: dict[str, Any] = {
    "layer_norm_epsilon": 1e-5,
    "scale_attn_weights": True,
    "scale_attn_by_inverse_layer_idx": False,
    "reorder_and_upcast_attn": False,
    "add_cross_attention": False,
}

# What transformers assumes of a config.json that does not say.
_DEFAULTS: dict[str, Any] = {
    **_FIXED,
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
    softmax = isinstance(config.attention, str) and Spec.parse(config.attention).name == "softmax"
    needed: dict[str, tuple[Any, bool]] = {
        "kind": ("tanh or linear", config.kind != "classes"),
        "attention": ("softmax", softmax),
        "feed": (" or ".join(dict.fromkeys(FEEDS.values())), config.feed in FEEDS.values()),
    }
    for name, (wanted, fits) in needed.items():
        if not fits:
            raise Unsupported(f"theirs has {name}={wanted!r}, this model {name}={getattr(config, name)!r}")


def _is_theirs(folder: Path) -> bool:
    with suppress(BadInput):
        files = {"config.json", "model.safetensors"}
        return only_holds(folder, files) and read_json(folder / "config.json").get("model_type") == KIND
    return False
