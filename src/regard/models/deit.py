"""DeiT: a ViT with a distillation token that learns from a teacher.

    tokens      a ViT's, and after the class token a second learned one: the distillation token
    positions   a ViT's
    attention   a ViT's
    head        two linear maps: the class token's is trained on the labels, the distillation token's on a teacher's
                predictions (tasks.image.distillation); at inference, their mean

A convolutional teacher has the inductive biases, locality and translation equivariance, that a Transformer must learn
from data. A DeiT without a distillation token is a plain ViT (``vit``).

Touvron, Cord, Douze, Massa, Sablayrolles, Jégou: Training data-efficient image transformers & distillation through
attention. ICML 2021. arXiv:2012.12877
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import nn

from regard.core.config import field
from regard.core.errors import RegardError
from regard.core.layer_state import PassState
from regard.core.shapes import Float, Tensor
from regard.models import vit
from regard.models.vit import ViT


@dataclass(frozen=True)
class Config(vit.Config):
    """Hyperparameters of a DeiT: a ViT's, with two prefix tokens; the defaults are the paper's DeiT-B."""

    num_prefix_tokens: int = field(2, low=0)  # class and distillation token; further ones are registers


# Table 1 of the paper; b16_384 is DeiT-B fine-tuned at a larger size; tiny is for small images.
SIZES: dict[str, dict[str, Any]] = {
    "tiny": vit.SIZES["tiny"],
    "ti16": vit.SIZES["ti16"],
    "s16": vit.SIZES["s16"],
    "b16": vit.SIZES["b16"],
    "b16_384": vit.SIZES["b16"] | {"image_size": 384},
}


class DeiT(ViT):
    """Images to the mean of the logits of two heads."""

    config: Config
    forward_methods = (*ViT.forward_methods, "logits_per_head")
    heads_of = ("head", "distilled_head")

    def __init__(self, config: Config) -> None:
        if config.num_prefix_tokens < 2 or config.pool != "token" or config.representation_size:
            raise RegardError("DeiT needs num_prefix_tokens=2 (or more), pool='token' and representation_size=None")
        super().__init__(config)
        self.distilled_head = nn.Linear(config.width, config.num_classes) if config.num_classes else None
        if self.distilled_head is not None:
            nn.init.trunc_normal_(self.distilled_head.weight, std=0.02)
            nn.init.zeros_(self.distilled_head.bias)

    def forward(
        self, images: Float[Tensor, "B C Y X"], pass_state: PassState | None = None
    ) -> Float[Tensor, "B classes"]:
        one, other = self.logits_per_head(images, pass_state)
        return (one + other) / 2

    def logits_per_head(
        self, images: Float[Tensor, "B C Y X"], pass_state: PassState | None = None
    ) -> tuple[Float[Tensor, "B classes"], Float[Tensor, "B classes"]]:
        """Return the logits of the class token's head and of the distillation token's."""
        hidden = self.encoder(self.sequence(self.stem(images)), None, pass_state)
        if self.head is None or self.distilled_head is None:
            return hidden[:, 0], hidden[:, 1]
        return self.head(hidden[:, 0]), self.distilled_head(hidden[:, 1])

    def pool(self, hidden: Float[Tensor, "B N D"]) -> Float[Tensor, "B D"]:
        """Return the mean of the two tokens."""
        return hidden[:, :2].mean(1)
