"""Two language models at once: each word is predicted by those before it, and again by those after it.

    objective    cross-entropy over words, summed over both directions (tasks.fused_linear_cross_entropy): the logits are never whole
    metric       loss (nats per word, the mean of both directions), perplexity, and both for each direction
    predict      `ContextualEmbedder`: the vectors of words in their sentences, and what is near them (tasks.text.contextual_embeddings)

A word that is not in the vocabulary is read by its letters like any other, and predicted as "unknown": perplexities
compare only between models of one vocabulary.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from regard.core.shapes import Float, Tensor
from regard.data.batching import BatchStream
from regard.data.text.char_sentences import CharBatch, CharSentences, count_predicted_words
from regard.data.text.word_sentences import WordSentences
from regard.losses.fused_linear_cross_entropy import fused_linear_cross_entropy, fused_linear_loss_and_correct
from regard.models.elmo import Config as ELMo
from regard.models.elmo import words_to_char_ids
from regard.tasks.base import TextTask, load_tokenizer

if TYPE_CHECKING:
    from regard.tokens.tokenizer import Tokenizer


@dataclass(frozen=True)
class Config:
    """How the language models are trained and measured."""

    chunk_size: int | None = None  # rows of logits that exist at a time; None: what suits the device
    eval_examples: int | None = None  # sentences read at each look while training; None: the whole validation part

    def quick(self) -> Config:
        """A few sentences at each look."""
        return replace(self, eval_examples=8)

    def build(self, data: WordSentences, seed: int = 0, folder: Path | None = None) -> BidirectionalLM:
        """The task on these data; with the vocabulary in the folder where one is given, else theirs."""
        return BidirectionalLM(self, data, load_tokenizer(folder), seed)


class BidirectionalLM(TextTask[CharSentences]):
    """What the training loop trains."""

    headline = "loss"  # the lower the better
    unit = "words"
    name = "bidirectional_lm"
    data: WordSentences

    def __init__(self, config: Config, data: WordSentences, text: Tokenizer | None = None, seed: int = 0) -> None:
        super().__init__(data, text, seed)
        self.config = config
        self.spelling = ELMo(self.text.size)  # how a model reads letters; its own Config once it is known
        self.objective = (
            fused_linear_cross_entropy
            if config.chunk_size is None
            else partial(fused_linear_cross_entropy, chunk_size=config.chunk_size)
        )

    def fit(self, config: Any) -> Any:
        """A model's Config with what only the data know: the size of the vocabulary."""
        self.spelling = replace(config, vocab=self.text.size)
        return self.spelling

    def batches(self) -> BatchStream[CharBatch]:
        """The training batches."""
        return self.dataset("train").stream(self.data.batch_tokens, self.seed)

    def count(self, batch: CharBatch) -> int:
        """The number of words to be predicted, in both directions."""
        return count_predicted_words(batch)

    def loss(
        self, model: nn.Module, batch: CharBatch, step: int = 0, rng: torch.Generator | None = None
    ) -> tuple[Float[Tensor, ""], dict[str, Tensor]]:
        """Cross-entropy summed over the batch and both directions."""
        total = model(batch.char_ids, batch.words, batch.lengths, targets=batch.targets, loss=self.objective)
        return total, {"loss": total.detach()}

    def describe(self) -> dict[str, Any]:
        """The task as plain values, to stand beside a saved model."""
        return {"name": self.name}

    def card(self) -> str:
        """One line on the data, for the run's first line."""
        train = self.dataset("train")
        words, different = int(train.flat.lengths.sum()) - 2 * len(train), len(train.letters) - 2
        return (
            f"{', '.join(self.data.corpora)}, {len(train):,} sentences, {words:,} words, {different:,} different, "
            f"{self.text.size:,} of them predicted, {self.data.batch_tokens:,} a batch"
        )

    def _load(self, split: str) -> CharSentences:
        spelling = partial(words_to_char_ids, config=self.spelling)
        return CharSentences(self.data.read(split), spelling, self.text, self.data.lowercase)

    def fingerprint(self) -> str:
        """A few letters that change when the training data do."""
        return self.data.fingerprint("train")

    def ready(self, score: bool) -> None:
        """Raise now if there is no validation part."""
        self.data.split("val")

    @torch.no_grad()
    def evaluate(self, model: nn.Module, split: str = "val", effort: int = 2) -> dict[str, Any]:
        """How good a model is on a part of the data. Keys: loss (nats per word), perplexity, forward_loss, backward_loss,
        accuracy (of the likeliest word), tokens (words predicted in both directions)."""
        if isinstance(own := getattr(model, "config", None), ELMo):
            self.spelling = own  # a run that is measured later spells as it did
        part, device = self.dataset(split), next(model.parameters()).device
        model.eval()
        sums = torch.zeros(2, 2, dtype=torch.float64, device=device)
        tokens = 0
        for batch in part.eval_batches(
            max(self.data.batch_tokens, 4096), None if effort > 1 else self.config.eval_examples
        ):
            tokens += self.count(batch)
            batch = batch.to(device)
            sums += model(
                batch.char_ids, batch.words, batch.lengths, targets=batch.targets, loss=_score_both_directions
            )
        (forth, _), (back, _) = sums.tolist()
        half, right = max(tokens // 2, 1), float(sums[:, 1].sum())
        loss = (forth + back) / max(tokens, 1)
        result: dict[str, Any] = {"loss": loss, "perplexity": math.exp(min(loss, 50.0))}
        result |= {"forward_loss": forth / half, "backward_loss": back / half}
        return result | {"accuracy": right / max(tokens, 1), "tokens": tokens}


def _score_both_directions(x: Tensor, weight: Tensor, targets: Tensor) -> Float[Tensor, "2 2"]:
    """Loss and right guesses of each direction; forwards comes first in every row."""
    return torch.stack(
        [fused_linear_loss_and_correct(a, weight, b) for a, b in zip(x.chunk(2, 1), targets.chunk(2, 1), strict=True)]
    )
