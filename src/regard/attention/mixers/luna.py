"""Luna: pack the tokens into a short memory by attention, then read it back; the memory travels up from layer to layer.

    softmax    Y = attend(X, X)                                                                   O(N² D)
    Luna       Y_P = attend(P, X);  Y = attend(X, Y_P);  P' = norm(P + Y_P)                       O(N L D), L rows of P
    causal     a_j = softplus(P x_j);  w_n = softmax(1/n Σ_(j≤n) (x_n·x_j) a_j);  y_n = 1/n Σ_(j≤n) (w_n·a_j) x_j

Two nested attentions, both linear in N. P is learned in the first layer; above, it is what the layer below made of it,
handed up through the layer state, so Luna must be the attention of every layer. A causal P may not know the tokens: it
stays as learned, packing weights are not normalised over the tokens, and the sums over j ≤ n are taken chunk by chunk
or, when decoding, carried along: one matrix L x D for each head. Keys are values, projected once, as in the authors'
code, whose softplus has base 2: softplus(x) = log_2(1 + 2^x).

What differs: P is normed where it is read, not where it is written (the same, but for the first P, which the code norms
too, and for a causal P above the first layer, which it does not); P always has L rows, the code drops those beyond the
length of a text. In the paper a decoder's P comes from its cross-attention.

Ma, Kong, Wang, Zhou, May, Ma, Zettlemoyer: Luna: Linear Unified Nested Attention. NeurIPS 2021. arXiv:2106.01540
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from regard.attention.kernel import split_chunks
from regard.attention.kv_cache import BeamTable
from regard.attention.mask import Mask
from regard.attention.masked_softmax import upcast
from regard.attention.mechanisms.softmax import SoftmaxAttention
from regard.attention.protocol import Traits, check_mask
from regard.attention.running_state import RunningState
from regard.core.errors import RegardError, Unsupported
from regard.core.layer_state import LayerState
from regard.core.positions import PositionInfo
from regard.core.shapes import Float, Tensor
from regard.core.validation import Fraction


class LunaAttention(nn.Module):
    """Linear unified nested attention with a memory of `memory` rows; `layer` is the depth of its place."""

    traits = Traits(
        cost="N L D",
        paper="2106.01540",
        masks=frozenset({"causal", "padding"}),
        bias=False,
        exact=False,
        square=True,
        family="fewer queries or keys",
    )

    def __init__(
        self,
        width: int,
        heads: int,
        memory: int = 16,
        chunk: int = 64,
        *,
        layer: int = 0,
        bias: bool = True,
        dropout: Fraction = 0.0,
        cross: bool = False,
    ) -> None:
        super().__init__()
        if width % heads:
            raise RegardError(f"width {width} is not divisible by {heads} heads; change one of them")
        if cross:
            raise Unsupported("luna is here for self-attention only; use another attention for a context")
        self.heads, self.chunk, self.layer = heads, chunk, layer
        self.memory = nn.Parameter(torch.randn(memory, width) * width**-0.5) if layer == 0 else None
        self.norm = nn.LayerNorm(width)
        self.pack_q, self.pack_kv, self.q, self.kv = (nn.Linear(width, width, bias=bias) for _ in range(4))
        self.out = nn.Linear(width, width, bias=bias)
        self.pack, self.unpack = SoftmaxAttention(dropout), SoftmaxAttention(dropout)
        self.drop = nn.Dropout(dropout)

    def forward(
        self,
        x: Float[Tensor, "B N C"],
        context: Float[Tensor, "B M C"] | None = None,
        mask: Mask | None = None,
        positions: PositionInfo | None = None,
        layer_state: LayerState | None = None,
    ) -> Float[Tensor, "B N C"]:
        """Return what every token reads off the packed memory, and hand the memory up."""
        if context is not None:
            raise Unsupported("luna is here for self-attention only and takes no context")
        check_mask(mask, self.traits, "luna")
        memory = self._memory(x, positions, layer_state)
        if mask is not None and "causal" in mask.kinds:
            return self._causal(x, memory, layer_state)
        kv = self._split(self.pack_kv(x))
        packed = _join(self.pack(self._split(self.pack_q(memory)).expand(kv.shape[0], -1, -1, -1), kv, kv, mask))
        _publish(layer_state, memory + packed)
        kv = self._split(self.kv(packed))
        return self.out(_join(self.unpack(self._split(self.q(x)), kv, kv)))

    def _causal(
        self, x: Float[Tensor, "B N C"], memory: Float[Tensor, "1 L C"], layer_state: LayerState | None
    ) -> Float[Tensor, "B N C"]:
        """Attend to the tokens up to each one; padding, at the end, is seen by none of the others."""
        _publish(layer_state, memory)
        a, q, v = self._causal_parts(x, memory)
        count = torch.arange(1, x.shape[1] + 1, device=x.device)[:, None]
        with torch.autocast(x.device.type, enabled=False):  # sums over the whole text
            weights = self.drop((self._sum(q, v, a) / count).softmax(-1))
            mixed = self._sum(weights, a, v) / count
        return self.out(_join(mixed.to(x.dtype)))

    def _causal_parts(self, x: Tensor, memory: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return packing weights B H N L, queries, and values that are keys B H N D, in float32 at least."""
        pack_q, kv, q, v = (
            upcast(self._split(part))
            for part in (self.pack_q(memory), self.pack_kv(x), self.q(x), self.kv(x))
        )  # fmt: skip
        scale = q.shape[-1] ** -0.5
        return self.drop(F.softplus(upcast(kv @ pack_q.mT) * scale, beta=log(2))), q * scale, v

    def _sum(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Σ_(j≤n) (q_n·k_j) v_j, chunk by chunk."""
        n, size = q.shape[-2], min(self.chunk, max(q.shape[-2], 1))
        q, k, v = (split_chunks(x, size) for x in (q, k, v))
        products = k.mT @ v
        before = products.cumsum(-3) - products
        return ((q @ k.mT).tril() @ v + q @ before).flatten(-3, -2)[..., :n, :]

    def _memory(
        self, x: Tensor, positions: PositionInfo | None, layer_state: LayerState | None
    ) -> Float[Tensor, "#B L C"]:
        if positions is not None:
            positions.require_added("luna")
        memory = None if layer_state is None else layer_state.previous("luna")
        if memory is None and self.memory is not None:
            memory = self.memory[None]
        if memory is None:
            raise Unsupported(
                f"luna of layer {self.layer} reads the memory of the layer below, which has none; use luna in every "
                "layer, from the first on, and call it with the layer state of its place"
            )
        out: Tensor = self.norm(memory.to(x.dtype))
        return out

    def _split(self, x: Float[Tensor, "B N C"]) -> Float[Tensor, "B H N D"]:
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    # -- decoding, one token after another -----------------------------------------------------------------------------

    def start(self, batch: int, capacity: int) -> Any:
        """Return empty sums."""
        return PackedSums()

    def prefill(
        self,
        x: Float[Tensor, "B N C"],
        state: Any,
        beam_table: BeamTable,
        mask: Mask | None = None,
        positions: PositionInfo | None = None,
        layer_state: LayerState | None = None,
    ) -> tuple[Float[Tensor, "B N C"], Any]:
        """Read the N tokens of a prompt into the sums; padding of shorter prompts enters none."""
        memory = self._memory(x, positions, layer_state)
        a, _, v = self._causal_parts(x, memory)
        real = beam_table.allow[:, :, : x.shape[1], None]  # B 1 N 1
        state = PackedSums(((a * real).mT @ v)[:, None], real.sum(2), frozen=state.frozen)
        return self._causal(x, memory, layer_state), state

    def step(
        self,
        x: Float[Tensor, "B K C"],
        state: Any,
        beam_table: BeamTable,
        mask: Mask | None = None,
        positions: PositionInfo | None = None,
        layer_state: LayerState | None = None,
    ) -> tuple[Float[Tensor, "B K C"], Any]:
        """Add the newest token of each of the K beams to its sums and read them."""
        memory = self._memory(x, positions, layer_state)
        _publish(layer_state, memory)
        a, q, v = (part.transpose(1, 2)[..., None] for part in self._causal_parts(x, memory))  # B K H L 1 or D 1
        new = a @ v.mT
        state = (
            state.replace(new, torch.ones_like(x[..., :1]).long())
            if state.packed is None
            else state.replace(state.packed + new, state.count + 1)
        )
        packed = state.packed / state.count[..., None, None]  # B K H L D
        weights = (packed @ q).softmax(-2)
        out: Tensor = self.out((weights.mT @ packed).flatten(2).to(x.dtype))
        return out, state

    def extra_repr(self) -> str:
        return f"chunk={self.chunk}, layer={self.layer}"


@dataclass(eq=False)
class PackedSums(RunningState):
    """The decoding state: Σ_j a_j v_jᵀ of each beam, and the number of its tokens."""

    packed: Any = None  # B K H L D
    count: Any = None  # B K 1


def _join(heads: Float[Tensor, "B H N D"]) -> Float[Tensor, "B N C"]:
    return heads.transpose(1, 2).flatten(2)


def _publish(layer_state: LayerState | None, memory: Tensor) -> None:
    if layer_state is not None:
        layer_state.publish("luna", memory)
