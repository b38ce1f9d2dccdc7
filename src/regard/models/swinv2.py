"""Swin v2: Swin, made stable at great size and movable between resolutions.

    tokens      patches of 4 x 4 pixels, normed; four neighbours become one between the stages, normed after
    positions   continuous: a small network knows the bias of any step (positions.biased.continuous)
    attention   cosine of q and k within windows, times a learned number a head; windows shifted as before
    head        a linear map of the mean of the last tokens

Each sublayer is normed after it and before the sum (res-post-norm), so that what is added stays of one size at any
depth. A model trained with small windows is given larger ones for larger images by `change_window`; nothing is resized,
since the network that gives the bias can be asked for steps it has not seen.

Liu et al.: Swin Transformer V2: Scaling Up Capacity and Resolution. CVPR 2022. arXiv:2111.09883
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from regard.blocks.encoder import EncoderBlock
from regard.blocks.shifted_window import CosineWindowAttention
from regard.core.config import field
from regard.core.errors import RegardError, Unsupported
from regard.core.shapes import Tensor
from regard.models import swin
from regard.models.swin import Swin
from regard.positions.bias.window import WindowBias
from regard.tokens.patch_merging import PatchMergingV2


@dataclass(frozen=True)
class Config(swin.Config):
    """A Swin's, and the windows it was moved from; the defaults are the paper's SwinV2-T with windows of 8."""

    image_size: int | tuple[int, int] = 256  # rows and columns it is trained at; others are read too
    window_size: int = 8  # cells on a side
    positions: str = "continuous"  # a spec of WINDOW_BIASES
    # the windows of an earlier training, stage by stage; None, 0: this one
    pretrained_window_sizes: tuple[int, ...] | None = field(None, low=0)


_B = {"width": 128, "heads": (4, 8, 16, 32), "layers": (2, 2, 18, 2), "drop_path": 0.5}
_L = {"width": 192, "heads": (6, 12, 24, 48), "layers": (2, 2, 18, 2)}

# The paper's, section 4 and its code (drop path); the number is the window where it is not 8. L was trained with 12 at
# 192 pixels, and so were those with 24 before they were moved. The one called tiny is nobody's: for small images, and
# to try things.
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
        """One sublayer with its residual path."""
        return x + self._branch(norm(f(x)), scale)


class SwinV2(Swin):
    """Images in; out, the logits of the classes."""

    merging, mixing, block = PatchMergingV2, CosineWindowAttention, ResPostNormBlock

    def __init__(self, config: Config) -> None:
        if config.pretrained_window_sizes is not None and len(config.pretrained_window_sizes) != len(config.layers):
            raise RegardError(
                f"pretrained_window_sizes={config.pretrained_window_sizes} and layers={config.layers} must name as many stages"
            )
        super().__init__(config)

    def _positions(self, stage: int, **more: Any) -> WindowBias:
        trained = self.config.pretrained_window_sizes
        return super()._positions(stage, pretrained_window=None if trained is None else trained[stage] or None)

    def reset(self) -> None:
        """Fresh weights: normal with 0.02 and cut off; blocks add nothing at first, since their norms are zero."""
        super().reset()
        for module in self.modules():
            if isinstance(module, ResPostNormBlock):
                for norm in (module.mix_norm, module.feed_norm):
                    nn.init.zeros_(norm.weight)  # type: ignore[arg-type]


def change_window(model: Swin, image_size: int | tuple[int, int], window_size: int) -> SwinV2:
    """The same weights with other windows, for images of another size; steps keep the measure of the first training."""
    if not isinstance(model, SwinV2):
        given = type(model).__name__
        raise Unsupported(f"only a SwinV2 can be given other windows: the positions of a {given} are of those it has")
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
        raise Unsupported(f"steps are measured by a square window; this model was trained with {down} x {right}")
    return down
