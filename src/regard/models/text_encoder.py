"""What text encoders with another structure than BERT's share: embeddings before it, a head of the task after it.

``model(tokens, segments, lengths)`` returns the output of the head, or the vectors of all tokens without one;
``model.encode(...)`` returns these vectors and one vector of the whole text. A subclass writes `encode_vectors`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from regard.attention.mask import PaddingMask
from regard.blocks.encoder import build_positions
from regard.blocks.text_heads import TASK_HEADS
from regard.core.errors import Unsupported
from regard.core.layer_state import PassState
from regard.core.shapes import Float, Int, Tensor, check_id_range, check_token_ids
from regard.core.spec import build_part
from regard.core.validation import validate
from regard.models.contract import ModelContract


class TextEncoder(ModelContract):
    """Tokens to the output of the head; the Config has vocab, width, heads, length, segments, positions, head."""

    forward_methods = ("encode",)

    def __init__(self, config: Any) -> None:
        super().__init__()
        validate(config)
        self.config = config
        self.embed = nn.Embedding(config.vocab, config.width)
        self.segment = nn.Embedding(config.segments, config.width) if config.segments > 1 else None
        self.positions: Any = build_positions(config, causal=False)
        if self.positions.kind not in ("added", "none"):
            raise Unsupported(
                f"{type(self).__name__} takes positions that are added to the tokens, not '{config.positions}'; "
                "use learned, sinusoidal or none"
            )
        self.drop = nn.Dropout(config.dropout)
        sizes = {"width": config.width, "dropout": config.dropout}
        self.head: Any = None if config.head is None else build_part(TASK_HEADS, config.head, "head", **sizes)

    def forward(
        self,
        tokens: Int[Tensor, "B N"],
        segments: Int[Tensor, "B N"] | None = None,
        lengths: Int[Tensor, " B"] | None = None,
        pass_state: PassState | None = None,
    ) -> Float[Tensor, "..."]:
        """Return the output of the head: classes B K, tags B N K, span B N 2; None: the vectors of all tokens B N C.

        Texts are padded on the right, beyond `lengths`; outputs there are undefined.
        """
        hidden, pooled = self.encode(tokens, segments, lengths, pass_state)
        return hidden if self.head is None else self.head(hidden, pooled, lengths)

    def encode(
        self,
        tokens: Int[Tensor, "B N"],
        segments: Int[Tensor, "B N"] | None = None,
        lengths: Int[Tensor, " B"] | None = None,
        pass_state: PassState | None = None,
    ) -> tuple[Float[Tensor, "B N C"], Float[Tensor, "B C"]]:
        """Return the vectors of all tokens and one vector of the whole text."""
        check_id_range("token", check_token_ids(tokens), self.config.vocab)
        padding, n = PaddingMask.from_lengths(tokens, lengths), tokens.shape[1]
        x = self.embed(tokens)
        if segments is not None:
            check_id_range("segment", segments, self.config.segments)
            x = x if self.segment is None else x + self.segment(segments)
        if self.positions.kind == "added":
            if hasattr(self.positions, "check_length"):
                self.positions.check_length(n)
            x = self.positions(x, torch.arange(n, device=x.device)[None])
        full = torch.full((x.shape[0],), n, device=x.device)
        lengths = full if padding is None else padding.lengths
        return self.encode_vectors(self.drop(x), lengths, PassState() if pass_state is None else pass_state)

    def encode_vectors(
        self, x: Float[Tensor, "B N C"], lengths: Int[Tensor, " B"], pass_state: PassState
    ) -> tuple[Float[Tensor, "B N C"], Float[Tensor, "B C"]]:
        """Return the vectors of all tokens and one vector of the whole text."""
        raise NotImplementedError
