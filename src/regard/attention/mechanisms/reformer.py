"""Reformer: LSH attention, each token attends to tokens whose vectors point in a similar direction.

    softmax     o_n = Σ_m exp(q_n·k_m / √D) v_m / Σ_m exp(q_n·k_m / √D)         over all m              O(N M D)
    reformer    the same with k_m = √D q_m / |q_m|, over the chunk of n and the one before     O(r N (log N + w D))
                bucket(x) = argmax [x R; -x R], R a random matrix; tokens sorted by bucket, cut into chunks of w
                o_n = Σ_r o_n^r exp(z_n^r) / Σ_r exp(z_n^r)         z_n^r: logsumexp of the scores in round r

Vectors with a small angle between them likely fall into the same bucket, so sorting by bucket puts large scores near
the diagonal. Several rounds with other random matrices find what one misses. Queries and keys are the same vectors
(the projection "shared_qk"), so a token would attend mostly to itself: it does so only where it sees nothing else.

Differs from the paper, as transformers' implementation does: a chunk's keys of other buckets are attended to as well,
and a key found in several rounds counts in each; the chunk before a round's first is the last of the round before. The
number of buckets is fixed when the layer is made (the paper's 2 N / w), in two factors where it is large. Outputs
depend on later tokens through the chunk boundaries, so the mechanism does not decode step by step.

Kitaev, Kaiser, Levskaya: Reformer: The Efficient Transformer. ICLR 2020. arXiv:2001.04451
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F

from regard.attention.gather import gather_tokens, true_lengths
from regard.attention.mask import Mask
from regard.attention.masked_softmax import upcast
from regard.attention.protocol import Mechanism, Traits
from regard.core.errors import RegardError
from regard.core.layer_state import LayerState
from regard.core.positions import Bias
from regard.core.shapes import Float, Int, Tensor
from regard.core.validation import Fraction, Seed

SELF = -1e5  # score of a token with itself: below every other, above what is masked


class ReformerAttention(Mechanism):
    """LSH attention in `rounds` rounds over chunks of `chunk` tokens.

    Args:
        heads, head_dim: sizes of the place; every head has its own random matrices.
        chunk: number w of tokens of a chunk.
        rounds: number of hash rounds; more find more of the large scores.
        buckets: number of buckets, even, or a pair of even factors; None: 2 length / chunk, at least 2.
        length: maximum length of the place; None: 4096.
        dropout: of the attention weights.
        seed: of the random matrices, which are saved with the model.
    """

    default_projection = "shared_qk"
    traits = Traits(
        cost="r N (log N + w D)",
        paper="2001.04451",
        masks=frozenset({"causal", "padding"}),
        bias=False,
        exact=False,
        causality="values",
        rowwise=False,
        headwise=False,
        square=True,
        positional=True,
        family="sparse by content",
    )

    def __init__(
        self,
        heads: int,
        head_dim: int,
        chunk: int = 64,
        rounds: int = 4,
        buckets: int | tuple[int, int] | None = None,
        length: int | None = None,
        dropout: Fraction = 0.0,
        seed: Seed = 0,
    ) -> None:
        super().__init__()
        self.chunk, self.rounds, self.dropout = chunk, rounds, dropout
        self.buckets = _default_buckets(length or 4096, chunk) if buckets is None else buckets
        self.factors = (self.buckets,) if isinstance(self.buckets, int) else tuple(self.buckets)
        if any(factor < 2 or factor % 2 for factor in self.factors):
            raise RegardError(f"buckets of reformer must be even, at least 2, or a pair of such, got {buckets}")
        generator = torch.Generator().manual_seed(seed)
        rotations = torch.randn(
            heads, head_dim, rounds, sum(self.factors) // 2, generator=generator, dtype=torch.float32
        )
        self.rotations: Tensor
        self.register_buffer("rotations", rotations.to(torch.get_default_dtype()))

    def mix(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        mask: Mask | None,
        bias: Bias | None,
        layer_state: LayerState | None = None,
    ) -> Tensor:
        (b, h, n, d), w = q.shape, self.chunk
        lengths = true_lengths(mask, b, n, q.device)
        k, v = (x.repeat_interleave(h // x.shape[1], 1) for x in (k, v))
        k = (upcast(k) * (upcast(k).square().mean(-1, keepdim=True) + 1e-6).rsqrt() * d**-0.5).to(q.dtype)
        order = self.sort(self.hash(q), lengths)  # B H r N
        chunks = F.pad(order, (0, -n % w), value=n).unflatten(-1, (-1, w)).flatten(2, 3)  # B H (r N/w) w
        before = _previous_chunks(self.rounds, chunks.shape[2] // self.rounds, lengths, w)
        keys = torch.cat([chunks, chunks.gather(2, before[:, None, :, None].expand_as(chunks))], -1)  # ... 2w
        near = keys.clamp(max=n - 1)  # what fills the last chunk is masked below
        scores = upcast(gather_tokens(q, chunks.clamp(max=n - 1)) @ gather_tokens(k, near).mT)
        scores = scores.masked_fill(chunks[..., None] == keys[..., None, :], SELF)
        allowed = (keys < lengths[:, None, None, None])[..., None, :]
        if mask is not None and "causal" in mask.kinds:
            allowed = allowed & (keys[..., None, :] <= chunks[..., None])
        scores = scores.masked_fill(~allowed, torch.finfo(scores.dtype).min)
        weights, total = scores.softmax(-1) * allowed, scores.logsumexp(-1, keepdim=True)
        weights = F.dropout(weights, self.dropout) if self.dropout and self.training else weights
        out = weights.to(v.dtype) @ gather_tokens(v, near)  # B H (r N/w) w E
        return _combine(out.flatten(2, 3), total.flatten(2, 3), order)

    def hash(self, x: Float[Tensor, "B H N D"]) -> Int[Tensor, "B H r N"]:
        """Return the bucket of every vector in every round."""
        rotated = torch.einsum("bhnd,hdrf->bhrnf", x.detach(), self.rotations.to(x.dtype))
        bucket, size = torch.zeros_like(rotated[..., 0], dtype=torch.long), 1
        for factor, part in zip(self.factors, rotated.split([f // 2 for f in self.factors], -1), strict=True):
            bucket = bucket + size * torch.cat([part, -part], -1).argmax(-1)
            size *= factor
        return bucket

    def sort(self, buckets: Int[Tensor, "B H r N"], lengths: Int[Tensor, " B"]) -> Int[Tensor, "B H r N"]:
        """Return the tokens of every round in order of bucket, then of position; padding comes last."""
        place = torch.arange(buckets.shape[-1], device=buckets.device)
        padding = place >= lengths[:, None, None, None]
        return buckets.masked_fill(padding, math.prod(self.factors)).argsort(dim=-1, stable=True)

    def extra_repr(self) -> str:
        return f"chunk={self.chunk}, rounds={self.rounds}, buckets={self.buckets}"


def _default_buckets(length: int, chunk: int) -> int | tuple[int, int]:
    """The power of two up to 2 length / chunk; as two factors where hashing would cost more than attending."""
    bits = max((2 * (length // chunk)).bit_length() - 1, 1)
    return 2**bits if 2**bits <= 2 * max(chunk, 2) else (2 ** (bits // 2), 2 ** (bits - bits // 2))


def _previous_chunks(rounds: int, chunks: int, lengths: Tensor, w: int) -> Int[Tensor, "B C"]:
    """The chunk before each, in a ring of all rounds: before a round's first comes the last real one of another."""
    own = torch.arange(rounds * chunks, device=lengths.device)
    last = ((lengths - 1).clamp(min=0) // w)[:, None] + (own // chunks - 1) % rounds * chunks
    return torch.where(own % chunks == 0, last, own - 1)


def _combine(out: Float[Tensor, "B H L E"], total: Float[Tensor, "B H L 1"], order: Int[Tensor, "B H r N"]) -> Tensor:
    """Bring the rounds back into the order of the tokens and average them, weighted by their sums of exponentials."""
    r, n = order.shape[2:]
    place = torch.empty_like(order).scatter_(-1, order, torch.arange(n, device=order.device).expand_as(order))
    place = place + torch.arange(r, device=order.device)[:, None] * (out.shape[2] // r)  # rounds one after another
    share = gather_tokens(total, place).softmax(2)  # B H r N 1
    return (gather_tokens(out, place) * share.to(out.dtype)).sum(2)
