"""Hard attention: look at one place only, drawn from the weights that another aligner gives.

    soft    c = Σ_m α_m h_m                                    deterministic, exact gradient       O(M)
    hard    c = h_s,  s ~ Multinoulli(α)                       stochastic, E[c] is the soft c      O(1) places read

A draw has no derivative, so what is learned of the weights comes from the score function (REINFORCE): with
r = log p(y | s) the gradient of L_s = E_s[log p(y | s)] ≤ log p(y) is

    E_s[ ∂ log p(y | s)  +  λ_r (r - b) ∂ log p(s)  +  λ_e ∂ H[s] ]

This file draws, and remembers log p(s_t) and H[s_t] for whoever knows the reward: `log_probs()` gives them once, for the
reading that `keys()` began. tasks/reinforce.py does the rest; models need not know. In eval mode it takes the
likeliest place. `base` is the aligner whose weights are drawn from, `soft_distillation_loss` the share of inputs that take the
expectation in training all the same (one half in Xu et al., to steady the gradient).

Xu et al.: Show, Attend and Tell. ICML 2015. arXiv:1502.03044
Williams: Simple Statistical Gradient-Following Algorithms for Connectionist Reinforcement Learning. 1992
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from typing import Any

import torch

from regard.attention.aligners import ALIGNERS
from regard.attention.aligners.base import AlignerBase
from regard.core.categorical import sample_categorical
from regard.core.errors import RegardError, Unsupported
from regard.core.lazy_dynamo import disable_compile
from regard.core.shapes import Bool, Float, Int, Tensor
from regard.core.spec import build_part


class SamplingAligner(AlignerBase):
    """One place for each query: what hard and Gumbel aligners share. In eval mode the likeliest."""

    def __init__(self, query_width: int, memory_width: int, width: int, base: str = "additive") -> None:
        super().__init__()
        self.base = build_part(
            ALIGNERS, base, "aligner", query_width=query_width, memory_width=memory_width, width=width
        )
        if not getattr(self.base, "normalised", True) or isinstance(self.base, SamplingAligner):
            raise Unsupported(f"'{base}' gives no probabilities to draw from; take base='additive' or another softmax")

    def keys(self, memory: Float[Tensor, "B M C"]) -> Float[Tensor, "B M A"]:
        """Those of the aligner underneath, once for each input."""
        keys: Tensor = self.base.keys(memory)
        return keys

    def weights(
        self,
        query: Float[Tensor, "B K Q"],
        keys: Float[Tensor, "B M A"],
        mask: Bool[Tensor, "B M"] | None = None,
        state: Any = None,
    ) -> tuple[Float[Tensor, "B K M"], Any]:
        """One where each query looks, zero elsewhere (and everywhere where the mask allows nothing)."""
        probabilities, state = self.probabilities(query, keys, mask, state)
        weights = self.sample(probabilities) if self.training else one_hot(probabilities, probabilities.argmax(-1))
        return weights.to(keys.dtype), state

    def probabilities(
        self, query: Float[Tensor, "B K Q"], keys: Float[Tensor, "B M A"], mask: Any, state: Any
    ) -> tuple[Float[Tensor, "B K M"], Any]:
        """What is drawn from. Not under autocast: the logarithm of a probability needs more than three digits."""
        with torch.autocast(query.device.type, enabled=False):
            least = torch.promote_types(keys.dtype, torch.float32)
            wide = next((weight.dtype for weight in self.base.parameters()), least)  # a whole model may be narrow
            found, state = self.base(query.to(wide), keys.to(wide), mask, state)
        return found, state

    def sample(self, probabilities: Float[Tensor, "B K M"]) -> Float[Tensor, "B K M"]:
        """The weights in training."""
        raise NotImplementedError


class ForcedChoices:
    """What draws choices and can be told them instead: every alignment of a small input can so be gone through."""

    _path: Tensor | None = None  # where to look, where that is given

    @contextmanager
    def force_path(self, path: Int[Tensor, "B T"]) -> Iterator[None]:
        """Inside, one reading in training mode chooses what `alignment_path` says and tells how likely that was."""
        self._path = path
        try:
            yield
        finally:
            self._path = None


class HardAligner(ForcedChoices, SamplingAligner):
    """Draws a place in training and remembers how likely it was; `log_probs()` hands that to the task."""

    def __init__(
        self, query_width: int, memory_width: int, width: int, base: str = "additive", soft_fraction: float = 0.0
    ) -> None:
        super().__init__(query_width, memory_width, width, base)
        if not 0 <= soft_fraction <= 1:
            raise RegardError(
                f"soft_fraction={soft_fraction} is not a share; give a number from 0 (always draw) to 1 (never)"
            )
        self.soft_fraction = soft_fraction
        self._steps: list[tuple[Tensor, Tensor]] = []  # log-probability and entropy of each step of this reading
        self._queries: list[Tensor] = []  # the query of each step
        self._soft_rows: Tensor | None = None  # inputs that take the expectation in this reading

    def keys(self, memory: Float[Tensor, "B M C"]) -> Float[Tensor, "B M A"]:
        """Those of the aligner underneath; a new reading begins."""
        if self.training:
            self._steps, self._queries, self._soft_rows = [], [], None
            if self.soft_fraction and self._path is None:
                self._soft_rows = torch.rand(memory.shape[0], device=memory.device) < self.soft_fraction
        return super().keys(memory)

    def log_probs(self) -> tuple[Float[Tensor, "B T"], Float[Tensor, "B T"]]:
        """Log-probability of each choice and entropy of what it was drawn from (nats); given once a reading."""
        if not self._steps:
            raise RegardError("nothing was drawn since the last keys(): choices are drawn and told in training mode")
        log_p, entropy = (torch.cat(parts, 1) for parts in zip(*self._steps, strict=True))
        self._steps, self._queries = [], []
        return log_p, entropy

    def queries(self) -> Float[Tensor, "B T Q"]:
        """What a baseline may know: the query before each choice. Ask before being told."""
        return torch.cat(self._queries, 1)

    def weights(
        self,
        query: Float[Tensor, "B K Q"],
        keys: Float[Tensor, "B M A"],
        mask: Bool[Tensor, "B M"] | None = None,
        state: Any = None,
    ) -> tuple[Float[Tensor, "B K M"], Any]:
        """As of any that chooses; in training the query is remembered too."""
        if self.training:
            self._record_query(query)
        return super().weights(query, keys, mask, state)

    @disable_compile  # as below
    def _record_query(self, query: Tensor) -> None:
        self._queries.append(query.detach())

    def all_paths(self, places: int, tokens: int) -> Iterator[tuple[int, ...]]:
        """Every way to look at one of so many places for each of so many tokens."""
        return product(range(places), repeat=tokens)

    @disable_compile  # it keeps a list, whose growing length would mean a new graph at every step
    def sample(self, probabilities: Float[Tensor, "B K M"]) -> Float[Tensor, "B K M"]:
        """A draw, or the place of the path that is followed, or the expectation for inputs that stay soft."""
        place = (
            sample_categorical(probabilities)
            if self._path is None
            else self._path[:, len(self._steps), None].expand(probabilities.shape[:2])
        )
        p = probabilities.gather(-1, place[..., None]).squeeze(-1)
        known = p > 0
        log_p = torch.where(known, p, 1.0).log()  # an input without a place has no choice
        if self._path is not None:
            log_p = log_p.masked_fill(~known & (probabilities.sum(-1) > 0), -torch.inf)  # a path that is never drawn
        weights = one_hot(probabilities, place)
        if self._soft_rows is not None:
            soft_rows = self._soft_rows[:, None]
            weights, log_p = (
                torch.where(soft_rows[..., None], probabilities, weights),
                log_p.masked_fill(soft_rows, 0.0),
            )
        self._steps.append((log_p, entropy(probabilities)))
        return weights


def one_hot(probabilities: Float[Tensor, "B K M"], place: Int[Tensor, "B K"]) -> Float[Tensor, "B K M"]:
    """One at the place, zero elsewhere; all zero where nothing may be looked at."""
    there = probabilities.detach().gather(-1, place[..., None]) > 0
    return torch.zeros_like(probabilities).scatter(-1, place[..., None], there.to(probabilities.dtype))


def entropy(probabilities: Float[Tensor, "B K M"]) -> Float[Tensor, "B K"]:
    """-Σ p log p in nats; what has no chance adds nothing, in the gradient too."""
    p = torch.where(probabilities > 0, probabilities, 1.0)
    return -(p * p.log()).sum(-1)
