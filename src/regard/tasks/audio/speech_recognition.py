"""Transcription by listening: a decoder writes down what is said, word by word, and looks for where each is said.

    objective    cross-entropy of the next word, smoothed, summed over words and ends; the decoder is given those before
    metric       word error: substitutions, insertions and deletions for every word that is said (metrics.word_error_rate)
    decoding     greedy or beams, as all that writes (decoding.beam_search)
    predict      `SpeechRecognizer`: sounds in, texts out (tasks.audio.speech_recognizer)

Chorowski, Bahdanau, Serdyuk, Cho, Bengio: Attention-Based Models for Speech Recognition. NeurIPS 2015. arXiv:1506.07503
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from regard.core.config import field
from regard.core.shapes import Float, Tensor
from regard.data.audio.speech_batch import SpeechBatch
from regard.tasks.audio.ctc_speech_recognition import SpeechRecognitionTask, evaluation_recordings
from regard.tasks.audio.speech_recognizer import search_recordings
from regard.tasks.base import load_tokenizer
from regard.tasks.text.translation import label_smoothed_cross_entropy, shift_targets

if TYPE_CHECKING:
    from regard.tokens.tokenizer import Tokenizer


@dataclass(frozen=True)
class Config:
    """How listening is trained and how transcripts are searched for."""

    label_smoothing: float = field(0.1, low=0, below=1)
    beam_size: int = 4  # in reports; while training, the likeliest word is taken

    def quick(self) -> Config:
        """Smaller search."""
        return replace(self, beam_size=2)

    def build(self, data: Any, seed: int = 0, folder: Path | None = None) -> SpeechRecognition:
        """The task on these data; with the vocabulary in the folder where one is given, else that of the data."""
        return SpeechRecognition(self, data, load_tokenizer(folder), seed)

    @staticmethod
    def eval_data(corpus: str, saved: Mapping[str, Any], **changes: Any) -> Any:
        """The data of a name to measure a saved model on, whose config.json this is."""
        return evaluation_recordings(corpus, saved, changes)


class SpeechRecognition(SpeechRecognitionTask):
    """What the training loop trains: the loss, the batches it is measured on, and how good the model is."""

    name = "speech_recognition"

    def __init__(self, config: Config, data: Any, text: Tokenizer | None = None, seed: int = 0) -> None:
        super().__init__(config, data, text, seed)
        self.objective: Callable[[Tensor, Tensor, float], Tensor] = label_smoothed_cross_entropy

    def loss(
        self, model: nn.Module, batch: SpeechBatch, step: int = 0, rng: torch.Generator | None = None
    ) -> tuple[Float[Tensor, ""], dict[str, Tensor]]:
        """The smoothed loss summed over words and ends."""
        total = self.objective(self._said(model, batch), shift_targets(batch), self.config.label_smoothing)
        return total, {"loss": total.detach()}

    def nll(self, model: nn.Module, batch: SpeechBatch) -> tuple[Tensor, Tensor]:
        """-log p of all targets together; a decoder can say anything."""
        total = label_smoothed_cross_entropy(self._said(model, batch), shift_targets(batch), 0.0)
        return total, torch.zeros(1, dtype=torch.bool)

    def written(self, model: nn.Module, batch: SpeechBatch, beam_size: int) -> list[list[int]]:
        """The words that the search finds."""
        found = search_recordings(model, batch.frames, batch.frame_lengths, beam_size, self.text)
        return [list(one.tokens) for one in found]

    def _said(self, model: nn.Module, batch: SpeechBatch) -> Tensor:
        logits: Tensor = model(batch.frames, batch.target[:, :-1], batch.frame_lengths, batch.target_lengths - 1)
        return logits
