"""Compact convolutional transformers of vit-pytorch (``vit_pytorch.cct``) with learned positions and sequence pooling.

Rows of qkv are ordered q, k, v, each by head; in Regard by head.
"""

from __future__ import annotations

from regard.core.errors import Unsupported
from regard.models.cct import Config
from regard.weights.checkpoint_formats import requires_softmax
from regard.weights.table import Row, linear, same, view


def table(config: Config) -> list[Row]:
    """Return the rows for a model with this Config."""
    if not requires_softmax(config)[1]:
        raise Unsupported(f"vit-pytorch's CCT needs attention='softmax', got {config.attention!r}")
    if not config.num_classes:
        raise Unsupported("vit-pytorch's CCT needs a head; num_classes is 0")
    external, internal = "classifier.blocks.{}", "encoder.blocks.{}"
    return [
        Row("tokenizer.conv_layers.{}.0.weight", "stem.convs.{}.weight", same),
        Row("classifier.positional_emb", "positions.table", view("one n c -> (one n) c", one=1)),
        *linear(f"{external}.pre_norm", f"{internal}.mix_norm"),
        Row(
            f"{external}.self_attn.qkv.weight",
            f"{internal}.mix.project.qkv.weight",
            view("(three h d) c -> (h three d) c", three=3, h=config.heads),
        ),
        *linear(f"{external}.self_attn.proj", f"{internal}.mix.join.out"),
        *linear(f"{external}.norm1", f"{internal}.feed_norm"),
        *linear(f"{external}.linear1", f"{internal}.feed.up"),
        *linear(f"{external}.linear2", f"{internal}.feed.down"),
        *linear("classifier.norm", "encoder.norm"),
        *linear("classifier.attention_pool", "pool.score"),
        *linear("classifier.fc", "head"),
    ]
