"""Marian translators of Hugging Face transformers (`MarianMTModel`, the opus-mt models), import and export.

    transformers                                 Regard
    one table for source, target and output      embed and head, tied
    q_proj, k_proj, v_proj                       one qkv matrix, rows by head
    final_logits_bias                            the head's bias
    embed_positions                              sinusoidal(layout='halves'), computed
    decoder_start_token_id (<pad>)               bos

    model, text = marian.load("opus-mt-en-de")       a folder with config.json and model.safetensors
    marian.save("mine", model, text)                 MarianMTModel.from_pretrained("mine") reads it

Junczys-Dowmunt et al.: Marian: Fast Neural Machine Translation in C++. ACL 2018. arXiv:1804.00344
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.core.config import from_dict
from regard.core.errors import Unsupported
from regard.core.spec import Spec
from regard.models.transformer import Config, Transformer
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
from regard.weights.table import (
    Row,
    computed,
    export_state_dict,
    linear,
    same,
    stack,
    tie,
    view,
    zero,
)

if TYPE_CHECKING:
    from regard.tokens.tokenizer import Tokenizer

FEEDS = {
    "relu": "relu",
    "gelu": "gelu",
    "silu": "silu",
    "swish": "silu",
}  # transformers -> Regard; of two, the last is exported
POSITIONS = "sinusoidal(layout='halves')"


def table(config: Config) -> list[Row]:
    """Return the rows for a model with this Config."""
    _check(config)
    shared = ("model.shared.weight", "model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight")
    output = "lm_head.weight"
    rows = [
        Row("final_logits_bias", "head.bias", view("1 v -> v"))
        if config.head_bias
        else Row("final_logits_bias", None, zero(1, config.vocab)),
        Row((*shared, output), ("embed.weight", "head.weight"), tie)
        if config.tied
        else Row(shared, "embed.weight", tie),
    ]
    for side in ("encoder", "decoder"):
        rows.append(Row(f"model.{side}.embed_positions.weight", f"{side}.positions", computed(config.length)))
    rows += block_rows(config.heads)
    return rows if config.tied else [*rows, Row(output, "head.weight", same)]


def block_rows(heads: int) -> list[Row]:
    """Return the rows of all blocks of encoder and decoder, by names that other models of transformers have too."""
    three = stack("three (h d) ... -> (h three d) ...", three=3, h=heads)
    two = stack("two (h d) ... -> (h two d) ...", two=2, h=heads)
    rows = []
    for side in ("encoder", "decoder"):
        here, there = f"{side}.blocks.{{}}", f"model.{side}.layers.{{}}"
        for kind in ("weight", "bias"):
            external = tuple(f"{there}.self_attn.{name}_proj.{kind}" for name in "qkv")
            rows.append(Row(external, f"{here}.mix.project.qkv.{kind}", three))
        rows += linear(f"{there}.self_attn.out_proj", f"{here}.mix.join.out")
        rows += linear(f"{there}.self_attn_layer_norm", f"{here}.mix_norm")
        rows += linear(f"{there}.fc1", f"{here}.feed.up")
        rows += linear(f"{there}.fc2", f"{here}.feed.down")
        rows += linear(f"{there}.final_layer_norm", f"{here}.feed_norm")
    here, there = "decoder.blocks.{}", "model.decoder.layers.{}.encoder_attn"
    for kind in ("weight", "bias"):
        external = tuple(f"{there}.{name}_proj.{kind}" for name in "kv")
        rows.append(Row(external, f"{here}.cross.project.kv.{kind}", two))
    rows += linear(f"{there}.q_proj", f"{here}.cross.project.q")
    rows += linear(f"{there}.out_proj", f"{here}.cross.join.out")
    return rows + linear(f"{there}_layer_norm", f"{here}.cross_norm")


def import_config(external: Mapping[str, Any]) -> Config:
    """Convert a config.json to a Config; missing fields have the defaults of transformers."""
    raw = fill_defaults(external, "marian", _DEFAULTS, _FIXED)
    for name in ("attention_heads", "ffn_dim"):
        if (a := raw[f"encoder_{name}"]) != (b := raw[f"decoder_{name}"]):
            raise Unsupported(f"{name} of encoder and decoder must be equal, got {a} and {b}")
    feed = feedforward_for(raw["activation_function"], FEEDS)
    values = {field: raw[name] for field, name in _FIELDS.items()} | {
        "feedforward": feed,
        "positions": POSITIONS,
        "head_bias": True,
        "eos": single_token(raw["eos_token_id"]),
    }
    return from_dict(Config, values)


def export_config(config: Config) -> dict[str, Any]:
    """Convert a Config to a config.json."""
    _check(config)
    return {
        "model_type": "marian",
        "architectures": ["MarianMTModel"],
        "is_encoder_decoder": True,
        **{name: getattr(config, field) for field, name in _FIELDS.items()},
        "decoder_vocab_size": config.vocab,
        "decoder_attention_heads": config.heads,
        "decoder_ffn_dim": config.ffn,
        "activation_function": {internal: external for external, internal in FEEDS.items()}[config.feedforward],
        "bos_token_id": None,
        "eos_token_id": config.eos,
        "forced_eos_token_id": config.eos,
        **_FIXED,
    }


def load(folder: str | Path) -> tuple[Transformer, Tokenizer | None]:
    """Load a local folder; return the model in eval mode, and its tokenizer or None."""
    folder = Path(folder)
    config = import_config(read_generator_config(folder))
    return build_model(Transformer, config, table(config), read_tensors(folder), folder), load_tokenizer(folder)


def save(folder: str | Path, model: Transformer, text: Tokenizer | None = None) -> None:
    """Write a folder for transformers' `MarianMTModel.from_pretrained`, atomically."""
    config = model.config
    rows = table(config)
    if _layout(config) != "halves":
        raise Unsupported(f"Marian needs positions {POSITIONS}, got '{config.positions}'")
    state = export_state_dict(rows, model)
    alike = ("model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight", "lm_head.weight")
    for name in [*state]:  # as transformers: no positions, and one name of the shared table, if it ties any
        if name.endswith("embed_positions.weight") or (config.tied and name in alike):
            del state[name]
        elif name in alike:
            state[name] = state[name].clone()
    start = {"decoder_start_token_id": config.bos, "eos_token_id": config.eos, "pad_token_id": config.pad}
    more = {"bad_words_ids": [[config.pad]], "forced_eos_token_id": config.eos, "max_length": config.length}
    more |= {"num_beams": 4}  # as Regard translates
    files = {"config.json": export_config(config), GENERATION_CONFIG: start | more}
    write_folder(folder, files, state, is_hf_folder("marian", FILES), text)


_FIELDS = {  # Config -> config.json
    "vocab": "vocab_size",
    "width": "d_model",
    "heads": "encoder_attention_heads",
    "ffn": "encoder_ffn_dim",
    "encoder_layers": "encoder_layers",
    "decoder_layers": "decoder_layers",
    "dropout": "dropout",
    "attention_dropout": "attention_dropout",
    "activation_dropout": "activation_dropout",
    "length": "max_position_embeddings",
    "tied": "tie_word_embeddings",
    "pad": "pad_token_id",
    "bos": "decoder_start_token_id",
}

# Required values of a config.json; the last four are written in older files only.
_FIXED: dict[str, Any] = {
    "scale_embedding": True,
    "share_encoder_decoder_embeddings": True,
    "normalize_before": False,
    "normalize_embedding": False,
    "add_final_layer_norm": False,
    "static_position_embeddings": True,
}

# Defaults of transformers.
_DEFAULTS: dict[str, Any] = {
    **_FIXED,
    "scale_embedding": False,
    "vocab_size": 58101,
    "d_model": 1024,
    "encoder_layers": 12,
    "decoder_layers": 12,
    "encoder_attention_heads": 16,
    "decoder_attention_heads": 16,
    "encoder_ffn_dim": 4096,
    "decoder_ffn_dim": 4096,
    "activation_function": "gelu",
    "dropout": 0.1,
    "attention_dropout": 0.0,
    "activation_dropout": 0.0,
    "max_position_embeddings": 1024,
    "tie_word_embeddings": True,
    "pad_token_id": 58100,
    "decoder_start_token_id": 58100,
    "eos_token_id": 0,
}


def _check(config: Config) -> None:
    """Raise `Unsupported` for a model that the format cannot represent."""
    needed = {
        "norm": ("post", config.norm == "post"),
        "norm_kind": ("layer", config.norm_kind == "layer"),
        "final_norm": (False, not config.final_norm),
        "kv_heads": (None, config.kv_heads in (None, config.heads)),
        "attention": requires_softmax(config),
        "decoder_attention": (None, config.decoder_attention is None),
        "cross_attention": requires_softmax(config, "cross_attention"),
        "feedforward": requires_feedforward(FEEDS, config),
        "positions": (POSITIONS, _layout(config) is not None),
    }
    check_requirements("Marian", config, needed)


def _layout(config: Config) -> str | None:
    """Return the layout of sinusoidal positions, None for other positions."""
    spec = Spec.parse(config.positions)
    plain = spec.name == "sinusoidal" and not spec.args and spec.kwargs.keys() <= {"base", "layout"}
    plain = plain and spec.kwargs.get("base", 1e4) == 1e4
    return str(spec.kwargs.get("layout", "interleaved")) if plain else None
