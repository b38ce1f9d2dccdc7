"""Bidirectional language modelling: each word is predicted from those before it, and again from those after it.

    input        Text: a sentence
    output       TokenEmbeddings: a vector for each word in its sentence
    loss         cross-entropy over words, summed over both directions (losses.fused_linear_cross_entropy)
    metrics      loss (nats per word, the mean of both directions), perplexity, and both for each direction

A word that is not in the vocabulary is read by its characters like any other, and predicted as "unknown": only models
with the same vocabulary have comparable perplexities.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import nn

from regard.core.cancellation import check_cancelled
from regard.core.config import field
from regard.core.errors import BadInput, UnknownName, did_you_mean
from regard.core.shapes import Float, Tensor
from regard.data.text.char_sentences import CharBatch, CharSentences, count_predicted_words
from regard.data.text.word_sentences import WordSentences
from regard.losses.fused_linear_cross_entropy import fused_linear_cross_entropy, fused_linear_loss_and_correct
from regard.metrics.base import PERPLEXITY, fraction, loss_metric
from regard.modalities.text import Text
from regard.modalities.token_embeddings import TokenEmbeddings
from regard.models.elmo import Config as ELMo
from regard.models.elmo import words_to_char_ids
from regard.tasks.base import TextTask, load_tokenizer
from regard.tasks.predictor import Predictor

if TYPE_CHECKING:
    from regard.tokens.tokenizer import Tokenizer

Sentence = str | Sequence[str]  # a line, or its words


@dataclass(frozen=True)
class Config:
    """Settings of training and evaluation."""

    chunk_size: int | None = None  # rows of logits computed at a time; None: chosen by device
    eval_examples: int | None = None  # sentences of each evaluation in training; None: the whole split

    def quick(self) -> Config:
        """Return the settings of a quick run."""
        return replace(self, eval_examples=8)

    def build(self, data: WordSentences, seed: int = 0, folder: Path | None = None) -> BidirectionalLM:
        """Return the task on these data, with the tokenizer in the folder if one is given, else that of the data."""
        return BidirectionalLM(self, data, load_tokenizer(folder), seed)


class BidirectionalLM(TextTask[CharSentences]):
    """Train and evaluate a pair of language models."""

    metrics = (loss_metric("nats per word"), PERPLEXITY, fraction("accuracy", "word accuracy"))
    unit = "words"
    name = "bidirectional_lm"
    data: WordSentences

    def __init__(self, config: Config, data: WordSentences, text: Tokenizer | None = None, seed: int = 0) -> None:
        super().__init__(data, text, seed)
        self.config = config
        self.spelling = ELMo(self.text.size)  # how the model reads characters; replaced by its own Config in `fit`
        self.objective = (
            fused_linear_cross_entropy
            if config.chunk_size is None
            else partial(fused_linear_cross_entropy, chunk_size=config.chunk_size)
        )

    def fit(self, config: Any) -> Any:
        self.spelling = replace(config, vocab=self.text.size)
        return self.spelling

    def count(self, batch: CharBatch) -> int:
        return count_predicted_words(batch)

    def loss(
        self, model: nn.Module, batch: CharBatch, step: int = 0, rng: torch.Generator | None = None
    ) -> tuple[Float[Tensor, ""], dict[str, Tensor]]:
        """Return the cross-entropy summed over the batch and both directions."""
        total = model(batch.char_ids, batch.words, batch.lengths, targets=batch.targets, loss=self.objective)
        return total, {"loss": total.detach()}

    def describe(self) -> dict[str, Any]:
        return {"name": self.name}

    def card(self) -> str:
        train = self.dataset("train")
        words, different = int(train.words.lengths.sum()) - 2 * len(train), len(train.char_ids) - 2
        return (
            f"{', '.join(self.data.corpora)}, {len(train):,} sentences, {words:,} words, {different:,} different, "
            f"vocabulary {self.text.size:,}, {self.data.batch_tokens:,} words a batch"
        )

    def _load(self, split: str) -> CharSentences:
        spelling = partial(words_to_char_ids, config=self.spelling)
        return CharSentences(self.data.read(split), spelling, self.text, self.data.lowercase, self.data.batch_tokens)

    def fingerprint(self) -> str:
        return self.data.fingerprint("train")

    def ready(self, score: bool) -> None:
        self.data.split("val")

    @torch.no_grad()
    def evaluate(self, model: nn.Module, split: str = "val", effort: int = 2) -> dict[str, Any]:
        """Return the metrics of a model on a split: loss (nats per word), perplexity, forward_loss, backward_loss,
        accuracy, tokens (words predicted in both directions).
        """
        if isinstance(own := getattr(model, "config", None), ELMo):
            self.spelling = own  # for a saved model, read characters as in its training
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


class ContextNeighbor(NamedTuple):
    """A word in a sentence, and the cosine of its vector with that of the query, -1 to 1."""

    word: str
    sentence: str
    cosine: float


@dataclass(frozen=True)
class Options:
    """Options of `ContextualEmbedder`."""

    layer: int | None = field(
        None, low=0, help="the layer whose vectors are returned; 0 knows no context; by default the mean of all"
    )


class ContextualEmbedder(Predictor):
    """Sentences in, the vectors of their words out (ELMo).

    embed = regard.load("runs/elmo/model")
    embed("She sat on the river bank .")                             TokenEmbeddings: words, vectors N C
    embed.nearest("She sat on the river bank .", "bank", candidates)  words of other sentences, most similar first
    """

    inputs = {"text": Text}  # noqa: RUF012
    outputs = TokenEmbeddings
    options = Options
    examples = ("She sat on the river bank .", "He put the money in the bank .")

    def __init__(self, model: nn.Module, text: Tokenizer) -> None:
        self.model, self.text = model.eval(), text

    def predict(self, batch: list[Any], options: Options) -> list[TokenEmbeddings]:
        words = [self.words(sentence) for sentence in batch]
        vectors = self.vectors(words, options.layer)
        return [TokenEmbeddings(tuple(w), x.float().cpu()) for w, x in zip(words, vectors, strict=True)]

    @torch.no_grad()
    def layers(self, sentences: Sequence[Sentence], batch_tokens: int = 8192) -> list[Float[Tensor, "J N C"]]:
        """Return all layers of the words of every sentence; layer 0 knows no context."""
        cut = [self.words(sentence) for sentence in sentences]
        if not cut:
            return []
        config: Any = self.model.config
        device = next(self.model.parameters()).device
        read = CharSentences(cut, lambda words: words_to_char_ids(words, config))
        order = torch.argsort(read.words.lengths, stable=True)
        found: list[Tensor] = [torch.empty(0)] * len(cut)
        longest = max(batch_tokens, int(read.words.lengths.max()))
        begin = 0
        while begin < len(order):
            check_cancelled()
            end = begin + 1
            while end < len(order) and (end + 1 - begin) * int(read.words.lengths[order[end]]) <= longest:
                end += 1
            rows = order[begin:end]
            batch = read.collate(rows).to(device)
            layers = self.model(batch.char_ids, batch.words, batch.lengths)
            for i, row in enumerate(rows.tolist()):
                found[row] = layers[:, i, 1 : len(cut[row]) + 1].clone()
            begin = end
        return found

    def vectors(self, sentences: Sequence[Sentence], layer: int | None = None) -> list[Float[Tensor, "N C"]]:
        """Return the vectors of one layer, or the mean of all layers."""
        config: Any = self.model.config
        if layer is not None and not 0 <= layer <= config.layers:
            raise BadInput(f"layer must be from 0 (no context) to {config.layers}, got {layer}")
        return [x.mean(0) if layer is None else x[layer] for x in self.layers(sentences)]

    def nearest(
        self, sentence: Sentence, word: str, candidates: Sequence[Sentence], top_k: int = 10, layer: int | None = None
    ) -> list[ContextNeighbor]:
        """Return the words of other sentences whose vectors are most similar to the first `word` of this one."""
        words = self.words(sentence)
        if word not in words:
            raise UnknownName(f"there is no '{word}' in the sentence; {did_you_mean(word, set(words))}")
        if top_k < 1:
            raise BadInput(f"top_k must be at least 1, got {top_k}")
        own, *others = self.vectors([words, *candidates], layer)
        cut = [self.words(other) for other in candidates]
        places = [(each, " ".join(row)) for row in cut for each in row]
        if not places:
            return []
        cosines = F.normalize(torch.cat(others), dim=-1) @ F.normalize(own[words.index(word)], dim=0)
        best = cosines.topk(min(top_k, len(places)))
        found = zip(best.values.tolist(), best.indices.tolist(), strict=True)
        return [ContextNeighbor(places[i][0], places[i][1], cosine) for cosine, i in found]

    def words(self, sentence: Sentence) -> list[str]:
        """Return the words of a sentence; raise `BadInput` if there are none."""
        from regard.tokens.word_tokenizer import split_words

        found = split_words(sentence) if isinstance(sentence, str) else list(sentence)
        if not found or not all(isinstance(word, str) and word for word in found):
            raise BadInput(f"a sentence needs at least one word, and no empty ones: {sentence!r:.60}")
        return found


def _score_both_directions(x: Tensor, weight: Tensor, targets: Tensor) -> Float[Tensor, "2 2"]:
    """Return loss and number of right predictions of each direction, forward first."""
    return torch.stack(
        [fused_linear_loss_and_correct(a, weight, b) for a, b in zip(x.chunk(2, 1), targets.chunk(2, 1), strict=True)]
    )
