"""`torch.nn.Transformer`: encoder and decoder stacks, import and export; norm first or last.

    torch                           Regard
    in_proj (q, k, v by thirds)     self: one qkv matrix, rows by head; cross: q, and kv by head
    a norm after each stack         final_norm=True
    vectors to vectors              `model.encoder` and `model.decoder`; embed and head are not changed

    model = Transformer(torch_transformer.import_config(module, vocab=8000))
    import_state_dict(torch_transformer.table(model.config), module.state_dict(), model)

PyTorch's module has no positions and no vocabulary; `settings` give them.
"""

from __future__ import annotations

import warnings
from typing import Any

import torch.nn.functional as F
from torch import nn

from regard.core.config import from_dict
from regard.core.errors import Unsupported
from regard.models.transformer import Config
from regard.weights.checkpoint_formats import check_requirements, requires_softmax
from regard.weights.table import Row, same, split, view, zero

FEEDS = {"relu": F.relu, "gelu": F.gelu}


def table(config: Config, bias: bool = True) -> list[Row]:
    """Return the rows for a model with this Config; `bias` as in ``torch.nn.Transformer(bias=...)``."""
    _check(config)
    why = "torch.nn.Transformer takes vectors and gives vectors"
    rows = [Row(None, name, reason=why) for name in ("embed.weight", "head.weight", "head.bias")]
    rows += stack_rows(config.heads)
    return rows if bias else [_without_bias(row) for row in rows]


def stack_rows(heads: int) -> list[Row]:
    """Return the rows of encoder and decoder."""
    by_head = view("(three h d) ... -> (h three d) ...", three=3, h=heads)
    first_and_rest = split(
        "(h d) ... -> 1 h d ...",
        "(h two d) ... -> two h d ...",
        lengths=(1, 2),
        along="three",
        then="three h d ... -> (three h d) ...",
        h=heads,
        two=2,
    )
    rows = []
    for kind in ("weight", "bias"):
        for stack in ("encoder", "decoder"):
            here, there = f"{stack}.blocks.{{}}", f"{stack}.layers.{{}}"
            norms = ["mix_norm", "cross_norm", "feed_norm"] if stack == "decoder" else ["mix_norm", "feed_norm"]
            rows += [
                Row(f"{there}.self_attn.in_proj_{kind}", f"{here}.mix.project.qkv.{kind}", by_head),
                Row(f"{there}.self_attn.out_proj.{kind}", f"{here}.mix.join.out.{kind}", same),
                Row(f"{there}.linear1.{kind}", f"{here}.feed.up.{kind}", same),
                Row(f"{there}.linear2.{kind}", f"{here}.feed.down.{kind}", same),
                *(Row(f"{there}.norm{n}.{kind}", f"{here}.{norm}.{kind}", same) for n, norm in enumerate(norms, 1)),
                Row(f"{stack}.norm.{kind}", f"{stack}.norm.{kind}", same),
            ]
        cross = tuple(f"decoder.blocks.{{}}.cross.project.{name}.{kind}" for name in ("q", "kv"))
        rows += [
            Row(f"decoder.layers.{{}}.multihead_attn.in_proj_{kind}", cross, first_and_rest),
            Row(
                f"decoder.layers.{{}}.multihead_attn.out_proj.{kind}",
                f"decoder.blocks.{{}}.cross.join.out.{kind}",
                same,
            ),
        ]
    return rows


def import_config(external: nn.Transformer, vocab: int, **settings: Any) -> Config:
    """Return the Config for the stacks of a `torch.nn.Transformer`; `settings` are fields that it lacks."""
    layer: Any = external.encoder.layers[0]
    if layer.norm1.eps != 1e-5:
        raise Unsupported(f"eps of norms must be 1e-5, got {layer.norm1.eps}")
    feed = next((name for name, f in FEEDS.items() if layer.activation is f), None)
    if feed is None:
        raise Unsupported(f"activation {layer.activation} is not supported; choose one of: {', '.join(FEEDS)}")
    values = {
        "vocab": vocab,
        "width": external.d_model,
        "heads": external.nhead,
        "ffn": layer.linear1.out_features,
        "encoder_layers": len(external.encoder.layers),
        "decoder_layers": len(external.decoder.layers),
        "norm": "pre" if layer.norm_first else "post",
        "final_norm": external.encoder.norm is not None,
        "feedforward": feed,
        "dropout": layer.dropout.p,
        "attention_dropout": layer.self_attn.dropout,
        "activation_dropout": layer.dropout.p,
    }
    return from_dict(Config, values | settings)


def export_module(config: Config, bias: bool = True) -> nn.Transformer:
    """Return a `torch.nn.Transformer` of the shape of a model's stacks, batch first, with random weights.

    It has one dropout rate, so the three of the Config must be equal.
    """
    _check(config)
    if config.final_norm is False or (config.final_norm is None and config.norm == "post"):
        raise Unsupported("torch.nn.Transformer has a norm after each stack; set final_norm=True")
    if len({config.dropout, config.attention_dropout, config.activation_dropout}) > 1:
        raise Unsupported(
            "torch.nn.Transformer has one dropout rate; set attention_dropout and activation_dropout to it"
        )
    with warnings.catch_warnings():  # about nested tensors
        warnings.filterwarnings("ignore", "enable_nested_tensor")
        return nn.Transformer(
            config.width,
            config.heads,
            config.encoder_layers,
            config.decoder_layers,
            config.ffn,
            config.dropout,
            activation=config.feedforward,
            batch_first=True,
            norm_first=config.norm == "pre",
            bias=bias,
        )


def _without_bias(row: Row) -> Row:
    """Map internal biases to zeros."""
    if row.external is None or not str(row.external).endswith("bias"):
        return row
    return Row(None, row.internal, zero())


def _check(config: Config) -> None:
    """Raise `Unsupported` for a model that the format cannot represent."""
    needed: dict[str, tuple[Any, bool]] = {
        "norm_kind": ("layer", config.norm_kind == "layer"),
        "kv_heads": (None, config.kv_heads in (None, config.heads)),
        "attention": requires_softmax(config),
        "feedforward": (" or ".join(FEEDS), config.feedforward in FEEDS),
    }
    check_requirements("torch.nn.Transformer", config, needed)
