"""Informer: ProbSparse attention, full attention only for the queries whose scores differ most.

    softmax     o_n = Σ_m w_nm v_m        w_nm ∝ exp(q_n·k_m / √D)                                     O(N M D)
    informer    the same for the u queries of largest s_n = max_m q_n·k_m - Σ_m q_n·k_m / M            O(N D log N)
                o_n = mean of all v, or Σ_{m ≤ n} v_m if causal, for the others; m of s_n are samples

A query with nearly equal scores gives nearly the mean of the values, so only the others need their scores. Which ones
those are is estimated from u = factor ⌈ln(N + 1)⌉ sampled keys for each query, and u queries are chosen.

Differs from the paper: the samples are a function of the seed and of the token's place, the same in every pass, so that
results can be repeated. As in the paper's code (and transformers'), the sum in s_n is over the samples, but divided by
the number of all keys, and lazy queries get a cumulative sum, not a mean, when causal. The choice depends on later
queries and keys, so the mechanism does not decode step by step; queries beyond the length of an input are padding, so
it is for self-attention.

Zhou, Zhang, Peng, Zhang, Li, Xiong, Zhang: Informer: Beyond Efficient Transformer for Long Sequence Time-Series
Forecasting. AAAI 2021. arXiv:2012.07436
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F

from regard.attention.gather import gather_tokens, true_lengths
from regard.attention.mask import Mask
from regard.attention.masked_softmax import masked_softmax, upcast
from regard.attention.protocol import Mechanism, Traits
from regard.core.layer_state import LayerState
from regard.core.positions import Bias
from regard.core.shapes import Float, Int, Tensor
from regard.core.validation import Fraction, Seed

MOST_GATHERED = {"cpu": 2**20, "cuda": 2**28}  # numbers at a time; on a CPU they stay in its caches


class InformerAttention(Mechanism):
    """ProbSparse attention; `factor` times ⌈ln(N + 1)⌉ queries attend, chosen by as many sampled keys each."""

    traits = Traits(
        cost="N D log N",
        paper="2012.07436",
        masks=frozenset({"causal", "padding"}),
        bias=False,
        exact=False,
        causality="values",
        rowwise=False,
        normalised=False,
        square=True,
        positional=True,
        family="fewer queries or keys",
        limit="factor=16",
        budget="factor",
    )

    def __init__(self, factor: int = 5, dropout: Fraction = 0.0, scale: float | None = None, seed: Seed = 0) -> None:
        super().__init__()
        self.factor, self.dropout, self.scale, self.seed = factor, dropout, scale, seed

    def mix(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        mask: Mask | None,
        bias: Bias | None,
        layer_state: LayerState | None = None,
    ) -> Tensor:
        b, h, n, d = q.shape
        lengths = true_lengths(mask, b, n, q.device)
        causal = mask is not None and "causal" in mask.kinds
        k, v = (x.repeat_interleave(h // x.shape[1], 1) for x in (k, v))
        q = q * (d**-0.5 if self.scale is None else self.scale)
        chosen = self.choose(q, k, lengths)  # B H u, n where there are fewer
        scores = gather_tokens(q, chosen.clamp(max=n - 1)) @ k.mT
        place = torch.arange(n, device=q.device)
        allowed = place < lengths[:, None, None, None]
        weights = masked_softmax(scores, allowed & (place <= chosen[..., None]) if causal else allowed).to(v.dtype)
        weights = F.dropout(weights, self.dropout) if self.dropout and self.training else weights
        lazy = _lazy(v, lengths, causal)
        into = chosen[..., None].expand(-1, -1, -1, v.shape[-1])
        return F.pad(lazy, (0, 0, 0, 1)).scatter(2, into, weights @ v)[:, :, :n]

    @torch.no_grad()
    def choose(self, q: Tensor, k: Tensor, lengths: Int[Tensor, " B"]) -> Int[Tensor, "B H u"]:
        """Return the queries of largest measure; an input that needs fewer than the others has N in their place."""
        b, h, n, d = q.shape
        samples = self.sample(n, lengths)  # B N u
        # in parts: all sampled keys at once are u times as large as k
        many = MOST_GATHERED["cuda" if q.is_cuda else "cpu"] // max(1, b * h * samples.shape[2] * d)
        parts = [
            self._measure(q[:, :, begin : begin + many], k, samples[:, begin : begin + many], lengths)
            for many in [max(1, many)]
            for begin in range(0, n, many)
        ]
        measure = torch.cat(parts, 2) if parts else q.new_zeros(b, h, 0)
        place = torch.arange(n, device=q.device)
        found = measure.masked_fill(place >= lengths[:, None, None], -torch.inf).topk(self._count(n)).indices
        return found.masked_fill(place[: found.shape[-1]] >= self._counts(lengths)[:, None, None], n)

    def _measure(self, q: Tensor, k: Tensor, samples: Int[Tensor, "B N u"], lengths: Tensor) -> Float[Tensor, "B H N"]:
        """Return s_n of some queries."""
        b, h, m, _ = k.shape
        products = upcast(gather_tokens(k, samples[:, None].expand(b, h, -1, -1).clamp(max=m - 1)) @ q[..., None])
        products, used = products.squeeze(-1), (samples < m)[:, None]
        largest = products.masked_fill(~used, -torch.inf).amax(-1)
        return largest - (products * used).sum(-1) / lengths.clamp(min=1)[:, None, None]

    def sample(self, n: int, lengths: Int[Tensor, " B"]) -> Int[Tensor, "B N u"]:
        """Return keys for each query, uniform among the real ones, and N in place of those that an input needs not.

        They are a hash of the query's place, the sample's number and the seed.
        """
        u = self._count(n)
        x = torch.arange(n, device=lengths.device)[:, None] * 4096 + torch.arange(u, device=lengths.device)
        x = x + (self.seed % 2**31 << 32) + 0x9E3779B9
        for _ in range(2):
            x = (x ^ (x >> 31)) * 0x2545F4914F6CDD1D  # modulo 2^64
        found = ((x >> 32) & 0x7FFFFFFF) * lengths[:, None, None] >> 31
        return found.masked_fill(torch.arange(u, device=x.device) >= self._counts(lengths)[:, None, None], n)

    def _count(self, n: int) -> int:
        return min(self.factor * math.ceil(math.log1p(n)), n)

    def _counts(self, lengths: Int[Tensor, " B"]) -> Int[Tensor, " B"]:
        return (self.factor * lengths.double().log1p().ceil().long()).minimum(lengths)

    def extra_repr(self) -> str:
        return f"factor={self.factor}, dropout={self.dropout}, scale={self.scale or '1/√D'}, seed={self.seed}"


def _lazy(v: Float[Tensor, "B H M E"], lengths: Int[Tensor, " B"], causal: bool) -> Float[Tensor, "B H M E"]:
    """The outputs of queries that do not attend: the mean of the real values, or their cumulative sum."""
    real = (torch.arange(v.shape[2], device=v.device) < lengths[:, None])[:, None, :, None]
    values = upcast(v) * real
    if causal:
        return values.cumsum(2).to(v.dtype)
    return (values.sum(2, keepdim=True) / lengths.clamp(min=1)[:, None, None, None]).to(v.dtype).expand_as(v)
