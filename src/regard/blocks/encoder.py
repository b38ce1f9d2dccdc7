"""The encoder: blocks of self-attention and feed-forward, every token sees every token.

A stack owns its positions. It makes one `Where` and one `Memo` for each pass and hands them to all its blocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from regard.attention.mask import Mask
from regard.blocks.residual import Residual
from regard.core.memo import Memo, Place
from regard.core.shapes import Float, Int, Tensor
from regard.core.spec import make
from regard.core.where import Where
from regard.positions import POSITIONS


class EncoderBlock(Residual):
    """Mix, then feed forward; `scales` are those of what each of the two adds."""

    def __init__(
        self,
        mix: nn.Module,
        feed: nn.Module,
        norms: Sequence[nn.Module],
        pre: bool,
        dropout: float,
        drop_path: float = 0.0,
        scales: Sequence[nn.Module | None] = (None, None),
    ) -> None:
        super().__init__(pre, dropout, drop_path)
        self.mix, self.feed = mix, feed
        self.mix_norm, self.feed_norm = norms
        self.mix_scale, self.feed_scale = scales

    def forward(
        self, x: Tensor, mask: Mask | None = None, positions: Where | None = None, memo: Place | None = None
    ) -> Tensor:
        """One block."""
        x = self.around(
            x, self.mix_norm, lambda x: self.mix(x, mask=mask, positions=positions, memo=memo), self.mix_scale
        )
        return self.around(x, self.feed_norm, self.feed, self.feed_scale)


class Stack(nn.Module):
    """What an encoder and a decoder share: positions on the way in, a norm on the way out."""

    def __init__(self, blocks: Sequence[nn.Module], positions: Any, norm: nn.Module | None, dropout: float) -> None:
        super().__init__()
        self.positions = positions
        self.drop = nn.Dropout(dropout)
        self.blocks = nn.ModuleList(blocks)
        self.norm = norm

    def enter(self, x: Tensor, index: Int[Tensor, "#B N"]) -> Tensor:
        """Tokens that know where they are, where positions are added to tokens."""
        out: Tensor = self.drop(self.positions(x, index) if self.positions.kind == "added" else x)
        return out

    def where(self, queries: Int[Tensor, "#B N"], keys: Int[Tensor, "#B M"]) -> Where:
        """What the blocks need to know of positions, made once and shared by all."""
        kind = self.positions.kind
        return Where(
            queries,
            keys,
            turner=self.positions if kind == "turned" else None,
            bias=self.positions.bias(queries, keys) if kind == "biased" else None,
        )

    def leave(self, x: Tensor) -> Tensor:
        """The last norm, where there is one."""
        return x if self.norm is None else self.norm(x)


def stack_positions(config: Any, causal: bool) -> nn.Module:
    """The positions of a stack that a model's Config names; each kind takes of these sizes what it needs."""
    part: nn.Module = make(
        POSITIONS,
        config.positions,
        "positions",
        width=config.width,
        heads=config.heads,
        head_width=config.width // config.heads,
        length=config.length,
        causal=causal,
    )
    return part


class Encoder(Stack):
    """A stack of encoder blocks over vectors."""

    def forward(
        self, x: Float[Tensor, "B N C"], mask: Mask | None = None, memo: Memo | None = None
    ) -> Float[Tensor, "B N C"]:
        """Token vectors in, vectors that know their neighbours out."""
        return self.read(x, torch.arange(x.shape[1], device=x.device)[None], mask, memo)

    def read(
        self,
        x: Float[Tensor, "B N C"],
        index: Int[Tensor, "#B N"],
        mask: Mask | None = None,
        memo: Memo | None = None,
    ) -> Float[Tensor, "B N C"]:
        """The same for tokens that stand at these places."""
        memo = Memo() if memo is None else memo
        x, where = self.enter(x, index), self.where(index, index)
        for depth, block in enumerate(self.blocks):
            x = block(x, mask, where, memo.at(depth))
        return self.leave(x)

    def depths(
        self, x: Float[Tensor, "B N C"], after: Sequence[int], mask: Mask | None = None
    ) -> list[Float[Tensor, "B N C"]]:
        """What stands between the blocks: after the first so many of them, for each of these counts, not normed."""
        memo, index = Memo(), torch.arange(x.shape[1], device=x.device)[None]
        x, where = self.enter(x, index), self.where(index, index)
        found = {0: x}
        for depth, block in enumerate(self.blocks):
            found[depth + 1] = x = block(x, mask, where, memo.at(depth))
        return [found[many] for many in after]
