"""DRAW: an image drawn in T steps, reading and writing through a window that moves and zooms.

    x̂_t     = x - σ(c_{t-1})                            what is missing on the canvas c
    r_t     = read(x, x̂_t; h_dec_{t-1})
    h_enc_t = LSTM(h_enc_{t-1}; r_t, h_dec_{t-1})       z_t = μ_t + σ_t ε_t,   μ_t, log σ_t = linear(h_enc_t)
    h_dec_t = LSTM(h_dec_{t-1}; z_t)                    c_t = c_{t-1} + write(h_dec_t)

    tokens      the cells of a window of N x N Gaussian filters on the image
    positions   g + (i - N/2 - 0.5) δ, the centre of filter i: 1 is the first pixel of a row or column
    attention   F[i, a] = exp(-(a - centre_i)² / 2 σ²) / Z, rows and columns apart; h_dec gives g_X, g_Y, σ², δ and γ
    head        σ(c_T) is the probability of every pixel to be 1; z_t ~ N(0, 1) generates

    read        γ F_Y [x, x̂] F_Xᵀ, N x N numbers each       write   F_Yᵀ w F_X / γ, w = linear(h_dec)
    bound       -log p(x) <= -log p(x | c_T) + Σ_t KL(q(z_t) || N(0, 1)),   KL = ½ Σ (μ² + σ² - log σ² - 1)

Without attention (the paper's other row) both parts are "whole": the encoder reads all pixels, and w covers them.

Z is taken by a softmax, so a window beside the image reads its nearest pixels and is never 0 / 0. The first states and
the first canvas are learned. The loop runs in float32: the gradient passes through every step.

Gregor, Danihelka, Graves, Rezende, Wierstra: DRAW: A Recurrent Neural Network For Image Generation. ICML 2015.
arXiv:1502.04623
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import nn

from regard.attention.observed_weights import ObservedWeights
from regard.blocks.rnn import LSTMCell, undecorated
from regard.core.errors import BadInput
from regard.core.lazy_dynamo import disable_compile
from regard.core.shapes import Float, Pair, Size, Tensor, pair
from regard.core.spec import Registry, build_part
from regard.core.validation import validate
from regard.models.contract import ModelContract

READERS: Registry = {
    "gaussian": ("regard.models.draw", "GaussianReader"),
    "whole": ("regard.models.draw", "WholeReader"),
}
WRITERS: Registry = {
    "gaussian": ("regard.models.draw", "GaussianWriter"),
    "whole": ("regard.models.draw", "WholeWriter"),
}

LOG_LIMIT = 20.0  # of log σ², log δ and log γ: their exponentials stay finite in float32


@dataclass(frozen=True)
class Config:
    """Hyperparameters; the defaults are the paper's for MNIST."""

    image_size: Size = 28
    channels: int = 1
    steps: int = 64  # T
    hidden: int = 256  # of both LSTMs
    latent: int = 100  # numbers of z_t
    read: str = "gaussian(2)"  # or "whole"
    write: str = "gaussian(5)"


# Table 3 of the paper has mnist, svhn and cifar10 (svhn on crops of 54 x 54); plain is its form without attention.
SIZES: dict[str, dict[str, Any]] = {
    "mnist": {},
    "mnist-plain": {"read": "whole", "write": "whole"},
    "svhn": {
        "image_size": 54, "channels": 3, "steps": 32, "hidden": 800, "read": "gaussian(12)", "write": "gaussian(12)",
    },
    "cifar10": {
        "image_size": 32, "channels": 3, "hidden": 400, "latent": 200, "read": "gaussian(5)", "write": "gaussian(5)",
    },
    "tiny": {"image_size": 8, "steps": 3, "hidden": 16, "latent": 4, "read": "gaussian(3)", "write": "gaussian(3)"},
}  # fmt: skip


class Window(NamedTuple):
    """Where a filterbank is, and its filters."""

    center: Float[Tensor, "B 2"]  # g_Y, g_X
    stride: Float[Tensor, "B 1"]  # δ
    sigma: Float[Tensor, "B 1"]
    gamma: Float[Tensor, "B 1"]
    rows: Float[Tensor, "B N Y"]  # F_Y
    columns: Float[Tensor, "B N X"]  # F_X

    def read(self, images: Float[Tensor, "B C Y X"]) -> Float[Tensor, "B C N N"]:
        """Return F_Y x F_Xᵀ."""
        return self.rows[:, None] @ images @ self.columns.mT[:, None]

    def write(self, patch: Float[Tensor, "B C N N"]) -> Float[Tensor, "B C Y X"]:
        """Return F_Yᵀ w F_X, the adjoint of `read`."""
        return self.rows.mT[:, None] @ patch @ self.columns[:, None]


class Step(NamedTuple):
    """What one step leaves; the canvas has logits. A step without an image reads nothing."""

    canvas: Float[Tensor, "B C Y X"]
    kl: Float[Tensor, " B"] | None
    read: Window | None
    write: Window | None


class DRAW(ModelContract):
    """Images and noise to the logits of their pixels and the KL of every step; noise alone to images (`generate`)."""

    forward_methods = ("generate", "unroll")
    config: Config

    def __init__(self, config: Config) -> None:
        super().__init__()
        validate(config)
        self.config, c = config, config
        place = {"hidden": c.hidden, "channels": c.channels, "grid": pair(c.image_size)}
        self.read = build_part(READERS, c.read, "reader", **place)
        self.write = build_part(WRITERS, c.write, "writer", **place)
        self.encoder = LSTMCell(self.read.known_width, self.read.width + c.hidden, c.hidden)
        self.decoder = LSTMCell(0, c.latent, c.hidden)
        self.posterior = nn.Linear(c.hidden, 2 * c.latent)  # μ, log σ
        self.encoder_start = nn.Parameter(torch.zeros(2, 1, c.hidden))
        self.decoder_start = nn.Parameter(torch.zeros(2, 1, c.hidden))
        self.canvas = nn.Parameter(torch.zeros(c.channels, *pair(c.image_size)))

    def forward(
        self, images: Float[Tensor, "B C Y X"], noise: Float[Tensor, "B T Z"]
    ) -> tuple[Float[Tensor, "B C Y X"], Float[Tensor, "B T"]]:
        """Return the logits of the pixels of images (0 to 1), and KL(q(z_t) || N(0, 1)) of every step in nats.

        `noise` is ε ~ N(0, 1). One draw of it gives an unbiased estimate of the bound.
        """
        unroll = undecorated(self.unroll) if torch.compiler.is_exporting() else self.unroll
        steps = unroll(noise, images)
        return steps[-1].canvas, torch.stack([step.kl for step in steps if step.kl is not None], 1)

    def generate(self, noise: Float[Tensor, "B T Z"]) -> Float[Tensor, "B T C Y X"]:
        """Return the canvas after every step, as logits; `noise` is z ~ N(0, 1)."""
        return torch.stack([step.canvas for step in self.unroll(noise)], 1)

    @disable_compile(recursive=False)  # the loop stays in Python; its step is compiled once
    def unroll(self, noise: Float[Tensor, "B T Z"], images: Float[Tensor, "B C Y X"] | None = None) -> list[Step]:
        """Return all steps of drawing these images, or of generating some from the noise alone."""
        self._check(noise, images)
        batch, steps = noise.shape[0], list[Step]()
        with torch.autocast(noise.device.type, enabled=False):
            noise, images = noise.to(self.canvas), None if images is None else images.to(self.canvas)
            # copies, since the step is compiled for the strides of what it gets
            encoder: tuple[Tensor, ...] = tuple(one.repeat(batch, 1) for one in self.encoder_start)
            decoder: tuple[Tensor, ...] = tuple(one.repeat(batch, 1) for one in self.decoder_start)
            canvas = self.canvas.repeat(batch, 1, 1, 1)
            is_whole = images is not None and self.encoder.input_gates is not None
            known = self.encoder.input_gates(images.flatten(1)) if is_whole else None  # type: ignore[misc, union-attr]
            for z in noise.unbind(1):
                step, encoder, decoder = self._step(z, images, known, canvas, encoder, decoder)
                canvas = step.canvas
                steps.append(step)
        self.read.observe([step.read for step in steps])
        self.write.observe([step.write for step in steps])
        return steps

    def _step(
        self,
        z: Float[Tensor, "B Z"],
        images: Float[Tensor, "B C Y X"] | None,
        known: Float[Tensor, "B G"] | None,
        canvas: Float[Tensor, "B C Y X"],
        encoder: tuple[Tensor, ...],
        decoder: tuple[Tensor, ...],
    ) -> tuple[Step, tuple[Tensor, ...], tuple[Tensor, ...]]:
        """Return what a step leaves, and the next states of encoder and decoder; z is ε where there are images."""
        read, kl = None, None
        if images is not None:
            seen, read = self.read(decoder[0], images, images - canvas.sigmoid())
            encoder = self.encoder(known, torch.cat([seen, decoder[0]], 1), encoder)
            mean, log_sigma = self.posterior(encoder[0]).chunk(2, 1)
            sigma = log_sigma.exp()
            z, kl = mean + sigma * z, (0.5 * (mean**2 + sigma**2 - 1) - log_sigma).sum(1)
        decoder = self.decoder(None, z, decoder)
        added, write = self.write(decoder[0])
        return Step(canvas + added, kl, read, write), encoder, decoder

    def _check(self, noise: Tensor, images: Tensor | None) -> None:
        c = self.config
        if noise.ndim != 3 or noise.shape[1:] != (c.steps, c.latent):
            raise BadInput(f"noise must be of shape (batch, {c.steps}, {c.latent}), got {tuple(noise.shape)}")
        shape = (noise.shape[0], c.channels, *pair(c.image_size))
        if images is not None and images.shape != shape:
            raise BadInput(f"images must be of shape {shape}, as many as there is noise, got {tuple(images.shape)}")


# -- the window --------------------------------------------------------------------------------------------------------


class Filterbank(nn.Module):
    """The decoder's state to N x N Gaussian filters over an image."""

    def __init__(self, size: int, hidden: int, grid: Pair) -> None:
        super().__init__()
        if size < 2:
            raise BadInput(f"A window needs at least 2 x 2 filters, got size {size}.")
        self.size, self.grid = size, grid
        self.parameters_from = nn.Linear(hidden, 5)  # g̃_Y, g̃_X, log σ², log δ̃, log γ

    def forward(self, h: Float[Tensor, "B F"]) -> Window:
        found = self.parameters_from(h)
        found = found.to(torch.promote_types(found.dtype, torch.float32))  # pixels are counted in more than 8 bits
        raw, logs = found.split([2, 3], 1)
        log_variance, log_stride, log_gamma = logs.clamp(-LOG_LIMIT, LOG_LIMIT).split(1, 1)
        center = torch.stack([(n + 1) / 2 * (at + 1) for n, at in zip(self.grid, raw.unbind(1), strict=True)], 1)
        stride = (max(self.grid) - 1) / (self.size - 1) * log_stride.exp()
        offsets = torch.arange(1, self.size + 1, device=h.device) - self.size / 2 - 0.5
        centers = center[..., None] + offsets * stride[..., None]  # B 2 N
        precision = (-log_variance)[..., None].exp()
        rows, columns = (
            (-0.5 * precision * (torch.arange(1, side + 1, device=h.device) - at[..., None]) ** 2).softmax(-1)
            for side, at in zip(self.grid, centers.unbind(1), strict=True)
        )
        window = Window(center, stride, (log_variance / 2).exp(), log_gamma.exp(), rows, columns)
        return Window(*(part.to(h.dtype) for part in window))


def observed_windows(kind: str, side: int) -> ObservedWeights:
    """Return what `watch` records as B 1 T (Y X): the mean over the filters of the windows of all steps."""

    def to_bhnm(weights: Float[Tensor, "B T N YX"]) -> Float[Tensor, "B 1 T M"]:
        rows, columns = weights.mean(2).tensor_split([side], -1)
        return (rows[..., :, None] * columns[..., None, :]).flatten(2)[:, None]

    return ObservedWeights(kind, to_bhnm)


class GaussianReader(nn.Module):
    """Read N x N numbers of every channel through a filterbank.

    `width` is that of what is read at a step, `known_width` that of what the encoder sees at every step.
    """

    def __init__(self, size: int = 5, *, hidden: int, channels: int, grid: Pair) -> None:
        super().__init__()
        self.width, self.known_width = 2 * channels * size**2, 0
        self.filterbank = Filterbank(size, hidden, grid)
        self.observed = observed_windows("read", grid[0])

    def forward(
        self, h: Float[Tensor, "B F"], images: Float[Tensor, "B C Y X"], missing: Float[Tensor, "B C Y X"]
    ) -> tuple[Float[Tensor, "B R"], Window]:
        window = self.filterbank(h)
        return window.gamma * torch.cat([window.read(each).flatten(1) for each in (images, missing)], 1), window

    def observe(self, windows: list[Window | None]) -> None:
        """Hand the windows of all steps to `watch`."""
        observe_windows(self.observed, windows)


class GaussianWriter(nn.Module):
    """Write N x N numbers of every channel through a filterbank."""

    def __init__(self, size: int = 5, *, hidden: int, channels: int, grid: Pair) -> None:
        super().__init__()
        self.patch = nn.Linear(hidden, channels * size**2)
        self.filterbank = Filterbank(size, hidden, grid)
        self.shape = (channels, size, size)
        self.observed = observed_windows("write", grid[0])

    def forward(self, h: Float[Tensor, "B F"]) -> tuple[Float[Tensor, "B C Y X"], Window]:
        window = self.filterbank(h)
        return window.write((self.patch(h) / window.gamma).unflatten(1, self.shape)), window

    def observe(self, windows: list[Window | None]) -> None:
        """Hand the windows of all steps to `watch`."""
        observe_windows(self.observed, windows)


def observe_windows(observed: ObservedWeights, windows: list[Window | None]) -> None:
    """Hand the filters of all steps to `watch`; a step that read nothing has none. Nothing is computed unwatched."""
    if not observed._forward_hooks:
        return
    with torch.no_grad():
        filters = [torch.cat([window.rows, window.columns], -1) for window in windows if window is not None]
        if filters:
            observed(torch.stack(filters, 1))


class WholeReader(nn.Module):
    """Read all pixels: no attention. Those of the image are the same at every step, and multiplied once."""

    def __init__(self, *, hidden: int, channels: int, grid: Pair) -> None:
        super().__init__()
        self.width = self.known_width = channels * grid[0] * grid[1]

    def forward(
        self, h: Float[Tensor, "B F"], images: Float[Tensor, "B C Y X"], missing: Float[Tensor, "B C Y X"]
    ) -> tuple[Float[Tensor, "B R"], None]:
        return missing.flatten(1), None

    def observe(self, windows: list[Window | None]) -> None:
        """There is no window."""


class WholeWriter(nn.Module):
    """Write all pixels: no attention."""

    def __init__(self, *, hidden: int, channels: int, grid: Pair) -> None:
        super().__init__()
        self.patch = nn.Linear(hidden, channels * grid[0] * grid[1])
        self.shape = (channels, *grid)

    def forward(self, h: Float[Tensor, "B F"]) -> tuple[Float[Tensor, "B C Y X"], None]:
        return self.patch(h).unflatten(1, self.shape), None

    def observe(self, windows: list[Window | None]) -> None:
        """There is no window."""
