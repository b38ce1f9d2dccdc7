"""Example inputs for models that take neither tokens nor images, and calls that return their output as one tensor.

    (frames)            audio features B T F, with padding; subsampled outputs are repeated to the input length
    (frames, target)    speech recognition with a decoder that is causal in the target
    (points, text)      pen strokes B T 3, causal; the text, if the model takes one, has padding
    (returns, states, actions, timesteps)       an episode, causal in the states
    (spelled, words)    words by their characters, in sentences read in both directions
    (elements)          sets of vectors, with padding
    (nodes, edges)      graphs, with padding
    (places)            longitudes and latitudes
    (vectors)           sequences of vectors, causal
    (sentences, story_lengths, questions)    stories as word ids B S W, with padding, and questions about them
    (images, condition) intensities of images in the order of their generation, causal; and small images to enlarge
    (images, questions) images, and questions about them as word ids B T
    (images, noise)     images from 0 to 1, and noise of the latent variables of every step
    (images, sizes)     images whose objects are found
    (images, target)    images and their captions, causal in the caption
    (centres, contexts) a word and its context words

Outputs with several parts (mixture parameters; next state and next action) are concatenated to one tensor B T C, so
that an error in any part is found.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from regard.core.shapes import Tensor, pair
from regard.doctor.target import TargetInputs

AUDIO_LENGTHS, TARGET_LENGTHS, WORD_LENGTHS = [23, 9, 14, 2], [9, 5, 1, 7], [6, 11, 3, 1]  # lengths of the rows


def frames(model: Any) -> TargetInputs:
    """Return audio frames for a CTC model."""
    x, lengths = _numbers(AUDIO_LENGTHS, model.config.input_dim), torch.tensor(AUDIO_LENGTHS)
    return TargetInputs((x,), (lengths,), ("frames",), call=_upsampled_logits)


def _upsampled_logits(model: Any, x: Tensor, lengths: Tensor | None = None) -> Tensor:
    """Return the logits, repeated for the input frames that each output frame covers."""
    logits = model(x, lengths)[0]
    together = getattr(model.config, "frame_stack", 1) * 2**model.config.subsampling_layers
    return logits.repeat_interleave(together, 1)[:, : x.shape[1]]


def frames_and_target(model: Any) -> TargetInputs:
    """Return audio frames and target tokens for a speech recogniser with a decoder."""
    target = torch.randint(
        3, model.config.vocab, (len(TARGET_LENGTHS), max(TARGET_LENGTHS)), generator=torch.Generator().manual_seed(1)
    )
    lengths = torch.tensor(AUDIO_LENGTHS), torch.tensor(TARGET_LENGTHS)
    return TargetInputs((_numbers(AUDIO_LENGTHS, model.config.input_dim), target), lengths, ("frames", "target"), 1)


def points(model: Any) -> TargetInputs:
    """Return pen strokes, and a text if the model takes one."""
    x, lengths = _numbers(TARGET_LENGTHS, 3), torch.tensor(TARGET_LENGTHS)
    x[..., 2] = (x[..., 2] > 0).to(x)  # pen lifted or not
    if not model.config.vocab:
        return TargetInputs((x,), (lengths,), ("points",), 0, _stroke_output, steps=_point_by_point)
    text = torch.randint(
        model.config.vocab, (len(WORD_LENGTHS), max(WORD_LENGTHS)), generator=torch.Generator().manual_seed(1)
    )
    return TargetInputs(
        (x, text), (lengths, torch.tensor(WORD_LENGTHS)), ("points", "text"), 0, _stroke_output, steps=_point_by_point
    )


def _stroke_output(model: Any, x: Tensor, *inputs: Tensor) -> Tensor:
    return _concatenate(model(x, *_text(inputs)))


def _point_by_point(model: Any, x: Tensor, *inputs: Tensor) -> Tensor:
    """Return the same output as `_stroke_output`, computed point by point."""
    state, outputs = model.start(x, *_text(inputs)), []
    for point in x.unbind(1):
        output, state = model.step(point, state)
        outputs.append(_concatenate(type(output)(*(part[:, None] for part in output))))
    return torch.cat(outputs, 1)


def _text(inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Return the text and its lengths; the lengths of the points, in between, are not passed to the model."""
    return (inputs[0], inputs[2]) if len(inputs) == 3 else ()


def episode(model: Any) -> TargetInputs:
    """Return an episode for a Decision Transformer."""
    config, lengths, generator = model.config, torch.tensor(TARGET_LENGTHS), torch.Generator().manual_seed(2)
    shape = (len(TARGET_LENGTHS), max(TARGET_LENGTHS))
    actions = (
        torch.randint(config.action_dim, shape, generator=generator)
        if config.action_type == "discrete"
        else _numbers(TARGET_LENGTHS, config.action_dim)
    )
    timesteps = torch.arange(shape[1]).expand(shape).clamp(max=config.length - 1).clone()
    inputs = _numbers(TARGET_LENGTHS, 1)[..., 0], _numbers(TARGET_LENGTHS, config.state_dim, 3), actions, timesteps
    return TargetInputs(inputs, (lengths,) * 4, ("returns", "states", "actions", "timesteps"), 1, _episode_output)


def _episode_output(model: Any, *inputs: Tensor) -> Tensor:
    length, lengths = inputs[1].shape[1], inputs[5]  # a prefix check shortens only the states
    return _concatenate(model(*(x[:, :length] for x in inputs[:4]), lengths))


def spelled_words(model: Any) -> TargetInputs:
    """Return sentences of word numbers for ELMo."""
    words = torch.randint(7, (len(WORD_LENGTHS), max(WORD_LENGTHS)), generator=torch.Generator().manual_seed(1))
    return TargetInputs((words,), (torch.tensor(WORD_LENGTHS),), ("words",), call=_layers)


def _layers(model: Any, words: Tensor, lengths: Tensor | None = None) -> Tensor:
    """Return all layers of every word and the logits of both directions."""
    from regard.models.elmo import words_to_char_ids

    char_ids = words_to_char_ids(["<s>", "</s>", "a", "cat", "cats", "sat", "there"], model.config)
    directions = model.layer_outputs(char_ids, words, lengths)
    layers = [part for side in directions for part in side]
    return torch.cat([*layers, *(model.head(side[-1]) for side in directions)], -1)


def word_contexts(model: Any) -> TargetInputs:
    """Return centre words and their context words for word2vec."""
    generator = torch.Generator().manual_seed(1)
    centres = torch.randint(model.config.vocab, (len(WORD_LENGTHS),), generator=generator)
    contexts = torch.randint(model.config.vocab, (len(WORD_LENGTHS), max(WORD_LENGTHS)), generator=generator)
    return TargetInputs((centres, contexts), (None, torch.tensor(WORD_LENGTHS)), ("centres", "contexts"), call=_vectors)


def _vectors(model: Any, centres: Tensor, contexts: Tensor, lengths: Tensor) -> Tensor:
    """Return the input and output vectors of a word and the vector that predicts it."""
    valid = torch.arange(contexts.shape[1]) < lengths[:, None]
    prediction, _ = model.algorithm(model.embed.weight, centres, contexts.where(valid, -1))
    return torch.cat([model(centres), model.output(centres), prediction], -1)


def elements(model: Any) -> TargetInputs:
    """Return sets of vectors."""
    return TargetInputs((_numbers(WORD_LENGTHS, model.config.input_dim),), (torch.tensor(WORD_LENGTHS),), ("elements",))


def graphs(model: Any) -> TargetInputs:
    """Return graphs whose edges follow from the features of the nodes."""
    x = _numbers(WORD_LENGTHS, model.config.input_dim)
    return TargetInputs((x,), (torch.tensor(WORD_LENGTHS),), ("nodes",), call=_graph_output)


def _graph_output(model: Any, x: Tensor, lengths: Tensor | None = None) -> Tensor:
    edges = (x[:, :, None, 0] * x[:, None, :, 0] > 0).long()
    return model(x, edges, lengths=lengths)


def places(model: Any) -> TargetInputs:
    """Return places on the globe."""
    x = torch.rand(len(WORD_LENGTHS), 2, generator=torch.Generator().manual_seed(0))
    return TargetInputs(((x - 0.5) * torch.tensor([360.0, 180.0]),), (None,), ("places",))


def vectors(model: Any) -> TargetInputs:
    """Return sequences of vectors."""
    x, lengths = _numbers(TARGET_LENGTHS, model.config.input_dim), torch.tensor(TARGET_LENGTHS)
    steps = _vector_by_vector if hasattr(model, "read") else None
    return TargetInputs((x,), (lengths,), ("vectors",), 0, lambda model, x, *lengths: model(x), steps=steps)


def _vector_by_vector(model: Any, x: Tensor, *lengths: Tensor) -> Tensor:
    """Return the output of a model, computed vector by vector."""
    state, outputs = model.start(len(x)), []
    for vector in x.split(1, 1):
        output, state = model.read(vector, state)
        outputs.append(output)
    return torch.cat(outputs, 1)


def stories(model: Any) -> TargetInputs:
    """Return stories of sentences with a question each."""
    generator, vocab = torch.Generator().manual_seed(1), model.config.vocab
    sentences = torch.randint(2, vocab, (len(WORD_LENGTHS), max(WORD_LENGTHS), 4), generator=generator)
    questions = torch.randint(2, vocab, (len(WORD_LENGTHS), 3), generator=generator)
    return TargetInputs(
        (sentences, questions), (torch.tensor(WORD_LENGTHS), None), ("sentences", "questions"), call=_answer_logits
    )


def _answer_logits(model: Any, sentences: Tensor, questions: Tensor, lengths: Tensor | None = None) -> Tensor:
    if lengths is None:
        lengths = torch.full((len(sentences),), sentences.shape[1], device=sentences.device)
    return model(sentences, lengths, questions)


def questions_about_images(model: Any) -> TargetInputs:
    """Return images with a question each; padding of a question is words of id 0."""
    generator, config = torch.Generator().manual_seed(1), model.config
    images = torch.randn(4, config.channels, *pair(config.image_size), generator=generator)
    questions = torch.randint(2, config.vocab, (4, 3), generator=generator)
    return TargetInputs((images, questions), (None, None), ("images", "questions"))


def scenes(model: Any) -> TargetInputs:
    """Return images of a detector, all of one size."""
    images = torch.randn(4, model.config.backbone.channels, 64, 96, generator=torch.Generator().manual_seed(0))
    return TargetInputs((images,), (None,), ("images",), call=_objects)


def _objects(model: Any, images: Tensor) -> Tensor:
    """Return logits and boxes of all layers, B Q C."""
    found = model(images)
    return torch.cat([found.logits, found.boxes], -1).movedim(0, 2).flatten(2)


def captioned_images(model: Any) -> TargetInputs:
    """Return images and captions of several lengths."""
    encoder, generator = model.config.encoder, torch.Generator().manual_seed(1)
    shape = (len(TARGET_LENGTHS), max(TARGET_LENGTHS))
    images = torch.randn(shape[0], encoder.channels, *pair(encoder.image_size), generator=generator)
    target = torch.randint(3, model.config.vocab, shape, generator=generator)
    return TargetInputs((images, target), (None, torch.tensor(TARGET_LENGTHS)), ("images", "target"), 1)


def intensities(model: Any) -> TargetInputs:
    """Return tokens of images, and small images if the model enlarges them."""
    config, generator = model.config, torch.Generator().manual_seed(1)
    tokens = torch.randint(config.levels, (len(TARGET_LENGTHS), model.length), generator=generator)
    if getattr(config, "condition_size", None) is None:
        return TargetInputs((tokens,), (None,), ("tokens",), 0, _token_logits, steps=_token_by_token)
    size = len(tokens), config.channels, *pair(config.condition_size)
    small = torch.randint(config.levels, size, generator=generator)
    return TargetInputs((tokens, small), (None, None), ("tokens", "condition"), 0, _token_logits, steps=_token_by_token)


def _token_logits(model: Any, tokens: Tensor, *condition: Tensor) -> Tensor:
    return model.token_logits(tokens, *condition)


def _token_by_token(model: Any, tokens: Tensor, *condition: Tensor) -> Tensor:
    """Return the same output as `_token_logits`, computed token by token."""
    (_, state), outputs = model.start(tokens[:, :1], *condition, capacity=tokens.shape[1]), []
    for token in tokens.split(1, 1):
        logits, state = model.step(token, state)
        outputs.append(logits)
    return torch.cat(outputs, 1)


def images_and_noise(model: Any) -> TargetInputs:
    """Return images and noise; the output is the logits of the pixels and the KL of every step.

    A model whose noise is optional gets images alone.
    """
    config, generator = model.config, torch.Generator().manual_seed(0)
    images = torch.rand(4, config.channels, *pair(config.image_size), generator=generator)
    if inspect.signature(model.forward).parameters["noise"].default is None:
        return TargetInputs((images,), (None,), ("images",))
    noise = torch.randn(4, config.steps, config.latent, generator=generator)
    return TargetInputs((images, noise), (None, None), ("images", "noise"), call=_logits_and_kl)


def _logits_and_kl(model: Any, images: Tensor, noise: Tensor) -> Tensor:
    logits, kl = model(images, noise)
    return torch.cat([logits.flatten(1), kl], 1)


def _numbers(lengths: list[int], width: int, seed: int = 0) -> Tensor:
    """Return random vectors, also at padding positions, whose content must not matter."""
    return torch.randn(len(lengths), max(lengths), width, generator=torch.Generator().manual_seed(seed))


def _concatenate(parts: tuple[Tensor, ...]) -> Tensor:
    """Concatenate parts B T ... to one tensor B T C."""
    return torch.cat([part.flatten(2) if part.dim() > 2 else part[..., None] for part in parts], -1)


EXAMPLE_INPUTS: dict[tuple[str, ...], Callable[[nn.Module], TargetInputs]] = {  # by the first arguments of `forward`
    ("frames", "target"): frames_and_target,
    ("frames",): frames,
    ("points",): points,
    ("elements",): elements,
    ("nodes", "edges"): graphs,
    ("places",): places,
    ("vectors",): vectors,
    ("sentences", "story_lengths", "questions"): stories,
    ("images", "condition"): intensities,
    ("images", "questions"): questions_about_images,
    ("images", "noise"): images_and_noise,
    ("images", "sizes"): scenes,
    ("images", "target"): captioned_images,
    ("returns", "states", "actions", "timesteps"): episode,
    ("spelled", "words"): spelled_words,
    ("centres", "contexts"): word_contexts,
}
