"""Example inputs for the models of this library, so that a name or a folder is enough to check one.

    arguments of forward
    (source, target)    encoder-decoder: both have padding, and the output is causal in the target
    (tokens, segments)  bidirectional encoder, with padding
    (tokens)            decoder-only, with padding and causal
    (frames), ...       audio, strokes, episodes, characters: example_inputs_other.py
    (images)            normalised images B C Y X, of a size that few patches and windows divide; clips B C T Y X
    (images, condition) intensities of images that are generated, causal in raster order: example_inputs_other.py

Lengths and sizes are unlikely to equal a width or a number of heads, and all columns differ, so that the sequence
dimension of an activation can be recognised by its size.
"""

from __future__ import annotations

import inspect
from typing import Any, cast

import torch
from torch import nn

from regard.core.shapes import pair
from regard.doctor.example_inputs_other import EXAMPLE_INPUTS, intensities
from regard.doctor.target import TargetInputs
from regard.models import MODELS

SOURCE, TARGET = [11, 3, 7, 1], [9, 5, 1, 7]  # lengths of the rows, padded to the longest
ROWS, COLUMNS, FRAMES = 44, 58, 6  # of images; small, so that checks are fast
TOKEN_INPUTS: dict[tuple[str, ...], tuple[tuple[list[int], ...], int | None]] = {
    ("source", "target"): ((SOURCE, TARGET), 1),
    ("tokens", "segments"): ((SOURCE,), None),  # `segments` defaults to one segment
    ("tokens",): ((SOURCE,), 0),
}


def model_family(model: nn.Module) -> str | None:
    """Return the name of a model, or of its base class, in the table of models."""
    for base in type(model).__mro__:
        for name, (module, attribute) in MODELS.items():
            if (base.__module__, base.__qualname__) == (module, attribute):
                return name
    return None


def example_inputs(model: nn.Module) -> TargetInputs:
    """Return example inputs for a model of this library; empty if its arguments are unknown."""
    names = tuple(inspect.signature(model.forward).parameters)
    for arguments, make_inputs in EXAMPLE_INPUTS.items() if model_family(model) is not None else ():
        if names[: len(arguments)] == arguments:
            return make_inputs(model)
    if model_family(model) is not None and names[:1] == ("images",):
        if hasattr(model, "palette") and not cast(Any, model).config.num_classes:
            return intensities(model)
        return TargetInputs((_images(model),), (None,), ("images",))
    for arguments, (sizes, causal) in TOKEN_INPUTS.items():
        if model_family(model) is not None and names[: len(arguments)] == arguments:
            tokens = tuple(_random_tokens(model, size, seed) for seed, size in enumerate(sizes))
            padded = [x.shape[1] for x in tokens]
            lengths = tuple(torch.tensor(size).clamp(max=n) for size, n in zip(sizes, padded, strict=True))
            call = _single_output if arguments == ("tokens", "segments") else None
            return TargetInputs(tokens, lengths, arguments[: len(tokens)], causal, call)
    return TargetInputs()


def _images(model: nn.Module) -> torch.Tensor:
    """Return four random images (or clips), at most as large as the model's image size."""
    config: Any = model.config
    sides = pair(config.image_size)
    clip = (min(FRAMES, config.num_frames),) if getattr(config, "num_frames", 0) else ()
    shape = (4, config.channels, *clip, min(ROWS, sides[0]), min(COLUMNS, sides[1]))
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


def _single_output(model: nn.Module, tokens: torch.Tensor, lengths: torch.Tensor | None) -> torch.Tensor:
    """Return the output as one tensor; sequence logits are repeated at every token and concatenated."""
    out = model(tokens, lengths=lengths)
    if not isinstance(out, tuple):
        return out
    token_logits, sequence_logits = out
    return torch.cat([token_logits, sequence_logits[:, None].expand(-1, token_logits.shape[1], -1)], -1)


def _random_tokens(model: nn.Module, lengths: list[int], seed: int) -> torch.Tensor:
    """Return random non-special tokens, also at padding positions, whose content must not matter."""
    config = model.config
    special = {int(getattr(config, name)) for name in ("pad", "bos", "eos") if hasattr(config, name)}
    vocab, length = int(config.vocab), min(max(lengths), int(getattr(config, "length", None) or max(lengths)))  # type: ignore[union-attr, arg-type]
    ordinary = torch.tensor([n for n in range(vocab) if n not in special] or list(range(vocab)))
    generator = torch.Generator().manual_seed(seed)
    return ordinary[torch.randint(len(ordinary), (len(lengths), length), generator=generator)]
