"""Pattern guidance: softmax attention whose heads are trained to follow predefined patterns.

    softmax             w = softmax(s)                                          s = q k^T / √D          O(N M D)
    pattern_guidance    the same, and   loss += λ Σ_p mean((w_h - P_p)²)   over the heads h of pattern p

Trained heads often attend to the token before, the next, the first or the token itself. An auxiliary loss that asks a
few heads for these from the start speeds up pre-training, and leaves the other heads free. It is added in training
only, as the term "guidance": a mean over heads and over pairs of real tokens. A token without a previous (next) one has
a row of zeros, as in the authors' code.

Differs from the paper: λ is constant, where the paper lets it fall to zero towards the end of training, and there is no
pattern of delimiters, which are not known here. The matrix is computed a second time for the loss.

Deshpande, Narasimhan: Guiding Attention for Self-Supervised Learning with Transformers. Findings of EMNLP 2020.
arXiv:2010.02399
"""

from __future__ import annotations

from typing import Annotated

import torch

from regard.attention.mask import Mask
from regard.attention.masked_softmax import upcast
from regard.attention.mechanisms.softmax import SoftmaxAttention
from regard.attention.protocol import Traits
from regard.core.errors import RegardError, Unsupported
from regard.core.layer_state import LayerState
from regard.core.positions import Bias
from regard.core.shapes import Float, Tensor
from regard.core.validation import Fraction, Range

Number = Annotated[int, Range(low=0)]


class PatternGuidedAttention(SoftmaxAttention):
    """Softmax attention of which some heads are guided.

    Args:
        following: number of heads guided to the next token; None: 1, or 0 where the layer is causal.
        previous, first, itself: numbers of heads guided to the token before, the first token, the token itself.
        guidance: λ, the weight of the loss.
    """

    traits = Traits(cost="N M D", paper="2010.02399", family="heads")

    def __init__(
        self,
        heads: int,
        following: Number | None = None,
        previous: Number = 1,
        first: Number = 0,
        itself: Number = 0,
        guidance: Annotated[float, Range(low=0)] = 1.0,
        causal: bool = False,
        dropout: Fraction = 0.0,
        scale: float | None = None,
    ) -> None:
        super().__init__(dropout, scale)
        following = int(not causal) if following is None else following
        if causal and following:
            raise RegardError("a causal layer cannot attend to the next token; write pattern_guidance(following=0)")
        self.patterns = {"itself": itself, "following": following, "previous": previous, "first": first}
        self.guidance = guidance
        if (guided := sum(self.patterns.values())) > heads:
            raise RegardError(f"pattern_guidance guides {guided} heads, but there are {heads}; guide fewer")

    def mix(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        mask: Mask | None,
        bias: Bias | None,
        layer_state: LayerState | None = None,
    ) -> Tensor:
        if layer_state is not None and self.training:
            if q.shape[2] != k.shape[2]:
                raise Unsupported(
                    f"pattern_guidance guides self-attention, got {q.shape[2]} queries and {k.shape[2]} keys"
                )
            real = None if mask is None or mask.padding is None else mask.padding.real(k.shape[2]).to(q.dtype)
            layer_state.add_loss("guidance", self.guidance * self.loss(self.weights(q, k, mask, bias), real))
        return super().mix(q, k, v, mask, bias)

    def loss(self, weights: Float[Tensor, "B H N N"], real: Float[Tensor, "B N"] | None = None) -> Float[Tensor, ""]:
        """Return the mean squared distance of the guided heads from their patterns, summed over the patterns."""
        n = torch.arange(weights.shape[-1], device=weights.device)
        m = n[None] - n[:, None]  # how far the key stands behind the query
        targets = {"itself": m == 0, "following": m == 1, "previous": m == -1, "first": (n == 0).expand_as(m)}
        pairs = weights.new_ones(1, 1, 1) if real is None else real[:, :, None] * real[:, None]
        total, start = upcast(weights.new_zeros(())), 0
        for name, heads in self.patterns.items():
            if heads:
                error = upcast(weights[:, start : start + heads] - targets[name].to(weights.dtype)).square().mean(1)
                total = total + (error * pairs).sum() / pairs.expand_as(error).sum().clamp_min(1)
                start += heads
        return total

    def extra_repr(self) -> str:
        counts = ", ".join(f"{name}={heads}" for name, heads in self.patterns.items())
        return f"{counts}, guidance={self.guidance}, {super().extra_repr()}"
