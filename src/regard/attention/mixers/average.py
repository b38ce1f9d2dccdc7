"""Average attention: the mean of all tokens so far, through a feed-forward and gates.

    softmax    o_n = Σ_m softmax(s_n)_m v_m                                        s_nm = q_n·k_m / √D          O(N M D)
    average    g_n = FFN(1/n Σ_{m <= n} x_m),   o_n = σ(i_n) x_n + σ(f_n) g_n,   i, f = [x_n, g_n] W            O(N C)

The weights of attention are replaced by a plain average, whose running sum is all that decoding carries: a step costs
the same however long the text. The feed-forward and the gates, which weigh the token against the average, give back
some of what is lost. Without a causal mask it is the mean of all tokens.

The paper puts it in the place of a decoder's self-attention, within the usual residual connection and layer norm; those
are the block's. Costs are those of mixing; the feed-forward and the gates cost N C times their width.

Zhang, Xiong, Su: Accelerating Neural Transformer via an Average Attention Network. ACL 2018. arXiv:1805.00631
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import torch
import torch.nn.functional as F
from torch import nn

from regard.attention.kv_cache import BeamTable
from regard.attention.mask import Mask
from regard.attention.masked_softmax import upcast
from regard.attention.protocol import Mechanism, Traits
from regard.attention.running_state import RunningState
from regard.core.errors import Unsupported
from regard.core.layer_state import LayerState
from regard.core.positions import Bias, PositionInfo
from regard.core.shapes import Float, Rows, Tensor
from regard.core.validation import Fraction, Range

_MASKS = frozenset({"causal", "padding"})


class AverageAttention(nn.Module):
    """Mix tokens by averaging; `ffn` is the width of the feed-forward (None: 4 C, 0: none), `dropout` is inside it."""

    traits = Traits(
        cost="N C", paper="1805.00631", masks=_MASKS, bias=False, exact=False, square=True, family="with a prior"
    )
    kind = "self"

    def __init__(self, width: int, ffn: Annotated[int | None, Range(low=0)] = None, dropout: Fraction = 0.0) -> None:
        super().__init__()
        ffn = 4 * width if ffn is None else ffn
        self.attend = CumulativeAverage()
        self.feed = nn.Sequential()
        if ffn:
            self.feed = nn.Sequential(nn.Linear(width, ffn), nn.ReLU(), nn.Dropout(dropout), nn.Linear(ffn, width))
        self.gate = nn.Linear(2 * width, 2 * width)

    def forward(
        self,
        x: Float[Tensor, "B N C"],
        context: Float[Tensor, "B M C"] | None = None,
        mask: Mask | None = None,
        positions: PositionInfo | None = None,
        layer_state: LayerState | None = None,
    ) -> Float[Tensor, "B N C"]:
        if context is not None:
            raise Unsupported(
                "average attention averages the tokens themselves and takes no context; use softmax there"
            )
        if positions is not None and (positions.bias is not None or positions.qk_transform is not None):
            raise Unsupported("average attention has no scores or keys for positions; use positions added to tokens")
        return self._gated(x, self.attend(x[:, None], x[:, None], x[:, None], mask, layer_state=layer_state)[:, 0])

    def _gated(self, x: Tensor, average: Tensor) -> Tensor:
        average = self.feed(average)
        keep, take = self.gate(torch.cat([x, average], -1)).sigmoid().chunk(2, -1)
        out: Tensor = keep * x + take * average
        return out

    # -- decoding with a running sum -----------------------------------------------------------------------------------

    def start(self, batch: int, capacity: int) -> Any:
        """Return an empty running sum."""
        return RunningAverage()

    def prefill(
        self,
        x: Float[Tensor, "B N C"],
        state: Any,
        beam_table: BeamTable,
        mask: Mask | None = None,
        positions: PositionInfo | None = None,
        layer_state: LayerState | None = None,
    ) -> tuple[Float[Tensor, "B N C"], Any]:
        """Read the N tokens of a prompt into the sum."""
        real = beam_table.allow[:, :, : x.shape[1], None]  # B 1 N 1
        total, count = upcast(x[:, None] * real).sum(2), upcast(real.to(x.dtype)).sum(2)
        return self(x, None, mask, positions, layer_state), state.replace(total, count)

    def step(
        self,
        x: Float[Tensor, "B K C"],
        state: Any,
        beam_table: BeamTable,
        mask: Mask | None = None,
        positions: PositionInfo | None = None,
        layer_state: LayerState | None = None,
    ) -> tuple[Float[Tensor, "B K C"], Any]:
        """Add the newest token of each of the K beams to its sum, and average."""
        total, count = (0, 0) if state.total is None else (state.total, state.count)
        state = state.replace(total + upcast(x), count + upcast(torch.ones_like(x[..., :1])))
        return self._gated(x, (state.total / state.count).to(x.dtype)), state


@dataclass(eq=False)
class RunningAverage(RunningState):
    """The decoding state: the sum of the tokens of each beam and their number."""

    total: Any = None  # B K C
    count: Any = None  # B K 1


class CumulativeAverage(Mechanism):
    """The mean of the values that a query may see, whatever q and k are."""

    traits = Traits(cost="N E", paper="1805.00631", masks=_MASKS, bias=False, exact=False, family="with a prior")

    def mix(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        mask: Mask | None,
        bias: Bias | None,
        layer_state: LayerState | None = None,
    ) -> Tensor:
        n, m = q.shape[2], v.shape[2]
        padding = None if mask is None else mask.padding
        real = upcast(v.new_ones(1, 1, m, 1) if padding is None else padding.real(m)[:, None, :, None].to(v.dtype))
        causal = mask is not None and "causal" in mask.kinds
        sums, counts = (x.cumsum(2) if causal else x.sum(2, keepdim=True) for x in (upcast(v) * real, real))
        mean = (sums / counts.clamp_min(1)).to(v.dtype).repeat_interleave(q.shape[1] // v.shape[1], 1)
        if not causal:
            return mean.expand(-1, -1, n, -1)
        return mean[:, :, m - n :] if n <= m else F.pad(mean, (0, 0, n - m, 0))  # queries stand at the end of the keys

    def weights(
        self,
        q: Float[Tensor, "B H N D"],
        k: Float[Tensor, "B G M D"],
        mask: Mask | None = None,
        bias: Bias | None = None,
        *,
        layer_state: LayerState | None = None,
        queries: Rows = slice(None),
    ) -> Float[Tensor, "B H rows M"]:
        self.check(q, k, mask, bias)
        seen = q.new_ones(*q[:, :, queries].shape[:3], k.shape[2])
        if mask is not None:
            seen = seen * mask.dense(k.shape[0], q.shape[2], k.shape[2], q.device, queries)
        return seen / seen.sum(-1, keepdim=True).clamp_min(1)
