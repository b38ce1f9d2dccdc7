"""Transcription by listening: a decoder writes down what is said, word by word, and looks for where each is said.

    objective    cross-entropy of the next word, smoothed, summed over words and ends; the decoder is given those before
    metric       word error: substitutions, insertions and deletions for every word that is said (tasks.edits)
    decoding     greedy or beams, as all that writes (tasks.search)
    predict      `Hearer`: sounds in, texts out (tasks.hearer)

Chorowski, Bahdanau, Serdyuk, Cho, Bengio: Attention-Based Models for Speech Recognition. NeurIPS 2015. arXiv:1506.07503
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from regard.core.shapes import Float, Tensor
from regard.data.spoken import Spoken
from regard.tasks.hearer import searched
from regard.tasks.parts import vocabulary
from regard.tasks.transcription import Hearing, measured_on
from regard.tasks.translation import labels, smoothed

if TYPE_CHECKING:
    from regard.tokens.text import Text


@dataclass(frozen=True)
class Config:
    """How listening is trained and how transcripts are searched for."""

    smoothing: float = 0.1
    beams: int = 4  # in reports; while training, the likeliest word is taken

    def quick(self) -> Config:
        """Smaller search."""
        return replace(self, beams=2)

    def build(self, data: Any, seed: int = 0, folder: Path | None = None) -> Listening:
        """The task on these data; with the vocabulary in the folder where one is given, else that of the data."""
        return Listening(self, data, vocabulary(folder), seed)

    @staticmethod
    def measured(corpus: str, saved: Mapping[str, Any], **changes: Any) -> Any:
        """The data of a name to measure a saved model on, whose config.json this is."""
        return measured_on(corpus, saved, changes)


class Listening(Hearing):
    """What the training loop trains: the loss, the batches it is measured on, and how good the model is."""

    name = "listening"

    def __init__(self, config: Config, data: Any, text: Text | None = None, seed: int = 0) -> None:
        super().__init__(config, data, text, seed)
        self.objective: Callable[[Tensor, Tensor, float], Tensor] = smoothed

    def loss(
        self, model: nn.Module, batch: Spoken, step: int = 0, rng: torch.Generator | None = None
    ) -> tuple[Float[Tensor, ""], dict[str, Tensor]]:
        """The smoothed loss summed over words and ends."""
        total = self.objective(self._said(model, batch), labels(batch), self.config.smoothing)
        return total, {"loss": total.detach()}

    def nll(self, model: nn.Module, batch: Spoken) -> tuple[Tensor, Tensor]:
        """-log p of all targets together; a decoder can say anything."""
        total = smoothed(self._said(model, batch), labels(batch), 0.0)
        return total, torch.zeros(1, dtype=torch.bool)

    def written(self, model: nn.Module, batch: Spoken, beams: int) -> list[list[int]]:
        """The words that the search finds."""
        found = searched(model, batch.frames, batch.frame_lengths, beams, self.text)
        return [list(one.tokens) for one in found]

    def _said(self, model: nn.Module, batch: Spoken) -> Tensor:
        logits: Tensor = model(batch.frames, batch.target[:, :-1], batch.frame_lengths, batch.target_lengths - 1)
        return logits
