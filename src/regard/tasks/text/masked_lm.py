"""Masked words: some words of a text are hidden, and the model says which they were; and does b follow a?

    objective    Σ over the hidden words  -log p(word)  +  M · Σ over the rows with two texts  -log p(follows)
                 M is the number of places asked for in a row, so that after division by the words both are means
    metric       loss (nats per hidden word), perplexity, accuracy; nsp_loss, nsp_accuracy where texts follow texts
    decoding     none: every hidden word is said for itself
    predict      `FillMask`: texts with [MASK] in, the likeliest words out (tasks.text.fill_mask)

Words are asked for at the hidden places only, and their logits never exist as a whole (tasks.fused_linear_cross_entropy). Whether the
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
from regard.data.text.masked_sentences import MaskedSentences
from regard.data.text.next_sentence_pairs import NextSentencePairs, NextSentenceSplit, count_masked
from regard.data.text.token_masking import MaskedBatch
from regard.losses.fused_linear_cross_entropy import (
    IGNORE_INDEX,
    fused_linear_cross_entropy,
    fused_linear_loss_and_correct,
)
from regard.tasks.base import TextTask, load_tokenizer
from regard.tasks.text.encoder_base import check_length, evaluation_data

if TYPE_CHECKING:
    from regard.tokens.tokenizer import Tokenizer


@dataclass(frozen=True)
class Config:
    """How masked words are trained and measured."""

    eval_examples: int | None = (
        None  # rows read at each look while training, spread evenly; None: the whole validation part
    )

    def quick(self) -> Config:
        """A few rows at each look."""
        return replace(self, eval_examples=8)

    def build(self, data: NextSentencePairs, seed: int = 0, folder: Path | None = None) -> MaskedLM:
        """The task on these data; with the vocabulary in the folder where one is given, else one trained on them."""
        return MaskedLM(self, data, load_tokenizer(folder), seed)

    @staticmethod
    def eval_data(corpus: str, saved: Mapping[str, Any], **changes: Any) -> NextSentencePairs:
        """The data of a name to measure a saved model on, whose config.json this is."""
        kind = MaskedSentences if saved["config"]["head"] == "masked" else NextSentencePairs
        return evaluation_data(kind, (corpus,), saved, changes)


class MaskedLM(TextTask[NextSentenceSplit]):
    """What the training loop trains: the loss, the batches it is measured on, and how good the model is."""

    headline = "loss"  # the lower the better
    unit = "words"
    name = "masked_lm"
    ragged = False  # all batches have one shape
    data: NextSentencePairs

    def __init__(self, config: Config, data: NextSentencePairs, text: Tokenizer | None = None, seed: int = 0) -> None:
        super().__init__(data, text, seed)
        self.config = config
        self.objective: Callable[..., Tensor] = fused_linear_cross_entropy

    def fit(self, config: Any) -> Any:
        """A model's Config with what only the data know: the size of the vocabulary, and what is asked."""
        check_length(self.data.max_length, config)
        head = "masked" if isinstance(self.data, MaskedSentences) else "pretraining"
        return replace(config, vocab=self.text.size, head=head)

    def count(self, batch: MaskedBatch) -> int:
        """The number of words that are asked for; asked on the host, before the batch travels."""
        return count_masked(batch)

    def loss(
        self, model: nn.Module, batch: MaskedBatch, step: int = 0, rng: torch.Generator | None = None
    ) -> tuple[Float[Tensor, ""], dict[str, Tensor]]:
        """Cross-entropy of the hidden words summed over the batch, and that of what follows (the part "next")."""
        words, follows = _masked_and_nsp(model, batch, self.objective)
        if follows is None:
            return words, {"loss": words.detach()}
        following = batch.masked_positions.shape[1] * _nsp_loss(follows, batch.next_sentence_labels)
        return words + following, {"loss": words.detach(), "nsp_loss": following.detach()}

    def describe(self) -> dict[str, Any]:
        """The task as plain values, to stand beside a saved model."""
        return {"name": self.name, "max_length": self.data.max_length}

    def card(self) -> str:
        """One line on the data, for the run's first line."""
        train, data, text = self.dataset("train"), self.data, self.text
        return (
            f"{', '.join(data.corpora)}, {len(train):,} sentences, {len(train.tokens):,} tokens, {data.batch_size} rows of "
            f"{data.max_length} a batch, vocabulary {text.size:,} {text.kind}"
        )

    @torch.no_grad()
    def evaluate(self, model: nn.Module, split: str = "val", effort: int = 2) -> dict[str, Any]:
        """How good a model is on a part of the data, always with the same words hidden. Keys: loss (nats per hidden
        word), perplexity, accuracy (of the likeliest word), words (so many were hidden); with documents nsp_loss
        (nats per pair of texts), nsp_accuracy, pairs. From effort 2 on all of the part, below it the rows that `looks`
        asks for: always the same ones."""
        part, device = self.dataset(split), next(model.parameters()).device
        model.eval()
        total = torch.zeros(4, dtype=torch.float64, device=device)
        words = pairs = 0
        for batch in part.eval_batches(
            max(1, 16_384 // self.data.max_length), None if effort > 1 else self.config.eval_examples
        ):
            words += self.count(batch)
            pairs += int((batch.next_sentence_labels != IGNORE_INDEX).sum())
            batch = batch.to(device)
            found, follows = _masked_and_nsp(model, batch, fused_linear_loss_and_correct)
            total[:2] += found
            if follows is not None:
                total[2] += _nsp_loss(follows, batch.next_sentence_labels)
                total[3] += (follows.argmax(-1) == batch.next_sentence_labels).sum()
        nll, right, strange, known = total.tolist()
        loss = nll / max(words, 1)
        result: dict[str, Any] = {"loss": loss, "perplexity": math.exp(min(loss, 50.0))}
        result |= {"accuracy": right / max(words, 1), "words": words}
        if pairs:
            result |= {"nsp_loss": strange / pairs, "nsp_accuracy": known / pairs, "pairs": pairs}
        return result


def _masked_and_nsp(model: nn.Module, batch: MaskedBatch, loss: Callable[..., Tensor]) -> tuple[Tensor, Tensor | None]:
    """The loss of the hidden words, and logits B 2 of what follows (None: the model was not made for that)."""
    found = model(batch.tokens, batch.segments, batch.lengths, batch.masked_positions, batch.targets, loss)
    return found if isinstance(found, tuple) else (found, None)


def _nsp_loss(logits: Float[Tensor, "B 2"], wanted: Int[Tensor, " B"]) -> Float[Tensor, ""]:
    return F.cross_entropy(logits.float(), wanted, ignore_index=IGNORE_INDEX, reduction="sum")
