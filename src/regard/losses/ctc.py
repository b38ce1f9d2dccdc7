"""CTC forward-backward in log space: the probability of a target, summed over all alignments with the frames.

    states     z = - y_1 - y_2 - ... y_S -                              2S + 1 of them; "-" is the blank
    forward    α_t(s) = log p_t(z_s) + log Σ exp α_{t-1}(s, s-1, s-2)   s-2 only across a blank between different labels
    backward   β: the same recursion on the reversed sequences; both run in one loop as one batch
    value      log p(y) = log Σ exp α_T(last two states)
    gradient   ∂ -log p(y) / ∂ log p_t(k) = -Σ_{s: z_s = k} γ_t(s)      γ_t(s) = exp(α + β - log p_t(z_s) - log p(y))

γ_t(s) is the posterior of state s at frame t; it sums to one over s. On a CPU training uses torch's loss, equal in
value and gradient. O(T S) per recording, vectorised over recordings and states.

A target of S labels of which R repeat the one before needs S + R frames. With fewer frames there is no alignment: the
loss is infinite and its gradient zero, never NaN; `check_frame_lengths` names the recording.

Graves, Fernández, Gomez, Schmidhuber: Connectionist Temporal Classification. ICML 2006
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch.autograd.function import once_differentiable

from regard.blocks.rnn import reverse_index
from regard.core.errors import BadInput
from regard.core.shapes import Bool, Float, Int, Tensor

NEG_INF = float("-inf")
ALIGNED_FRAMES = 1024  # whose emissions are held at a time


class Lattice(NamedTuple):
    """States of the targets: blanks and labels in turn."""

    labels: Int[Tensor, "B L"]  # L = 2S + 1; blank beyond a target's own states
    lengths: Int[Tensor, " B"]  # number of states of each target
    jumps: Bool[Tensor, "B L"]  # True where a state may be entered from two states before

    @classmethod
    def of(cls, targets: Int[Tensor, "B S"], target_lengths: Int[Tensor, " B"], blank: int) -> Lattice:
        """Build the lattice of padded targets."""
        batch, size = targets.shape
        valid = torch.arange(size, device=targets.device) < target_lengths[:, None]
        labels = targets.new_full((batch, 2 * size + 1), blank)
        labels[:, 1::2] = targets.where(valid, blank)
        return cls(labels, 2 * target_lengths + 1, _skip_allowed(labels, blank))

    def reversed(self, blank: int) -> Lattice:
        """Return the lattice of the reversed targets."""
        labels = self.labels.gather(1, reverse_index(self.labels.shape[1], self.lengths, self.labels.device))
        return Lattice(labels, self.lengths, _skip_allowed(labels, blank))


def ctc_loss(
    log_probs: Float[Tensor, "B T V"],
    targets: Int[Tensor, "B S"],
    frame_lengths: Int[Tensor, " B"],
    target_lengths: Int[Tensor, " B"],
    blank: int,
) -> Float[Tensor, " B"]:
    """Return -log p(target) of each recording; infinite where there are too few frames."""
    losses: Tensor = _CTCLoss.apply(log_probs, targets, frame_lengths, target_lengths, blank)
    return losses


def ctc_training_loss(
    log_probs: Float[Tensor, "B T V"],
    targets: Int[Tensor, "B S"],
    frame_lengths: Int[Tensor, " B"],
    target_lengths: Int[Tensor, " B"],
    blank: int,
) -> Float[Tensor, " B"]:
    """Return -log p(target) of each recording, 0 where there are too few frames.

    On a GPU torch's loss reads the lengths on the host, so that updates cannot be CUDA graphs; this one does not.
    """
    if log_probs.is_cuda:
        losses = ctc_loss(log_probs, targets, frame_lengths, target_lengths, blank)
        return losses.masked_fill(losses.isinf(), 0.0)
    inputs = log_probs.transpose(0, 1), targets, frame_lengths, target_lengths
    return torch.nn.functional.ctc_loss(*inputs, blank=blank, reduction="none", zero_infinity=True)


@torch.no_grad()
def state_posteriors(
    log_probs: Float[Tensor, "B T V"],
    targets: Int[Tensor, "B S"],
    frame_lengths: Int[Tensor, " B"],
    target_lengths: Int[Tensor, " B"],
    blank: int,
) -> tuple[Float[Tensor, "B T L"], Float[Tensor, " B"]]:
    """Return γ, the posterior of each state at each frame, and log p(target)."""
    lattice = Lattice.of(targets, target_lengths, blank)
    alpha, beta, emitted = _forward_backward(log_probs, lattice, frame_lengths, blank)
    total = _log_likelihood(alpha, frame_lengths, lattice.lengths)
    return _posteriors(alpha, beta, emitted, total, frame_lengths), total


def required_frames(targets: Int[Tensor, "B S"], target_lengths: Int[Tensor, " B"]) -> Int[Tensor, " B"]:
    """Return the fewest frames that can emit each target: one per label, and a blank between equal neighbours."""
    position = torch.arange(1, max(targets.shape[1], 1), device=targets.device)
    repeats = (targets[:, 1:] == targets[:, :-1]) & (position < target_lengths[:, None])
    return target_lengths + repeats.sum(1)


def check_frame_lengths(
    targets: Int[Tensor, "B S"], frame_lengths: Int[Tensor, " B"], target_lengths: Int[Tensor, " B"]
) -> None:
    """Raise `BadInput` for the first recording that has too few frames for its target."""
    needed = required_frames(targets, target_lengths)
    for row in (needed > frame_lengths).nonzero()[:1, 0].tolist():
        count, repeats = int(target_lengths[row]), int(needed[row] - target_lengths[row])
        raise BadInput(
            f"recording {row} has {int(frame_lengths[row])} frames for {count} labels, {repeats} of which repeat "
            f"the label before: CTC needs {int(needed[row])}; halve the frames less often, or leave it out"
        )


# -- best path ---------------------------------------------------------------------------------------------------------


def forced_align(
    log_probs: Float[Tensor, "B T V"],
    targets: Int[Tensor, "B S"],
    frame_lengths: Int[Tensor, " B"],
    target_lengths: Int[Tensor, " B"],
    blank: int,
) -> tuple[Int[Tensor, "B T"], Float[Tensor, " B"]]:
    """Return the most likely alignment (Viterbi) as the state at each frame, and its log-probability.

    State 2i + 1 is label i, even states are blanks. Frames beyond a recording's length are -1; all frames are -1 where
    there is no alignment.
    """
    lattice, frames = Lattice.of(targets, target_lengths, blank), log_probs.shape[1]
    parts = (_emission_log_probs(part, lattice) for part in log_probs.split(ALIGNED_FRAMES, 1))
    emitted = (emission for part in parts for emission in part.unbind(1))
    best = last = _initial_alpha(_emission_log_probs(log_probs[:, :1], lattice))
    choices = list[Tensor]()
    for t, emission in enumerate(emitted):
        if not t:
            continue
        best, choice = torch.stack(_predecessors(best, lattice.jumps)).max(0)
        best = best + emission
        choices.append(choice.to(torch.uint8))
        last = torch.where((t < frame_lengths)[:, None], best, last)
    ends = last[:, None] if frames else log_probs.new_zeros(len(log_probs), 0, 0)
    total, state = _final_alpha(ends, frame_lengths.clamp(max=1), lattice.lengths).max(1)
    state = lattice.lengths - 1 - state
    path = [torch.full_like(state, -1)] * frames
    for t in range(frames - 1, -1, -1):
        in_alignment = (t < frame_lengths) & (total > NEG_INF)
        path[t] = torch.where(in_alignment, state, -1)
        if t:
            state = torch.where(in_alignment, state - choices[t - 1].gather(1, state[:, None])[:, 0], state)
    return torch.stack(path, 1) if frames else state.new_zeros(len(log_probs), 0), total


# -- recursion ---------------------------------------------------------------------------------------------------------


class _CTCLoss(torch.autograd.Function):
    """Loss whose gradient comes from forward-backward, without autograd through the loop."""

    @staticmethod
    def forward(ctx: Any, log_probs: Tensor, targets: Tensor, frames: Tensor, lengths: Tensor, blank: int) -> Tensor:
        lattice = Lattice.of(targets, lengths, blank)
        if not ctx.needs_input_grad[0]:
            return -_log_likelihood(
                _forward(_emission_log_probs(log_probs, lattice), lattice.jumps), frames, lattice.lengths
            )
        alpha, beta, emitted = _forward_backward(log_probs, lattice, frames, blank)
        total = _log_likelihood(alpha, frames, lattice.lengths)
        ctx.save_for_backward(_posteriors(alpha, beta, emitted, total, frames), lattice.labels)
        ctx.size = log_probs.shape[-1]
        return -total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor | None, ...]:
        posterior, labels = ctx.saved_tensors
        gradient = posterior.new_zeros(*posterior.shape[:2], ctx.size)
        gradient.scatter_add_(2, labels[:, None].expand_as(posterior), posterior)
        return gradient * -grad_output[:, None, None], None, None, None, None


def _forward_backward(log_probs: Tensor, lattice: Lattice, frames: Tensor, blank: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return α, β and log p_t(z_s), each B T L, from one loop over the batch and its reversal."""
    emitted = _emission_log_probs(log_probs, lattice)
    batch, time, states = emitted.shape
    reverse_time = reverse_index(time, frames, log_probs.device)[:, :, None]
    reverse_state = reverse_index(states, lattice.lengths, log_probs.device)[:, None]
    reversed_emissions = emitted.gather(1, reverse_time.expand_as(emitted)).gather(2, reverse_state.expand_as(emitted))
    both = _forward(torch.cat([emitted, reversed_emissions]), torch.cat([lattice.jumps, lattice.reversed(blank).jumps]))
    alpha, beta = both.split(batch)
    return alpha, beta.gather(1, reverse_time.expand_as(beta)).gather(2, reverse_state.expand_as(beta)), emitted


def _emission_log_probs(log_probs: Tensor, lattice: Lattice) -> Tensor:
    """Return log p_t(z_s) as B T L; -inf for states beyond the target's own."""
    index = lattice.labels[:, None].expand(-1, log_probs.shape[1], -1)
    is_state = torch.arange(index.shape[2], device=log_probs.device) < lattice.lengths[:, None]
    wide = log_probs if log_probs.dtype == torch.float64 else log_probs.float()
    return wide.gather(2, index).masked_fill(~is_state[:, None], NEG_INF)


def _forward(emitted: Tensor, jumps: Tensor) -> Tensor:
    """Return α of all frames. On a GPU the time goes into launching kernels, four per frame."""
    batch, time, states = emitted.shape
    if not time:
        return emitted
    alpha = emitted.new_full((time, batch, states + 2), NEG_INF)  # two states of padding before the first
    alpha[0, :, 2:] = _initial_alpha(emitted)
    jump_penalty = torch.zeros_like(emitted[:, 0]).masked_fill_(~jumps, NEG_INF)
    same_state, next_state, jumping = (alpha[:, :, first : first + states].unbind() for first in (2, 1, 0))
    jumped = torch.empty_like(jump_penalty)
    for t, emission in enumerate(emitted.unbind(1)[1:], 1):
        torch.logaddexp(same_state[t - 1], next_state[t - 1], out=same_state[t])
        torch.add(jumping[t - 1], jump_penalty, out=jumped)
        torch.logaddexp(same_state[t], jumped, out=same_state[t])
        same_state[t].add_(emission)
    return alpha[:, :, 2:].transpose(0, 1)


def _initial_alpha(emitted: Tensor) -> Tensor:
    """α at the first frame: the first blank or the first label."""
    is_initial = torch.arange(emitted.shape[2], device=emitted.device) < 2
    return (
        emitted[:, 0].masked_fill(~is_initial, NEG_INF) if emitted.shape[1] else emitted.new_zeros(emitted.shape[0], 0)
    )


def _predecessors(alpha: Tensor, jumps: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the α from which each state may be entered: itself, the one before, and the one before that."""
    wide = torch.nn.functional.pad(alpha, (2, 0), value=NEG_INF)
    return alpha, wide[:, 1:-1], wide[:, :-2].masked_fill(~jumps, NEG_INF)


def _final_alpha(alpha: Tensor, frames: Tensor, states: Tensor) -> Tensor:
    """Return α of the last blank and the last label at each recording's last frame, B 2."""
    if not alpha.shape[1]:
        return alpha.new_full((len(frames), 2), NEG_INF)
    last = alpha[torch.arange(len(alpha), device=alpha.device), (frames - 1).clamp(min=0)]
    index = states[:, None] - 1 - torch.arange(2, device=alpha.device)
    found = last.gather(1, index.clamp(min=0)).masked_fill(index < 0, NEG_INF)
    return found.masked_fill((frames == 0)[:, None], NEG_INF)


def _log_likelihood(alpha: Tensor, frames: Tensor, states: Tensor) -> Tensor:
    """Return log p(target); with no frames, the empty target has probability 1."""
    total = torch.logsumexp(_final_alpha(alpha, frames, states), 1)
    return total.masked_fill((frames == 0) & (states == 1), 0.0)


def _posteriors(alpha: Tensor, beta: Tensor, emitted: Tensor, total: Tensor, frames: Tensor) -> Tensor:
    """Return γ; zero beyond the frames, in states outside the target, and where there is no alignment."""
    posterior = (alpha + beta - emitted - total[:, None, None]).exp()
    valid = torch.arange(alpha.shape[1], device=alpha.device) < frames[:, None]
    return posterior.where(valid[:, :, None] & (emitted > NEG_INF) & (total > NEG_INF)[:, None, None], 0.0)


def _skip_allowed(labels: Tensor, blank: int) -> Tensor:
    before = torch.nn.functional.pad(labels, (2, 0), value=blank)[:, :-2]
    return (labels != blank) & (labels != before)
