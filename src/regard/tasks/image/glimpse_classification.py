"""Image classification by glimpses: a model that samples where to look (models.ram).

    objective    cross-entropy of the label, plus a policy-gradient loss of the locations (tasks.reinforce)
    reward       1 where the likeliest label is right, 0 elsewhere; one for all locations of an image
    metric       as image classification
    predict      `GlimpseClassifier`: images in, labels with their probabilities out

With `paths` > 1 the probabilities are the mean over so many sampled sequences of glimpses; their noise is the same for
all images, from a fixed seed. With one path every location is the mean of its distribution.

Mnih, Heess, Graves, Kavukcuoglu: Recurrent Models of Visual Attention. NeurIPS 2014. arXiv:1406.6247
Ba, Mnih, Kavukcuoglu: Multiple Object Recognition with Visual Attention. ICLR 2015. arXiv:1412.7755 (averaged samples)
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from regard.attention.aligners.hard import collect_choices
from regard.core.config import field
from regard.core.shapes import Float, Tensor
from regard.tasks.base import call_with_state
from regard.tasks.image import image_classification
from regard.tasks.image.image_classification import ImageClassification, ImageClassifier
from regard.tasks.reinforce import Reinforce, ReinforceMixin, stochastic_modules

MAX_PATHS = 256
HYBRID = Reinforce(weight=0.01, entropy=0.0, baseline="learned")  # a weight of 1 drowns the cross-entropy in noise


@dataclass(frozen=True)
class Config(image_classification.Config):
    """Settings of image classification and of the policy gradient."""

    reinforce: Reinforce = HYBRID
    paths: int = field(1, low=1, high=MAX_PATHS)  # sampled sequences of glimpses averaged in evaluation; 1: the means

    def build(self, data: Any, seed: int = 0, folder: Path | None = None) -> GlimpseClassification:
        return GlimpseClassification(self, data, seed)


class GlimpseClassification(ReinforceMixin, ImageClassification):
    """Train and evaluate a classifier that samples where to look."""

    name = "glimpse_classification"
    objective: Any
    config: Config

    def loss(
        self, model: nn.Module, batch: Any, step: int = 0, rng: torch.Generator | None = None
    ) -> tuple[Float[Tensor, ""], dict[str, Tensor]]:
        """Return both terms, averaged over the samples of each image; the part "loss" is the first term."""
        stochastic_modules(model)
        many = self.choices.how.num_samples
        values, targets = (x.repeat_interleave(many, 0) for x in self.prepared(batch, step, rng))
        logits, pass_state = call_with_state(model, values)
        logits, smoothing = logits.float(), self.config.label_smoothing
        nll = self.objective(logits, targets, reduction="sum", label_smoothing=smoothing) / many
        rewards = targets.gather(1, logits.argmax(1, keepdim=True))  # B 1: the share of the predicted label
        policy = self.policy_loss(collect_choices(pass_state), rewards, step) / many
        total = self.with_layer_losses(nll + policy, batch, pass_state)
        return total, {"loss": nll.detach(), "reward": rewards.sum() / many}

    def policy_loss(self, found: Any, rewards: Float[Tensor, "B 1"], step: int | Tensor = 0) -> Float[Tensor, ""]:
        """Return the policy-gradient loss of all locations, each of which is credited with the whole reward."""

        def rows(x: Float[Tensor, "B T *any"]) -> Float[Tensor, "R 1 *any"]:  # the samples of a location are adjacent
            return x.unflatten(0, (-1, self.choices.how.num_samples)).transpose(1, 2).flatten(0, 2)[:, None]

        every = rows(rewards.expand_as(found.log_probs))
        states = rows(found.queries) if self.choices.baseline.module is not None else None
        real = torch.ones_like(every, dtype=torch.bool)
        return self.choices.loss(rows(found.log_probs), rows(found.entropy), every, real, step, states)

    def logits(self, model: nn.Module, values: Float[Tensor, "B C Y X"]) -> Float[Tensor, "B K"]:
        return average_paths(model, values, self.config.paths)

    def describe(self) -> dict[str, Any]:
        return super().describe() | {"name": self.name, "paths": self.config.paths}


def average_paths(model: Any, values: Float[Tensor, "B C Y X"], paths: int, seed: int = 0) -> Float[Tensor, "B K"]:
    """Return the logarithm of the probabilities averaged over sampled sequences of glimpses; logits for one path."""
    if paths == 1:
        logits: Tensor = model(values)
        return logits
    noise = torch.randn(paths, model.config.glimpses, 2, generator=torch.Generator().manual_seed(seed)).to(values)
    each = [model(values, one[None]).float().log_softmax(-1) for one in noise]
    return torch.stack(each).logsumexp(0) - math.log(paths)


@dataclass(frozen=True)
class Options:
    """What a caller may choose."""

    paths: int | None = field(
        None, low=1, high=MAX_PATHS, help="sampled sequences of glimpses to average; 1: the means; default: as trained"
    )


class GlimpseClassifier(ImageClassifier):
    """Images in, labels with their probabilities out, by a model that looks at a few places of each image."""

    options = Options

    def __init__(self, model: nn.Module, labels: Any, preprocess: Any, paths: int = 1) -> None:
        super().__init__(model, labels, preprocess)
        self.paths = paths

    def logits(self, values: Float[Tensor, "B C Y X"], options: Any) -> Float[Tensor, "B K"]:
        return average_paths(self.model, values, (options and options.paths) or self.paths)

    @torch.no_grad()
    def glimpses(self, image: Any) -> Float[Tensor, "T 2"]:
        """Return where the model looks, as (x, y) from -1 to 1 of the image that it is shown."""
        path: Tensor = self.model.look(self.preprocess(image, next(self.model.parameters())))[1]  # type: ignore[operator]
        return path[0]
