"""Masked words: some words of a text are hidden, and the model says which they were; and does b follow a?

    objective    Σ over the hidden words  -log p(word)  +  M · Σ over the rows with two texts  -log p(follows)
                 M is the number of places asked for in a row, so that after division by the words both are means
    metric       loss (nats a hidden word), perplexity, accuracy; next_loss, next_accuracy where texts follow texts
    decoding     none: every hidden word is said for itself
    predict      `Filler`: texts with [MASK] in, the likeliest words out (tasks.filler)

Words are asked for at the hidden places only, and their logits never exist as a whole (tasks.linear_loss). Whether the
second question is asked is a matter of the data: documents (data.documents) ask it, sentences (data.sentences) do not.

Devlin, Chang, Lee, Toutanova: BERT: Pre-training of Deep Bidirectional Transformers for Language Understanding.
NAACL 2019. arXiv:1810.04805
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import nn

from regard.core.shapes import Float, Int, Tensor
from regard.data.documents import Documents, Pages, asked
from regard.data.masking import Masked
from regard.data.sentences import Sentences
from regard.tasks.linear_loss import NOTHING, linear_loss, linear_score
from regard.tasks.parts import Worded, vocabulary
from regard.tasks.reading import measured_on, room_for

if TYPE_CHECKING:
    from regard.tokens.text import Text


@dataclass(frozen=True)
class Config:
    """How masked words are trained and measured."""

    looks: int | None = None  # rows read at each look while training, spread evenly; None: the whole validation part

    def quick(self) -> Config:
        """A few rows at each look."""
        return replace(self, looks=8)

    def build(self, data: Documents, seed: int = 0, folder: Path | None = None) -> MaskedWords:
        """The task on these data; with the vocabulary in the folder where one is given, else one trained on them."""
        return MaskedWords(self, data, vocabulary(folder), seed)

    @staticmethod
    def measured(corpus: str, saved: Mapping[str, Any], **changes: Any) -> Documents:
        """The data of a name to measure a saved model on, whose config.json this is."""
        kind = Sentences if saved["config"]["head"] == "masked" else Documents
        return measured_on(kind, (corpus,), saved, changes)


class MaskedWords(Worded[Pages]):
    """What the training loop trains: the loss, the batches it is measured on, and how good the model is."""

    headline = "loss"  # the lower the better
    unit = "words"
    name = "masked"
    ragged = False  # all batches have one shape
    data: Documents

    def __init__(self, config: Config, data: Documents, text: Text | None = None, seed: int = 0) -> None:
        super().__init__(data, text, seed)
        self.config = config
        self.objective: Callable[..., Tensor] = linear_loss

    def fit(self, config: Any) -> Any:
        """A model's Config with what only the data know: the size of the vocabulary, and what is asked."""
        room_for(self.data.length, config)
        head = "masked" if isinstance(self.data, Sentences) else "pretraining"
        return replace(config, vocab=self.text.size, head=head)

    def count(self, batch: Masked) -> int:
        """The number of words that are asked for; asked on the host, before the batch travels."""
        return asked(batch)

    def loss(
        self, model: nn.Module, batch: Masked, step: int = 0, rng: torch.Generator | None = None
    ) -> tuple[Float[Tensor, ""], dict[str, Tensor]]:
        """Cross-entropy of the hidden words summed over the batch, and that of what follows (the part "next")."""
        words, follows = _answers(model, batch, self.objective)
        if follows is None:
            return words, {"loss": words.detach()}
        following = batch.at.shape[1] * _follows(follows, batch.follows)
        return words + following, {"loss": words.detach(), "next": following.detach()}

    def describe(self) -> dict[str, Any]:
        """The task as plain values, to stand beside a saved model."""
        return {"name": self.name, "longest": self.data.length}

    def card(self) -> str:
        """One line on the data, for the run's first line."""
        train, data, text = self.part("train"), self.data, self.text
        return (
            f"{', '.join(data.corpora)}, {len(train):,} sentences, {len(train.tokens):,} tokens, {data.rows} rows of "
            f"{data.length} a batch, vocabulary {text.size:,} {text.kind}"
        )

    @torch.no_grad()
    def evaluate(self, model: nn.Module, split: str = "val", effort: int = 2) -> dict[str, Any]:
        """How good a model is on a part of the data, always with the same words hidden. Keys: loss (nats a hidden
        word), perplexity, accuracy (of the likeliest word), words (so many were hidden); with documents next_loss
        (nats a pair of texts), next_accuracy, pairs. From effort 2 on all of the part, below it the rows that `looks`
        asks for: always the same ones."""
        part, device = self.part(split), next(model.parameters()).device
        model.eval()
        total = torch.zeros(4, dtype=torch.float64, device=device)
        words = pairs = 0
        for batch in part.in_order(max(1, 16_384 // self.data.length), None if effort > 1 else self.config.looks):
            words += self.count(batch)
            pairs += int((batch.follows != NOTHING).sum())
            batch = batch.to(device)
            found, follows = _answers(model, batch, linear_score)
            total[:2] += found
            if follows is not None:
                total[2] += _follows(follows, batch.follows)
                total[3] += (follows.argmax(-1) == batch.follows).sum()
        nll, right, strange, known = total.tolist()
        loss = nll / max(words, 1)
        result: dict[str, Any] = {"loss": loss, "perplexity": math.exp(min(loss, 50.0))}
        result |= {"accuracy": right / max(words, 1), "words": words}
        if pairs:
            result |= {"next_loss": strange / pairs, "next_accuracy": known / pairs, "pairs": pairs}
        return result


def _answers(model: nn.Module, batch: Masked, loss: Callable[..., Tensor]) -> tuple[Tensor, Tensor | None]:
    """The loss of the hidden words, and logits B 2 of what follows (None: the model was not made for that)."""
    found = model(batch.tokens, batch.segments, batch.lengths, batch.at, batch.targets, loss)
    return found if isinstance(found, tuple) else (found, None)


def _follows(logits: Float[Tensor, "B 2"], wanted: Int[Tensor, " B"]) -> Float[Tensor, ""]:
    return F.cross_entropy(logits.float(), wanted, ignore_index=NOTHING, reduction="sum")
