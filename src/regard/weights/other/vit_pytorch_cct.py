"""Compact convolutional transformers of vit-pytorch (``vit_pytorch.cct``) with learned positions and sequence pooling.

Their qkv rows are ordered q, k, v, each by head; ours by head.
"""

from __future__ import annotations

from regard.core.errors import Unsupported
from regard.models.cct import Config
from regard.weights.checkpoint_formats import requires_softmax
from regard.weights.table import Row, linear, same, view


def table(config: Config) -> list[Row]:
    """Their CCT and ours."""
    if not requires_softmax(config)[1]:
        raise Unsupported(f"their CCT attends by softmax, this one by {config.attention!r}")
    if not config.num_classes:
        raise Unsupported("their CCT has a head, this one has none: num_classes is 0")
    theirs, ours = "classifier.blocks.{}", "encoder.blocks.{}"
    return [
        Row("tokenizer.conv_layers.{}.0.weight", "stem.convs.{}.weight", same),
        Row("classifier.positional_emb", "positions.table", view("one n c -> (one n) c", one=1)),
        *linear(f"{theirs}.pre_norm", f"{ours}.mix_norm"),
        Row(
            f"{theirs}.self_attn.qkv.weight",
            f"{ours}.mix.project.qkv.weight",
            view("(three h d) c -> (h three d) c", three=3, h=config.heads),
        ),
        *linear(f"{theirs}.self_attn.proj", f"{ours}.mix.join.out"),
        *linear(f"{theirs}.norm1", f"{ours}.feed_norm"),
        *linear(f"{theirs}.linear1", f"{ours}.feed.up"),
        *linear(f"{theirs}.linear2", f"{ours}.feed.down"),
        *linear("classifier.norm", "encoder.norm"),
        *linear("classifier.attention_pool", "pool.score"),
        *linear("classifier.fc", "head"),
    ]
