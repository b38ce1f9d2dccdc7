"""ViT of google-research/vision_transformer: its .npz files, import and export.

    google-research                                       Regard
    embedding                 P P C width                 stem.embed
    cls, Transformer/posembed_input                       first, positions.table
    query, key, value         C H D each                  one qkv matrix, rows by head
    MultiHeadDotProductAttention_.../out  H D C           mix.join.out
    pre_logits                                            pre_logits
    kernels with the input first                          weights with the output first

    model = google_vit.load("ViT-B_16.npz")
    google_vit.save("mine.npz", model)

The files have only arrays, which determine all but two things. GELU is flax's default, the tanh approximation, so
feedforward="gelu_tanh" (timm and transformers load the same files with exact GELU); and positions are flat, so the grid
of patches must be square. A model that would be loaded differently is not exported. Pickled objects in a file are
refused.

Dosovitskiy et al.: An Image is Worth 16x16 Words. ICLR 2021. arXiv:2010.11929
Steiner et al.: How to train your ViT? TMLR 2022. arXiv:2106.10270 (the files of Ti and S)
"""

from __future__ import annotations

import io
import math
import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch

from regard.core.errors import BadInput, Unsupported
from regard.core.files import atomic_write as write_file
from regard.core.shapes import Tensor
from regard.core.skip_init import skip_init
from regard.core.spec import Spec
from regard.models.vit import Config, ViT
from regard.tokens.patches import grid_size
from regard.weights.checkpoint_formats import check_requirements, requires_softmax
from regard.weights.table import Row, export_state_dict, import_state_dict, same, stack, transpose, view


def table(config: Config) -> list[Row]:
    """Return the rows for a model with this Config."""
    _check(config)
    there, here, h = "Transformer/encoderblock_{}", "encoder.blocks.{}", config.heads
    attention = f"{there}/MultiHeadDotProductAttention_1"
    mlp = f"{there}/MlpBlock_3"
    names = ("query", "key", "value")
    rows = [
        Row("embedding/kernel", "stem.embed.weight", view("p q c w -> w c p q")),
        Row("embedding/bias", "stem.embed.bias", same),
        Row("Transformer/posembed_input/pos_embedding", "positions.table", view("one n c -> (one n) c", one=1)),
        *_norm(f"{there}/LayerNorm_0", f"{here}.mix_norm"),
        Row(
            tuple(f"{attention}/{name}/kernel" for name in names),
            f"{here}.mix.project.qkv.weight",
            stack("three c h d -> (h three d) c", three=3, h=h),
        ),
        Row(
            tuple(f"{attention}/{name}/bias" for name in names),
            f"{here}.mix.project.qkv.bias",
            stack("three h d -> (h three d)", three=3, h=h),
        ),
        Row(f"{attention}/out/kernel", f"{here}.mix.join.out.weight", view("h d c -> c (h d)", h=h)),
        Row(f"{attention}/out/bias", f"{here}.mix.join.out.bias", same),
        *_norm(f"{there}/LayerNorm_2", f"{here}.feed_norm"),
        *_dense(f"{mlp}/Dense_0", f"{here}.feed.up"),
        *_dense(f"{mlp}/Dense_1", f"{here}.feed.down"),
        *_norm("Transformer/encoder_norm", "encoder.norm"),
    ]
    rows += [Row("cls", "prefix_tokens", view("one p c -> (one p) c", one=1))] if config.num_prefix_tokens else []
    rows += _dense("pre_logits", "pre_logits") if config.representation_size else []
    return rows + (_dense("head", "head") if config.num_classes else [])


def import_config(external: Mapping[str, Tensor]) -> Config:
    """Infer a Config from arrays; images must be square."""
    try:
        p, q, channels, width = external["embedding/kernel"].shape
        heads = external["Transformer/encoderblock_0/MultiHeadDotProductAttention_1/query/kernel"].shape[1]
        ffn = external["Transformer/encoderblock_0/MlpBlock_3/Dense_0/kernel"].shape[1]
        many = external["Transformer/posembed_input/pos_embedding"].shape[1] - ("cls" in external)
    except (KeyError, ValueError, IndexError):
        raise BadInput("these are not the arrays of a ViT of google-research: the first block is missing") from None
    side = math.isqrt(many)
    if side * side != many:
        raise BadInput(f"the number of positions must be a square, got {many}")
    return Config(
        num_classes=external["head/kernel"].shape[1] if "head/kernel" in external else 0,
        image_size=side * p if p == q else (side * p, side * q),
        channels=channels,
        patch_size=p if p == q else (p, q),
        width=width,
        heads=heads,
        layers=sum(name.endswith("LayerNorm_0/scale") for name in external),
        ffn=ffn,
        num_prefix_tokens=1 if "cls" in external else 0,
        pool="token" if "cls" in external else "mean",
        representation_size=external["pre_logits/kernel"].shape[1] if "pre_logits/kernel" in external else None,
        feedforward="gelu_tanh",
    )


def load(file: str | Path) -> ViT:
    """Load the model of an .npz file, in eval mode."""
    state = _read(Path(file))
    with skip_init():
        model = ViT(import_config(state))
    import_state_dict(table(model.config), state, model)
    return model.eval()


def save(file: str | Path, model: ViT) -> None:
    """Write an .npz file."""
    if not isinstance(model, ViT):
        kind = type(model).__name__
        raise Unsupported(f"files of google-research have weights only: give a ViT, not {kind}")
    _check_representable(model.config)
    arrays = {
        name: value.detach().float().cpu().numpy()
        for name, value in export_state_dict(table(model.config), model).items()
    }
    content = io.BytesIO()
    np.savez(content, **arrays)  # type: ignore[arg-type]
    write_file(content.getvalue(), file)


def _read(file: Path) -> dict[str, Tensor]:
    try:
        with np.load(file, allow_pickle=False) as arrays:
            return {name: torch.from_numpy(np.asarray(arrays[name])) for name in arrays.files}
    except FileNotFoundError:
        raise BadInput(f"there is no file {file}") from None
    except (OSError, ValueError, TypeError, AttributeError, zipfile.BadZipFile) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise BadInput(f"{file} is no .npz file of arrays: {reason}") from None


def _dense(external: str, internal: str) -> list[Row]:
    return [
        Row(f"{external}/kernel", f"{internal}.weight", transpose),
        Row(f"{external}/bias", f"{internal}.bias", same),
    ]


def _norm(external: str, internal: str) -> list[Row]:
    return [Row(f"{external}/scale", f"{internal}.weight", same), Row(f"{external}/bias", f"{internal}.bias", same)]


def _check_representable(config: Config) -> None:
    """Raise `Unsupported` for a model that would be loaded as another."""
    (y, x), note = grid_size(config.image_size, config.patch_size), "files of google-research do not store"
    if y != x:
        raise Unsupported(f"{note} the shape of the grid of patches: it must be square, got {y} x {x}")
    if config.feedforward != "gelu_tanh":
        raise Unsupported(f"{note} the activation, which is loaded as gelu_tanh; got {config.feedforward}")


def _check(config: Config) -> None:
    """Raise `Unsupported` for a model that the format cannot represent."""
    place = Spec.parse(config.positions)
    needed = {
        "attention": requires_softmax(config),
        "feedforward": ("gelu_tanh or gelu", config.feedforward in ("gelu_tanh", "gelu")),
        "stem": ("patches", config.stem == "patches"),
        "positions": ("learned", place.name == "learned" and not place.args and place.kwargs.keys() <= {"antialias"}),
        "num_prefix_tokens": (
            1 if config.pool == "token" else 0,
            config.num_prefix_tokens == (1 if config.pool == "token" else 0),
        ),
        "pool": ("token or mean", config.pool in ("token", "mean")),
        "layer_scale": (None, config.layer_scale is None),
        "eps": (1e-6, config.eps == 1e-6),
    }
    check_requirements("the ViT of google-research", config, needed)
