"""Hard attention: attend to one place only, sampled from the weights of another aligner.

    soft    c = Σ_m α_m h_m                                    deterministic, exact gradient       O(M)
    hard    c = h_s,  s ~ Multinoulli(α)                       stochastic, E[c] is the soft c      O(1) places read

A sample has no derivative, so the weights learn from the score function (REINFORCE): with r = log p(y | s) the gradient
of L_s = E_s[log p(y | s)] ≤ log p(y) is

    E_s[ ∂ log p(y | s)  +  λ_r (r - b) ∂ log p(s)  +  λ_e ∂ H[s] ]

This file samples and publishes log p(s_t), H[s_t] and the query of step t in the layer state of that step; the task
collects them (`collect_choices`) and adds the loss (tasks/reinforce.py). In eval mode it takes the likeliest place.
`base` is the aligner whose weights are sampled from, `soft_fraction` the share of inputs that take the expectation in
training all the same (one half in Xu et al., to steady the gradient).

Xu et al.: Show, Attend and Tell. ICML 2015. arXiv:1502.03044
Williams: Simple Statistical Gradient-Following Algorithms for Connectionist Reinforcement Learning. 1992
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from typing import Any, NamedTuple

import torch

from regard.attention.aligners import ALIGNERS
from regard.attention.aligners.base import AlignerBase
from regard.core.categorical import sample_categorical
from regard.core.errors import RegardError, Unsupported
from regard.core.layer_state import LayerState, PassState
from regard.core.lazy_dynamo import disable_compile
from regard.core.shapes import Bool, Float, Int, Tensor
from regard.core.spec import build_part


class SamplingAligner(AlignerBase):
    """Base class of hard and Gumbel aligners: one place for each query, in eval mode the likeliest."""

    def __init__(self, query_width: int, memory_width: int, width: int, base: str = "additive") -> None:
        super().__init__()
        self.base = build_part(
            ALIGNERS, base, "aligner", query_width=query_width, memory_width=memory_width, width=width
        )
        if not getattr(self.base, "normalised", True) or isinstance(self.base, SamplingAligner):
            raise Unsupported(f"'{base}' has no probabilities to sample from; use base='additive' or another softmax")

    def keys(self, memory: Float[Tensor, "B M C"]) -> Float[Tensor, "B M A"]:
        keys: Tensor = self.base.keys(memory)
        return keys

    def weights(
        self,
        query: Float[Tensor, "B K Q"],
        keys: Float[Tensor, "B M A"],
        mask: Bool[Tensor, "B M"] | None = None,
        state: Any = None,
    ) -> tuple[Float[Tensor, "B K M"], Any]:
        """Return one at the chosen place and zero elsewhere; zeros where the mask allows nothing."""
        probabilities, state = self.probabilities(query, keys, mask, state)
        weights = self.sample(probabilities) if self.training else one_hot(probabilities, probabilities.argmax(-1))
        return weights.to(keys.dtype), state

    def probabilities(
        self, query: Float[Tensor, "B K Q"], keys: Float[Tensor, "B M A"], mask: Any, state: Any
    ) -> tuple[Float[Tensor, "B K M"], Any]:
        """Return the weights of the base aligner, without autocast: log-probabilities need more than three digits."""
        with torch.autocast(query.device.type, enabled=False):
            least = torch.promote_types(keys.dtype, torch.float32)
            wide = next((weight.dtype for weight in self.base.parameters()), least)  # a whole model may be narrow
            found, state = self.base(query.to(wide), keys.to(wide), mask, state)
        return found, state

    def sample(self, probabilities: Float[Tensor, "B K M"]) -> Float[Tensor, "B K M"]:
        """Return the weights in training."""
        raise NotImplementedError


class ForcedChoices:
    """Base class of what samples choices; they can be forced, to enumerate every alignment of a small input.

    In training mode each choice is published in the layer state: `choice_log_prob` and `choice_entropy` B T (nats), and
    `choice_query` B T Q, what a baseline may know before the choice.
    """

    _path: Tensor | None = None  # the places to choose, if forced

    @contextmanager
    def force_path(self, path: Int[Tensor, "B T"] | Float[Tensor, "B T 2"]) -> Iterator[None]:
        """Inside the block, a pass in training mode chooses the places of `path` and publishes their probabilities.

        A place is a number, or (x, y) of a glimpse.
        """
        self._path = path
        try:
            yield
        finally:
            self._path = None


class Choices(NamedTuple):
    """The sampled choices of a pass, one column for each target token."""

    log_probs: Float[Tensor, "B T"]
    entropy: Float[Tensor, "B T"]
    queries: Float[Tensor, "B T Q"]


def collect_choices(pass_state: PassState) -> Choices:
    """Return what was published of the choices sampled in a pass."""
    names = "choice_log_prob", "choice_entropy", "choice_query"
    found = [pass_state.collect(name) for name in names]
    if not found[0]:
        raise RegardError("no choice was sampled in this pass: choices are sampled and published in training mode")
    return Choices(*(torch.cat(steps, 1) for steps in found))


class HardAligner(ForcedChoices, SamplingAligner):
    """Samples a place in training and publishes its log-probability in the layer state of the step."""

    takes_layer_state = True

    def __init__(
        self, query_width: int, memory_width: int, width: int, base: str = "additive", soft_fraction: float = 0.0
    ) -> None:
        super().__init__(query_width, memory_width, width, base)
        if not 0 <= soft_fraction <= 1:
            raise RegardError(f"soft_fraction={soft_fraction} must be from 0 (always sample) to 1 (never)")
        self.soft_fraction = soft_fraction

    def weights(
        self,
        query: Float[Tensor, "B K Q"],
        keys: Float[Tensor, "B M A"],
        mask: Bool[Tensor, "B M"] | None = None,
        state: Any = None,
        layer_state: LayerState | None = None,
    ) -> tuple[Float[Tensor, "B K M"], Any]:
        if not self.training:
            return super().weights(query, keys, mask, state)
        probabilities, state = self.probabilities(query, keys, mask, state)
        return self._choose(probabilities, query, layer_state).to(keys.dtype), state

    def forward(
        self,
        query: Float[Tensor, "B K Q"],
        keys: Float[Tensor, "B M A"],
        mask: Bool[Tensor, "B M"] | None = None,
        state: Any = None,
        layer_state: LayerState | None = None,
    ) -> tuple[Float[Tensor, "B K M"], Any]:
        return self.weights(query, keys, mask, state, layer_state)

    def all_paths(self, places: int, tokens: int) -> Iterator[tuple[int, ...]]:
        """Return every way to attend to one of `places` for each of `tokens`."""
        return product(range(places), repeat=tokens)

    @disable_compile  # it reads the step's number, which would mean a new graph at every step
    def _choose(
        self, probabilities: Float[Tensor, "B K M"], query: Float[Tensor, "B K Q"], layer_state: LayerState | None
    ) -> Float[Tensor, "B K M"]:
        """Return a sample, or the place of the forced path, or the probabilities for inputs that stay soft."""
        if self._path is None:
            place = sample_categorical(probabilities)
        elif layer_state is None:
            raise RegardError("a forced path needs to know the step: call the aligner with a LayerState")
        else:
            place = self._path[:, layer_state.depth, None].expand(probabilities.shape[:2])
        p = probabilities.gather(-1, place[..., None]).squeeze(-1)
        known = p > 0
        log_p = torch.where(known, p, 1.0).log()  # an input whose places are all masked has no choice
        if self._path is not None:
            log_p = log_p.masked_fill(~known & (probabilities.sum(-1) > 0), -torch.inf)  # a path that is never sampled
        weights = one_hot(probabilities, place)
        soft = self._soft_inputs(probabilities, layer_state)
        if soft is not None:
            weights = torch.where(soft[:, None, None], probabilities, weights)
            log_p = log_p.masked_fill(soft[:, None], 0.0)
        if layer_state is not None:
            layer_state.publish("choice_log_prob", log_p)
            layer_state.publish("choice_entropy", entropy(probabilities))
            layer_state.publish("choice_query", query.detach())
        return weights

    def _soft_inputs(self, like: Tensor, layer_state: LayerState | None) -> Bool[Tensor, " B"] | None:
        """Return which inputs take the expectation; drawn at the first step and the same for the whole pass."""
        if not self.soft_fraction or self._path is not None:
            return None
        soft: Tensor | None = None if layer_state is None else layer_state.previous("soft_inputs")
        if soft is None:
            soft = torch.rand(like.shape[0], device=like.device) < self.soft_fraction
        if layer_state is not None:
            layer_state.publish("soft_inputs", soft)
        return soft


def one_hot(probabilities: Float[Tensor, "B K M"], place: Int[Tensor, "B K"]) -> Float[Tensor, "B K M"]:
    """Return one at the place and zero elsewhere; all zero where every place is masked."""
    there = probabilities.detach().gather(-1, place[..., None]) > 0
    return torch.zeros_like(probabilities).scatter(-1, place[..., None], there.to(probabilities.dtype))


def entropy(probabilities: Float[Tensor, "B K M"]) -> Float[Tensor, "B K"]:
    """Return -Σ p log p in nats; places of probability zero add nothing, in the gradient too."""
    p = torch.where(probabilities > 0, probabilities, 1.0)
    return -(p * p.log()).sum(-1)
