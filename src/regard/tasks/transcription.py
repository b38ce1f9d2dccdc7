"""Transcription by CTC: a sound in, the words that are said in it out; nobody says when.

    objective    -log p(words), summed over all ways in which the frames can say them (torch's loss; tasks.ctc is its
                 readable twin)
    metric       word error: substitutions, insertions and deletions for every word that is said (tasks.edits)
    decoding     greedy, or a beam over prefixes (tasks.ctc_search)
    predict      `Transcriber`: sounds in, texts out (tasks.transcriber)

A recording whose frames are too few for its words has an infinite loss. It is left out of the sum and counted as
"unsayable" in the record: the gradient of the others stays what it is.
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
from regard.data.spoken import Spoken, words
from regard.tasks.ctc import needed
from regard.tasks.ctc_search import searched
from regard.tasks.edits import all_edits
from regard.tasks.parts import Worded, vocabulary

if TYPE_CHECKING:
    from regard.tokens.text import Text

FRAMES = 20_000  # measured at a time


@dataclass(frozen=True)
class Config:
    """How transcripts are searched for."""

    beams: int = 8  # in reports; while training, the likeliest label of every frame is taken

    def quick(self) -> Config:
        """Smaller search."""
        return replace(self, beams=2)

    def build(self, data: Any, seed: int = 0, folder: Path | None = None) -> Transcription:
        """The task on these data; with the vocabulary in the folder where one is given, else that of the data."""
        return Transcription(self, data, vocabulary(folder), seed)

    @staticmethod
    def measured(corpus: str, saved: Mapping[str, Any], **changes: Any) -> Any:
        """The data of a name to measure a saved model on, whose config.json this is."""
        return measured_on(corpus, saved, changes)


class Hearing(Worded[Any]):
    """A task over recordings: what is measured of it, whatever the model. Left to do: `loss`, `nll`, `written`."""

    headline = "word_error"  # the lower the better
    config: Any

    def __init__(self, config: Any, data: Any, text: Text | None = None, seed: int = 0) -> None:
        super().__init__(data, text, seed)
        self.config = config

    def fit(self, config: Any) -> Any:
        """A model's Config with what only the data know: the size of a frame and of the vocabulary."""
        own = {"vocab": self.text.size, "inputs": self.data.features}
        own |= {role: getattr(self.text, role) for role in ("pad", "bos", "eos") if hasattr(config, role)}
        return replace(config, **own)

    def count(self, batch: Spoken) -> int:
        """Words (or letters), and the end of each recording."""
        return words(batch)

    def nll(self, model: nn.Module, batch: Spoken) -> tuple[Tensor, Tensor]:
        """-log p of each target, and which of them cannot be said."""
        raise NotImplementedError

    def written(self, model: nn.Module, batch: Spoken, beams: int) -> list[list[int]]:
        """The labels that the model hears in each recording."""
        raise NotImplementedError

    def describe(self) -> dict[str, Any]:
        """The task as plain values, to stand beside a saved model."""
        front = self.data.front
        return {"name": self.name, "frames": None if front is None else to_dict(front)}

    def card(self) -> str:
        """One line on the data, for the run's first line."""
        text = self.text
        return f"{self.data.corpus}, {len(self.part('train')):,} recordings, vocabulary {text.size:,} {text.kind}"

    @torch.no_grad()
    def evaluate(self, model: nn.Module, split: str = "val", effort: int = 2) -> dict[str, Any]:
        """How good a model is on a part of the data. Keys: loss (nats a label, the end counted as one), recordings,
        unsayable (recordings with fewer frames than their words need; they are in no loss); from effort 1 word_error
        and label_error (edits a word or label; 0.05 is five in a hundred), substitutions, insertions, deletions (of
        words), words, and right (the share of recordings without any error): greedy with effort 1, else with beams."""
        part, device = self.part(split), next(model.parameters()).device
        model.eval()
        beams = self.config.beams if effort > 1 else 1
        nll, count, unsayable = 0.0, 0, 0
        said, true = list[list[int]](), list[list[int]]()
        for batch in part.in_order(FRAMES):
            count += self.count(batch)
            batch = batch.to(device)
            losses, lost = self.nll(model, batch)
            nll, unsayable = nll + float(losses.double().sum()), unsayable + int(lost.sum())
            if effort:
                said += self.written(model, batch, beams)
                true += [
                    row[1 : n - 1] for row, n in zip(batch.target.tolist(), batch.target_lengths.tolist(), strict=True)
                ]
        result: dict[str, Any] = {"loss": nll / max(count, 1), "recordings": len(part), "unsayable": unsayable}
        return result | (self.errors(said, true) if effort else {})

    def errors(self, said: list[list[int]], true: list[list[int]]) -> dict[str, Any]:
        """The errors of labels and of the words that they spell."""
        texts = [self.text.decode(side) for side in (said, true)]
        found = all_edits(*([line.split() for line in side] for side in texts))
        return {
            "word_error": found.rate,
            "label_error": all_edits(said, true).rate,
            "substitutions": found.substitutions,
            "insertions": found.insertions,
            "deletions": found.deletions,
            "words": found.words,
            "right": sum(a == b for a, b in zip(*texts, strict=True)) / max(len(true), 1),
        }

    def report(self, model: nn.Module, split: str = "test", **search: Any) -> dict[str, Any]:
        """Everything there is to say about a model on one part; `search`: beams."""
        kept, self.config = self.config, replace(self.config, **search)
        try:
            return self.evaluate(model, split) | {"split": self.data.split(split), "beams": self.config.beams}
        finally:
            self.config = kept


class Transcription(Hearing):
    """What the training loop trains: the loss, the batches it is measured on, and how good the model is."""

    name = "transcription"

    def __init__(self, config: Config, data: Any, text: Text | None = None, seed: int = 0) -> None:
        super().__init__(config, data, text, seed)
        self.objective: Callable[..., Tensor] = F.ctc_loss

    def loss(
        self, model: nn.Module, batch: Spoken, step: int = 0, rng: torch.Generator | None = None
    ) -> tuple[Float[Tensor, ""], dict[str, Tensor]]:
        """-log p of all targets that can be said, summed; and how many cannot."""
        losses, lost = self.nll(model, batch)
        total = losses.sum()
        return total, {"loss": total.detach(), "unsayable": lost.sum()}

    def nll(self, model: nn.Module, batch: Spoken) -> tuple[Tensor, Tensor]:
        """-log p of each target, 0 for those that cannot be said; and which these are."""
        logits, lengths = model(batch.frames, batch.frame_lengths)
        logp = logits.float().log_softmax(-1).transpose(0, 1)
        targets, sizes = labels(batch)
        lost = needed(targets, sizes) > lengths
        blank = logits.shape[-1] - 1
        losses = self.objective(logp, targets, lengths, sizes, blank=blank, reduction="none", zero_infinity=True)
        return losses, lost

    def written(self, model: nn.Module, batch: Spoken, beams: int) -> list[list[int]]:
        """The labels of the likeliest way, or of the likeliest text that a beam finds."""
        logits, lengths = model(batch.frames, batch.frame_lengths)
        found = searched(logits.float().log_softmax(-1), lengths, logits.shape[-1] - 1, beams)
        return [list(one.labels) for one in found]


def labels(batch: Spoken) -> tuple[Int[Tensor, "B S"], Int[Tensor, " B"]]:
    """Targets without <s> and </s>, and how long they are; what lies beyond does not count."""
    return batch.target[:, 1:-1], batch.target_lengths - 2


def measured_on(corpus: str, saved: Mapping[str, Any], changes: Mapping[str, Any]) -> Any:
    """The data of a name, framed as a saved model needs them."""
    from regard.core.config import from_dict
    from regard.data.an4 import AN4
    from regard.data.speech import Digits

    frames = saved["task"]["frames"]
    kind = AN4 if frames is None else Digits  # frames that were made elsewhere are AN4's
    return from_dict(kind, {"corpus": corpus, **({} if frames is None else {"frames": frames}), **changes})
