"""Scheduled sampling: during training the decoder reads more and more of its own samples instead of the target.

    probability that a token of the target is read, after i updates

    always              1                                      teacher forcing
    linear              max(p, 1 - (1 - p) i / steps)          p: min_probability
    exponential         k^i                                    k < 1
    inverse_sigmoid     k / (k + exp(i / k))                   k >= 1: about 1 at first, a half at i = k ln k

All other tokens are sampled from the model's own last output, step by step, so that training resembles decoding. Which
positions are sampled comes from the run's sampling stream, the samples from that of dropout; both are in the
checkpoint, so that a resumed run is the same run.

Bengio, Vinyals, Jaitly, Shazeer: Scheduled Sampling for Sequence Prediction with Recurrent Neural Networks. NIPS 2015.
arXiv:1506.03099
"""

from __future__ import annotations

import inspect

import torch
from torch import nn

from regard.core.errors import BadInput, Unsupported
from regard.core.shapes import Int, Tensor
from regard.core.spec import Registry, build_part


class ScheduledSampling:
    """Decides which target tokens the decoder reads in training; `spec` names the schedule."""

    def __init__(self, spec: str = "always") -> None:
        self.probability = build_part(SAMPLING_SCHEDULES, spec, "sampling schedule")
        self.checked = False

    def __call__(
        self, model: nn.Module, target: Int[Tensor, "B T"], step: int | Tensor, rng: torch.Generator | None
    ) -> dict[str, Tensor]:
        """Return the model's further arguments: `sampling_mask`, True where it reads a sample of its own; or none."""
        if isinstance(self.probability, TeacherForcing):
            return {}
        if not self.checked and "sampling_mask" not in inspect.signature(model.forward).parameters:
            raise Unsupported(
                f"a {type(model).__name__} reads whole targets at once and cannot sample its inputs; "
                f"set task.teacher_forcing=always"
            )
        self.checked = True
        probability = self.probability(torch.as_tensor(step))
        return {"sampling_mask": torch.rand(target.shape, generator=rng, device=target.device) >= probability}


class TeacherForcing:
    """Teacher forcing."""

    def __call__(self, step: Tensor) -> Tensor:
        return torch.ones_like(step, dtype=torch.float64)


class LinearSchedule:
    """Decreases linearly to `min_probability` in `steps` updates."""

    def __init__(self, steps: int, min_probability: float = 0.5) -> None:
        if steps < 1 or not 0 <= min_probability <= 1:
            raise BadInput(
                f"a linear schedule needs steps of at least 1 and min_probability from 0 to 1, got {steps} and "
                f"{min_probability}"
            )
        self.steps, self.min_probability = steps, min_probability

    def __call__(self, step: Tensor) -> Tensor:
        return (1 - (1 - self.min_probability) * step / self.steps).clamp(min=self.min_probability)


class ExponentialSchedule:
    """Decreases by the same factor with every update."""

    def __init__(self, k: float) -> None:
        if not 0 < k < 1:
            raise BadInput(f"k of an exponential schedule must be above 0 and below 1, got {k}")
        self.k = k

    def __call__(self, step: Tensor) -> Tensor:
        return self.k ** step.double()


class InverseSigmoidSchedule:
    """Stays near 1, then decreases, then stays near 0."""

    def __init__(self, k: float) -> None:
        if k < 1:
            raise BadInput(f"k of an inverse sigmoid schedule must be at least 1, got {k}")
        self.k = k

    def __call__(self, step: Tensor) -> Tensor:
        return self.k / (self.k + (step / self.k).double().clamp(max=700).exp())


SAMPLING_SCHEDULES: Registry = {
    "always": ("regard.tasks.scheduled_sampling", "TeacherForcing"),
    "linear": ("regard.tasks.scheduled_sampling", "LinearSchedule"),
    "exponential": ("regard.tasks.scheduled_sampling", "ExponentialSchedule"),
    "inverse_sigmoid": ("regard.tasks.scheduled_sampling", "InverseSigmoidSchedule"),
}
