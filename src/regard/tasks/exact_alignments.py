"""All alignments of a small input: the exact values that hard attention estimates by sampling.

    p(s | x) = Π_t p(s_t | s_<t)        L_s = Σ_s p(s) log p(y | s)        log p(y) = log Σ_s p(s) p(y | s) ≥ L_s

M positions and T tokens have M^T alignments (fewer for a monotonic model), so both must be small. All alignments run
through the model as one batch. The results are differentiable: the gradient of `bound` is the expected gradient of
REINFORCE.
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

MAX_ALIGNMENTS = 100_000


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
        """L_s: the lower bound that hard attention maximises."""
        return (self.chances * self.rewards.sum(1)).sum()

    @property
    def likelihood(self) -> Float[Tensor, ""]:
        """log p(y)."""
        return (self.log_s.sum(1) + self.rewards.sum(1)).logsumexp(0)


def enumerate_alignments(model: nn.Module, source: Int[Tensor, " M"], target: Int[Tensor, " T1"]) -> ExactAlignments:
    """Return all alignments of one source and one target (begin token first), without dropout."""
    parts, places, tokens = stochastic_modules(model), len(source), len(target) - 1
    if len(parts) != 1:
        raise RegardError(f"alignments can be enumerated for one stochastic module; this model has {len(parts)}")
    found = list(islice(parts[0].all_paths(places, tokens), MAX_ALIGNMENTS + 1))
    if tokens < 1 or not 0 < len(found) <= MAX_ALIGNMENTS:
        raise BadInput(
            f"{places} positions and {tokens} tokens have too many alignments or none; at most {MAX_ALIGNMENTS:,} "
            "can be enumerated"
        )
    paths = torch.tensor(found, device=source.device)
    was = {part: part.training for part in model.modules()}
    model.eval()
    parts[0].training = True  # it follows forced paths in training mode only
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
