"""Encoders of transformers' Wav2Vec2-Conformer with relative positions, import; and the rows of a Conformer block.

    transformers                                        Regard (blocks.conformer.ConformerEncoder)
    ffn1, ffn2                                          feed_before, feed_after
    self_attn.linear_q, linear_k, linear_v              mix.project.qkv, rows by head
    self_attn.linear_pos, pos_bias_u, pos_bias_v        mix.positions: distance, content_bias, position_bias
    conv_module.pointwise_conv1, pointwise_conv2        convolve.up, convolve.down: linear layers
    pos_conv_embed                                      none: it is never called

    encoder = wav2vec2_conformer.load(folder)           config.json and model.safetensors

The rest of those models reads waveforms by seven convolutions, which Regard does not have: the encoder takes what they
make, B N C. transformers does not mask its depthwise convolutions, so its outputs near padding depend on the padding;
without padding both are equal.

Wang et al.: fairseq S2T; Gulati et al.: Conformer. Interspeech 2020. arXiv:2005.08100
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from regard.blocks.conformer import ConformerEncoder
from regard.core.skip_init import skip_init
from regard.weights.checkpoint_formats import fill_defaults
from regard.weights.folder import read_json, read_tensors
from regard.weights.table import Row, import_state_dict, linear, stack, view

MODEL_TYPE = "wav2vec2-conformer"
PREFIXES = ("wav2vec2_conformer.encoder.", "encoder.")  # of a model with a head, and of the bare one


def table(heads: int) -> list[Row]:
    """Return the rows of an encoder, without a prefix."""
    return [
        *block_rows("layers.{}", "blocks.{}", heads, _NAMES, biases=True, conv_biases=False),
        *linear("layer_norm", "norm"),
        Row("pos_conv_embed.conv.bias", None, reason="never called"),
        Row("pos_conv_embed.conv.parametrizations.weight.original0", None, reason="never called"),
        Row("pos_conv_embed.conv.parametrizations.weight.original1", None, reason="never called"),
        Row("pos_conv_embed.conv.weight_g", None, reason="never called"),
        Row("pos_conv_embed.conv.weight_v", None, reason="never called"),
    ]


def block_rows(
    there: str, here: str, heads: int, names: Mapping[str, str], biases: bool, conv_biases: bool
) -> list[Row]:
    """Return the rows of a block; `names`: internal -> external names of its parts."""
    parts, conv_parts = _parts(biases), _parts(conv_biases)
    whole = [name for name in names if name.endswith("norm") and name != "convolve.norm"]
    q, k, v = names["qkv"].split()
    fold = view("o i one -> o (i one)", one=1)
    return [
        *(row for name in whole for row in linear(f"{there}.{names[name]}", f"{here}.{name}")),
        *(
            Row(f"{there}.{names[name]}.{part}", f"{here}.{name}.{part}")
            for name in ("feed_before.up", "feed_before.down", "feed_after.up", "feed_after.down", "mix.join.out")
            for part in parts
        ),
        *(
            Row(
                tuple(f"{there}.{name}.{part}" for name in (q, k, v)),
                f"{here}.mix.project.qkv.{part}",
                stack("three (h d) ... -> (h three d) ...", three=3, h=heads),
            )
            for part in parts
        ),
        Row(f"{there}.{names['distance']}.weight", f"{here}.mix.positions.distance.weight"),
        Row(f"{there}.{names['content_bias']}", f"{here}.mix.positions.content_bias"),
        Row(f"{there}.{names['position_bias']}", f"{here}.mix.positions.position_bias"),
        *(
            Row(f"{there}.{names[name]}.weight", f"{here}.{name}.weight", fold)
            for name in ("convolve.up", "convolve.down")
        ),
        Row(f"{there}.{names['convolve.depthwise']}.weight", f"{here}.convolve.depthwise.weight"),
        *(
            Row(f"{there}.{names[name]}.bias", f"{here}.{name}.bias")
            for name in ("convolve.up", "convolve.depthwise", "convolve.down")
            if "bias" in conv_parts
        ),
        *(
            Row(f"{there}.{names['convolve.norm']}.{part}", f"{here}.convolve.norm.{part}")
            for part in ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")
        ),
    ]


def import_arguments(external: Mapping[str, Any]) -> dict[str, Any]:
    """Convert a config.json to the arguments of a `ConformerEncoder`."""
    same = {"hidden_act": "swish"} if external.get("hidden_act") == "silu" else {}  # two names of one function
    raw = fill_defaults({**external, **same}, MODEL_TYPE, _DEFAULTS, _FIXED)
    return {
        "width": raw["hidden_size"],
        "layers": raw["num_hidden_layers"],
        "heads": raw["num_attention_heads"],
        "ffn": raw["intermediate_size"],
        "kernel": raw["conv_depthwise_kernel_size"],
        "dropout": raw["hidden_dropout"],
        "attention_dropout": raw["attention_dropout"],
        "conv_bias": False,
        "final_norm": True,
    }


def load(folder: str | Path) -> ConformerEncoder:
    """Load the encoder of a local folder, in eval mode."""
    folder = Path(folder)
    arguments = import_arguments(read_json(folder / "config.json"))
    state = read_tensors(folder)
    prefix = next((prefix for prefix in PREFIXES if any(name.startswith(prefix) for name in state)), PREFIXES[0])
    own = {name.removeprefix(prefix): x for name, x in state.items() if name.startswith(prefix)}
    with skip_init():
        model = ConformerEncoder(**arguments)
    import_state_dict(table(arguments["heads"]), own, model)
    return model.eval()


def _parts(biases: bool) -> tuple[str, ...]:
    return ("weight", "bias") if biases else ("weight",)


_NAMES = {  # of the parts of a block
    "feed_before_norm": "ffn1_layer_norm",
    "feed_before.up": "ffn1.intermediate_dense",
    "feed_before.down": "ffn1.output_dense",
    "mix_norm": "self_attn_layer_norm",
    "qkv": "self_attn.linear_q self_attn.linear_k self_attn.linear_v",
    "mix.join.out": "self_attn.linear_out",
    "distance": "self_attn.linear_pos",
    "content_bias": "self_attn.pos_bias_u",
    "position_bias": "self_attn.pos_bias_v",
    "convolve_norm": "conv_module.layer_norm",
    "convolve.up": "conv_module.pointwise_conv1",
    "convolve.depthwise": "conv_module.depthwise_conv",
    "convolve.norm": "conv_module.batch_norm",
    "convolve.down": "conv_module.pointwise_conv2",
    "feed_after_norm": "ffn2_layer_norm",
    "feed_after.up": "ffn2.intermediate_dense",
    "feed_after.down": "ffn2.output_dense",
    "norm": "final_layer_norm",
}

# Required values of a config.json.
_FIXED: dict[str, Any] = {"position_embeddings_type": "relative", "hidden_act": "swish", "layer_norm_eps": 1e-5}

# Defaults of transformers. hidden_act is "gelu" there; the published Conformers say "swish".
_DEFAULTS: dict[str, Any] = {
    **_FIXED,
    "hidden_act": "gelu",
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "conv_depthwise_kernel_size": 31,
    "hidden_dropout": 0.1,
    "attention_dropout": 0.1,
}
