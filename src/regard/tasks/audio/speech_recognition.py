"""Speech recognition by a decoder that attends to the frames and writes one word (or letter) after another.

    input        Audio
    output       Transcript (text, log-probability, times of the words)
    loss         cross-entropy of the next word, label-smoothed, summed over words and ends (teacher forcing)
    metrics      WER %, LER % (labels), exact match %, nats per label
    decoding     greedy with beam size 1, else beam search (decoding.beam_search)
    times        of each word, from the attention over the frames

An output has at most one word (or letter) for every four frames and a few more; then it is cut.

Chorowski, Bahdanau, Serdyuk, Cho, Bengio: Attention-Based Models for Speech Recognition. NeurIPS 2015. arXiv:1506.07503
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import nn

from regard.core.config import field
from regard.core.decodable import Decodable
from regard.core.shapes import Float, Int, Tensor
from regard.core.trace import Trace
from regard.data.audio.speech_batch import SpeechBatch
from regard.decoding.beam_search import Hypothesis, beam_search, greedy_search
from regard.losses.label_smoothed_cross_entropy import label_smoothed_cross_entropy
from regard.modalities.audio import AudioPreprocess
from regard.modalities.transcript import TimedWord, Transcript
from regard.tasks.audio.speech_base import (
    SpeechOptions,
    SpeechRecognitionTask,
    SpeechRecognizerBase,
    evaluation_recordings,
    is_silent,
)
from regard.tasks.base import call_with_state, load_tokenizer
from regard.tasks.text.translation import model_inputs, shift_targets

if TYPE_CHECKING:
    from regard.tokens.tokenizer import Tokenizer

FRAMES_PER_TOKEN, EXTRA_TOKENS = 4, 4  # at most one token per so many frames, and so many more


@dataclass(frozen=True)
class Config:
    """Training options, and how transcripts are searched for."""

    label_smoothing: float = field(0.1, low=0, below=1)
    beam_size: int = 4  # in reports; evaluations during training are greedy

    def quick(self) -> Config:
        """Return the settings of a quick run."""
        return replace(self, beam_size=2)

    def build(self, data: Any, seed: int = 0, folder: Path | None = None) -> SpeechRecognition:
        """Return the task on these data, with the tokenizer in the folder where one is given, else that of the data."""
        return SpeechRecognition(self, data, load_tokenizer(folder), seed)

    @staticmethod
    def eval_data(corpus: str, saved: Mapping[str, Any], **changes: Any) -> Any:
        """Return the dataset of a name to evaluate a saved model on, whose config.json is given."""
        return evaluation_recordings(corpus, saved, changes)


class SpeechRecognition(SpeechRecognitionTask):
    """Train and evaluate an attention decoder over recordings."""

    name = "speech_recognition"

    def __init__(self, config: Config, data: Any, text: Tokenizer | None = None, seed: int = 0) -> None:
        super().__init__(config, data, text, seed)
        self.objective: Callable[[Tensor, Tensor, float], Tensor] = label_smoothed_cross_entropy

    def loss(
        self, model: nn.Module, batch: SpeechBatch, step: int = 0, rng: torch.Generator | None = None
    ) -> tuple[Float[Tensor, ""], dict[str, Tensor]]:
        """Return the label-smoothed loss summed over words and ends."""
        logits, pass_state = call_with_state(model, *model_inputs(batch))
        total = self.objective(logits, shift_targets(batch), self.config.label_smoothing)
        return self.with_layer_losses(total, batch, pass_state), {"loss": total.detach()}

    def nll(self, model: nn.Module, batch: SpeechBatch) -> tuple[Tensor, Tensor]:
        """Return -log p of all targets together; none is too long for a decoder."""
        total = label_smoothed_cross_entropy(model(*model_inputs(batch)), shift_targets(batch), 0.0)
        return total, torch.zeros(1, dtype=torch.bool)

    def transcribe(self, model: nn.Module, batch: SpeechBatch, beam_size: int) -> list[list[int]]:
        found = search_recordings(model, batch.frames, batch.frame_lengths, beam_size, self.text)
        return [list(one.tokens) for one in found]


# -- the predictor -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Options(SpeechOptions):
    """Options of the search."""

    length_penalty: float = field(1.0, low=0, help="exponent of the length that log-probabilities are divided by")


class SpeechRecognizer(SpeechRecognizerBase):
    """A decoder over frames.

    transcribe = regard.load("digits-listen")
    transcribe("call.wav", beam_size=4)         Transcript("one four zero", -0.12, (TimedWord("one", 0.28, 0.52), ...))
    """

    options = Options

    def attention(self, recording: Any, transcript: str | None = None, beam_size: int = 4) -> list[Trace]:
        """Return the attention while this text (by default the best one found) is written: a row per word and the end,
        a column per frame after subsampling, labelled by its second."""
        return self.analyze(recording, transcript, beam_size)[1]

    def analyze(self, recording: Any, transcript: str | None = None, beam_size: int = 4) -> tuple[str, list[Trace]]:
        """Return the text and its attention (see `attention`)."""
        from regard.attention.capture.watch import watch

        frames, padded, lengths = self.single_batch(recording)
        if transcript is None:
            words = self.best(frames, padded, lengths, beam_size).tokens
        else:
            words = self.token_ids(transcript)
        target = torch.tensor([[self.text.bos, *words]], device=padded.device)
        with torch.no_grad(), watch(self.model) as seen:
            self.model(padded, target)
        traces = seen.traces("align") or seen.traces("cross")
        rows = self.text.pieces([*words, self.text.eos])
        return self.text.decode([words])[0], [
            trace.with_labels(rows, [f"{self.seconds * n:.2f}" for n in range(trace.weights.shape[-1])])
            for trace in traces
        ]

    def best(
        self, frames: Float[Tensor, "T F"], padded: Float[Tensor, "1 N F"], lengths: Int[Tensor, " 1"], beam_size: int
    ) -> Hypothesis:
        """Return the best output for one recording, given as `single_batch` returns it; empty for silence."""
        if is_silent(frames):
            return Hypothesis([], 0.0, 0.0, finished=True)
        return search_recordings(self.decodable()[0], padded, lengths, beam_size, self.text)[0]

    def decodable(self, **search: Any) -> tuple[Any, dict[str, Any]]:
        """Return what is searched with, and those of the options that are left for the search."""
        return self.model, search

    @property
    def seconds(self) -> float:
        """Length of a frame after subsampling."""
        config: Any = self.model.config
        together = getattr(config, "frame_stack", 1) * 2 ** getattr(config, "subsampling_layers", 0)
        return float((self.preprocess or AudioPreprocess()).hop_ms / 1000 * together)

    def _transcripts(
        self, frames: Tensor, lengths: Tensor, beam_size: int, search: Mapping[str, Any]
    ) -> list[Transcript]:
        decodable, search = self.decodable(**search)
        found = search_recordings(decodable, frames, lengths, beam_size, self.text, **search)
        texts = self.text.decode([one.tokens for one in found])
        words = self._words(frames, lengths, [one.tokens for one in found])
        return [Transcript(*each) for each in zip(texts, (one.log_probability for one in found), words, strict=True)]

    def _words(self, frames: Tensor, lengths: Tensor, outputs: Sequence[Sequence[int]]) -> list[tuple[TimedWord, ...]]:
        """Return the words of every output with their times: the frames around the attention's peak that have at least
        half of its weight."""
        from regard.attention.capture.watch import watch

        sizes = [len(one) for one in outputs]
        target = torch.full((len(outputs), max(sizes) + 1), self.text.pad)
        for row, one in zip(target, outputs, strict=True):
            row[: len(one) + 1] = torch.tensor([self.text.bos, *one])
        with watch(self.model) as seen:  # a second pass over the whole output at once
            self.model(frames, target.to(frames.device), lengths)
        traces = seen.traces("align") or seen.traces("cross")
        weights = traces[-1].weights.mean(1).cpu()  # B T N, all heads; of several layers the last
        every = []
        for one, rows in zip(outputs, weights, strict=True):
            spans = [_half_peak_range(row) for row in rows[: len(one)]]
            named = zip(one, self.text.pieces(one), spans, strict=True)
            every.append(
                tuple(TimedWord(name, *self._times(*span)) for i, name, span in named if i not in self._special_ids)
            )
        return every

    def _times(self, first: int, last: int) -> tuple[float, float]:
        return round(first * self.seconds, 3), round((last + 1) * self.seconds, 3)


def _half_peak_range(weights: Float[Tensor, " N"]) -> tuple[int, int]:
    """Return the first and the last of the frames around the peak that have at least half of its weight."""
    peak = int(weights.argmax())
    enough = (weights >= weights[peak] / 2).tolist()
    first = last = peak
    while first and enough[first - 1]:
        first -= 1
    while last + 1 < len(enough) and enough[last + 1]:
        last += 1
    return first, last


def search_recordings(
    model: nn.Module,
    frames: Float[Tensor, "B N F"],
    lengths: Int[Tensor, " B"],
    beam_size: int,
    text: Tokenizer,
    length_penalty: float = 1.0,
) -> list[Hypothesis]:
    """Return the best output for each recording, its length limited by that of the recording."""
    decodable = cast(Decodable, model)
    banned_tokens = () if text.pad == text.eos else (text.pad,)
    limit = lengths // FRAMES_PER_TOKEN + EXTRA_TOKENS
    if beam_size == 1:
        return greedy_search(decodable, frames, lengths, max_length=limit, banned_tokens=banned_tokens)
    found = beam_search(
        decodable,
        frames,
        lengths,
        max_length=limit,
        beam_size=beam_size,
        length_penalty=length_penalty,
        banned_tokens=banned_tokens,
    )
    return [best for best, *_ in found]
