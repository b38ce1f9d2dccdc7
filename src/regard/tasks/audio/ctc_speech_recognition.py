"""Transcription by CTC: a sound in, the words that are said in it out; nobody says when.

    objective    -log p(words), summed over all ways in which the frames can say them (torch's loss; losses.ctc is its
                 readable twin)
    metric       word error: substitutions, insertions and deletions for every word that is said (metrics.word_error_rate)
    decoding     greedy, or a beam over prefixes (decoding.ctc_search)
    predict      `CTCSpeechRecognizer`: sounds in, texts out (tasks.audio.ctc_speech_recognizer)

A recording whose frames are too few for its words has an infinite loss. It is left out of the sum and counted as
"too_short" in the record: the gradient of the others stays what it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import nn

from regard.core.config import to_dict
from regard.core.shapes import Float, Int, Tensor
from regard.data.audio.speech_batch import SpeechBatch, count_targets
from regard.decoding.ctc_search import ctc_decode
from regard.losses.ctc import required_frames
from regard.metrics.word_error_rate import count_corpus_edits
from regard.tasks.base import TextTask, load_tokenizer

if TYPE_CHECKING:
    from regard.tokens.tokenizer import Tokenizer

EVAL_FRAMES = 20_000  # measured at a time


@dataclass(frozen=True)
class Config:
    """How transcripts are searched for."""

    beam_size: int = 8  # in reports; while training, the likeliest label of every frame is taken

    def quick(self) -> Config:
        """Smaller search."""
        return replace(self, beam_size=2)

    def build(self, data: Any, seed: int = 0, folder: Path | None = None) -> CTCSpeechRecognition:
        """The task on these data; with the vocabulary in the folder where one is given, else that of the data."""
        return CTCSpeechRecognition(self, data, load_tokenizer(folder), seed)

    @staticmethod
    def eval_data(corpus: str, saved: Mapping[str, Any], **changes: Any) -> Any:
        """The data of a name to measure a saved model on, whose config.json this is."""
        return evaluation_recordings(corpus, saved, changes)


class SpeechRecognitionTask(TextTask[Any]):
    """A task over recordings: what is measured of it, whatever the model. Left to do: `training_loss`, `nll`, `written`."""

    headline = "wer"  # the lower the better
    config: Any

    def __init__(self, config: Any, data: Any, text: Tokenizer | None = None, seed: int = 0) -> None:
        super().__init__(data, text, seed)
        self.config = config

    def fit(self, config: Any) -> Any:
        """A model's Config with what only the data know: the size of a frame and of the vocabulary."""
        own = {"vocab": self.text.size, "input_dim": self.data.features}
        own |= {role: getattr(self.text, role) for role in ("pad", "bos", "eos") if hasattr(config, role)}
        return replace(config, **own)

    def count(self, batch: SpeechBatch) -> int:
        """Words (or letters), and the end of each recording."""
        return count_targets(batch)

    def nll(self, model: nn.Module, batch: SpeechBatch) -> tuple[Tensor, Tensor]:
        """-log p of each target, and which of them cannot be said."""
        raise NotImplementedError

    def written(self, model: nn.Module, batch: SpeechBatch, beam_size: int) -> list[list[int]]:
        """The labels that the model hears in each recording."""
        raise NotImplementedError

    def describe(self) -> dict[str, Any]:
        """The task as plain values, to stand beside a saved model."""
        front = self.data.front
        return {"name": self.name, "frames": None if front is None else to_dict(front)}

    def card(self) -> str:
        """One line on the data, for the run's first line."""
        text = self.text
        return f"{self.data.corpus}, {len(self.dataset('train')):,} recordings, vocabulary {text.size:,} {text.kind}"

    @torch.no_grad()
    def evaluate(self, model: nn.Module, split: str = "val", effort: int = 2) -> dict[str, Any]:
        """How good a model is on a part of the data. Keys: loss (nats per label, the end counted as one), recordings,
        unsayable (recordings with fewer frames than their words need; they are in no loss); from effort 1 word_error
        and label_error (edits a word or label; 0.05 is five in a hundred), substitutions, insertions, deletions (of
        words), words, and right (the share of recordings without any error): greedy with effort 1, else with beams."""
        part, device = self.dataset(split), next(model.parameters()).device
        model.eval()
        beams = self.config.beam_size if effort > 1 else 1
        nll, count, unsayable = 0.0, 0, 0
        said, true = list[list[int]](), list[list[int]]()
        for batch in part.eval_batches(EVAL_FRAMES):
            count += self.count(batch)
            batch = batch.to(device)
            losses, lost = self.nll(model, batch)
            nll, unsayable = nll + float(losses.double().sum()), unsayable + int(lost.sum())
            if effort:
                said += self.written(model, batch, beams)
                true += [
                    row[1 : n - 1] for row, n in zip(batch.target.tolist(), batch.target_lengths.tolist(), strict=True)
                ]
        result: dict[str, Any] = {"loss": nll / max(count, 1), "recordings": len(part), "too_short": unsayable}
        return result | (self.errors(said, true) if effort else {})

    def errors(self, said: list[list[int]], true: list[list[int]]) -> dict[str, Any]:
        """The errors of labels and of the words that they spell."""
        texts = [self.text.decode(side) for side in (said, true)]
        found = count_corpus_edits(*([line.split() for line in side] for side in texts))
        return {
            "wer": found.rate,
            "ler": count_corpus_edits(said, true).rate,
            "substitutions": found.substitutions,
            "insertions": found.insertions,
            "deletions": found.deletions,
            "words": found.words,
            "exact_match": sum(a == b for a, b in zip(*texts, strict=True)) / max(len(true), 1),
        }

    def report(self, model: nn.Module, split: str = "test", **search: Any) -> dict[str, Any]:
        """Everything there is to say about a model on one part; `search`: beams."""
        kept, self.config = self.config, replace(self.config, **search)
        try:
            return self.evaluate(model, split) | {"split": self.data.split(split), "beam_size": self.config.beam_size}
        finally:
            self.config = kept


class CTCSpeechRecognition(SpeechRecognitionTask):
    """What the training loop trains: the loss, the batches it is measured on, and how good the model is."""

    name = "ctc_speech_recognition"

    def __init__(self, config: Config, data: Any, text: Tokenizer | None = None, seed: int = 0) -> None:
        super().__init__(config, data, text, seed)
        self.objective: Callable[..., Tensor] = F.ctc_loss

    def loss(
        self, model: nn.Module, batch: SpeechBatch, step: int = 0, rng: torch.Generator | None = None
    ) -> tuple[Float[Tensor, ""], dict[str, Tensor]]:
        """-log p of all targets that can be said, summed; and how many cannot."""
        losses, lost = self.nll(model, batch)
        total = losses.sum()
        return total, {"loss": total.detach(), "too_short": lost.sum()}

    def nll(self, model: nn.Module, batch: SpeechBatch) -> tuple[Tensor, Tensor]:
        """-log p of each target, 0 for those that cannot be said; and which these are."""
        logits, lengths = model(batch.frames, batch.frame_lengths)
        logp = logits.float().log_softmax(-1).transpose(0, 1)
        targets, sizes = ctc_targets(batch)
        lost = required_frames(targets, sizes) > lengths
        blank = logits.shape[-1] - 1
        losses = self.objective(logp, targets, lengths, sizes, blank=blank, reduction="none", zero_infinity=True)
        return losses, lost

    def written(self, model: nn.Module, batch: SpeechBatch, beam_size: int) -> list[list[int]]:
        """The labels of the likeliest way, or of the likeliest text that a beam finds."""
        logits, lengths = model(batch.frames, batch.frame_lengths)
        found = ctc_decode(logits.float().log_softmax(-1), lengths, logits.shape[-1] - 1, beam_size)
        return [list(one.labels) for one in found]


def ctc_targets(batch: SpeechBatch) -> tuple[Int[Tensor, "B S"], Int[Tensor, " B"]]:
    """Targets without <s> and </s>, and how long they are; what lies beyond does not count."""
    return batch.target[:, 1:-1], batch.target_lengths - 2


def evaluation_recordings(corpus: str, saved: Mapping[str, Any], changes: Mapping[str, Any]) -> Any:
    """The data of a name, framed as a saved model needs them."""
    from regard.core.config import from_dict
    from regard.data.audio.an4 import AN4
    from regard.data.audio.fsdd import SpokenDigits

    frames = saved["task"]["frames"]
    kind = AN4 if frames is None else SpokenDigits  # frames that were made elsewhere are AN4's
    return from_dict(kind, {"corpus": corpus, **({} if frames is None else {"frames": frames}), **changes})
