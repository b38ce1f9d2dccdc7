"""Improved clustered attention: clusters find the keys that matter, and every query then scores those itself.

    clustered             o_n = Σ_m w_cm v_m                                                           O(N C D)
    improved clustered    o_n = Σ_{m ∈ T_c} p_c u_nm v_m + Σ_{m ∉ T_c} w_cm v_m                        O(N (C + t) D)
                          T_c: the t keys of largest w_c;  p_c = Σ_{m ∈ T_c} w_cm;  u_n = softmax(q_n K_T^T / √D)

The largest weights matter most, and they are those that a centroid gets wrong. So each query distributes the weight
that its cluster gives to its t best keys anew; the other keys keep the cluster's weights.

What differs from the paper is the same as in clustered attention.

Vyas, Katharopoulos, Fleuret: Fast Transformers with Clustered Attention. NeurIPS 2020. arXiv:2007.04825
"""

from __future__ import annotations

from dataclasses import replace

from regard.attention.gather import gather_tokens, true_lengths
from regard.attention.mask import Mask
from regard.attention.masked_softmax import masked_softmax
from regard.attention.mechanisms.clustered import ClusteredAttention
from regard.core.layer_state import LayerState
from regard.core.positions import Bias
from regard.core.shapes import Tensor
from regard.core.validation import Fraction, Seed


class ImprovedClusteredAttention(ClusteredAttention):
    """Clustered attention whose queries score the `top_k` best keys of their cluster themselves."""

    traits = replace(ClusteredAttention.traits, cost="N (C + t) D", limit="top_k=16", budget="top_k")

    def __init__(
        self,
        head_dim: int,
        clusters: int = 100,
        top_k: int = 32,
        bits: int = 63,
        iterations: int = 10,
        dropout: Fraction = 0.0,
        scale: float | None = None,
        seed: Seed = 0,
    ) -> None:
        super().__init__(head_dim, clusters, bits, iterations, dropout, scale, seed)
        self.top_k = top_k

    def mix(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        mask: Mask | None,
        bias: Bias | None,
        layer_state: LayerState | None = None,
    ) -> Tensor:
        (b, h, n, _), scale = q.shape, q.shape[-1] ** -0.5 if self.scale is None else self.scale
        lengths = true_lengths(mask, b, n, q.device)
        k, v = (x.repeat_interleave(h // x.shape[1], 1) for x in (k, v))
        cluster, weights = self.centroid_weights(q, k, lengths)
        top = weights.topk(min(self.top_k, n)).indices  # B H C t
        share = weights.gather(-1, top).sum(-1, keepdim=True)  # B H C 1
        rest = self.drop(weights.scatter(-1, top, 0.0)).to(v.dtype) @ v  # B H C E
        best = top.gather(2, cluster[..., None].expand(-1, -1, -1, top.shape[-1]))  # B H N t
        scores = (gather_tokens(k, best) @ (q * scale)[..., None]).squeeze(-1)
        own = masked_softmax(scores, best < lengths[:, None, None, None]) * gather_tokens(share, cluster)
        out = self.drop(own).to(v.dtype)[..., None, :] @ gather_tokens(v, best)
        return out.squeeze(-2) + gather_tokens(rest, cluster)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, top_k={self.top_k}"
