"""The encoder: blocks of self-attention and feed-forward, every token sees every token.

A stack owns its positions. It makes one `PositionInfo` and one `PassState` for each pass and hands them to all its
blocks.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import nn

from regard.attention.mask import Mask
from regard.blocks.residual import ResidualBlock
from regard.core.errors import Unsupported
from regard.core.layer_state import LayerState, PassState
from regard.core.positions import PositionInfo
from regard.core.shapes import Float, Int, Tensor
from regard.core.spec import build_part
from regard.positions import POSITIONS


class EncoderBlock(ResidualBlock):
    """Self-attention (or another mixer), then feed-forward; `scales` scale the residual branches."""

    def __init__(
        self,
        mix: nn.Module,
        feed: nn.Module,
        norms: Sequence[nn.Module],
        pre_norm: bool,
        dropout: float,
        drop_path: float = 0.0,
        scales: Sequence[nn.Module | None] = (None, None),
    ) -> None:
        super().__init__(pre_norm, dropout, drop_path)
        self.mix, self.feed = mix, feed
        self.mix_norm, self.feed_norm = norms
        self.mix_scale, self.feed_scale = scales

    def forward(
        self,
        x: Tensor,
        mask: Mask | None = None,
        positions: PositionInfo | None = None,
        layer_state: LayerState | None = None,
    ) -> Tensor:
        x = self.residual(
            x,
            self.mix_norm,
            lambda x: self.mix(x, mask=mask, positions=positions, layer_state=layer_state),
            self.mix_scale,
        )
        return self.residual(x, self.feed_norm, lambda x: feed_forward(self.feed, x, layer_state), self.feed_scale)


class Stack(nn.Module):
    """Base class of encoder and decoder: positions first, a norm last."""

    def __init__(self, blocks: Sequence[nn.Module], positions: Any, norm: nn.Module | None, dropout: float) -> None:
        super().__init__()
        self.positions = positions
        self.drop = nn.Dropout(dropout)
        self.blocks = nn.ModuleList(blocks)
        self.norm = norm

    def add_positions(self, x: Tensor, index: Int[Tensor, "#B N"]) -> Tensor:
        """Return the tokens with positions added, if they are of that kind."""
        out: Tensor = self.drop(self.positions(x, index) if self.positions.kind == "added" else x)
        return out

    def position_ids(self, n: int, device: torch.device) -> Int[Tensor, "1 N"]:
        """Return the positions of n consecutive tokens."""
        self.check_length(n)
        return torch.arange(n, device=device)[None]

    def check_length(self, n: int) -> None:
        """Raise an error if the positions end before n tokens."""
        if hasattr(self.positions, "check_length"):
            self.positions.check_length(n)

    def position_info(
        self, queries: Int[Tensor, "#B N"], keys: Int[Tensor, "#B M"], vectors: Float[Tensor, "#B N C"] | None = None
    ) -> PositionInfo:
        """Return what the blocks need to know of positions, made once and shared by all.

        `vectors` are added to the inputs of q and k in every layer, and so are those of positions of kind "qk_input".
        """
        kind = self.positions.kind
        if kind == "qk_input":
            own = self.positions.vectors(queries)
            vectors = own if vectors is None else own + vectors
        bias = self.positions.bias(queries, keys) if kind == "bias" else None
        transform = self.positions if kind == "qk_transform" else None
        if transform is not None and hasattr(transform, "for_pass"):
            transform = transform.for_pass(queries, keys)
        if any(block._compiled_call_impl is not None for block in self.blocks):
            # computed now: compiled blocks share a graph, so the first one must not be the one that does it
            if bias is not None:
                bias.dense()
            if transform is not None and hasattr(transform, "table"):
                exact = torch.float64 if next(self.parameters()).dtype == torch.float64 else torch.float32
                transform.table(queries, exact), transform.table(keys, exact)
        return PositionInfo(
            queries,
            keys,
            qk_transform=transform,
            bias=bias,
            query_vectors=vectors,
        )

    def final_norm(self, x: Tensor) -> Tensor:
        """Apply the last norm, if there is one."""
        return x if self.norm is None else self.norm(x)


def feed_forward(feed: nn.Module, x: Tensor, layer_state: LayerState | None) -> Tensor:
    """Apply a feed-forward, with the layer state if it takes one (mixture of experts)."""
    out: Tensor = feed(x, layer_state) if getattr(feed, "takes_layer_state", False) else feed(x)
    return out


def mixer_states(blocks: Iterable[nn.Module], batch: int, capacity: int) -> list[Any]:
    """Return an empty decoding state for the mixer of every block; refuses mixers that cannot step."""
    mixers: list[Any] = [block.mix for block in blocks]
    for mixer in mixers:
        if not hasattr(mixer, "start"):
            raise Unsupported(
                f"{type(mixer).__name__} cannot decode step by step: it has no `start`, `prefill` and `step`"
            )
    return [mixer.start(batch, capacity) for mixer in mixers]


def build_positions(config: Any, causal: bool) -> nn.Module:
    """Build the positions of a stack from a model's Config; each kind takes the sizes it needs."""
    part: nn.Module = build_part(
        POSITIONS,
        config.positions,
        "positions",
        width=config.width,
        heads=config.heads,
        head_dim=config.width // config.heads,
        length=config.length,
        causal=causal,
    )
    return part


class Encoder(Stack):
    """A stack of encoder blocks over vectors."""

    def forward(
        self,
        x: Float[Tensor, "B N C"],
        mask: Mask | None = None,
        pass_state: PassState | None = None,
        position_vectors: Float[Tensor, "#B N C"] | None = None,
    ) -> Float[Tensor, "B N C"]:
        """Return the vectors after all blocks; `position_vectors` are added to the inputs of q and k in every layer."""
        return self.forward_at(x, self.position_ids(x.shape[1], x.device), mask, pass_state, position_vectors)

    def forward_at(
        self,
        x: Float[Tensor, "B N C"],
        index: Int[Tensor, "#B N"],
        mask: Mask | None = None,
        pass_state: PassState | None = None,
        position_vectors: Float[Tensor, "#B N C"] | None = None,
    ) -> Float[Tensor, "B N C"]:
        """Do the same for tokens at the positions `index`."""
        pass_state = PassState() if pass_state is None else pass_state
        mask = None if mask is None else mask.for_pass()
        x, where = self.add_positions(x, index), self.position_info(index, index, position_vectors)
        return self.final_norm(self.apply_blocks(x, mask, where, pass_state))

    def apply_blocks(
        self, x: Float[Tensor, "B N C"], mask: Mask | None, positions: PositionInfo, pass_state: PassState
    ) -> Float[Tensor, "B N C"]:
        """Return the vectors after all blocks, not normed."""
        for depth, block in enumerate(self.blocks):
            x = block(x, mask, positions, pass_state.layer(depth))
        return x

    def intermediate_layers(
        self,
        x: Float[Tensor, "B N C"],
        after: Sequence[int],
        mask: Mask | None = None,
        pass_state: PassState | None = None,
    ) -> list[Float[Tensor, "B N C"]]:
        """Return the vectors after the first n blocks, for each n of `after`, not normed."""
        pass_state = PassState() if pass_state is None else pass_state
        mask = None if mask is None else mask.for_pass()
        index = torch.arange(x.shape[1], device=x.device)[None]
        x, where = self.add_positions(x, index), self.position_info(index, index)
        found = {0: x}
        for depth, block in enumerate(self.blocks):
            found[depth + 1] = x = block(x, mask, where, pass_state.layer(depth))
        return [found[many] for many in after]
