"""VQA Transformer: the words of a question attend to the patches of a picture.

    tokens      picture: a ViT, here with a stem of convolutions; question: a learned class token, then word vectors
    positions   learned, added, for the grid and for the words; what the words read has sinusoids of the grid besides
    attention   softmax; the patches see each other, the words see each other, and the words see the patches
    head        linear, on the question's class token: one logit for every answer

    words     x ← x + self(x);    x ← x + cross(x, patches);    x ← x + feed(x)        in every layer of the decoder

``model(images, questions)`` returns the logits of the answers to one question about each image (B T), or to several
(B K T), for which each image is encoded once. Word 0 is padding. With `patch_labels`, `forward` publishes logits of
what every patch shows in the pass state, so that a task can teach the encoder to see while it learns to answer.

A patch says more about what it shows than about where: of positions that are only added at the encoder's input little
is left in its output, and a question of left and right is not learned. So low-frequency sinusoids of the grid are added
there too.

This is the image-grounded text encoder of BLIP with a classifier of answers, as in the VQA data's own baselines.

Li, Li, Xiong, Hoi: BLIP. ICML 2022. arXiv:2201.12086; Antol et al.: VQA: Visual Question Answering. ICCV 2015.
arXiv:1505.00468
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from regard.attention.mask import KeyMask
from regard.attention.mixers import build_mixer
from regard.blocks import FEEDFORWARDS
from regard.blocks.decoder import Decoder, DecoderBlock
from regard.core.config import field
from regard.core.errors import BadInput
from regard.core.layer_state import PassState, branch
from regard.core.shapes import Float, Int, Tensor
from regard.core.spec import build_part
from regard.core.validation import validate
from regard.models.contract import ModelContract
from regard.models.vit import Config as ViTConfig
from regard.models.vit import ViT
from regard.positions import GRID_POSITIONS, POSITIONS
from regard.tokens.patches import grid_size

PAD = 0  # word id of padding


def picture_encoder(**settings: Any) -> ViTConfig:
    """Return the Config of a ViT without class token and head, whose patches are read."""
    without_head: dict[str, Any] = {"num_classes": 0, "num_prefix_tokens": 0, "pool": "mean"}
    return ViTConfig(**without_head | settings)


_SMALL = picture_encoder(
    image_size=64,
    patch_size=1,
    stem="convolutions",
    width=96,
    heads=4,
    layers=1,
    ffn=192,
)


@dataclass(frozen=True)
class Config:
    """Hyperparameters; the defaults are for pictures of 64 x 64 pixels and short questions."""

    vocab: int = 64  # word ids, padding among them
    num_classes: int = 15  # answers
    picture: ViTConfig = _SMALL  # its width and heads are also the decoder's
    layers: int = 2  # of the decoder
    ffn: int = 192
    max_words: int = 32
    dropout: float = field(0.0, low=0, below=1)
    feedforward: str = "gelu"
    patch_labels: tuple[int, ...] = ()  # classes of each label that a patch can be taught to name; see the task

    @property
    def image_size(self) -> int | tuple[int, int]:
        """Pixels per side that the position vectors are made for."""
        return self.picture.image_size

    @property
    def channels(self) -> int:
        """Channels of images."""
        return self.picture.channels

    def quick(self) -> Config:
        """Return the settings of a quick run."""
        return replace(self, picture=replace(self.picture, layers=1), layers=1)


SIZES: dict[str, dict[str, Any]] = {
    "tiny": {
        "vocab": 24,
        "num_classes": 7,
        "picture": picture_encoder(image_size=24, patch_size=8, width=32, heads=2, layers=1, ffn=48),
        "layers": 2,
        "ffn": 48,
    },
    "small": {},
    "base": {"picture": picture_encoder(image_size=384), "layers": 12, "ffn": 3072},  # BLIP's ViT-B/16 and BERT-base
}


class VQATransformer(ModelContract):
    """Images and questions to logits of answers."""

    forward_methods = ("look", "answer")
    no_weight_decay = ("class_token",)

    def __init__(self, config: Config) -> None:
        super().__init__()
        validate(config)
        if config.picture.num_prefix_tokens or config.picture.num_classes:
            raise BadInput("picture must have num_prefix_tokens=0 and num_classes=0: the question reads its patches")
        self.config, width = config, config.picture.width
        self.picture = ViT(config.picture)
        self.where = build_part(
            GRID_POSITIONS, "sinusoidal(base=10)", "positions on a grid", width=width, grid=(1, 1), prefix=0
        )
        self.words = nn.Embedding(config.vocab, width, padding_idx=PAD)
        self.class_token = nn.Parameter(torch.empty(width))
        positions = build_part(POSITIONS, "learned", "positions", width=width, length=1 + config.max_words)
        blocks = [_block(config) for _ in range(config.layers)]
        self.decoder = Decoder(blocks, positions, nn.LayerNorm(width), config.dropout, causal=False)
        self.head = nn.Linear(width, config.num_classes)
        self.patch_head = nn.Linear(width, sum(config.patch_labels)) if config.patch_labels else None
        self.reset()

    def forward(
        self,
        images: Float[Tensor, "B C Y X"],
        questions: Int[Tensor, "B *K T"],
        pass_state: PassState | None = None,
    ) -> Float[Tensor, "B *K answers"]:
        """Return the logits of the answers to the questions about each image."""
        patches = self.look(images, pass_state)
        if self.patch_head is not None and pass_state is not None:
            pass_state.layer(0).publish("patch_labels", self.patch_head(patches).split(self.config.patch_labels, -1))
        logits = self.answer(patches, questions.flatten(0, -2), pass_state)
        return logits if questions.ndim == 2 else logits.unflatten(0, questions.shape[:2])

    def grid_size(self, image_size: tuple[int, int]) -> tuple[int, int]:
        """Return the rows and columns of the patches of an image."""
        return grid_size(image_size, self.picture.stem.stride)

    def look(self, images: Float[Tensor, "B C Y X"], pass_state: PassState | None = None) -> Float[Tensor, "B N D"]:
        """Return the patches of images after the encoder, with their places: what a question reads."""
        patches = self.picture.forward_features(images, branch(pass_state, "picture"))
        return self.where(patches, self.grid_size((images.shape[-2], images.shape[-1])))

    def answer(
        self, patches: Float[Tensor, "B N C"], questions: Int[Tensor, "Q T"], pass_state: PassState | None = None
    ) -> Float[Tensor, "Q answers"]:
        """Return the logits of the answers, given encoded images; Q / B questions in a row are about one of them."""
        if questions.shape[1] > self.config.max_words:
            raise BadInput(f"a question may have at most {self.config.max_words} words, got {questions.shape[1]}")
        first = self.class_token.to(patches.dtype).expand(questions.shape[0], 1, -1)
        words = torch.cat([first, self.words(questions)], 1)
        is_word = torch.cat([torch.ones_like(questions[:, :1], dtype=torch.bool), questions != PAD], 1)
        read = self.decoder(words, patches, KeyMask(is_word), None, branch(pass_state, "decoder"))
        out: Tensor = self.head(read[:, 0])
        return out

    @torch.no_grad()
    def reset(self) -> None:
        """Initialise the question's side: Xavier uniform, biases 0, vectors of words and the class token normal.

        A ViT's standard deviation of 0.02 is for wide models; in a narrow one all attention weights would begin alike.
        """
        for module in (*self.decoder.modules(), self.head, self.patch_head):
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                if module.bias is not None:
                    module.bias.zero_()
        nn.init.normal_(self.words.weight, std=self.config.picture.width**-0.5)
        nn.init.normal_(self.decoder.positions.table.weight, std=0.5 * self.config.picture.width**-0.5)
        nn.init.normal_(self.class_token, std=self.config.picture.width**-0.5)
        self.words.weight[PAD].zero_()


def _block(config: Config) -> DecoderBlock:
    width, heads, drop = config.picture.width, config.picture.heads, config.dropout
    mix, cross = (build_mixer("softmax", width=width, heads=heads, cross=is_cross) for is_cross in (False, True))
    feed = build_part(
        FEEDFORWARDS, config.feedforward, "feed-forward", width=width, hidden=config.ffn, dropout=drop
    )  # fmt: skip
    return DecoderBlock(mix, cross, feed, [nn.LayerNorm(width) for _ in range(3)], pre_norm=True, dropout=drop)
