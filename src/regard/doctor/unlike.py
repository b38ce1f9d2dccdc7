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
from regard.doctor.patient import Reads

SOUNDS, SAID, WORDS = [23, 9, 14, 2], [9, 5, 1, 7], [6, 11, 3, 1]  # the true lengths of rows


def frames(model: Any) -> Reads:
    """Of a network for CTC: labels of frames."""
    x, own = _numbers(SOUNDS, model.config.inputs), torch.tensor(SOUNDS)
    return Reads((x,), (own,), ("frames",), call=_stretched)


def _stretched(model: Any, x: Tensor, lengths: Tensor | None = None) -> Tensor:
    """What is said of the frames that are left, for each of those there were."""
    logits = model(x, lengths)[0]
    return logits.repeat_interleave(model.config.stack * 2**model.config.halvings, 1)[:, : x.shape[1]]


def listened(model: Any) -> Reads:
    """Of a listener: frames, and the words that were written so far."""
    target = torch.randint(3, model.config.vocab, (len(SAID), max(SAID)), generator=torch.Generator().manual_seed(1))
    lengths = torch.tensor(SOUNDS), torch.tensor(SAID)
    return Reads((_numbers(SOUNDS, model.config.inputs), target), lengths, ("frames", "target"), 1)


def points(model: Any) -> Reads:
    """Of a pen: where it moved, and the text that it writes."""
    x, own = _numbers(SAID, 3), torch.tensor(SAID)
    x[..., 2] = (x[..., 2] > 0).to(x)  # whether it is lifted
    if not model.config.vocab:
        return Reads((x,), (own,), ("points",), 0, _drawn, steps=_stroked)
    text = torch.randint(model.config.vocab, (len(WORDS), max(WORDS)), generator=torch.Generator().manual_seed(1))
    return Reads((x, text), (own, torch.tensor(WORDS)), ("points", "text"), 0, _drawn, steps=_stroked)


def _drawn(model: Any, x: Tensor, *said: Tensor) -> Tensor:
    return _beside(model(x, *_text(said)))


def _stroked(model: Any, x: Tensor, *said: Tensor) -> Tensor:
    """The same, one point after another."""
    state, every = model.start(x, *_text(said)), []
    for point in x.unbind(1):
        found, state = model.step(point, state)
        every.append(_beside(type(found)(*(part[:, None] for part in found))))
    return torch.cat(every, 1)


def _text(said: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """The text and its lengths, of what a call is given beside the points: theirs, which nobody is told, among it."""
    return (said[0], said[2]) if len(said) == 3 else ()


def history(model: Any) -> Reads:
    """Of a Decision Transformer: what was wanted, seen and done, and when."""
    c, own, dice = model.config, torch.tensor(SAID), torch.Generator().manual_seed(2)
    shape = (len(SAID), max(SAID))
    done = torch.randint(c.actions, shape, generator=dice) if c.kind == "classes" else _numbers(SAID, c.actions)
    when = torch.arange(shape[1]).expand(shape).clamp(max=c.length - 1).clone()
    inputs = _numbers(SAID, 1)[..., 0], _numbers(SAID, c.states, 3), done, when
    return Reads(inputs, (own,) * 4, ("returns", "states", "actions", "timesteps"), 1, _decided)


def _decided(model: Any, *given: Tensor) -> Tensor:
    here, own = given[1].shape[1], given[5]  # the states may be cut short, and what stands beside them with them
    return _beside(model(*(x[:, :here] for x in given[:4]), own))


def spelled(model: Any) -> Reads:
    """Of an ELMo: sentences of words that are spelled once, out of made-up letters."""
    words = torch.randint(7, (len(WORDS), max(WORDS)), generator=torch.Generator().manual_seed(1))
    return Reads((words,), (torch.tensor(WORDS),), ("words",), call=_layers)


def _layers(model: Any, words: Tensor, lengths: Tensor | None = None) -> Tensor:
    """All layers of every word, and what both directions say of its neighbours."""
    from regard.models.elmo import spell

    table = spell(["<s>", "</s>", "a", "cat", "cats", "sat", "there"], model.config)
    both = model.read(table, words, lengths)
    known = [part for side in both for part in side]
    return torch.cat([*known, *(model.head(side[-1]) for side in both)], -1)


def around(model: Any) -> Reads:
    """Of a word2vec: words, and up to so many of those around each."""
    dice = torch.Generator().manual_seed(1)
    centres = torch.randint(model.config.vocab, (len(WORDS),), generator=dice)
    contexts = torch.randint(model.config.vocab, (len(WORDS), max(WORDS)), generator=dice)
    return Reads((centres, contexts), (None, torch.tensor(WORDS)), ("centres", "contexts"), call=_vectors)


def _vectors(model: Any, centres: Tensor, contexts: Tensor, lengths: Tensor) -> Tensor:
    """The vectors of a word as it reads and as it is predicted, and of what predicts it."""
    there = torch.arange(contexts.shape[1]) < lengths[:, None]
    read, _ = model.way(model.embed.weight, centres, contexts.where(there, -1))
    return torch.cat([model(centres), model.output(centres), read], -1)


def _numbers(lengths: list[int], width: int, seed: int = 0) -> Tensor:
    """Numbers, also where padding will be: whatever stands there must not matter."""
    return torch.randn(len(lengths), max(lengths), width, generator=torch.Generator().manual_seed(seed))


def _beside(parts: tuple[Tensor, ...]) -> Tensor:
    """Parts of an answer, B T ... each, as one tensor B T C."""
    return torch.cat([part.flatten(2) if part.dim() > 2 else part[..., None] for part in parts], -1)


READERS: dict[tuple[str, ...], Callable[[nn.Module], Reads]] = {  # by the first names of what `forward` reads
    ("frames", "target"): listened,
    ("frames",): frames,
    ("points",): points,
    ("returns", "states", "actions", "timesteps"): history,
    ("spelled", "words"): spelled,
    ("centres", "contexts"): around,
}
