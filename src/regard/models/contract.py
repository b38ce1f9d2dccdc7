"""What a model offers besides `forward`: every attribute that other packages read off a model, with its default.

    attribute             who reads it                                 what it says
    config                weights, cost, catalogue                     the frozen Config that rebuilds the model
    forward_methods       training (compile, FSDP)                     methods besides `forward` that compute
    no_weight_decay       training (optimizers)                        parameters and submodules without weight decay
    trained_by_task       doctor                                       those that no gradient of `forward` reaches
    num_prefix_tokens     interpret, cost                              tokens before the grid's (class token, registers)
    can_pack              tasks (embedding)                            texts may be concatenated instead of padded
    encodes_source_once   tasks (reinforce)                            several targets of a source share its encoding

`forward` of a model with attention also takes `pass_state` (core.layer_state), which every task hands in.

Image models add what users of timm look for: `forward_features`, `num_features`, `reset_classifier`, and `pooled`,
`grid`, `features` for heads of one's own. A model of one's own derives from `ModelContract` or `ImageModel` and
overrides what differs; tests/models/test_contract.py checks every registered model.

Dense models derive from `DenseModel`: ``forward(images B C Y X) -> B K Y X`` at the images' own size, K =
`Config.num_outputs` (logits of classes, or one inverse depth), `features` as above, and `reset_head` for new outputs.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import torch
from torch import nn

from regard.core.errors import BadInput
from regard.core.shapes import Float, Tensor


class ModelContract(nn.Module):
    """The attributes that other packages read off a model."""

    config: Any
    forward_methods: ClassVar[tuple[str, ...]] = ()
    no_weight_decay: ClassVar[tuple[str, ...]] = ()
    trained_by_task: ClassVar[tuple[str, ...]] = ()
    num_prefix_tokens: int = 0
    encodes_source_once: ClassVar[bool] = False

    @property
    def can_pack(self) -> bool:
        """Whether texts may be concatenated without padding between them (`hidden_packed`)."""
        return False


class ImageModel(ModelContract):
    """A model over images with an optional classifier `head`."""

    forward_methods: ClassVar[tuple[str, ...]] = ("pooled", "grid", "features", "forward_features")
    heads_of: ClassVar[tuple[str, ...]] = ("head",)  # the classifiers that `reset_classifier` replaces

    @property
    def num_features(self) -> int:
        """Width of the vector that the classifier reads."""
        raise NotImplementedError

    def forward_features(self, images: Float[Tensor, "B C Y X"]) -> Tensor:
        """Return the normed features before pooling: tokens B N C, prefix first; Swin B Y X C, ResNet B C Y X."""
        raise NotImplementedError

    def reset_classifier(self, num_classes: int) -> None:
        """Replace the classifier by a new one; with 0 classes there is none, and `forward` returns `pooled`."""
        if num_classes < 0:
            raise BadInput(f"num_classes must be at least 0, got {num_classes}")
        like = next(self.parameters())
        self.config = replace(self.config, num_classes=num_classes)
        for name in self.heads_of:
            setattr(self, name, self._classifier(num_classes, like))

    def _classifier(self, num_classes: int, like: Tensor) -> nn.Module | None:
        if not num_classes:
            return None
        head = nn.Linear(self.num_features, num_classes, device=like.device, dtype=like.dtype)
        with torch.no_grad():
            nn.init.trunc_normal_(head.weight, std=0.02)
            nn.init.zeros_(head.bias)
        return head


class ConvolutionalModel(ImageModel):
    """A network of convolutions: the classifier reads the mean of the last grid of `features`, after dropout."""

    width: int  # of the last grid
    drop: nn.Module
    head: nn.Linear | None

    def forward(self, images: Float[Tensor, "B C Y X"]) -> Float[Tensor, "B K"]:
        """Return the logits of the classes, or the pooled vector if there are none."""
        x: Tensor = self.drop(self.pooled(images))
        return x if self.head is None else self.head(x)

    @property
    def num_features(self) -> int:
        return self.width

    def features(self, images: Float[Tensor, "B C Y X"]) -> list[Tensor]:
        """Return grids B C Y X, finest first."""
        raise NotImplementedError

    def forward_features(self, images: Float[Tensor, "B C Y X"]) -> Float[Tensor, "B E Z W"]:
        return self.features(images)[-1]

    def pooled(self, images: Float[Tensor, "B C Y X"]) -> Float[Tensor, "B E"]:
        """Return the vector that the classifier reads."""
        return self.forward_features(images).mean((2, 3))

    def grid(self, images: Float[Tensor, "B C Y X"]) -> Float[Tensor, "B Z W E"]:
        """Return `forward_features` with the channels last."""
        return self.forward_features(images).movedim(1, -1)

    @torch.no_grad()
    def reset(self) -> None:
        """Initialise convolutions after He et al. 2015."""
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            elif isinstance(module, (nn.BatchNorm2d, nn.Linear)):
                module.reset_parameters()


class DenseModel(ModelContract):
    """A model from images to `Config.num_outputs` numbers for every pixel: logits of classes, or inverse depth.

    `head` is the part whose shape depends on `num_outputs`; `_make_head` builds it.
    """

    forward_methods: ClassVar[tuple[str, ...]] = ("features",)
    head: nn.Module

    def features(self, images: Float[Tensor, "B C Y X"]) -> list[Tensor]:
        """Return the feature maps that the decoder reads, B C y x, finest first."""
        raise NotImplementedError

    def reset_head(self, num_outputs: int) -> None:
        """Replace the head by a new one with so many outputs."""
        if num_outputs < 1:
            raise BadInput(f"num_outputs must be at least 1, got {num_outputs}")
        like = next(self.parameters())
        self.config = replace(self.config, num_outputs=num_outputs)
        self.head = self._make_head().to(like).train(self.training)

    def _make_head(self) -> nn.Module:
        raise NotImplementedError
