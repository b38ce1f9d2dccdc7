"""Predictors that read sound: `frames` turns samples into log-mel frames, then the model's graph or graphs read them.

The Fourier transform is a product with two matrices of cosines and sines, which every runtime has.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from regard.core.config import to_dict
from regard.core.errors import Unsupported
from regard.core.shapes import Float, Tensor
from regard.export.decoding import Decoding
from regard.export.generation import GREEDY, WRITE, freeze
from regard.export.plan import Graph, Plan
from regard.export.text import TOKENIZER, TOKENIZERS, random_lengths, ranked
from regard.tokens.frames import DYNAMIC_RANGE, append_deltas, mel_filterbank, normalize_features

EXAMPLE = "sound.wav"  # that `check` plays to both
IMPORTS = ("import soundfile",)
UNIT = 8  # frames of a unit of length, so that some are left after subsampling
RECORDING = """\
    samples, rate = soundfile.read(file, dtype="float32", always_2d=True)
    if rate != config["preprocess"]["sample_rate"]:
        sys.exit(f"{file} has {rate} Hz, the model reads {config['preprocess']['sample_rate']}; resample it.")
    wave = np.pad(samples.mean(1), (0, max(0, config["shortest"] - len(samples))))
    (found,) = frames(wave)"""
SPEECH = f"""{RECORDING}
    length = np.array([len(found)])
    found = np.pad(found, ((0, max(0, {UNIT} - len(found))), (0, 0)))  # what follows the length is not read"""


def frames_graph(predictor: Any) -> tuple[Graph, dict[str, Any]]:
    """Return the graph from samples of one recording to frames, and what config.json has of it."""
    how = predictor.preprocess
    if how is None:
        raise Unsupported(
            "this model reads frames that were made elsewhere, not sound; export its network alone (--network)"
        )
    window, size = how.win_length, 2 ** (how.win_length - 1).bit_length()
    angle = 2 * math.pi * torch.outer(torch.arange(window), torch.arange(size // 2 + 1)).double() / size
    shape = torch.hann_window(window, dtype=torch.float64)[:, None]
    cosine, sine = shape * angle.cos(), shape * angle.sin()  # in float64: quiet bands are 80 dB below loud ones
    filters = mel_filterbank(how.sample_rate, size, how.n_mels, how.f_min).float().mT

    def run(wave: Float[Tensor, " samples"]) -> tuple[Tensor, ...]:
        pieces = wave.double().unfold(0, window, how.hop_length)
        mel = ((pieces @ cosine).square() + (pieces @ sine).square()).float() @ filters
        floor = (mel.max() * DYNAMIC_RANGE).clamp(min=torch.finfo(mel.dtype).tiny)
        return (append_deltas(normalize_features(torch.maximum(mel, floor).log(), how.per_feature), how.deltas),)

    def example(rows: int, length: int) -> tuple[Tensor, ...]:
        count = window + how.hop_length * UNIT * length
        return (torch.sin(torch.arange(count) / 9.0) * torch.linspace(0.1, 1, count) + 0.01 * torch.randn(count),)

    graph = Graph("frames", predictor.model, run, ("wave",), ("frames",), example)
    return graph, {"preprocess": to_dict(how), "shortest": window + how.hop_length}  # two frames: one would be constant


def framed(predictor: Any) -> Any:
    """Return the function that makes example frames, padded, and their lengths."""
    features = predictor.preprocess.features

    def example(rows: int, length: int) -> tuple[Tensor, ...]:
        return torch.randn(rows, UNIT * length, features), UNIT * random_lengths(rows, length)

    return example


def plan_ctc(predictor: Any, name: str) -> Plan:
    """Return the plan of a network that labels frames."""
    graph, values = frames_graph(predictor)
    model, text = predictor.model, predictor.text

    def run(frames: Tensor, lengths: Tensor) -> tuple[Tensor, ...]:
        logits, left = model(frames, lengths)
        return logits.float().log_softmax(-1), left

    script = f"""\
frames, model = load("frames"), load("model")
{TOKENIZER}
for file in sys.argv[1:]:
{SPEECH}
    scores, lengths = model(found[None], length)
    best = scores[0, : lengths[0]].argmax(-1)
    written = best[(best != np.append(-1, best[:-1])) & (best != config["blank"])]  # repeats are one label
    print(tokenizer.decode(written.tolist()) if np.ptp(wave) else "")  # silence says nothing
"""
    inputs = ("frames", "lengths")
    return Plan(
        (graph, Graph("model", model, run, inputs, ("log_probabilities", "label_lengths"), framed(predictor))),
        script,
        "RECORDING...",
        values | {"blank": model.blank},
        (*IMPORTS, *TOKENIZERS),
        ("soundfile", "tokenizers"),
        text,
        [(EXAMPLE,)],
        lambda file: predictor(file, beam_size=1).text,
    )


def plan_recognition(predictor: Any, name: str) -> Plan:
    """Return the plan of a speech recogniser that writes token after token."""
    from regard.tasks.audio.speech_recognition import EXTRA_TOKENS, FRAMES_PER_TOKEN

    graph, values = frames_graph(predictor)
    model, text = predictor.model, predictor.text
    capacity = 256

    def begin(frames: Tensor, lengths: Tensor) -> tuple[Tensor, Any]:
        first, state = model.start(frames, lengths, capacity=capacity + 1)
        logits, state = model.step(first, freeze(model, state))
        return logits[:, 0], state

    banned = [] if text.pad == text.eos else [text.pad]
    graphs = Decoding(model, begin, banned).graphs(("frames", "lengths"), framed(predictor), 10**6)
    script = f"""\
frames, start, step = load("frames"), load("start"), load("step")
{TOKENIZER}
for file in sys.argv[1:]:
{SPEECH}
    logits, *state = start(found[None], length)
    written, limit = [], min({capacity}, length[0] // {FRAMES_PER_TOKEN} + {EXTRA_TOKENS}) if np.ptp(wave) else 0
{WRITE}\
    print(tokenizer.decode(written))
"""
    return Plan(
        (graph, *graphs),
        script,
        "RECORDING...",
        values | {"eos": text.eos},
        (*IMPORTS, *TOKENIZERS),
        ("soundfile", "tokenizers"),
        text,
        [(EXAMPLE,)],
        lambda file: predictor(file, beam_size=1).text,
        note=GREEDY,
    )


def plan_classification(predictor: Any, name: str) -> Plan:
    """Return the plan of a classifier of recordings."""
    graph, values = frames_graph(predictor)
    features, most = predictor.preprocess.features, predictor.max_frames

    def run(frames: Tensor) -> tuple[Tensor, ...]:
        return (predictor.model(frames[:, None]).float().softmax(-1),)

    def example(rows: int, length: int) -> tuple[Tensor, ...]:
        return (torch.randn(rows, most, features),)

    script = f"""\
frames, model = load("frames"), load("model")
for file in sys.argv[1:]:
{RECORDING}
    spare = config["max_frames"] - len(found)  # the middle of a longer recording, or zeros around a shorter one
    before = abs(spare) // 2
    found = np.pad(found, ((before, spare - before), (0, 0))) if spare > 0 else found[before:][: config["max_frames"]]
    (probabilities,) = model(found[None])
    best = probabilities[0].argmax()
    print(config["labels"][best], f"{{probabilities[0, best]:.4f}}", sep="\\t")
"""
    return Plan(
        (graph, Graph("model", predictor.model, run, ("frames",), ("probabilities",), example)),
        script,
        "RECORDING...",
        values | {"labels": list(predictor.labels), "max_frames": most},
        IMPORTS,
        ("soundfile",),
        examples=[(EXAMPLE,)],
        answer=lambda file: ranked(predictor(file)),
    )
