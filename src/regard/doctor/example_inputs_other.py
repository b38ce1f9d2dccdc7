"""Inputs made up for the models of this library that read neither tokens nor images, and one tensor of their answers.

    (frames)            of sound B T F: padding; where convolutions leave fewer frames, each stands for those it is of
    (frames, target)    a decoder that listens to them: it may not look ahead in the target
    (points, text)      of a pen B T 3: the output may not look ahead; the text, where the model has one, has padding
    (returns, states, actions, timesteps)       a history: the output may not look ahead in its states
    (spelled, words)    words by their letters, of a sentence read in both directions
    (centres, contexts) a word, and those around it

Where an answer has parts (the bells of a mixture, the next state beside the next action) they stand side by side in one
tensor B T C, so that an error in any of them is found.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from regard.core.shapes import Tensor
from regard.doctor.target import TargetInputs

AUDIO_LENGTHS, TARGET_LENGTHS, WORD_LENGTHS = [23, 9, 14, 2], [9, 5, 1, 7], [6, 11, 3, 1]  # the true lengths of rows


def frames(model: Any) -> TargetInputs:
    """Of a network for CTC: labels of frames."""
    x, own = _numbers(AUDIO_LENGTHS, model.config.input_dim), torch.tensor(AUDIO_LENGTHS)
    return TargetInputs((x,), (own,), ("frames",), call=_upsampled_logits)


def _upsampled_logits(model: Any, x: Tensor, lengths: Tensor | None = None) -> Tensor:
    """What is said of the frames that are left, for each of those there were."""
    logits = model(x, lengths)[0]
    return logits.repeat_interleave(model.config.frame_stack * 2**model.config.subsampling_layers, 1)[:, : x.shape[1]]


def frames_and_target(model: Any) -> TargetInputs:
    """Of a listener: frames, and the words that were written so far."""
    target = torch.randint(
        3, model.config.vocab, (len(TARGET_LENGTHS), max(TARGET_LENGTHS)), generator=torch.Generator().manual_seed(1)
    )
    lengths = torch.tensor(AUDIO_LENGTHS), torch.tensor(TARGET_LENGTHS)
    return TargetInputs((_numbers(AUDIO_LENGTHS, model.config.input_dim), target), lengths, ("frames", "target"), 1)


def points(model: Any) -> TargetInputs:
    """Of a pen: where it moved, and the text that it writes."""
    x, own = _numbers(TARGET_LENGTHS, 3), torch.tensor(TARGET_LENGTHS)
    x[..., 2] = (x[..., 2] > 0).to(x)  # whether it is lifted
    if not model.config.vocab:
        return TargetInputs((x,), (own,), ("points",), 0, _stroke_output, steps=_point_by_point)
    text = torch.randint(
        model.config.vocab, (len(WORD_LENGTHS), max(WORD_LENGTHS)), generator=torch.Generator().manual_seed(1)
    )
    return TargetInputs(
        (x, text), (own, torch.tensor(WORD_LENGTHS)), ("points", "text"), 0, _stroke_output, steps=_point_by_point
    )


def _stroke_output(model: Any, x: Tensor, *said: Tensor) -> Tensor:
    return _concatenate(model(x, *_text(said)))


def _point_by_point(model: Any, x: Tensor, *said: Tensor) -> Tensor:
    """The same, one point after another."""
    state, every = model.start(x, *_text(said)), []
    for point in x.unbind(1):
        found, state = model.step(point, state)
        every.append(_concatenate(type(found)(*(part[:, None] for part in found))))
    return torch.cat(every, 1)


def _text(said: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """The text and its lengths, of what a call is given beside the points: theirs, which nobody is told, among it."""
    return (said[0], said[2]) if len(said) == 3 else ()


def episode(model: Any) -> TargetInputs:
    """Of a Decision Transformer: what was wanted, seen and done, and when."""
    c, own, dice = model.config, torch.tensor(TARGET_LENGTHS), torch.Generator().manual_seed(2)
    shape = (len(TARGET_LENGTHS), max(TARGET_LENGTHS))
    done = (
        torch.randint(c.action_dim, shape, generator=dice)
        if c.action_type == "discrete"
        else _numbers(TARGET_LENGTHS, c.action_dim)
    )
    when = torch.arange(shape[1]).expand(shape).clamp(max=c.length - 1).clone()
    inputs = _numbers(TARGET_LENGTHS, 1)[..., 0], _numbers(TARGET_LENGTHS, c.state_dim, 3), done, when
    return TargetInputs(inputs, (own,) * 4, ("returns", "states", "actions", "timesteps"), 1, _episode_output)


def _episode_output(model: Any, *given: Tensor) -> Tensor:
    here, own = given[1].shape[1], given[5]  # the states may be cut short, and what stands beside them with them
    return _concatenate(model(*(x[:, :here] for x in given[:4]), own))


def spelled_words(model: Any) -> TargetInputs:
    """Of an ELMo: sentences of words that are spelled once, out of made-up letters."""
    words = torch.randint(7, (len(WORD_LENGTHS), max(WORD_LENGTHS)), generator=torch.Generator().manual_seed(1))
    return TargetInputs((words,), (torch.tensor(WORD_LENGTHS),), ("words",), call=_layers)


def _layers(model: Any, words: Tensor, lengths: Tensor | None = None) -> Tensor:
    """All layers of every word, and what both directions say of its neighbours."""
    from regard.models.elmo import words_to_char_ids

    table = words_to_char_ids(["<s>", "</s>", "a", "cat", "cats", "sat", "there"], model.config)
    both = model.layer_outputs(table, words, lengths)
    known = [part for side in both for part in side]
    return torch.cat([*known, *(model.head(side[-1]) for side in both)], -1)


def word_contexts(model: Any) -> TargetInputs:
    """Of a word2vec: words, and up to so many of those around each."""
    dice = torch.Generator().manual_seed(1)
    centres = torch.randint(model.config.vocab, (len(WORD_LENGTHS),), generator=dice)
    contexts = torch.randint(model.config.vocab, (len(WORD_LENGTHS), max(WORD_LENGTHS)), generator=dice)
    return TargetInputs((centres, contexts), (None, torch.tensor(WORD_LENGTHS)), ("centres", "contexts"), call=_vectors)


def _vectors(model: Any, centres: Tensor, contexts: Tensor, lengths: Tensor) -> Tensor:
    """The vectors of a word as it reads and as it is predicted, and of what predicts it."""
    there = torch.arange(contexts.shape[1]) < lengths[:, None]
    read, _ = model.algorithm(model.embed.weight, centres, contexts.where(there, -1))
    return torch.cat([model(centres), model.output(centres), read], -1)


def _numbers(lengths: list[int], width: int, seed: int = 0) -> Tensor:
    """Numbers, also where padding will be: whatever stands there must not matter."""
    return torch.randn(len(lengths), max(lengths), width, generator=torch.Generator().manual_seed(seed))


def _concatenate(parts: tuple[Tensor, ...]) -> Tensor:
    """Parts of an answer, B T ... each, as one tensor B T C."""
    return torch.cat([part.flatten(2) if part.dim() > 2 else part[..., None] for part in parts], -1)


READERS: dict[tuple[str, ...], Callable[[nn.Module], TargetInputs]] = {  # by the first names of what `forward` reads
    ("frames", "target"): frames_and_target,
    ("frames",): frames,
    ("points",): points,
    ("returns", "states", "actions", "timesteps"): episode,
    ("spelled", "words"): spelled_words,
    ("centres", "contexts"): word_contexts,
}
