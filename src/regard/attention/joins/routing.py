"""Routing by agreement: how much each head counts for each part of the output is found by iteration, for every token.

    concat        out = [head_1 ... head_H] W_o                                                     O(N C²)
    votes         V_hs = head_h W_hs                       what head h says the whole s is          O(N C²)
    routing       whole_s = Σ_h c_hs V_hs / Σ_h c_hs       c_h = softmax_s(b_h), b_hs += whole_s · V_hs     O(T N H C)
    em_routing    whole_s = a_s μ_s                        μ, σ², a and c by T rounds of EM         O(T N H C)

The output of a token is S wholes (output capsules) side by side, each of C / S numbers. A head that agrees with the
wholes of the others is weighted up there: parts are assigned to wholes. In EM a whole is a Gaussian over the votes that
it got; its activation a_s = σ(λ (β_a - Σ_d (β_u + log σ_sd) Σ_h c_hs)) is high where they are dense, and a head's share
c_hs ∝ a_s N(V_hs; μ_s, σ_s²), each head weighted by its own activation sigmoid(w_h · head_h). Votes take part in every
round with their gradients.

What differs from the paper: the heads themselves are the input capsules (no layer between them and their votes), and
the constant ½ (1 + log 2π) of a Gaussian's entropy is part of β_u, as in Hinton et al. Statistics are in float32.

Li, Yang, Dou, Wang, Lyu, Tu: Information Aggregation for Multi-Head Attention with Routing-by-Agreement. NAACL 2019.
arXiv:1904.03100; Sabour, Frosst, Hinton: Dynamic Routing Between Capsules. NeurIPS 2017. arXiv:1710.09829; Hinton,
Sabour, Frosst: Matrix Capsules with EM Routing. ICLR 2018
"""

from __future__ import annotations

from typing import Annotated

import torch
import torch.nn.functional as F
from torch import nn

from regard.attention.masked_softmax import upcast
from regard.core.errors import RegardError
from regard.core.shapes import Float, Tensor
from regard.core.validation import Range

EPS = 1e-6  # added to a variance: of a single vote it is zero


class Routing(nn.Module):
    """The votes of all heads for all wholes; a subclass writes `route`."""

    def __init__(
        self, width: int, heads: int, head_dim: int, capsules: int | None = None, iterations: int = 3, bias: bool = True
    ) -> None:
        super().__init__()
        capsules = heads if capsules is None else capsules
        if width % capsules:
            raise RegardError(f"width {width} is not divisible by {capsules} capsules; change one of them")
        self.capsules, self.iterations = capsules, iterations
        self.votes = nn.Parameter(torch.randn(heads, head_dim, width) * head_dim**-0.5)
        self.bias = nn.Parameter(torch.zeros(width)) if bias else None

    def forward(self, heads: Float[Tensor, "B H N D"]) -> Float[Tensor, "B N C"]:
        votes = (heads @ self.votes.to(heads.dtype)).transpose(1, 2).unflatten(-1, (self.capsules, -1))
        out = self.route(upcast(votes), upcast(heads)).flatten(2).to(heads.dtype)
        return out if self.bias is None else out + self.bias.to(out.dtype)

    def route(self, votes: Float[Tensor, "B N H S E"], heads: Float[Tensor, "B H N D"]) -> Float[Tensor, "B N S E"]:
        """Return the wholes."""
        raise NotImplementedError

    def extra_repr(self) -> str:
        return f"capsules={self.capsules}, iterations={self.iterations}"


class SimpleRouting(Routing):
    """Wholes are means of votes, weighted by their dot products with the wholes of the rounds before."""

    def route(self, votes: Float[Tensor, "B N H S E"], heads: Float[Tensor, "B H N D"]) -> Float[Tensor, "B N S E"]:
        scores = votes.new_zeros(votes.shape[:-1])
        whole = votes.mean(2)  # the first round: all shares are equal
        for _ in range(self.iterations - 1):
            scores = scores + (whole[:, :, None] * votes).sum(-1)
            whole = _mean(scores.softmax(-1), votes)
        return whole


class EMRouting(Routing):
    """Wholes are Gaussians over votes, fitted by expectation and maximisation; `temperature` is 1/λ."""

    def __init__(
        self,
        width: int,
        heads: int,
        head_dim: int,
        capsules: int | None = None,
        iterations: int = 3,
        bias: bool = True,
        temperature: Annotated[float, Range(above=0)] = 1.0,
    ) -> None:
        super().__init__(width, heads, head_dim, capsules, iterations, bias)
        self.temperature = temperature
        self.activation = nn.Parameter(torch.zeros(heads, head_dim))
        self.beta_a, self.beta_u = (nn.Parameter(torch.zeros(self.capsules)) for _ in range(2))

    def route(self, votes: Float[Tensor, "B N H S E"], heads: Float[Tensor, "B H N D"]) -> Float[Tensor, "B N S E"]:
        active = torch.einsum("bhnd,hd->bnh", heads, upcast(self.activation)).sigmoid()[..., None]
        equal = torch.full(votes.shape[:-1], 1 / self.capsules, dtype=votes.dtype, device=votes.device)
        mean, variance, log_activation = self._fit(votes, equal * active)
        for _ in range(self.iterations - 1):
            log_density = -0.5 * ((votes - mean[:, :, None]).square() / variance[:, :, None]).sum(-1)
            log_density = log_density - 0.5 * variance.log().sum(-1)[:, :, None]
            shares = (log_density + log_activation[:, :, None]).softmax(-1)  # of the wholes, given each vote
            mean, variance, log_activation = self._fit(votes, shares * active)
        return mean * log_activation.exp()[..., None]

    def _fit(self, votes: Float[Tensor, "B N H S E"], weights: Float[Tensor, "B N H S"]) -> tuple[Tensor, ...]:
        """Return mean and variance B N S E and the logarithm of the activation B N S of each whole."""
        mean = _mean(weights, votes)
        variance = _mean(weights, (votes - mean[:, :, None]).square()) + EPS
        cost = (upcast(self.beta_u)[:, None] + 0.5 * variance.log()) * weights.sum(2)[..., None]
        return mean, variance, F.logsigmoid((upcast(self.beta_a) - cost.sum(-1)) / self.temperature)


def _mean(weights: Float[Tensor, "B N H S"], x: Float[Tensor, "B N H S E"]) -> Float[Tensor, "B N S E"]:
    """Mean over the heads."""
    total = weights.sum(2)[..., None]
    return (weights[..., None] * x).sum(2) / total.clamp(min=torch.finfo(total.dtype).tiny)
