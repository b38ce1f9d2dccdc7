"""Parakeet of transformers (`ParakeetForCTC`: Fast Conformer with a CTC head), import and export.

    transformers                                       Regard
    encoder.subsampling.layers.0, 2, 3, 5, 6, ...      subsample: strided.0, strided.1, pointwise.1, strided.2, ...
    encoder.subsampling.linear                         subsample.project
    encoder.layers: feed_forward1, self_attn, conv ..  encoder.blocks (rows of weights.hf.wav2vec2_conformer)
    relative_k_proj, bias_u, bias_v                    mix.positions: distance, content_bias, position_bias
    ctc_head, a convolution of one frame               head

    model = parakeet.load("folder")                    a folder with config.json and model.safetensors
    parakeet.save("mine", model)                       ParakeetForCTC.from_pretrained("mine") reads it

The logits are equal for equal frames. Frames are NeMo's 80 mel features of 16 kHz audio, with its own pre-emphasis and
normalisation, which `AudioPreprocess` does not compute: the model takes frames.

Rekesh et al.: Fast Conformer with Linearly Scalable Attention. 2023. arXiv:2305.05084
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from regard.core.config import from_dict
from regard.core.errors import Unsupported
from regard.models.conformer import Config, Conformer
from regard.weights.checkpoint_formats import (
    BARE_FILES,
    build_model,
    check_requirements,
    fill_defaults,
    is_hf_folder,
    requires_softmax,
    write_folder,
)
from regard.weights.folder import read_json, read_tensors
from regard.weights.hf.wav2vec2_conformer import block_rows
from regard.weights.table import Row, export_state_dict, linear, view

MODEL_TYPE, ENCODER_TYPE = "parakeet_ctc", "parakeet_encoder"


def table(config: Config) -> list[Row]:
    """Return the rows for a model with this Config."""
    _check(config)
    there = "encoder.subsampling.layers"
    rows = linear(f"{there}.0", "subsample.strided.0")
    for layer in range(1, config.subsampling_layers):
        rows += linear(f"{there}.{3 * layer - 1}", f"subsample.strided.{layer}")
        rows += linear(f"{there}.{3 * layer}", f"subsample.pointwise.{layer}")
    return [
        *rows,
        *linear("encoder.subsampling.linear", "subsample.project"),
        *block_rows("encoder.layers.{}", "encoder.blocks.{}", config.heads, _NAMES, config.bias, config.conv_bias),
        Row("ctc_head.weight", "head.weight", view("o i one -> o (i one)", one=1)),
        Row("ctc_head.bias", "head.bias"),
    ]


def import_config(external: Mapping[str, Any]) -> Config:
    """Convert a config.json to a Config; missing fields have the defaults of transformers."""
    outer = fill_defaults(external, MODEL_TYPE, {"vocab_size": 1025, "pad_token_id": 1024}, {})
    inner = {"model_type": ENCODER_TYPE, **(outer.get("encoder_config") or {})}
    raw = fill_defaults(inner, ENCODER_TYPE, _DEFAULTS, _FIXED)
    if outer["pad_token_id"] != outer["vocab_size"] - 1:
        raise Unsupported(
            f"the blank of Parakeet must be its last label, {outer['vocab_size'] - 1}, got {outer['pad_token_id']}"
        )
    factor = raw["subsampling_factor"]
    if factor < 2 or factor & (factor - 1) or raw["num_mel_bins"] % factor:
        raise Unsupported(
            f"subsampling_factor must be a power of two that divides num_mel_bins ({raw['num_mel_bins']}), got {factor}"
        )
    values = {field: raw[name] for field, name in _FIELDS.items()}
    own = {"vocab": outer["vocab_size"] - 1, "subsampling": "depthwise", "subsampling_layers": factor.bit_length() - 1}
    return from_dict(Config, values | own)


def export_config(config: Config) -> dict[str, Any]:
    """Convert a Config to a config.json."""
    _check(config)
    inner = {
        "model_type": ENCODER_TYPE,
        **{name: getattr(config, field) for field, name in _FIELDS.items()},
        "intermediate_size": config.ffn or 4 * config.width,
        "subsampling_factor": 2**config.subsampling_layers,
        "layerdrop": 0.0,
        **_FIXED,
    }
    return {
        "model_type": MODEL_TYPE,
        "architectures": ["ParakeetForCTC"],
        "vocab_size": config.vocab + 1,
        "pad_token_id": config.vocab,
        "encoder_config": inner,
    }


def load(folder: str | Path) -> Conformer:
    """Load the model of a local folder, in eval mode."""
    folder = Path(folder)
    config = import_config(read_json(folder / "config.json"))
    model: Conformer = build_model(Conformer, config, table(config), read_tensors(folder), folder)
    return model


def save(folder: str | Path, model: Conformer) -> None:
    """Write a folder for transformers' `ParakeetForCTC.from_pretrained`, atomically."""
    state = export_state_dict(table(model.config), model)
    write_folder(
        folder,
        {"config.json": export_config(model.config)},
        state,
        is_hf_folder(MODEL_TYPE, BARE_FILES),
    )


def _check(config: Config) -> None:
    """Raise `Unsupported` for a model that the format cannot represent."""
    factor = 2**config.subsampling_layers
    needed = {
        "subsampling": ("depthwise", config.subsampling == "depthwise"),
        "subsampling_layers": ("1 to 6", config.subsampling_layers > 0),
        "input_dim": (f"a multiple of {factor}", config.input_dim % factor == 0),
        "conv_norm": ("batch", config.conv_norm == "batch"),
        "attention": requires_softmax(config),
        "chunk_size": (None, config.chunk_size is None),
    }
    check_requirements("transformers' Parakeet", config, needed)


_FIELDS = {  # Config -> config.json
    "input_dim": "num_mel_bins",
    "channels": "subsampling_conv_channels",
    "width": "hidden_size",
    "heads": "num_attention_heads",
    "layers": "num_hidden_layers",
    "ffn": "intermediate_size",
    "kernel": "conv_kernel_size",
    "dropout": "dropout",
    "attention_dropout": "attention_dropout",
    "bias": "attention_bias",
    "conv_bias": "convolution_bias",
    "scale_input": "scale_input",
}

_NAMES = {  # of the parts of a block
    "feed_before_norm": "norm_feed_forward1",
    "feed_before.up": "feed_forward1.linear1",
    "feed_before.down": "feed_forward1.linear2",
    "mix_norm": "norm_self_att",
    "qkv": "self_attn.q_proj self_attn.k_proj self_attn.v_proj",
    "mix.join.out": "self_attn.o_proj",
    "distance": "self_attn.relative_k_proj",
    "content_bias": "self_attn.bias_u",
    "position_bias": "self_attn.bias_v",
    "convolve_norm": "norm_conv",
    "convolve.up": "conv.pointwise_conv1",
    "convolve.depthwise": "conv.depthwise_conv",
    "convolve.norm": "conv.norm",
    "convolve.down": "conv.pointwise_conv2",
    "feed_after_norm": "norm_feed_forward2",
    "feed_after.up": "feed_forward2.linear1",
    "feed_after.down": "feed_forward2.linear2",
    "norm": "norm_out",
}

# Required values of a config.json.
_FIXED: dict[str, Any] = {
    "hidden_act": "silu",
    "subsampling_conv_kernel_size": 3,
    "subsampling_conv_stride": 2,
}

# Defaults of transformers.
_DEFAULTS: dict[str, Any] = {
    **_FIXED,
    "hidden_size": 1024,
    "num_hidden_layers": 24,
    "num_attention_heads": 8,
    "intermediate_size": 4096,
    "attention_bias": True,
    "convolution_bias": True,
    "conv_kernel_size": 9,
    "subsampling_factor": 8,
    "subsampling_conv_channels": 256,
    "num_mel_bins": 80,
    "dropout": 0.1,
    "attention_dropout": 0.1,
    "scale_input": True,
}
