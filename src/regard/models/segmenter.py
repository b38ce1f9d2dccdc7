"""Segmenter: a Vision Transformer whose patches are labelled by attention to class tokens.

    tokens      patches of P x P pixels with a class token, as in ViT, or the grids of a convolutional network; in the
                mask decoder one token more for each class
    positions   a learned grid, added; interpolated for images of another size
    attention   softmax; in the decoder patches and classes see one another
    head        linear: a linear map of every patch to K logits
                mask: cosine of every patch with each of the K classes after the decoder, then a layer norm over K

    s_nk = LN_k( ⟨W_p p_n , W_c c_k⟩ / (|W_p p_n| |W_c c_k|) )        p, c: patches and classes after the decoder

The maps of stride P are resized bilinearly to the image. Images of any size work; padding below and at the right is cut
off. The mask decoder's self-attention shows for every class what it looks at: the first K queries are the classes.

Strudel, Garcia, Laptev, Schmid: Segmenter: Transformer for Semantic Segmentation. ICCV 2021. arXiv:2105.05633
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import nn

from regard.blocks.encoder import Encoder
from regard.core.config import field
from regard.core.errors import RegardError
from regard.core.layer_state import PassState
from regard.core.shapes import Float, Tensor
from regard.core.validation import validate
from regard.models import vit
from regard.models.contract import DenseModel
from regard.models.efficientnet_lite import Config as EfficientNetConfig
from regard.models.efficientnet_lite import EfficientNetStem
from regard.positions.none import NoPositions
from regard.tokens.patches import grid_size


@dataclass(frozen=True)
class Config:
    """Hyperparameters of a Segmenter; the defaults are the paper's Seg-B-Mask/16 on ADE20K."""

    num_outputs: int = 150  # classes; 1 only with the linear decoder
    image_size: int | tuple[int, int] = 512  # size in training; any other works
    channels: int = 3
    patch_size: int | tuple[int, int] = 16
    width: int = 768
    heads: int = 12
    layers: int = 12
    ffn: int | None = None  # None: four times the width
    decoder: Literal["mask", "linear"] = "mask"
    decoder_layers: int = field(2, low=0)  # of the mask decoder
    dropout: float = field(0.0, low=0, below=1)
    attention_dropout: float = field(0.0, low=0, below=1)
    drop_path: float = field(0.1, low=0, below=1)  # of the encoder's last layer; 0 at the first, linear between
    attention: Any = "softmax"  # a spec, a list of them (one a layer, cycled), or a module
    positions: str = "learned"  # a spec of GRID_POSITIONS
    stem: Any = "patches"  # a spec of STEMS; "hybrid(layers=(1,))" is a ResNet, with patch_size=1
    backbone: EfficientNetConfig | None = None  # instead of patches: tokens of stride 8 from its grids


# The paper's, table 1; the number is the patch. Tiny is for small images and tests.
SIZES: dict[str, dict[str, Any]] = {
    "tiny": {"image_size": 32, "patch_size": 4, "width": 24, "heads": 2, "layers": 2, "num_outputs": 10},
    "ti16": {"width": 192, "heads": 3},
    "s32": {"width": 384, "heads": 6, "patch_size": 32},
    "s16": {"width": 384, "heads": 6},
    "s8": {"width": 384, "heads": 6, "patch_size": 8},
    "b32": {"patch_size": 32},
    "b16": {},
    "b8": {"patch_size": 8},
    "l16": {"width": 1024, "heads": 16, "layers": 24},
}


class Segmenter(DenseModel):
    """Images to logits of classes for every pixel."""

    num_prefix_tokens = 1  # of the encoder

    def __init__(self, config: Config) -> None:
        super().__init__()
        validate(config)
        self.config = config
        stem: Any = config.stem
        if config.backbone is not None:
            stem = EfficientNetStem(config.backbone, config.width, level=1)
        self.encoder = vit.ViT(replace(_encoder_config(config), stem=stem))
        self.head = self._make_head()

    def forward(self, images: Float[Tensor, "B C Y X"], pass_state: PassState | None = None) -> Tensor:
        """Return the logits of the classes of every pixel, B K Y X."""
        patches = self.encoder.grid(images, pass_state)
        logits = self.head(patches, None if pass_state is None else pass_state.branch("decoder"))
        (down, right), (y, x) = self.encoder.stem.stride, patches.shape[1:3]
        logits = F.interpolate(logits.movedim(-1, 1), (y * down, x * right), mode="bilinear", align_corners=False)
        return logits[..., : images.shape[2], : images.shape[3]]

    def features(self, images: Float[Tensor, "B C Y X"], pass_state: PassState | None = None) -> list[Tensor]:
        """Return the normed patches of the encoder, the only map."""
        return [self.encoder.grid(images, pass_state).movedim(-1, 1)]

    def _make_head(self) -> nn.Module:
        return (MaskDecoder if self.config.decoder == "mask" else LinearDecoder)(self.config)


class LinearDecoder(nn.Module):
    """Label every patch by itself."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.classify = nn.Linear(config.width, config.num_outputs)
        nn.init.trunc_normal_(self.classify.weight, std=0.02)
        nn.init.zeros_(self.classify.bias)

    def forward(self, patches: Float[Tensor, "B y x D"], pass_state: PassState | None) -> Float[Tensor, "B y x K"]:
        out: Tensor = self.classify(patches)
        return out


class MaskDecoder(nn.Module):
    """Label patches by their cosine with class tokens that went through the same blocks."""

    no_weight_decay = ("classes",)

    def __init__(self, config: Config) -> None:
        super().__init__()
        if config.num_outputs < 2:
            raise RegardError("the mask decoder norms over the classes and needs at least 2; set decoder='linear'")
        self.embed = nn.Linear(config.width, config.width)
        self.classes = nn.Parameter(torch.empty(config.num_outputs, config.width))
        like = replace(
            _encoder_config(config),
            num_prefix_tokens=config.num_outputs,
            layers=max(1, config.decoder_layers),
            drop_path=0.0,
        )
        grid = grid_size(config.image_size, config.patch_size)
        blocks = [vit.make_block(like, layer, grid) for layer in range(config.decoder_layers)]
        self.blocks = Encoder(blocks, NoPositions(), nn.LayerNorm(config.width), 0.0)
        self.project_patches = nn.Linear(config.width, config.width, bias=False)
        self.project_classes = nn.Linear(config.width, config.width, bias=False)
        self.norm = nn.LayerNorm(config.num_outputs)
        self.reset()

    def forward(self, patches: Float[Tensor, "B y x D"], pass_state: PassState | None) -> Float[Tensor, "B y x K"]:
        embedded = self.embed(patches.flatten(1, 2))
        classes = self.classes.to(embedded.dtype).expand(patches.shape[0], -1, -1)
        hidden = self.blocks(torch.cat([classes, embedded], 1), None, pass_state)
        classes, embedded = hidden[:, : len(self.classes)], hidden[:, len(self.classes) :]
        cosine = _unit(self.project_patches(embedded)) @ _unit(self.project_classes(classes)).mT
        out: Tensor = self.norm(cosine)
        return out.unflatten(1, patches.shape[1:3])

    @torch.no_grad()
    def reset(self) -> None:
        """Initialise the weights as the authors: truncated normal with std 0.02, the projections by 1 / √width."""
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.trunc_normal_(module.weight, std=0.02)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
        nn.init.trunc_normal_(self.classes, std=0.02)
        for projection in (self.project_patches, self.project_classes):
            nn.init.normal_(projection.weight, std=projection.in_features**-0.5)


def _encoder_config(config: Config) -> vit.Config:
    """Return the Config of the ViT: a Segmenter's fields of the same names."""
    shared = ("image_size", "channels", "patch_size", "width", "heads", "layers", "ffn", "dropout", "stem")
    more = ("attention_dropout", "drop_path", "attention", "positions")
    return vit.Config(num_classes=0, **{name: getattr(config, name) for name in (*shared, *more)})


def _unit(x: Tensor) -> Tensor:
    return F.normalize(x, dim=-1)
