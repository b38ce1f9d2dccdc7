"""Distillation: a student of images learns from the labels, and from what a teacher says of the same pictures.

    hard    (1 - α) CE(z, y)  +  α CE(z', argmax_k t_k)                                 the teacher's choice is a label
    soft    (1 - α) CE(z, y)  +  α τ² KL(softmax(t / τ) ‖ softmax(z' / τ))              all that it thinks likely

    z       the student's logits at its class token, z' those at its distillation token (models.deit); a student with
            one head has z' = z
    t       the teacher's logits for the very pixels that the student sees: augmented, mixed, then given the mean and
            spread, and the size, that the teacher knows
    metric, decoding, predict       those of image classification (tasks.image.image_classification)

The teacher is any saved model of images: a run's folder, one that regard.save wrote, or one of timm's or transformers'
(weights.theirs) that has the labels of the data. It stays as it is, and stands in no checkpoint; its weights are part
of the fingerprint, so that a run is never resumed under another teacher. Whoever measures a student needs none.

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

UNTRAINED = "untrained"  # a teacher with random weights, for quick trials: everything runs, nothing is learned


@dataclass(frozen=True)
class Config(image_classification.Config):
    """How a student is trained: as any classifier of images, and by its teacher."""

    teacher: str = ""  # the folder of a run or of a saved model of images
    kind: Literal["hard", "soft"] = "hard"
    alpha: float = field(0.5, low=0, high=1)  # α: how much of the loss is the teacher's
    temperature: float = field(3.0, above=0)  # τ, of the soft kind

    def quick(self) -> Config:
        """With a teacher that nobody has to train first."""
        return replace(self, teacher=UNTRAINED)

    def build(self, data: ImageDataset, seed: int = 0, folder: Path | None = None) -> Distillation:
        """The task on these data."""
        return Distillation(self, data, seed)


class Distillation(ImageClassification):
    """What the training loop trains: image classification with a second opinion."""

    config: Config
    name = "distillation"

    def __init__(self, config: Config, data: ImageDataset, seed: int = 0) -> None:
        super().__init__(config, data, seed)
        if not 0 <= config.alpha <= 1 or config.temperature <= 0:
            raise RegardError(f"task.alpha={config.alpha} lies between 0 and 1, task.temperature above 0")

    @cached_property
    def teacher(self) -> Teacher:
        """Who teaches; asked for when training begins, so that a student can be measured where the teacher is gone."""
        return Teacher(self.config.teacher, self.data, self.labels)

    def loss(
        self, model: nn.Module, batch: ImageBatch, step: int = 0, rng: torch.Generator | None = None
    ) -> tuple[Float[Tensor, ""], dict[str, Tensor]]:
        """Both terms, summed over the images; "labels" and "teacher" are the two before they are weighed."""
        values, targets = self.prepared(batch, step, rng)
        said = self.teacher(values)
        (one, other), pass_state = student_logits(model, values)
        labels = self.objective(one, targets, reduction="sum", label_smoothing=self.config.label_smoothing)
        taught = DISTILLATION_LOSSES[self.config.kind](other, said, self.config.temperature)
        total = (1 - self.config.alpha) * labels + self.config.alpha * taught
        parts = {"loss": total, "labels": labels, "teacher": taught}
        return self.with_layer_losses(total, batch, pass_state), {name: part.detach() for name, part in parts.items()}

    def fingerprint(self) -> str:
        """A few letters that change when the training data or the teacher do."""
        return f"{super().fingerprint()}-{self.teacher.fingerprint}"

    def card(self) -> str:
        """One line on the data and the teacher, for the run's first line."""
        return f"{super().card()}; taught by {self.teacher.name} ({self.config.kind})"


class Teacher:
    """A saved model of images that is asked about a student's pictures, and never changes."""

    def __init__(self, name: str, data: ImageDataset, labels: list[str]) -> None:
        self.name = name
        self.model, task = _untrained_teacher(data, labels) if name == UNTRAINED else _load_teacher(name)
        if task["labels"] != labels:
            raise BadInput(
                f"the teacher {name} knows {preview_labels(task['labels'])}; the data have {preview_labels(labels)}"
            )
        shown = from_dict(Preprocess, task["preprocess"])
        if shown.channels != len(data.mean):
            raise BadInput(f"the teacher {name} reads {shown.channels} channels, the data have {len(data.mean)}")
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
        """Its logits for images that were made ready for the student."""
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
    """Cross-entropy with the teacher's choice; not smoothed."""
    return F.cross_entropy(logits, teacher.argmax(-1), reduction="sum")


def soft_distillation_loss(
    logits: Float[Tensor, "B K"], teacher: Float[Tensor, "B K"], temperature: float
) -> Float[Tensor, ""]:
    """How far the student's distribution is from the teacher's; τ² keeps the gradient's size whatever τ is."""
    mine, wanted = (F.log_softmax(x / temperature, -1) for x in (logits, teacher))
    return temperature**2 * F.kl_div(mine, wanted, log_target=True, reduction="sum")


DISTILLATION_LOSSES: dict[str, Callable[[Tensor, Tensor, float], Tensor]] = {
    "hard": hard_distillation_loss,
    "soft": soft_distillation_loss,
}


def _load_teacher(name: str) -> tuple[nn.Module, dict[str, Any]]:
    if not name:
        raise BadInput("distillation needs a teacher: task.teacher=FOLDER, a run or a saved model of images")
    asked = Path(name).expanduser()
    if not asked.is_dir():
        raise BadInput(f"task.teacher={name}: there is no such folder; give a run, or a saved model of ours, timm's or "
                       "transformers'")  # fmt: skip
    try:
        found = load_image_model(model_folder(asked))
    except RegardError as error:
        raise BadInput(f"task.teacher={name}: {error}") from None
    if (found.task or {}).get("name") != "image_classification":
        raise BadInput(f"task.teacher={name}: that is no model that was saved for images")
    assert found.task is not None
    if not found.task["labels"]:
        raise BadInput(f"task.teacher={name}: that model has no classes, so it can teach none")
    return found.model, found.task


def _untrained_teacher(data: ImageDataset, labels: list[str]) -> tuple[nn.Module, dict[str, Any]]:
    shown = Preprocess(pair(data.pixels), len(data.mean), tuple(data.mean), tuple(data.std))
    task = {"labels": labels, "preprocess": to_dict(shown)}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return build("vit", size="tiny", image_size=data.pixels, channels=len(data.mean), num_classes=len(labels)), task
