"""Swin v2: Swin, stable at large sizes and transferable between resolutions.

    tokens      patches of 4 x 4 pixels, normed; between stages 2 x 2 tokens are merged, then normed
    positions   continuous: a small network computes the bias of any relative position (positions.bias.continuous)
    attention   cosine similarity within windows, times a learned scale for each head; shifted windows as in Swin
    head        linear, on the mean of the last tokens

Each sublayer's output is normed before the sum (res-post-norm), which bounds activations at any depth. `change_window`
gives a model larger windows for larger images without resizing anything: the bias network extrapolates.

Liu et al.: Swin Transformer V2: Scaling Up Capacity and Resolution. CVPR 2022. arXiv:2111.09883
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from regard.attention.window_attention import CosineWindowAttention
from regard.blocks.encoder import EncoderBlock
from regard.core.config import field
from regard.core.errors import RegardError, Unsupported
from regard.core.shapes import Tensor
from regard.models import swin
from regard.models.swin import Swin
from regard.positions.bias.window import WindowBias
from regard.tokens.patch_merging import PatchMergingV2


@dataclass(frozen=True)
class Config(swin.Config):
    """Hyperparameters of a Swin v2; the defaults are the paper's SwinV2-T with windows of 8."""

    image_size: int | tuple[int, int] = 256  # size in training; any other works
    window_size: int = 8  # side in tokens
    positions: str = "continuous"  # a spec of WINDOW_BIASES
    # windows of the pretraining, for each stage; None, 0: as window_size
    pretrained_window_sizes: tuple[int, ...] | None = field(None, low=0)


_B = {"width": 128, "heads": (4, 8, 16, 32), "layers": (2, 2, 18, 2), "drop_path": 0.5}
_L = {"width": 192, "heads": (6, 12, 24, 48), "layers": (2, 2, 18, 2)}

# The paper's, section 4 and its code (drop path); the number is the window where it is not 8. L was trained with 12 at
# 192 pixels, and so were those with 24 in pretraining. Tiny is for small images and tests.
SIZES: dict[str, dict[str, Any]] = {
    "tiny": swin.SIZES["tiny"],
    "t": {},
    "s": {"layers": (2, 2, 18, 2), "drop_path": 0.3},
    "b": _B,
    "l": _L | {"image_size": 192, "window_size": 12},
    "t16": {"window_size": 16},
    "s16": {"window_size": 16, "layers": (2, 2, 18, 2), "drop_path": 0.3},
    "b16": _B | {"window_size": 16},
    "b24": _B | {"image_size": 384, "window_size": 24, "pretrained_window_sizes": (12, 12, 12, 6), "drop_path": 0.2},
    "l24": _L | {"image_size": 384, "window_size": 24, "pretrained_window_sizes": (12, 12, 12, 6)},
}


class ResPostNormBlock(EncoderBlock):
    """x + norm(f(x))."""

    def residual(
        self, x: Tensor, norm: nn.Module, f: Callable[[Tensor], Tensor], scale: nn.Module | None = None
    ) -> Tensor:
        return x + self._branch(norm(f(x)), scale)


class SwinV2(Swin):
    """Images to logits of classes."""

    merging, mixing, block = PatchMergingV2, CosineWindowAttention, ResPostNormBlock

    def __init__(self, config: Config) -> None:
        if config.pretrained_window_sizes is not None and len(config.pretrained_window_sizes) != len(config.layers):
            raise RegardError(
                f"pretrained_window_sizes={config.pretrained_window_sizes} and layers={config.layers} must have "
                "one value for each stage"
            )
        super().__init__(config)

    def _positions(self, stage: int, **more: Any) -> WindowBias:
        trained = self.config.pretrained_window_sizes
        return super()._positions(stage, pretrained_window=None if trained is None else trained[stage] or None)

    def reset(self) -> None:
        """Initialise the weights: truncated normal with std 0.02; norms of residual branches 0."""
        super().reset()
        for module in self.modules():
            if isinstance(module, ResPostNormBlock):
                for norm in (module.mix_norm, module.feed_norm):
                    nn.init.zeros_(norm.weight)  # type: ignore[arg-type]


def change_window(model: Swin, image_size: int | tuple[int, int], window_size: int) -> SwinV2:
    """Return the model with other windows, for images of another size; offsets keep the unit of the first training."""
    if not isinstance(model, SwinV2):
        raise Unsupported(
            f"change_window needs a SwinV2, got a {type(model).__name__}, whose positions depend on the window"
        )
    config: Config = model.config
    before = config.pretrained_window_sizes or tuple(
        _square_side(model._window(stage)) for stage in range(len(config.layers))
    )
    with torch.random.fork_rng(devices=[]):
        moved = SwinV2(
            replace(config, image_size=image_size, window_size=window_size, pretrained_window_sizes=before)
        ).to(model.norm.weight)
    moved.load_state_dict(model.state_dict())
    return moved.train(model.training)


def _square_side(window: tuple[int, int]) -> int:
    down, right = window
    if down != right:
        raise Unsupported(f"change_window needs a model with square windows, got {down} x {right}")
    return down
