"""Teacher forcing, and how it is given up: scheduled sampling.

    chance that a token of the target is read as it is, after i updates

    always              1                                      teacher forcing
    linear              max(least, 1 - (1 - least) i / steps)
    exponential         k^i                                    k < 1
    inverse_sigmoid     k / (k + exp(i / k))                   k >= 1: about 1 at first, a half at i = k ln k

The rest of the tokens a model draws itself, from its own last output, step by step: so it learns to go on from what it
is going to read when it writes. Which tokens those are is drawn from the run's sampling stream, what they become from
the stream of dropout: both are in the checkpoint, so that a resumed run is the same run.

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
    """What a model reads while it is trained; `spec` names the schedule."""

    def __init__(self, spec: str = "always") -> None:
        self.probability = build_part(SAMPLING_SCHEDULES, spec, "sampling schedule")
        self.asked = False

    def __call__(
        self, model: nn.Module, target: Int[Tensor, "B T"], step: int | Tensor, rng: torch.Generator | None
    ) -> dict[str, Tensor]:
        """What to hand to the model beside the target: `own`, where it reads words of its own; or nothing."""
        if isinstance(self.probability, TeacherForcing):
            return {}
        if not self.asked and "sampling_mask" not in inspect.signature(model.forward).parameters:
            raise Unsupported(
                f"a {type(model).__name__} reads whole targets at once, not words of its own: "
                f"set task.teacher_forcing=always"
            )
        self.asked = True
        probability = self.probability(torch.as_tensor(step))
        return {"sampling_mask": torch.rand(target.shape, generator=rng, device=target.device) >= probability}


class TeacherForcing:
    """Teacher forcing."""

    def __call__(self, step: Tensor) -> Tensor:
        return torch.ones_like(step, dtype=torch.float64)


class LinearSchedule:
    """Down in a straight line to `least`, in `steps` updates."""

    def __init__(self, steps: int, min_probability: float = 0.5) -> None:
        if steps < 1 or not 0 <= min_probability <= 1:
            raise BadInput(
                f"forcing goes down in at least one step to a chance of 0 to 1, not in {steps} to {min_probability}"
            )
        self.steps, self.min_probability = steps, min_probability

    def __call__(self, step: Tensor) -> Tensor:
        return (1 - (1 - self.min_probability) * step / self.steps).clamp(min=self.min_probability)


class ExponentialSchedule:
    """Down by the same share with each update."""

    def __init__(self, k: float) -> None:
        if not 0 < k < 1:
            raise BadInput(f"an exponential goes down where 0 < k < 1, not with {k}")
        self.k = k

    def __call__(self, step: Tensor) -> Tensor:
        return self.k ** step.double()


class InverseSigmoidSchedule:
    """Level, then down, then level."""

    def __init__(self, k: float) -> None:
        if k < 1:
            raise BadInput(f"an inverse sigmoid needs k >= 1, not {k}")
        self.k = k

    def __call__(self, step: Tensor) -> Tensor:
        return self.k / (self.k + (step / self.k).double().clamp(max=700).exp())


SAMPLING_SCHEDULES: Registry = {
    "always": ("regard.tasks.scheduled_sampling", "TeacherForcing"),
    "linear": ("regard.tasks.scheduled_sampling", "LinearSchedule"),
    "exponential": ("regard.tasks.scheduled_sampling", "ExponentialSchedule"),
    "inverse_sigmoid": ("regard.tasks.scheduled_sampling", "InverseSigmoidSchedule"),
}
