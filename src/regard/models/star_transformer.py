"""Star-Transformer: a ring of tokens around one relay node, instead of attention between all pairs.

    Transformer    h_n = attend(h_n, [h_1 ... h_N])                                                  O(N² D)
    satellites     h_n = norm(relu(attend(h_n, [h_(n-1); h_n; h_(n+1); e_n; s])))                    O(N D)
    relay          s   = norm(relu(attend(s, [h_1 ... h_N; s])))                                     O(N D)

Each layer first updates all satellites h from their neighbours on the ring, their embedding e and the relay s, then the
relay from all satellites: any two tokens are two steps apart. At first h = e and s is the mean of e. The vector of a
text is the mean of s and of the maximum of h over the tokens. Of a text of one or two tokens some neighbours are the
same and count as often. There is no residual connection and no feed-forward.

What differs: a text may have segments (pairs of texts), which the paper encodes one by one; the sizes are ours. The
ring is closed, within the true length, as in the paper; fastNLP's code pads its ends with zeros instead.

Guo, Qiu, Liu, Shao, Xue, Zhang: Star-Transformer. NAACL 2019. arXiv:1902.09113
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from regard.attention.gathered_attention import GatheredAttention, NeighbourGroup, Neighbours
from regard.attention.mask import DenseMask, Mask
from regard.attention.multihead import MultiHeadAttention
from regard.attention.protocol import Traits
from regard.core.config import field
from regard.core.layer_state import LayerState, PassState
from regard.core.shapes import Float, Int, Tensor
from regard.models.text_encoder import TextEncoder


@dataclass(frozen=True)
class Config:
    """Hyperparameters of a Star-Transformer."""

    vocab: int
    width: int = 300
    heads: int = 6
    layers: int = 2
    length: int = 512  # maximum length with learned positions
    segments: int = 1  # 2: pairs of texts
    dropout: float = field(0.1, low=0, below=1)
    attention_dropout: float = field(0.0, low=0, below=1)
    positions: str = "learned"
    head: str | None = None  # classes(3), tags(23) or span; None: the vectors of all tokens


SIZES: dict[str, dict[str, Any]] = {  # our own
    "tiny": {"width": 32, "heads": 2, "length": 64},
    "small": {"width": 128, "heads": 4},
    "base": {},
}


class StarTransformer(TextEncoder):
    """Tokens to the output of the head."""

    traits = Traits(
        cost="N D",
        paper="1902.09113",
        masks=frozenset({"padding"}),
        bias=False,
        exact=False,
        causality="none",
        square=True,
        positional=True,
        family="sparse by position",
    )

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        pools = self.head is None or self.head.uses_pooled  # else nothing reads the relay of the last layer
        last = config.layers - 1
        self.layers = nn.ModuleList(StarLayer(config, pools or layer < last) for layer in range(config.layers))
        self.reset()

    def encode_vectors(
        self, x: Float[Tensor, "B N C"], lengths: Int[Tensor, " B"], pass_state: PassState
    ) -> tuple[Float[Tensor, "B N C"], Float[Tensor, "B C"]]:
        real = torch.arange(x.shape[1], device=x.device) < lengths[:, None]
        ring = ring_mask(x.shape[1], lengths)
        star = DenseMask(torch.cat([real, real.new_ones(x.shape[0], 1)], 1)[:, None])
        h = x
        s = (x * real[..., None]).sum(1, keepdim=True) / lengths.clamp(min=1)[:, None, None].to(x.dtype)
        for depth, layer in enumerate(self.layers):
            h, s = layer(h, x, s, ring, star, pass_state.layer(depth))
        largest = h.masked_fill(~real[..., None], torch.finfo(h.dtype).min).amax(1)
        largest = torch.where((lengths > 0)[:, None], largest, 0.0)  # of an empty text
        return h, (s[:, 0] + largest) / 2

    @torch.no_grad()
    def reset(self) -> None:
        """Initialise matrices by Xavier, biases 0, embeddings normal with std 1/√width."""
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                nn.init.zeros_(module.bias)
            elif isinstance(module, nn.Embedding):
                module.weight.normal_(std=self.config.width**-0.5)


class StarLayer(nn.Module):
    """Update the satellites, then the relay, if it `has_relay`."""

    def __init__(self, config: Config, has_relay: bool = True) -> None:
        super().__init__()
        width, heads, dropout = config.width, config.heads, config.attention_dropout
        ring = GatheredAttention(width // heads, dropout=dropout)
        self.ring = MultiHeadAttention(width, heads, mechanism=ring, cross=True)
        self.ring_norm = nn.LayerNorm(width)
        self.relay = MultiHeadAttention(width, heads, dropout=dropout, cross=True) if has_relay else None
        self.relay_norm = nn.LayerNorm(width) if has_relay else None

    def forward(
        self,
        h: Float[Tensor, "B N C"],
        e: Float[Tensor, "B N C"],
        s: Float[Tensor, "B 1 C"],
        ring: Mask,
        star: Mask,
        layer_state: LayerState,
    ) -> tuple[Float[Tensor, "B N C"], Float[Tensor, "B 1 C"]]:
        """Return satellites and relay after one update of each; e are the embeddings."""
        around = self.ring(h, torch.cat([h, e, s], 1), ring, layer_state=layer_state)
        h = self.ring_norm(torch.relu(around))
        if self.relay is None or self.relay_norm is None:
            return h, s
        told = self.relay(s, torch.cat([h, s], 1), star, layer_state=layer_state.scope("relay"))
        return h, self.relay_norm(torch.relu(told))


def ring_mask(n: int, lengths: Int[Tensor, " B"]) -> Neighbours:
    """Return which of the keys [h_1 ... h_N; e_1 ... e_N; s] each satellite sees; rings close at the true lengths."""
    here = torch.arange(n, device=lengths.device).expand(lengths.shape[0], n)
    end = lengths.clamp(min=1)[:, None]
    relay = torch.full_like(here, 2 * n)
    index = torch.stack([(here - 1) % end, here, (here + 1) % end, here + n, relay], -1)
    return Neighbours([NeighbourGroup(index, torch.ones_like(index, dtype=torch.bool))])
