"""Memory-compressed attention: attend to a memory that is shorter, since a strided convolution made it of the tokens.

    softmax              q, k, v = x W_q, x W_k, x W_v                                      O(N M D)
    memory-compressed    q, k, v = x W_q, c W_k, c W_v,   c = [x_0, convolution(x)]         O(N M D / f)

The convolution has kernel f and stride f (3), so every token enters one element of the memory, and none looks ahead of
its block. A causal query sees the blocks that ended before it; the first token, put before them, is what the first
queries can see. The convolution mixes channels: no matrix of weights applies to v, so this is a mixer; its inner
attention, to the memory, is softmax attention that `watch` shows. While decoding, the memory and the tokens of the
unfinished block are the state.

What differs from the paper's code (tensor2tensor), whose convolution is valid: the last block is filled with zeros, so
that bidirectional attention sees the last tokens too; blocks are those of the true length. The paper alternates it with
attention within blocks of 256 tokens (`local_blocks`).

Liu, Saleh, Pot, Goodrich, Sepassi, Kaiser, Shazeer: Generating Wikipedia by Summarizing Long Sequences. ICLR 2018.
arXiv:1801.10198
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from regard.attention.kv_cache import BeamTable
from regard.attention.mask import DenseMask, Mask, PaddingMask
from regard.attention.multihead import MultiHeadAttention
from regard.attention.protocol import Traits
from regard.attention.running_state import RunningState
from regard.core.errors import Unsupported
from regard.core.layer_state import LayerState
from regard.core.positions import PositionInfo
from regard.core.shapes import Float, Tensor
from regard.core.validation import Fraction


class MemoryCompressedAttention(nn.Module):
    """Attend from every token to one element for each block of `factor` tokens; sizes as in `MultiHeadAttention`."""

    traits = Traits(
        cost="N M D / f",
        paper="1801.10198",
        masks=frozenset({"causal", "padding"}),
        bias=False,
        exact=False,
        square=True,
        positional=True,
        family="fewer queries or keys",
    )

    def __init__(
        self,
        width: int,
        heads: int,
        factor: int = 3,
        *,
        kv_heads: int | None = None,
        head_dim: int | None = None,
        bias: bool = True,
        dropout: Fraction = 0.0,
        scale: float | None = None,
    ) -> None:
        super().__init__()
        self.factor = factor
        self.compress = nn.Conv1d(width, width, factor, factor, bias=bias)
        sizes: dict[str, Any] = {"kv_heads": kv_heads, "head_dim": head_dim, "bias": bias}
        self.attend = MultiHeadAttention(width, heads, cross=True, dropout=dropout, scale=scale, **sizes)

    def forward(
        self,
        x: Float[Tensor, "B N C"],
        context: Float[Tensor, "B M C"] | None = None,
        mask: Mask | None = None,
        positions: PositionInfo | None = None,
        layer_state: LayerState | None = None,
    ) -> Float[Tensor, "B N C"]:
        """Return x with every token replaced by a mix of the values of the memory."""
        self._check(context, mask, positions)
        padding = None if mask is None else mask.padding
        memory = self._memory(x, None if padding is None else padding.lengths)
        allowed: Mask | None = None
        if padding is not None:
            allowed = PaddingMask(1 + -(-padding.lengths // self.factor))
        if mask is not None and "causal" in mask.kinds:
            ended = BlocksBefore(self.factor, x.shape[1] - memory.shape[1])
            allowed = ended if allowed is None else ended & allowed
        places = None if positions is None else self._places(positions, positions.queries, memory.shape[1])
        out: Tensor = self.attend(x, memory, allowed, places, layer_state)
        if padding is None:
            return out
        return out * (padding.lengths > 0)[:, None, None]  # an input without tokens has no first one either

    def _memory(self, x: Float[Tensor, "B N C"], lengths: Tensor | None) -> Float[Tensor, "B S C"]:
        """Return the first token and one vector for each block, the last one filled with zeros."""
        blocks = x if lengths is None else x * PaddingMask(lengths).real(x.shape[1])[..., None]
        blocks = F.pad(blocks, (0, 0, 0, -x.shape[1] % self.factor))
        return torch.cat([x[:, :1], self._compress(blocks)], 1)

    def _compress(self, blocks: Tensor) -> Tensor:
        out: Tensor = self.compress(blocks.mT).mT
        return out

    def _check(self, context: Tensor | None, mask: Mask | None, positions: PositionInfo | None) -> None:
        if context is not None:
            raise Unsupported("memory_compressed makes its memory of x itself and takes no context")
        if mask is not None and not mask.kinds <= self.traits.masks:
            raise Unsupported(f"memory_compressed takes causal and padding masks only, got {mask!r}")
        if positions is not None and (positions.bias is not None or positions.query_vectors is not None):
            raise Unsupported("memory_compressed cannot add a bias or vectors of positions; use rotary or added ones")

    def _places(self, positions: PositionInfo, queries: Tensor, slots: int) -> PositionInfo:
        """Return the positions of queries and memory: a block stands where its last token does."""
        last = torch.arange(slots, device=queries.device) * self.factor - 1
        return PositionInfo(queries, last.clamp(min=0)[None], positions.qk_transform)

    # -- decoding, one token after another -----------------------------------------------------------------------------

    def start(self, batch: int, capacity: int) -> Any:
        """Return an empty memory for `capacity` tokens."""
        return CompressedMemory(slots=capacity // self.factor + 1)

    def prefill(
        self,
        x: Float[Tensor, "B N C"],
        state: Any,
        beam_table: BeamTable,
        mask: Mask | None = None,
        positions: PositionInfo | None = None,
        layer_state: LayerState | None = None,
    ) -> tuple[Float[Tensor, "B N C"], Any]:
        """Read the N tokens of a prompt into the memory."""
        lengths = beam_table.allow[:, 0, : x.shape[1]].sum(-1)
        k, v = (_fit(part, state.slots) for part in self.attend.project_kv(self._memory(x, lengths)))
        begun = lengths // self.factor * self.factor + torch.arange(self.factor, device=x.device)[:, None]  # f B
        last = x[torch.arange(len(x), device=x.device), begun.clamp(max=x.shape[1] - 1)].transpose(0, 1)
        state = state.replace(k[:, None], v[:, None], last[:, None], lengths[:, None].expand(len(x), 1))
        return self(x, None, mask, positions, layer_state), state

    def step(
        self,
        x: Float[Tensor, "B K C"],
        state: Any,
        beam_table: BeamTable,
        mask: Mask | None = None,
        positions: PositionInfo | None = None,
        layer_state: LayerState | None = None,
    ) -> tuple[Float[Tensor, "B K C"], Any]:
        """Attend from the newest token of each of the K beams to the memory, and finish its block if it is the last."""
        self._check(None, None, positions)
        b, n, width = x.shape
        if state.k is None:
            state = self._allocate(x, state)
        slot, tap = torch.arange(state.slots, device=x.device), torch.arange(self.factor, device=x.device)
        time = state.time[..., None]
        state = self._write(state, x.flatten(0, 1)[:, None], (slot == 0) & (time == 0))
        seen = (slot * self.factor <= time).flatten(0, 1)[:, None]
        places = None
        if positions is not None:
            places = self._places(positions, positions.queries.expand(b, n).reshape(b * n, 1), state.slots)
        out: Tensor = self.attend.cross_attend(
            x.reshape(b * n, 1, width),
            (state.k.flatten(0, 1), state.v.flatten(0, 1)),
            DenseMask(seen),
            places,
            layer_state,
        )
        block = torch.where((tap == time % self.factor)[..., None], x[:, :, None], state.block)
        ended = ((time + 1) % self.factor == 0) & (slot == (time + 1) // self.factor)
        state = state.replace(state.k, state.v, block, state.time + 1)
        return out.view(b, n, width), self._write(state, self._compress(block.flatten(0, 1)), ended)

    def _allocate(self, x: Tensor, state: CompressedMemory) -> CompressedMemory:
        k, v = (part.transpose(1, 2)[:, :, :, None] for part in self.attend.project_kv(x))  # B K G 1 D
        empty = (torch.zeros_like(part).repeat_interleave(state.slots, 3) for part in (k, v))
        time = torch.zeros(x.shape[:2], dtype=torch.long, device=x.device)
        return state.replace(*empty, torch.zeros_like(x)[:, :, None].repeat_interleave(self.factor, 2), time)

    def _write(self, state: CompressedMemory, element: Tensor, where: Tensor) -> CompressedMemory:
        """Return the state with a new element of the memory, (B K) 1 C, in the slots `where`, B K slots."""
        pair = (part.unflatten(0, where.shape[:2]) for part in self.attend.project_kv(element))
        k, v = (torch.where(where[:, :, None, :, None], x, y) for x, y in zip(pair, (state.k, state.v), strict=True))
        return state.replace(k, v, state.block, state.time)

    def extra_repr(self) -> str:
        return f"factor={self.factor}"


@dataclass(eq=False)
class CompressedMemory(RunningState):
    """The keys and values of the memory of each beam, the tokens of its unfinished block, and its time."""

    k: Any = None  # B K G slots D
    v: Any = None  # B K G slots D
    block: Any = None  # B K f C
    time: Any = None  # B K
    slots: int = field(default=1, kw_only=True)


class BlocksBefore(Mask):
    """A query sees the first token, and the blocks that ended before it; `shift` is N - M."""

    def __init__(self, factor: int, shift: int) -> None:
        self.factor, self.shift = factor, shift

    def allow(self, b: Tensor, n: Tensor, m: Tensor) -> Tensor:
        return m * self.factor <= n + self.shift

    def __repr__(self) -> str:
        return f"BlocksBefore({self.factor})"


def _fit(x: Float[Tensor, "B G S D"], slots: int) -> Float[Tensor, "B G slots D"]:
    """Cut off what is never read, or fill up with zeros."""
    return F.pad(x[:, :, :slots], (0, 0, 0, max(0, slots - x.shape[2])))
