"""Every alignment of a small input, one after another: the exact twin of what hard attention estimates.

    p(s | x) = Π_t p(s_t | s_<t)        L_s = Σ_s p(s) log p(y | s)        log p(y) = log Σ_s p(s) p(y | s) ≥ L_s

M places and T tokens have M^T alignments (fewer for a model that reads only forwards), so this is for a handful of
each. All of them go through the model as one batch, each looking where it is told to. What comes out is differentiable:
the gradient of `bound` is the exact one that REINFORCE has in the mean.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice

import torch
from torch import nn

from regard.attention.aligners.hard import collect_choices
from regard.core.errors import BadInput, RegardError
from regard.core.layer_state import PassState
from regard.core.shapes import Float, Int, Tensor
from regard.tasks.reinforce import stochastic_modules, token_log_probs

MAX_ALIGNMENTS = 100_000  # alignments


@dataclass(frozen=True, eq=False)
class ExactAlignments:
    """All P alignments of one input with T target tokens."""

    paths: Int[Tensor, "P T"]
    log_s: Float[Tensor, "P T"]  # log p(s_t | s_<t)
    rewards: Float[Tensor, "P T"]  # log p(y_t | s, y_<t)

    @property
    def chances(self) -> Float[Tensor, " P"]:
        """p(s); they sum to one."""
        return self.log_s.sum(1).exp()

    @property
    def bound(self) -> Float[Tensor, ""]:
        """L_s: what hard attention climbs."""
        return (self.chances * self.rewards.sum(1)).sum()

    @property
    def likelihood(self) -> Float[Tensor, ""]:
        """log p(y): what it bounds."""
        return (self.log_s.sum(1) + self.rewards.sum(1)).logsumexp(0)


def enumerate_alignments(model: nn.Module, source: Int[Tensor, " M"], target: Int[Tensor, " T1"]) -> ExactAlignments:
    """All alignments of one source and one target (begin token first), without dropout."""
    parts, places, tokens = stochastic_modules(model), len(source), len(target) - 1
    if len(parts) != 1:
        raise RegardError(f"{len(parts)} parts of this model choose; alignments are enumerated for one")
    found = list(islice(parts[0].all_paths(places, tokens), MAX_ALIGNMENTS + 1))
    if tokens < 1 or not 0 < len(found) <= MAX_ALIGNMENTS:
        raise BadInput(
            f"{places} places and {tokens} tokens: from 1 to {MAX_ALIGNMENTS:,} alignments can be enumerated"
        )
    paths = torch.tensor(found, device=source.device)
    was = {part: part.training for part in model.modules()}
    model.eval()
    parts[0].training = True  # it follows and tells in training mode; all else is as in eval
    try:
        with parts[0].force_path(paths):
            pass_state = PassState()
            rows = source.expand(len(paths), -1), target[:-1].expand(len(paths), -1)
            logits = model(*rows, pass_state=pass_state)
            log_s = collect_choices(pass_state).log_probs
    finally:
        for part, mode in was.items():
            part.training = mode
    return ExactAlignments(paths, log_s, token_log_probs(logits, target[1:].expand(len(paths), -1)))
