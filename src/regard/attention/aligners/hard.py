"""Hard attention: look at one place only, drawn from the weights that another aligner gives.

    soft    c = Σ_m α_m h_m                                    deterministic, exact gradient       O(M)
    hard    c = h_s,  s ~ Multinoulli(α)                       stochastic, E[c] is the soft c      O(1) places read

A draw has no derivative, so what is learned of the weights comes from the score function (REINFORCE): with
r = log p(y | s) the gradient of L_s = E_s[log p(y | s)] ≤ log p(y) is

    E_s[ ∂ log p(y | s)  +  λ_r (r - b) ∂ log p(s)  +  λ_e ∂ H[s] ]

This file draws, and remembers log p(s_t) and H[s_t] for whoever knows the reward: `told()` gives them once, for the
reading that `keys()` began. tasks/reinforced.py does the rest; models need not know. In eval mode it takes the
likeliest place. `over` is the aligner whose weights are drawn from, `soft` the share of inputs that take the
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
from regard.attention.aligners.scored import Looking
from regard.core.compiler import uncompiled
from regard.core.draw import drawn
from regard.core.errors import RegardError, Unsupported
from regard.core.shapes import Bool, Float, Int, Tensor
from regard.core.spec import make


class ChoosingAligner(Looking):
    """One place for each query: what hard and Gumbel aligners share. In eval mode the likeliest."""

    def __init__(self, query_width: int, memory_width: int, width: int, over: str = "additive") -> None:
        super().__init__()
        self.over = make(ALIGNERS, over, "aligner", query_width=query_width, memory_width=memory_width, width=width)
        if not getattr(self.over, "normalised", True) or isinstance(self.over, ChoosingAligner):
            raise Unsupported(f"'{over}' gives no probabilities to draw from; take over='additive' or another softmax")

    def keys(self, memory: Float[Tensor, "B M C"]) -> Float[Tensor, "B M A"]:
        """Those of the aligner underneath, once for each input."""
        keys: Tensor = self.over.keys(memory)
        return keys

    def weights(
        self,
        query: Float[Tensor, "B K Q"],
        keys: Float[Tensor, "B M A"],
        mask: Bool[Tensor, "B M"] | None = None,
        state: Any = None,
    ) -> tuple[Float[Tensor, "B K M"], Any]:
        """One where each query looks, zero elsewhere (and everywhere where the mask allows nothing)."""
        chances, state = self.chances(query, keys, mask, state)
        weights = self.choose(chances) if self.training else one_hot(chances, chances.argmax(-1))
        return weights.to(keys.dtype), state

    def chances(
        self, query: Float[Tensor, "B K Q"], keys: Float[Tensor, "B M A"], mask: Any, state: Any
    ) -> tuple[Float[Tensor, "B K M"], Any]:
        """What is drawn from. Not under autocast: the logarithm of a probability needs more than three digits."""
        with torch.autocast(query.device.type, enabled=False):
            least = torch.promote_types(keys.dtype, torch.float32)
            wide = next((weight.dtype for weight in self.over.parameters()), least)  # a whole model may be narrow
            found, state = self.over(query.to(wide), keys.to(wide), mask, state)
        return found, state

    def choose(self, chances: Float[Tensor, "B K M"]) -> Float[Tensor, "B K M"]:
        """The weights in training."""
        raise NotImplementedError


class Following:
    """What draws choices and can be told them instead: every alignment of a small input can so be gone through."""

    _path: Tensor | None = None  # where to look, where that is given

    @contextmanager
    def following(self, path: Int[Tensor, "B T"]) -> Iterator[None]:
        """Inside, one reading in training mode chooses what `path` says and tells how likely that was."""
        self._path = path
        try:
            yield
        finally:
            self._path = None


class HardAligner(Following, ChoosingAligner):
    """Draws a place in training and remembers how likely it was; `told()` hands that to the task."""

    def __init__(
        self, query_width: int, memory_width: int, width: int, over: str = "additive", soft: float = 0.0
    ) -> None:
        super().__init__(query_width, memory_width, width, over)
        if not 0 <= soft <= 1:
            raise RegardError(f"soft={soft} is not a share; give a number from 0 (always draw) to 1 (never)")
        self.soft = soft
        self._steps: list[tuple[Tensor, Tensor]] = []  # log-probability and entropy of each step of this reading
        self._asked: list[Tensor] = []  # the query of each step
        self._stays: Tensor | None = None  # inputs that take the expectation in this reading

    def keys(self, memory: Float[Tensor, "B M C"]) -> Float[Tensor, "B M A"]:
        """Those of the aligner underneath; a new reading begins."""
        if self.training:
            self._steps, self._asked, self._stays = [], [], None
            if self.soft and self._path is None:
                self._stays = torch.rand(memory.shape[0], device=memory.device) < self.soft
        return super().keys(memory)

    def told(self) -> tuple[Float[Tensor, "B T"], Float[Tensor, "B T"]]:
        """Log-probability of each choice and entropy of what it was drawn from (nats); given once a reading."""
        if not self._steps:
            raise RegardError("nothing was drawn since the last keys(): choices are drawn and told in training mode")
        log_p, entropy = (torch.cat(parts, 1) for parts in zip(*self._steps, strict=True))
        self._steps, self._asked = [], []
        return log_p, entropy

    def asked(self) -> Float[Tensor, "B T Q"]:
        """What a baseline may know: the query before each choice. Ask before being told."""
        return torch.cat(self._asked, 1)

    def weights(
        self,
        query: Float[Tensor, "B K Q"],
        keys: Float[Tensor, "B M A"],
        mask: Bool[Tensor, "B M"] | None = None,
        state: Any = None,
    ) -> tuple[Float[Tensor, "B K M"], Any]:
        """As of any that chooses; in training the query is remembered too."""
        if self.training:
            self._hear(query)
        return super().weights(query, keys, mask, state)

    @uncompiled  # as below
    def _hear(self, query: Tensor) -> None:
        self._asked.append(query.detach())

    def paths(self, places: int, tokens: int) -> Iterator[tuple[int, ...]]:
        """Every way to look at one of so many places for each of so many tokens."""
        return product(range(places), repeat=tokens)

    @uncompiled  # it keeps a list, whose growing length would mean a new graph at every step
    def choose(self, chances: Float[Tensor, "B K M"]) -> Float[Tensor, "B K M"]:
        """A draw, or the place of the path that is followed, or the expectation for inputs that stay soft."""
        place = (
            drawn(chances) if self._path is None else self._path[:, len(self._steps), None].expand(chances.shape[:2])
        )
        p = chances.gather(-1, place[..., None]).squeeze(-1)
        known = p > 0
        log_p = torch.where(known, p, 1.0).log()  # an input without a place has no choice
        if self._path is not None:
            log_p = log_p.masked_fill(~known & (chances.sum(-1) > 0), -torch.inf)  # a path that is never drawn
        weights = one_hot(chances, place)
        if self._stays is not None:
            stays = self._stays[:, None]
            weights, log_p = torch.where(stays[..., None], chances, weights), log_p.masked_fill(stays, 0.0)
        self._steps.append((log_p, entropy(chances)))
        return weights


def one_hot(chances: Float[Tensor, "B K M"], place: Int[Tensor, "B K"]) -> Float[Tensor, "B K M"]:
    """One at the place, zero elsewhere; all zero where nothing may be looked at."""
    there = chances.detach().gather(-1, place[..., None]) > 0
    return torch.zeros_like(chances).scatter(-1, place[..., None], there.to(chances.dtype))


def entropy(chances: Float[Tensor, "B K M"]) -> Float[Tensor, "B K"]:
    """-Σ p log p in nats; what has no chance adds nothing, in the gradient too."""
    p = torch.where(chances > 0, chances, 1.0)
    return -(p * p.log()).sum(-1)
