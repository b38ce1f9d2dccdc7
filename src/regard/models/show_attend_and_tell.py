"""Show, Attend and Tell: a caption, one word after another, each from another part of the picture.

    tokens      the last grid of a CNN: M annotation vectors a_i, one for each part of the picture; words of the caption
    positions   none: the score sees what is in a place, not where it is; `small_cnn` adds where to the vectors
    attention   additive, from the last state over the M places; soft (the expectation) or hard (one place, sampled)
    head        linear, on the sum of the last word, the state and the context

    e_ti = f_att(a_i, h_{t-1})        α_t = softmax(e_t)              z_t = β_t Σ_i α_ti a_i      β_t = σ(f_β(h_{t-1}))
    h_t  = LSTM([E y_{t-1}; z_t], h_{t-1})                            p(y_t) ∝ exp(L_o (E y_{t-1} + L_h h_t + L_z z_t))

The first state is made of the mean annotation vector. The penalty Σ_i (1 - Σ_t α_ti)² asks the weights to spread over
the whole picture in the course of a caption ("doubly stochastic"); `forward` adds it to the pass state, the task weighs
it (tasks.image.captioning). Hard attention is ``aligner="hard(soft_fraction=0.5)"``, trained by REINFORCE; the soft
context is its expectation.

`forward` takes images B C Y X, or annotation vectors B M D that were computed before: a `frozen` encoder gives the same
ones in every epoch. It stays in eval mode, so its norms keep their statistics.

Xu, Ba, Kiros, Cho, Courville, Salakhutdinov, Zemel, Bengio: Show, Attend and Tell. ICML 2015. arXiv:1502.03044
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from regard.blocks.decoder_state import CapturableDecodable, DecoderState
from regard.blocks.rnn_decoder import RNNDecoder
from regard.core.config import field
from regard.core.errors import BadInput
from regard.core.layer_state import PassState, branch
from regard.core.shapes import Bool, Float, Int, Tensor
from regard.core.validation import validate
from regard.models.contract import ModelContract
from regard.models.efficientnet_lite import SIZES as CNNS
from regard.models.efficientnet_lite import Config as CNNConfig
from regard.models.efficientnet_lite import EfficientNetLite
from regard.models.vit import Config as ViTConfig
from regard.models.vit import ViT
from regard.tokens.patches import grid_size


def cnn(size: str, **settings: Any) -> CNNConfig:
    """Return the Config of an EfficientNet-Lite of this size, without a classifier."""
    return CNNConfig(**CNNS[size] | {"num_classes": 0} | settings)


LITE2 = cnn("lite2")


def small_cnn(width: int, image_size: int, **settings: Any) -> ViTConfig:
    """Return the Config of a few convolutions with sinusoidal positions, to train from scratch on small images.

    It is the stem of a ViT without layers; with `layers` above 0 its places attend to each other.
    """
    own: dict[str, Any] = {"width": width, "image_size": image_size, "patch_size": 1, "heads": 4, "layers": 0}
    own |= {"stem": "convolutions", "positions": "sinusoidal(base=10)"}
    return ViTConfig(**own | settings, num_classes=0, num_prefix_tokens=0, pool="mean")


@dataclass(frozen=True)
class Config:
    """Hyperparameters of a captioner with attention."""

    vocab: int
    encoder: CNNConfig | ViTConfig = LITE2
    frozen: bool = True  # the encoder is not trained
    width: int = 256  # of the embeddings
    hidden: int = 512  # units of the LSTM
    align_width: int | None = 256  # hidden units of the aligner's score; None: `hidden`
    aligner: Any = "additive"  # a spec, or a module; hard: needs the task reinforced_captioning
    dropout: float = field(0.5, low=0, below=1)  # of embeddings, and before the head
    pad: int = field(0, low=0, below="vocab")
    bos: int = field(1, low=0)
    eos: int = field(2, low=0)


_TINY: dict[str, Any] = {"encoder": cnn("tiny"), "width": 24, "hidden": 32, "align_width": 16, "dropout": 0.0}

# Base is for Flickr8k, small for pictures of some 64 pixels on a CPU; tiny is for tests.
SIZES: dict[str, dict[str, Any]] = {
    "base": {},
    "small": {"encoder": small_cnn(128, 64), "frozen": False, "width": 96, "hidden": 192, "dropout": 0.1},
    "tiny": {**_TINY, "frozen": False},
}


class ShowAttendAndTell(CapturableDecodable, ModelContract):
    """Images and the words so far in, logits of the next word out."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        validate(config)
        self.config = c = config
        self.encoder = AnnotationEncoder(c.encoder, c.frozen)
        self.decoder = RNNDecoder(
            c.vocab,
            c.width,
            c.hidden,
            self.encoder.width,
            aligner=c.aligner,
            cell="lstm",
            align_width=c.align_width,
            dropout=c.dropout,
            pad=c.pad,
            output="sum",
            context_gate=True,
        )

    def forward(
        self,
        images: Float[Tensor, "B C Y X"] | Float[Tensor, "B M D"],
        target: Int[Tensor, "B T"],
        target_lengths: Int[Tensor, " B"] | None = None,
        pass_state: PassState | None = None,
    ) -> Float[Tensor, "B T V"]:
        """Return the logits of the word after each target word; targets are padded on the right."""
        pass_state = PassState() if pass_state is None else pass_state
        logits = self.decoder(target, self.initial_state(images), pass_state=pass_state)
        if target.shape[1]:
            weights = torch.cat(pass_state.collect("alignment"), 1)
            penalty = doubly_stochastic_penalty(weights, real_words(target, target_lengths))
            pass_state.layer(0).add_loss("doubly_stochastic", penalty)
        return logits

    # -- decoding, one word at a time ----------------------------------------------------------------------------------

    def initial_state(self, source: Tensor, source_lengths: Int[Tensor, " B"] | None = None) -> DecoderState:
        """Return the decoder state before the first word: the annotation vectors, and states made of their mean."""
        values = self.encoder(source)
        return self.decoder.initial_state(values, None, values.mean(1))

    def step(self, tokens: Int[Tensor, "B K"], state: DecoderState) -> tuple[Float[Tensor, "B K V"], DecoderState]:
        return self.decoder.step(tokens, state)


class AnnotationEncoder(nn.Module):
    """A CNN, or a ViT without class token, from images to annotation vectors, row by row; given ones pass through."""

    def __init__(self, config: CNNConfig | ViTConfig, frozen: bool) -> None:
        super().__init__()
        if config.num_classes or getattr(config, "num_prefix_tokens", 0):
            raise BadInput("encoder must have num_classes=0, and a ViT num_prefix_tokens=0: its patches are read")
        self.network = ViT(config) if isinstance(config, ViTConfig) else EfficientNetLite(config)
        self.frozen, self.width = frozen, self.network.num_features
        self.requires_grad_(not frozen)
        self.train()

    def forward(
        self,
        images: Float[Tensor, "B C Y X"] | Float[Tensor, "B M D"],
        pass_state: PassState | None = None,
    ) -> Float[Tensor, "B M D"]:
        if images.ndim == 3:
            if images.shape[2] != self.width or not images.shape[1]:
                raise BadInput(f"annotation vectors must be B M {self.width}, M > 0, got shape {tuple(images.shape)}")
            return images
        if isinstance(self.network, ViT):
            return self.network.forward_features(images, branch(pass_state, "encoder"))
        return self.network.grid(images).flatten(1, 2)

    def grid_size(self, height: int, width: int) -> tuple[int, int]:
        """Return the rows and columns of the annotation vectors of an image of this size."""
        if isinstance(self.network, ViT):
            return grid_size((height, width), self.network.stem.stride)
        side = 2 ** sum(stride > 1 for stride in (self.network.config.stem_stride, *self.network.strides))
        return grid_size((height, width), side)

    def train(self, mode: bool = True) -> AnnotationEncoder:
        """Set the mode; a frozen encoder stays in eval mode."""
        super().train(mode and not self.frozen)
        return self


def real_words(target: Int[Tensor, "B T"], lengths: Int[Tensor, " B"] | None) -> Bool[Tensor, "B T"]:
    """Return which words of a padded target are real."""
    if lengths is None:
        return torch.ones_like(target, dtype=torch.bool)
    return torch.arange(target.shape[1], device=target.device) < lengths[:, None]


def doubly_stochastic_penalty(weights: Float[Tensor, "B T M"], real: Bool[Tensor, "B T"]) -> Float[Tensor, ""]:
    """Return Σ_i (1 - Σ_t α_ti)², summed over the captions and divided by their words, as the cross-entropy is."""
    total = (weights * real[..., None]).sum(1)
    return ((1 - total) ** 2).sum() / real.sum().clamp(min=1)
