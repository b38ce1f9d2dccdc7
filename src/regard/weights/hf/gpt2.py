"""GPT-2 of Hugging Face transformers (`GPT2LMHeadModel`), import and export.

    transformers                                      Regard
    Conv1D: x W                                       Linear: transposed
    c_attn (q, k, v by thirds)                        one qkv matrix, rows by head
    wte, lm_head                                      embed and head, tied
    wpe                                               learned positions
    a bias everywhere                                 the same, or zeros if bias=False
    resid_pdrop, embd_pdrop                           dropout: the first of them

    model, text = gpt2.load("gpt2")                   a folder with config.json and model.safetensors
    gpt2.save("mine", model, text)                    GPT2LMHeadModel.from_pretrained("mine") reads it

Radford et al.: Language Models are Unsupervised Multitask Learners. 2019
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.core.config import from_dict
from regard.models.gpt import GPT, Config
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
from regard.weights.table import Row, export_state_dict, same, tie, transpose, view, zero

if TYPE_CHECKING:
    from regard.tokens.tokenizer import Tokenizer

# transformers -> Regard; of two, the last is exported
FEEDS = {
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_new": "gelu_tanh",
    "gelu": "gelu",
    "relu": "relu",
    "swish": "silu",
    "silu": "silu",
}


def table(config: Config) -> list[Row]:
    """Return the rows for a model with this Config."""
    _check(config)
    rows = [
        Row(("transformer.wte.weight", "lm_head.weight"), ("embed.weight", "head.weight"), tie)
        if config.tied
        else Row("transformer.wte.weight", "embed.weight", same),
        Row("transformer.wpe.weight", "decoder.positions.table.weight", same),
        *blocks("transformer.h.{}", "weight", config.heads),
        Row("transformer.ln_f.weight", "decoder.norm.weight", same),
    ]
    if not config.tied:
        rows.append(Row("lm_head.weight", "head.weight", same))
    if not config.bias:
        return [*rows, *(Row(name, None, zero(size)) for name, size in _biases(config))]
    return [
        *rows,
        *blocks("transformer.h.{}", "bias", config.heads),
        Row("transformer.ln_f.bias", "decoder.norm.bias", same),
    ]


def blocks(there: str, kind: str, heads: int) -> list[Row]:
    """Return the rows of the weights or biases of all blocks; `there` is the external name of one."""
    here = "decoder.blocks.{}"
    op = transpose if kind == "weight" else same
    by_thirds = "c (three h d) -> (h three d) c" if kind == "weight" else "(three h d) -> (h three d)"
    return [
        Row(f"{there}.ln_1.{kind}", f"{here}.mix_norm.{kind}", same),
        Row(f"{there}.attn.c_attn.{kind}", f"{here}.mix.project.qkv.{kind}", view(by_thirds, three=3, h=heads)),
        Row(f"{there}.attn.c_proj.{kind}", f"{here}.mix.join.out.{kind}", op),
        Row(f"{there}.ln_2.{kind}", f"{here}.feed_norm.{kind}", same),
        Row(f"{there}.mlp.c_fc.{kind}", f"{here}.feed.up.{kind}", op),
        Row(f"{there}.mlp.c_proj.{kind}", f"{here}.feed.down.{kind}", op),
    ]


def import_config(external: Mapping[str, Any]) -> Config:
    """Convert a config.json to a Config; missing fields have the defaults of transformers."""
    raw = fill_defaults(external, "gpt2", _DEFAULTS, FIXED)
    if "GPT2Model" in (external.get("architectures") or ()):
        raw["tie_word_embeddings"] = True  # a file without a head
    feed = feedforward_for(raw["activation_function"], FEEDS)
    values = {field: raw[name] for field, name in _FIELDS.items()} | {
        "feedforward": feed,
        "eos": single_token(raw["eos_token_id"]),
    }
    return from_dict(Config, values)


def export_config(config: Config) -> dict[str, Any]:
    """Convert a Config to a config.json."""
    _check(config)
    return {
        "model_type": "gpt2",
        "architectures": ["GPT2LMHeadModel"],
        **{name: getattr(config, field) for field, name in _FIELDS.items()},
        "embd_pdrop": config.dropout,
        "activation_function": {internal: external for external, internal in FEEDS.items()}[config.feedforward],
        "bos_token_id": config.eos,
        "eos_token_id": config.eos,
        **FIXED,
    }


def load(folder: str | Path) -> tuple[GPT, Tokenizer | None]:
    """Load a local folder; return the model in eval mode, and its tokenizer or None."""
    folder = Path(folder)
    config = import_config(read_generator_config(folder))
    model = build_model(GPT, config, table(config), _normalize_keys(read_tensors(folder)), folder)
    return model, load_tokenizer(folder)


def save(folder: str | Path, model: GPT, text: Tokenizer | None = None) -> None:
    """Write a folder for transformers' `GPT2LMHeadModel.from_pretrained`, atomically."""
    config = model.config
    state = export_state_dict(table(config), model)
    if config.tied:
        del state["lm_head.weight"]  # as transformers: one name of the shared table
    start = {"bos_token_id": config.eos, "eos_token_id": config.eos}
    files = {"config.json": export_config(config), GENERATION_CONFIG: start}
    write_folder(folder, files, state, is_hf_folder("gpt2", FILES), text)


_FIELDS = {  # Config -> config.json
    "vocab": "vocab_size",
    "width": "n_embd",
    "heads": "n_head",
    "layers": "n_layer",
    "ffn": "n_inner",
    "length": "n_positions",
    "dropout": "resid_pdrop",
    "attention_dropout": "attn_pdrop",
    "tied": "tie_word_embeddings",
}

# Required values of a config.json.
FIXED: dict[str, Any] = {
    "layer_norm_epsilon": 1e-5,
    "scale_attn_weights": True,
    "scale_attn_by_inverse_layer_idx": False,
    "add_cross_attention": False,
}

# Defaults of transformers.
_DEFAULTS: dict[str, Any] = {
    **FIXED,
    "vocab_size": 50257,
    "n_embd": 768,
    "n_head": 12,
    "n_layer": 12,
    "n_inner": None,
    "n_positions": 1024,
    "activation_function": "gelu_new",
    "resid_pdrop": 0.1,
    "attn_pdrop": 0.1,
    "tie_word_embeddings": True,
    "eos_token_id": 50256,
}


def _biases(config: Config) -> Iterator[tuple[str, int]]:
    """Return every bias of GPT-2 by name, and its size: zeros if bias=False."""
    width, hidden = config.width, config.ffn or 4 * config.width
    each = {"ln_1": width, "attn.c_attn": 3 * width, "attn.c_proj": width, "ln_2": width, "mlp.c_fc": hidden}
    for layer in range(config.layers):
        for name, size in {**each, "mlp.c_proj": width}.items():
            yield f"transformer.h.{layer}.{name}.bias", size
    yield "transformer.ln_f.bias", width


def _normalize_keys(state: Mapping[str, Any]) -> dict[str, Any]:
    """Rename tensors: add the prefix that files of a bare GPT2Model lack, drop the masks of old files."""
    named = {}
    for name, value in state.items():
        body = name if name.startswith(("transformer.", "lm_head.")) else f"transformer.{name}"
        if not body.endswith((".attn.bias", ".attn.masked_bias")):  # causal masks
            named[body] = value
    return named


def _check(config: Config) -> None:
    """Raise `Unsupported` for a model that the format cannot represent."""
    needed = {
        "norm_kind": ("layer", config.norm_kind == "layer"),
        "qk_norm": (None, config.qk_norm is None),
        "kv_heads": (None, config.kv_heads in (None, config.heads)),
        "attention": requires_softmax(config),
        "feedforward": requires_feedforward(FEEDS, config),
        "positions": ("learned", config.positions == "learned"),
    }
    check_requirements("GPT-2", config, needed)
