"""Sampling the next token from its logits l.

    repetition penalty r    l / r where l > 0, else l · r        for every token that occurred before
    temperature t           l / t
    top-k                   only the k most likely
    top-p                   only the most likely that make up p of the remaining probability: the nucleus
    min-p                   only tokens at least m times as likely as the most likely one

Applied in this order. Tokens of equal probability at a threshold all stay or all go. The sampled token is the first at
which the cumulative probability exceeds u, a uniform number of that token's own; probabilities are summed in vocabulary
order and not by rank, so that rounding, which may swap the ranks of near-equal tokens, does not change the sample.

Keskar et al. 2019 (the penalty), arXiv:1909.05858; Fan, Lewis, Dauphin 2018 (top-k), arXiv:1805.04833; Holtzman et al.
2020 (top-p), arXiv:1904.09751; Nguyen et al. 2024 (min-p), arXiv:2407.01082
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from regard.core.errors import BadInput
from regard.core.shapes import Bool, Float, Int, Tensor
from regard.decoding.seed import validate_seed

NEG_INF = float("-inf")
MIN_VALUE = 1e-30  # a smaller temperature or top_p would be 0 in float32


@dataclass(frozen=True)
class Sampler:
    """Samples a token from its logits."""

    temperature: float = 1.0
    top_k: int = 0  # 0: all
    top_p: float = 1.0
    min_p: float = 0.0

    def __post_init__(self) -> None:
        if not 0 < self.temperature < float("inf"):
            raise BadInput(f"temperature must be above 0 and finite (0 is greedy search), got {self.temperature}")
        if self.top_k < 0:
            raise BadInput(f"top_k must be at least 1, or 0 for all tokens, got {self.top_k}")
        if not 0 < self.top_p <= 1:
            raise BadInput(f"top_p must lie in (0, 1], got {self.top_p}")
        if not 0 <= self.min_p <= 1:
            raise BadInput(f"min_p must lie in [0, 1], got {self.min_p}")

    def __call__(self, logits: Float[Tensor, "B K V"], uniform: Float[Tensor, "B K"]) -> Int[Tensor, "B K"]:
        """Return a token for each output."""
        total = self.probabilities(logits).cumsum(-1)
        return (total <= uniform[..., None] * total[..., -1:]).sum(-1)

    def probabilities(self, logits: Float[Tensor, "*B V"]) -> Float[Tensor, "*B V"]:
        """Return the probability of every token, 0 where it is excluded; the sum may be below 1."""
        for _, p in self.filters(logits):
            shares = p
        return shares

    def filters(self, logits: Float[Tensor, "*B V"]) -> Iterator[tuple[str, Float[Tensor, "*B V"]]]:
        """Yield the name of each filter and the probabilities after it; excluded tokens have probability 0."""
        logits = logits.float() / max(self.temperature, MIN_VALUE)
        has_top_k = 0 < self.top_k < logits.shape[-1]
        if has_top_k:
            logits = logits.masked_fill(logits < fast_topk(logits, self.top_k)[0][..., -1:], NEG_INF)
        p = logits.softmax(-1)
        yield "top_k", p
        if self.top_p < 1:
            best = p.topk(self.top_k if has_top_k else p.shape[-1], dim=-1).values
            # a token is in the nucleus if those before it do not fill it
            outside = best.cumsum(-1) - best >= max(self.top_p, MIN_VALUE)
            p = p.masked_fill(p < best.masked_fill(outside, 1.0).amin(-1, keepdim=True), 0.0)
            yield "top_p", p
        if self.min_p:
            p = p.masked_fill(p < self.min_p * p.amax(-1, keepdim=True), 0.0)
            yield "min_p", p


def uniform_numbers(seeds: Sequence[int], steps: int, num_samples: int) -> Float[Tensor, "T B K"]:
    """Return uniform numbers in [0, 1), per input from its own seed; none so near to 1 that a product rounds to it."""
    numbers = [
        torch.rand(steps, num_samples, generator=torch.Generator().manual_seed(validate_seed(seed))) for seed in seeds
    ]
    return torch.stack(numbers, 1).clamp_(max=1 - 2**-23)


def apply_repetition_penalty(
    logits: Float[Tensor, "B k V"], previous: Bool[Tensor, "B K V"], penalty: float
) -> Float[Tensor, "B K V"]:
    """Make tokens that occurred before less likely."""
    return torch.where(previous, torch.where(logits > 0, logits / penalty, logits * penalty), logits)


def fast_topk(x: Float[Tensor, "*B V"], n: int) -> tuple[Tensor, Tensor]:
    """Return the n largest along the vocabulary; on a CPU, search only the n blocks with the largest maxima."""
    block = 64
    if x.is_cuda or x.shape[-1] < 4 * n * block:
        return x.topk(n, dim=-1)
    blocked = x.shape[-1] // block * block
    blocks = x[..., :blocked].unflatten(-1, (-1, block))
    _, block_index = blocks.amax(-1).topk(n, dim=-1)
    values = blocks.gather(-2, block_index[..., None].expand(*block_index.shape, block)).flatten(-2)
    index = (block_index[..., None] * block + torch.arange(block, device=x.device)).flatten(-2)
    if blocked < x.shape[-1]:
        values = torch.cat([values, x[..., blocked:]], -1)
        rest = torch.arange(blocked, x.shape[-1], device=x.device).expand(*x.shape[:-1], -1)
        index = torch.cat([index, rest], -1)
    best, best_index = values.topk(n, dim=-1)
    return best, index.gather(-1, best_index)
