"""A hand-made English-German alignment, for figures without a model."""

from __future__ import annotations

import torch

from regard.core.trace import Trace

ENGLISH = ("The", "verb", "often", "occupies", "the", "last", "position", ".")
GERMAN = ("<s>", "Das", "Verb", "nimmt", "oft", "die", "letzte", "Position", "ein", ".")
ALIGNED = (0, 0, 1, 3, 2, 4, 5, 6, 3, 7)  # for each German word, the English one


def cross(layer: int = 0, heads: int = 4) -> Trace:
    """Head 0 follows the alignment, the others wander."""
    scores = torch.randn(1, heads, len(GERMAN), len(ENGLISH), generator=torch.Generator().manual_seed(layer))
    scores[0, 0, range(len(GERMAN)), ALIGNED] += 6.0
    return Trace(f"decoder.blocks.{layer}.cross", scores.softmax(-1), "cross").with_labels(GERMAN, ENGLISH)


def own(stack: str, layer: int, words: tuple[str, ...], heads: int = 4) -> Trace:
    """Self-attention of the encoder, or of the decoder (causal)."""
    n = len(words)
    scores = torch.randn(1, heads, n, n, generator=torch.Generator().manual_seed(100 + layer))
    if stack == "decoder":
        scores = scores.masked_fill(torch.ones(n, n, dtype=torch.bool).triu(1), -torch.inf)
    return Trace(f"{stack}.blocks.{layer}.mix", scores.softmax(-1)).with_labels(words, words)


def translation(layers: int = 2) -> list[Trace]:
    """What a watched translation gives: encoder layers, then decoder and cross layers in turn."""
    seen = [own("encoder", k, ENGLISH) for k in range(layers)]
    for k in range(layers):
        seen += [own("decoder", k, GERMAN), cross(k)]
    return seen
