"""Distillation: an image classifier (the student) learns from labels and from the outputs of another (the teacher).

    hard    (1 - α) CE(z, y)  +  α CE(z', argmax_k t_k)                         the teacher's prediction is a label
    soft    (1 - α) CE(z, y)  +  α τ² KL(softmax(t / τ) ‖ softmax(z' / τ))      the teacher's distribution is the target

    z       the student's logits at its class token, z' those at its distillation token (models.deit); a student with
            one head has z' = z
    t       the teacher's logits for the same augmented and mixed images, with the size, mean and standard deviation of
            the teacher's own preprocessing
    metric, decoding, predict       those of image classification (tasks.image.image_classification)

The teacher is any saved image classifier with the labels of the data: the folder of a run, one that regard.save wrote,
or one of timm's or transformers' (weights.checkpoint_formats). It is not trained and not in checkpoints; its weights
are part of the fingerprint, so that a run is not resumed with another teacher. Evaluation needs no teacher.

Touvron et al.: Training data-efficient image transformers & distillation through attention. ICML 2021. arXiv:2012.12877
(hard with α = 0.5; soft with α = 0.1, τ = 3); Hinton, Vinyals, Dean: Distilling the Knowledge in a Neural Network.
2015. arXiv:1503.02531
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import nn

from regard.core.config import field, from_dict, to_dict
from regard.core.errors import BadInput, RegardError
from regard.core.layer_state import PassState
from regard.core.shapes import Float, Tensor, pair
from regard.data.images.image_dataset import ImageDataset
from regard.data.images.image_shards import ImageBatch
from regard.modalities.image import Preprocess
from regard.models import build
from regard.tasks.base import call_with_state
from regard.tasks.image import image_classification
from regard.tasks.image.image_classification import ImageClassification, preview_labels
from regard.weights.checkpoint_formats import load_image_model
from regard.weights.folder import model_folder

UNTRAINED = "untrained"  # a teacher with random weights, for quick runs


@dataclass(frozen=True)
class Config(image_classification.Config):
    """Settings of training."""

    teacher: str = ""  # the folder of a run or of a saved image classifier
    kind: Literal["hard", "soft"] = "hard"
    alpha: float = field(0.5, low=0, high=1)  # α: weight of the teacher's term
    temperature: float = field(3.0, above=0)  # τ, of the soft kind

    def quick(self) -> Config:
        """Return the settings of a quick run, with an untrained teacher."""
        return replace(self, teacher=UNTRAINED)

    def build(self, data: ImageDataset, seed: int = 0, folder: Path | None = None) -> Distillation:
        """Return the task on these data."""
        return Distillation(self, data, seed)


class Distillation(ImageClassification):
    """Train and evaluate a student."""

    config: Config
    name = "distillation"

    @cached_property
    def teacher(self) -> Teacher:
        """The teacher, loaded when training begins: evaluation works without its folder."""
        return Teacher(self.config.teacher, self.data, self.labels)

    def loss(
        self, model: nn.Module, batch: ImageBatch, step: int = 0, rng: torch.Generator | None = None
    ) -> tuple[Float[Tensor, ""], dict[str, Tensor]]:
        """Return both terms summed over the images; the parts "labels" and "teacher" are without their weights."""
        values, targets = self.prepared(batch, step, rng)
        teacher = self.teacher(values)
        (one, other), pass_state = student_logits(model, values)
        labels = self.objective(one, targets, reduction="sum", label_smoothing=self.config.label_smoothing)
        distilled = DISTILLATION_LOSSES[self.config.kind](other, teacher, self.config.temperature)
        total = (1 - self.config.alpha) * labels + self.config.alpha * distilled
        parts = {"loss": total, "labels": labels, "teacher": distilled}
        return self.with_layer_losses(total, batch, pass_state), {name: part.detach() for name, part in parts.items()}

    def fingerprint(self) -> str:
        return f"{super().fingerprint()}-{self.teacher.fingerprint}"

    def card(self) -> str:
        return f"{super().card()}; teacher {self.teacher.name} ({self.config.kind})"


class Teacher:
    """A saved image classifier, called on the preprocessed images of a student."""

    def __init__(self, name: str, data: ImageDataset, labels: list[str]) -> None:
        self.name = name
        self.model, task = _untrained_teacher(data, labels) if name == UNTRAINED else _load_teacher(name)
        if task["labels"] != labels:
            raise BadInput(
                f"the teacher {name} has the labels {preview_labels(task['labels'])}; "
                f"the data have {preview_labels(labels)}"
            )
        shown = from_dict(Preprocess, task["preprocess"])
        if shown.channels != len(data.mean):
            raise BadInput(f"the teacher {name} needs {shown.channels} channels, but the data have {len(data.mean)}")
        self.size = shown.size
        own, theirs = (torch.tensor([m, s]) for m, s in ((data.mean, data.std), (shown.mean, shown.std)))
        self.factor, self.shift = own[1] / theirs[1], (own[0] - theirs[0]) / theirs[1]
        self.model.requires_grad_(False).eval()
        digest = hashlib.sha256()
        for tensor in self.model.state_dict().values():
            digest.update(tensor.detach().cpu().reshape(-1).view(torch.uint8).numpy().tobytes())
        self.fingerprint = digest.hexdigest()[:12]

    @torch.no_grad()
    def __call__(self, values: Float[Tensor, "B C Y X"]) -> Float[Tensor, "B K"]:
        """Return the logits for images that were preprocessed for the student."""
        if self.factor.device != values.device:
            self.model.to(values.device)
            self.factor, self.shift = self.factor.to(values.device), self.shift.to(values.device)
        seen = values * self.factor[:, None, None] + self.shift[:, None, None]
        if (values.shape[2], values.shape[3]) != self.size:
            seen = F.interpolate(seen, self.size, mode="bilinear", align_corners=False, antialias=True)
        logits: Tensor = self.model(seen.to(values.dtype))
        return logits.float()


def student_logits(
    model: nn.Module, values: Float[Tensor, "B C Y X"]
) -> tuple[tuple[Float[Tensor, "B K"], Float[Tensor, "B K"]], PassState]:
    """Return the logits for the labels and those for the teacher, equal if the student has one head; the pass state."""
    found, pass_state = call_with_state(getattr(model, "logits_per_head", model), values)
    one, other = found if isinstance(found, tuple) else (found, found)
    return (one.float(), other.float()), pass_state


def hard_distillation_loss(
    logits: Float[Tensor, "B K"], teacher: Float[Tensor, "B K"], temperature: float
) -> Float[Tensor, ""]:
    """Return the cross-entropy with the teacher's prediction, without label smoothing."""
    return F.cross_entropy(logits, teacher.argmax(-1), reduction="sum")


def soft_distillation_loss(
    logits: Float[Tensor, "B K"], teacher: Float[Tensor, "B K"], temperature: float
) -> Float[Tensor, ""]:
    """Return the KL divergence from the teacher's distribution; τ² makes the size of the gradient independent of τ."""
    mine, wanted = (F.log_softmax(x / temperature, -1) for x in (logits, teacher))
    return temperature**2 * F.kl_div(mine, wanted, log_target=True, reduction="sum")


DISTILLATION_LOSSES: dict[str, Callable[[Tensor, Tensor, float], Tensor]] = {
    "hard": hard_distillation_loss,
    "soft": soft_distillation_loss,
}


def _load_teacher(name: str) -> tuple[nn.Module, dict[str, Any]]:
    if not name:
        raise BadInput(
            "distillation needs a teacher: set task.teacher to the folder of a run or a saved image classifier"
        )
    asked = Path(name).expanduser()
    if not asked.is_dir():
        raise BadInput(
            f"task.teacher={name}: there is no such folder; give that of a run or of a saved model (ours, timm's or "
            "transformers')"
        )
    try:
        found = load_image_model(model_folder(asked))
    except RegardError as error:
        raise BadInput(f"task.teacher={name}: {error}") from None
    if (found.task or {}).get("name") != "image_classification":
        raise BadInput(f"task.teacher={name}: this is not a saved image classifier")
    assert found.task is not None
    if not found.task["labels"]:
        raise BadInput(f"task.teacher={name}: this model has no classes; give a classifier")
    return found.model, found.task


def _untrained_teacher(data: ImageDataset, labels: list[str]) -> tuple[nn.Module, dict[str, Any]]:
    shown = Preprocess(pair(data.pixels), len(data.mean), tuple(data.mean), tuple(data.std))
    task = {"labels": labels, "preprocess": to_dict(shown)}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return build("vit", size="tiny", image_size=data.pixels, channels=len(data.mean), num_classes=len(labels)), task
