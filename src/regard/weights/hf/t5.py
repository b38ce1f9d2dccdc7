"""T5 of Hugging Face transformers (`T5ForConditionalGeneration`; v1.0, v1.1 and their derivatives), import and export.

    transformers                                      Regard
    shared (and lm_head, v1.0)                        embed and head, tied
    lm_head (v1.1)                                    head
    q, k, v                                           one qkv matrix, rows by head; k and v of the source one kv matrix
    relative_attention_bias of block 0                the table of a stack's positions
    wi, wo; wi_0, wi_1, wo                            up, down; gate, up, down
    decoder_start_token_id (<pad>)                    bos

    model, text = t5.load("t5-small")                 a folder with config.json and model.safetensors
    t5.save("mine", model, text)                      T5ForConditionalGeneration.from_pretrained("mine") reads it

`tie_word_embeddings` of a config.json says whether the head reads x / √C; the tensors say whether it is tied.

Raffel et al.: Exploring the Limits of Transfer Learning with a Unified Text-to-Text Transformer. JMLR 2020.
arXiv:1910.10683
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from regard.core.config import from_dict
from regard.core.errors import BadInput, Unsupported
from regard.models.t5 import T5, Config
from regard.weights.checkpoint_formats import (
    FILES,
    GENERATION_CONFIG,
    build_model,
    check_requirements,
    feedforward_for,
    fill_defaults,
    is_hf_folder,
    load_tokenizer,
    read_generator_config,
    requires_feedforward,
    requires_softmax,
    single_token,
    write_folder,
)
from regard.weights.folder import read_tensors
from regard.weights.table import Row, export_state_dict, same, stack, tie

if TYPE_CHECKING:
    from regard.tokens.tokenizer import Tokenizer

# dense_act_fn of transformers, "gated-" where is_gated_act -> Regard
FEEDS = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "silu": "silu",
    "gated-relu": "reglu",
    "gated-gelu": "geglu",
    "gated-gelu_new": "geglu_tanh",
    "gated-silu": "swiglu",
}


def table(config: Config) -> list[Row]:
    """Return the rows for a model with this Config."""
    _check(config)
    shared = ("shared.weight", "encoder.embed_tokens.weight", "decoder.embed_tokens.weight")
    if config.head and config.tied:
        rows = [Row((*shared, "lm_head.weight"), ("embed.weight", "head.weight"), tie)]
    else:
        rows = [Row(shared, "embed.weight", tie)]
        rows += [Row("lm_head.weight", "head.weight", same)] if config.head else []
    three = stack("three (h d) c -> (h three d) c", three=3, h=config.heads)
    two = stack("two (h d) c -> (h two d) c", two=2, h=config.heads)
    for side in ("encoder", "decoder"):
        here, there = f"{side}.blocks.{{}}", f"{side}.block.{{}}.layer"
        first = f"{there}.0.SelfAttention"
        rows += [
            Row(tuple(f"{first}.{name}.weight" for name in "qkv"), f"{here}.mix.project.qkv.weight", three),
            Row(f"{first}.o.weight", f"{here}.mix.join.out.weight", same),
            Row(
                f"{side}.block.0.layer.0.SelfAttention.relative_attention_bias.weight",
                f"{side}.positions.table.weight",
                same,
            ),
            Row(f"{there}.0.layer_norm.weight", f"{here}.mix_norm.weight", same),
        ]
        if side == "decoder":
            second = f"{there}.1.EncDecAttention"
            rows += [
                Row(f"{second}.q.weight", f"{here}.cross.project.q.weight", same),
                Row((f"{second}.k.weight", f"{second}.v.weight"), f"{here}.cross.project.kv.weight", two),
                Row(f"{second}.o.weight", f"{here}.cross.join.out.weight", same),
                Row(f"{there}.1.layer_norm.weight", f"{here}.cross_norm.weight", same),
            ]
        last = f"{there}.{1 if side == 'encoder' else 2}"
        rows += [
            *(
                Row(f"{last}.DenseReluDense.{external}.weight", f"{here}.feed.{internal}.weight", same)
                for external, internal in _feed(config).items()
            ),
            Row(f"{last}.layer_norm.weight", f"{here}.feed_norm.weight", same),
            Row(f"{side}.final_layer_norm.weight", f"{side}.norm.weight", same),
        ]
    return rows


def _feed(config: Config) -> dict[str, str]:
    """Return the names of the matrices of a feed-forward: transformers -> Regard."""
    gated = _feed_forward(config)["is_gated_act"]
    return {"wi_0": "gate", "wi_1": "up", "wo": "down"} if gated else {"wi": "up", "wo": "down"}


def _activation(raw: Mapping[str, Any]) -> str:
    """Return the name in FEEDS. "gated-gelu" is the tanh approximation, unless dense_act_fn says otherwise."""
    named = str(raw["feed_forward_proj"])
    is_gated = raw.get("is_gated_act", named.startswith("gated-"))
    name = raw.get("dense_act_fn", "gelu_new" if named == "gated-gelu" else named.removeprefix("gated-"))
    return f"gated-{name}" if is_gated else str(name)


def _feed_forward(config: Config) -> dict[str, Any]:
    """Return the fields of a config.json that say which feed-forward it is."""
    name = {internal: external for external, internal in FEEDS.items()}[config.feedforward]
    is_gated, act = name.startswith("gated-"), name.removeprefix("gated-")
    named = "gated-gelu" if name == "gated-gelu_new" else name
    return {"feed_forward_proj": named, "dense_act_fn": act, "is_gated_act": is_gated}


def import_config(external: Mapping[str, Any]) -> Config:
    """Convert a config.json to a Config; missing fields have the defaults of transformers."""
    there = {key: value for key, value in external.items() if value is not None}
    raw = fill_defaults(there, "t5", _DEFAULTS, _FIXED)
    scaled = raw.get("scale_decoder_outputs", raw["tie_word_embeddings"])
    values = {field: raw[name] for field, name in _FIELDS.items()} | {
        "decoder_layers": raw.get("num_decoder_layers", raw["num_layers"]),
        "attention_dropout": raw["dropout_rate"],
        "activation_dropout": raw["dropout_rate"],
        "feedforward": feedforward_for(_activation(raw), FEEDS),
        "tied": raw["tie_word_embeddings"],
        "scale_decoder_outputs": scaled,
        "eos": single_token(raw["eos_token_id"]),
    }
    return from_dict(Config, values)


def export_config(config: Config) -> dict[str, Any]:
    """Convert a Config to a config.json; T5 has one dropout rate, `dropout`."""
    _check(config)
    scaled = config.tied if config.scale_decoder_outputs is None else config.scale_decoder_outputs
    if scaled and not config.tied:
        raise Unsupported("scale_decoder_outputs needs tied=True in transformers' T5")
    return {
        "model_type": "t5",
        "architectures": ["T5ForConditionalGeneration" if config.head else "T5Model"],
        **{name: getattr(config, field) for field, name in _FIELDS.items()},
        "num_decoder_layers": config.decoder_layers,
        **_feed_forward(config),
        "tie_word_embeddings": scaled,
        "eos_token_id": config.eos,
        **_FIXED,
    }


def load(folder: str | Path) -> tuple[T5, Tokenizer | None]:
    """Load a local folder; return the model in eval mode, and its tokenizer or None."""
    folder = Path(folder)
    external, stored = read_generator_config(folder), read_tensors(folder)
    head = "T5Model" not in (external.get("architectures") or ())
    state = _normalize_keys(stored, head)
    tied = not head or torch.equal(state["lm_head.weight"], state["shared.weight"])
    config = replace(import_config(external), tied=tied, head=head)
    return build_model(T5, config, table(config), state, folder), load_tokenizer(folder)


def save(folder: str | Path, model: T5, text: Tokenizer | None = None) -> None:
    """Write a folder for transformers' `T5ForConditionalGeneration.from_pretrained`, atomically."""
    config = model.config
    state = export_state_dict(table(config), model)
    copies = ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight", "lm_head.weight")
    for name in copies[: 2 + (config.tied and config.head)]:
        del state[name]  # as transformers: one name of the shared table
    start = {"decoder_start_token_id": config.bos, "eos_token_id": config.eos, "pad_token_id": config.pad}
    files = {"config.json": export_config(config), GENERATION_CONFIG: start}
    write_folder(folder, files, state, is_hf_folder("t5", FILES), text)


_FIELDS = {  # Config -> config.json
    "vocab": "vocab_size",
    "width": "d_model",
    "heads": "num_heads",
    "head_dim": "d_kv",
    "ffn": "d_ff",
    "encoder_layers": "num_layers",
    "num_buckets": "relative_attention_num_buckets",
    "max_distance": "relative_attention_max_distance",
    "dropout": "dropout_rate",
    "eps": "layer_norm_epsilon",
    "pad": "pad_token_id",
    "bos": "decoder_start_token_id",
}

# Required values of a config.json.
_FIXED: dict[str, Any] = {"is_encoder_decoder": True}

# Defaults of transformers.
_DEFAULTS: dict[str, Any] = {
    **_FIXED,
    "vocab_size": 32128,
    "d_model": 512,
    "d_kv": 64,
    "d_ff": 2048,
    "num_layers": 6,
    "num_heads": 8,
    "relative_attention_num_buckets": 32,
    "relative_attention_max_distance": 128,
    "dropout_rate": 0.1,
    "layer_norm_epsilon": 1e-6,
    "feed_forward_proj": "relu",
    "tie_word_embeddings": True,
    "pad_token_id": 0,
    "eos_token_id": 1,
    "decoder_start_token_id": 0,
}

# The published files of v1.0 have a table for cross-attention that no version of the model uses.
_UNUSED = "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"


def _normalize_keys(state: Mapping[str, Any], head: bool = True) -> dict[str, Any]:
    """Add all names of the shared embedding, of which a file may have one."""
    named = {name: value for name, value in state.items() if name != _UNUSED}
    every = ("shared.weight", "encoder.embed_tokens.weight", "decoder.embed_tokens.weight")
    known = next((named[name] for name in (*every, "lm_head.weight") if name in named), None)
    if known is None:
        raise BadInput("no shared.weight among the tensors: these are not the weights of a T5")
    return dict.fromkeys((*every, "lm_head.weight") if head else every, known) | named


def _check(config: Config) -> None:
    """Raise `Unsupported` for a model that the format cannot represent."""
    needed = {
        "norm_kind": ("rms", config.norm_kind == "rms"),
        "attention": requires_softmax(config),
        "feedforward": requires_feedforward(FEEDS, config),
    }
    check_requirements("T5", config, needed)
