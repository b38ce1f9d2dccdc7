"""Recurrent attention model (RAM): look at one small part of the image at a time, and learn where to look next.

    tokens      none: T glimpses. The retina at l: k squares around l, of side g, 2g, 4g ..., averaged down to g x g
    positions   l_t = (x, y), from -1 (left, top edge) to 1 (right, bottom edge), read beside the pixels
    attention   hard: l_t ~ N(tanh(W h_t-1 / √D + b), σ²), clamped to the image; pixels outside it are 0
    head        linear, on the last state

    glimpse network    g_t = relu(W [relu(W_ρ ρ(x, l_t)), relu(W_l l_t)])        ρ: the retina
    core network       h_t = relu(W [h_t-1, g_t]),  h_0 = 0

    soft attention     every position is read and weighted       O(Y X)
    glimpses           k g² numbers enter, wherever they are     O(T k g²), and O(T 4^k g²) pixels are touched

A sampled location has no derivative: in training log p(l_t) is published, and the task adds the policy gradient
(tasks/image/glimpse_classification.py). In eval mode every location is the mean of its distribution.

Mnih, Heess, Graves, Kavukcuoglu: Recurrent Models of Visual Attention. NeurIPS 2014. arXiv:1406.6247
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import nn

from regard.attention.aligners.hard import ForcedChoices
from regard.attention.observed_weights import ObservedWeights
from regard.core.config import field
from regard.core.layer_state import PassState
from regard.core.shapes import Float, Tensor
from regard.core.validation import validate
from regard.models.contract import ImageModel
from regard.tokens.patches import check_images


@dataclass(frozen=True)
class Config:
    """Hyperparameters of a RAM; the defaults are those of the paper for MNIST."""

    num_classes: int = field(10, low=0)  # 0: no head, return the last state
    image_size: int | tuple[int, int] = 28  # size in training; any other works, at the same cost
    channels: int = 1
    glimpses: int = field(6, low=1)  # T
    glimpse_size: int = field(8, low=1)  # g: pixels of a side of the retina's output
    scales: int = field(1, low=1, high=8)  # k
    hidden: int = field(256, low=1)  # width of the glimpse g_t and of the state h_t
    retina_width: int = field(128, low=1)  # of what is made of the pixels, and of what is made of the location
    location_std: float = field(0.1, above=0)  # σ, where the image reaches from -1 to 1


# The paper's tables 1 and 2: `mnist` for 28 x 28, `large` for translated and cluttered images of 60 x 60.
SIZES: dict[str, dict[str, Any]] = {
    "tiny": {"glimpses": 3, "glimpse_size": 4, "scales": 2, "hidden": 16, "retina_width": 8, "image_size": 12},
    "mnist": {"glimpses": 7},
    "large": {"image_size": 60, "glimpses": 8, "glimpse_size": 12, "scales": 3},
}


class RAM(ForcedChoices, ImageModel):
    """Images to logits of classes."""

    forward_methods: ClassVar[tuple[str, ...]] = ("pooled", "forward_features", "look")
    trained_by_task: ClassVar[tuple[str, ...]] = ("locate",)

    def __init__(self, config: Config) -> None:
        super().__init__()
        validate(config)
        self.config = config
        self.retina = Retina(config.glimpse_size, config.scales)
        pixels = config.channels * config.scales * config.glimpse_size**2
        self.what = nn.Linear(pixels, config.retina_width)
        self.where = nn.Linear(2, config.retina_width)
        self.glimpse = nn.Linear(2 * config.retina_width, config.hidden)
        self.core = nn.Linear(2 * config.hidden, config.hidden)
        self.locate = nn.Linear(config.hidden, 2)
        self.head = nn.Linear(config.hidden, config.num_classes) if config.num_classes else None
        self.reset()

    def forward(
        self,
        images: Float[Tensor, "B C Y X"],
        noise: Float[Tensor, "#B T 2"] | None = None,
        pass_state: PassState | None = None,
    ) -> Float[Tensor, "B K"]:
        """Return the logits of the classes, or the last state if there are none.

        `noise` is what is added to the means, in units of σ: by default random in training mode, none in eval mode.
        """
        state = self.look(images, noise, pass_state)[0][:, -1]
        return state if self.head is None else self.head(state)

    def look(
        self,
        images: Float[Tensor, "B C Y X"],
        noise: Float[Tensor, "#B T 2"] | None = None,
        pass_state: PassState | None = None,
    ) -> tuple[Float[Tensor, "B T D"], Float[Tensor, "B T 2"]]:
        """Return the states after each glimpse, and the locations of the glimpses."""
        check_images(images, self.config.channels)
        b, steps = images.shape[0], self.config.glimpses
        if noise is None and self.training:
            noise = torch.randn(
                b, steps, 2, device=images.device, dtype=torch.promote_types(images.dtype, torch.float32)
            )
        state, states, locations = images.new_zeros(b, self.config.hidden), [], []
        for t in range(steps):
            mean = self._mean(state)
            chosen = mean.detach() if noise is None else mean.detach() + self.config.location_std * noise[:, t]
            chosen = chosen if self._path is None else self._path[:, t].to(chosen)
            if self.training and pass_state is not None:
                self._publish(mean, chosen, state, pass_state.layer(t))
            location = chosen.clamp(-1, 1)
            what, where = self.what(self.retina(images, location)), self.where(location.to(images.dtype))
            seen = F.relu(self.glimpse(F.relu(torch.cat([what, where], -1))))
            state = F.relu(self.core(torch.cat([state, seen], -1)))
            states.append(state)
            locations.append(location)
        path = torch.stack(locations, 1)
        self.retina.observe(path, images)
        return torch.stack(states, 1), path

    def _mean(self, state: Float[Tensor, "B D"]) -> Float[Tensor, "B 2"]:
        """Return the mean of the next location, in at least float32: bfloat16 would round it to whole pixels.

        Adam's steps are of one size however noisy a gradient is; divided by √D they do not drive tanh to its ends.
        """
        weight, bias = (x.to(torch.promote_types(x.dtype, torch.float32)) for x in self.locate.parameters())
        with torch.autocast(state.device.type, enabled=False):
            return F.linear(state.to(weight.dtype) / math.sqrt(self.config.hidden), weight, bias).tanh()

    def _publish(self, mean: Tensor, chosen: Tensor, state: Tensor, layer_state: Any) -> None:
        """Publish log p of the location as it was sampled (clamping is part of the image), its entropy and h_t-1."""
        std = self.config.location_std
        log_p = -0.5 * ((chosen - mean) / std).square().sum(-1, keepdim=True) - math.log(2 * math.pi * std**2)
        layer_state.publish("choice_log_prob", log_p)
        layer_state.publish("choice_entropy", torch.full_like(log_p, 1 + math.log(2 * math.pi * std**2)))
        layer_state.publish("choice_query", state.detach()[:, None])

    @torch.no_grad()
    def reset(self) -> None:
        """Initialise the layers before a relu after He et al. 2015; the first glimpse is at the centre."""
        for layer in (self.what, self.where, self.glimpse, self.core):
            nn.init.kaiming_uniform_(layer.weight, nonlinearity="relu")
            nn.init.zeros_(layer.bias)
        nn.init.uniform_(self.locate.weight, -1, 1)  # divided by √D where it is used
        nn.init.zeros_(self.locate.bias)

    @property
    def num_features(self) -> int:
        return self.config.hidden

    def forward_features(self, images: Float[Tensor, "B C Y X"]) -> Float[Tensor, "B T D"]:
        """Return the state after each glimpse."""
        return self.look(images)[0]

    def pooled(self, images: Float[Tensor, "B C Y X"]) -> Float[Tensor, "B D"]:
        """Return the last state."""
        return self.look(images)[0][:, -1]


class Retina(nn.Module):
    """Squares of doubling sides around a location, each averaged down to one size.

    Pixels are interpolated, so a location is any real number; outside the image they are 0, its mean colour.
    """

    def __init__(self, size: int, scales: int) -> None:
        super().__init__()
        self.size, self.scales = size, scales
        self.observed = ObservedWeights("glimpse")

    def forward(self, images: Float[Tensor, "B C Y X"], location: Float[Tensor, "B 2"]) -> Float[Tensor, "B kCgg"]:
        """Return the pixels of all scales, side by side."""
        found = []
        for scale in range(self.scales):
            grid = torch.stack(torch.broadcast_tensors(*self._columns_and_rows(location, images, scale)), -1)
            square = F.grid_sample(images.to(grid.dtype), grid, padding_mode="zeros", align_corners=False)
            found.append(F.avg_pool2d(square, 2**scale).flatten(1).to(images.dtype))
        return torch.cat(found, 1)

    def _columns_and_rows(
        self, location: Float[Tensor, "B 2"], images: Tensor, scale: int
    ) -> tuple[Float[Tensor, "B 1 n"], Float[Tensor, "B n 1"]]:
        """Return where the columns and rows of a square are, in units of the image: x and y from -1 to 1."""
        side, (rows, columns) = self.size * 2**scale, images.shape[-2:]
        steps = torch.arange(1 - side, side, 2, device=location.device, dtype=location.dtype)  # half pixels
        x, y = location[:, :1] + steps / columns, location[:, 1:] + steps / rows
        return x[:, None, :], y[:, :, None]

    def observe(self, path: Float[Tensor, "B T 2"], images: Float[Tensor, "B C Y X"]) -> None:
        """Show `watch` the weight of every pixel in each glimpse; nothing is computed unless somebody watches."""
        if self.observed._forward_hooks:
            self.observed(self.weights_of(path, images.shape[-2:]))

    @torch.no_grad()
    def weights_of(self, path: Float[Tensor, "B T 2"], size: Sequence[int]) -> Float[Tensor, "B 1 T YX"]:
        """Return the share of every pixel in the mean of a glimpse; what lies outside the image is missing from 1."""
        found, like = path.new_zeros(*path.shape[:2], *size), path.new_zeros(()).expand(size)
        for scale in range(self.scales):
            ends = self._columns_and_rows(path.flatten(0, 1), like, scale)
            x, y = (_shares(at.flatten(1), side) for at, side in zip(ends, reversed(size), strict=True))
            found += (y[:, :, None] * x[:, None, :]).unflatten(0, path.shape[:2]) / self.scales
        return found.flatten(2)[:, None]


def _shares(at: Float[Tensor, "N n"], side: int) -> Float[Tensor, "N side"]:
    """Return the share of each of `side` pixels in the mean of n interpolated points from -1 to 1."""
    pixel = ((at + 1) * side - 1) / 2
    distance = (pixel[:, :, None] - torch.arange(side, device=at.device)).abs()
    return (1 - distance).clamp(min=0).mean(1)
