"""Inputs made up for the models of this library, so that a name or a folder is enough to examine one.

    reads               the names of what `forward` reads, in order
    (source, target)    an encoder and a decoder: both have padding, the output may not look ahead in the target
    (tokens, segments)  one text or two, read in both directions: it has padding
    (tokens)            one text: it has padding, the output may not look ahead in it
    (frames), ...       sound, a pen's points, histories, letters: unlike.py
    (images)            normalised images B C Y X, of a size that few patches and windows divide; clips B C T Y X

Lengths and sizes are odd ones that no width or number of heads is likely to share, and no two columns are alike, so
that what comes out of a part of the model can be told apart by its shape and by its values.
"""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import nn

from regard.core.shapes import pair
from regard.doctor.example_inputs_other import READERS
from regard.doctor.target import TargetInputs
from regard.models import MODELS

SOURCE, TARGET = [11, 3, 7, 1], [9, 5, 1, 7]  # tokens in each row, padded to the longest
ROWS, COLUMNS, FRAMES = 44, 58, 6  # of images; small, since what is trained on large ones reads these too
TOKEN_INPUTS: dict[tuple[str, ...], tuple[tuple[list[int], ...], int | None]] = {
    ("source", "target"): ((SOURCE, TARGET), 1),
    ("tokens", "segments"): ((SOURCE,), None),  # one segment, where nothing is said
    ("tokens",): ((SOURCE,), 0),
}


def model_family(model: nn.Module) -> str | None:
    """The name under which the table of models knows a model, or what it is made from."""
    for base in type(model).__mro__:
        for name, (module, attribute) in MODELS.items():
            if (base.__module__, base.__qualname__) == (module, attribute):
                return name
    return None


def example_inputs(model: nn.Module) -> TargetInputs:
    """Something for a model of ours to read; nothing where it is not known what it reads."""
    names = tuple(inspect.signature(model.forward).parameters)
    if model_family(model) is not None and names[:1] == ("images",):
        return TargetInputs((_images(model),), (None,), ("images",))
    for reads, reader in READERS.items() if model_family(model) is not None else ():
        if names[: len(reads)] == reads:
            return reader(model)
    for reads, (sizes, causal) in TOKEN_INPUTS.items():
        if model_family(model) is not None and names[: len(reads)] == reads:
            tokens = tuple(_random_tokens(model, size, seed) for seed, size in enumerate(sizes))
            longest = [x.shape[1] for x in tokens]
            lengths = tuple(torch.tensor(size).clamp(max=n) for size, n in zip(sizes, longest, strict=True))
            call = _single_output if reads == ("tokens", "segments") else None
            return TargetInputs(tokens, lengths, reads[: len(tokens)], causal, call)
    return TargetInputs()


def _images(model: nn.Module) -> torch.Tensor:
    """Four images; those of a model trained on smaller ones are no larger."""
    config: Any = model.config
    sides = pair(config.image_size)
    clip = (min(FRAMES, config.num_frames),) if getattr(config, "num_frames", 0) else ()
    shape = (4, config.channels, *clip, min(ROWS, sides[0]), min(COLUMNS, sides[1]))
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


def _single_output(model: nn.Module, tokens: torch.Tensor, lengths: torch.Tensor | None) -> torch.Tensor:
    """The answer as one tensor: what a pretraining head says of the whole text stands beside every word of it."""
    out = model(tokens, lengths=lengths)
    if not isinstance(out, tuple):
        return out
    words, follows = out
    return torch.cat([words, follows[:, None].expand(-1, words.shape[1], -1)], -1)


def _random_tokens(model: nn.Module, lengths: list[int], seed: int) -> torch.Tensor:
    """Ordinary tokens, also where padding will be: whatever stands there must not matter."""
    config = model.config
    special = {int(getattr(config, name)) for name in ("pad", "bos", "eos") if hasattr(config, name)}
    vocab, most = int(config.vocab), min(max(lengths), int(getattr(config, "length", None) or max(lengths)))  # type: ignore[union-attr, arg-type]
    ordinary = torch.tensor([n for n in range(vocab) if n not in special] or list(range(vocab)))
    dice = torch.Generator().manual_seed(seed)
    return ordinary[torch.randint(len(ordinary), (len(lengths), most), generator=dice)]
