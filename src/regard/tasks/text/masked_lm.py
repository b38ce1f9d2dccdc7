"""Masked language modelling: predict masked tokens of a text, and whether one text follows another.

    input        Text with [MASK] in it
    output       MaskFills
    loss         Σ over the masked words  -log p(word)  +  M · Σ over the rows with two texts  -log p(follows)
                 M is the number of masked positions in a row, so that after division by the words both are means
    metrics      loss (nats per masked word), perplexity, accuracy; nsp_loss, nsp_accuracy where texts follow texts
    decoding     none: every masked word is predicted by itself

Words are predicted at the masked positions only, and their logits are never materialised (losses.fused_linear_
cross_entropy). Whether next-sentence prediction is trained depends on the data: data.text.next_sentence_pairs has it,
data.text.masked_sentences does not.

Devlin, Chang, Lee, Toutanova: BERT: Pre-training of Deep Bidirectional Transformers for Language Understanding.
NAACL 2019. arXiv:1810.04805
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import nn

from regard.core.config import field
from regard.core.errors import BadInput, Unsupported
from regard.core.layer_state import PassState
from regard.core.shapes import Float, Int, Tensor
from regard.data.text.masked_sentences import MaskedSentences
from regard.data.text.next_sentence_pairs import NextSentencePairs, NextSentenceSplit, count_masked
from regard.data.text.token_masking import MaskedBatch
from regard.losses.fused_linear_cross_entropy import (
    IGNORE_INDEX,
    fused_linear_cross_entropy,
    fused_linear_loss_and_correct,
)
from regard.metrics.base import PERPLEXITY, fraction, loss_metric
from regard.modalities.classes import Classes
from regard.modalities.mask_fills import MaskFills, MaskPrediction, fill_masks
from regard.modalities.text import Text
from regard.tasks.base import TextTask, call_with_state, load_tokenizer
from regard.tasks.predictor import Predictor
from regard.tasks.text.encoder_base import EncoderPredictor, check_length, check_texts, evaluation_data

if TYPE_CHECKING:
    from regard.tokens.tokenizer import Tokenizer


@dataclass(frozen=True)
class Config:
    """Settings of training and evaluation."""

    eval_examples: int | None = None  # rows of each evaluation in training, spread evenly; None: the whole split

    def quick(self) -> Config:
        """Return the settings of a quick run."""
        return replace(self, eval_examples=8)

    def build(self, data: NextSentencePairs, seed: int = 0, folder: Path | None = None) -> MaskedLM:
        """Return the task on these data, with the tokenizer in the folder if one is given, else that of the data."""
        return MaskedLM(self, data, load_tokenizer(folder), seed)

    @staticmethod
    def eval_data(corpus: str, saved: Mapping[str, Any], **changes: Any) -> NextSentencePairs:
        """Return the data of a name to evaluate a saved model on, given its config.json."""
        kind = MaskedSentences if saved["config"]["head"] == "masked" else NextSentencePairs
        return evaluation_data(kind, (corpus,), saved, changes)


class MaskedLM(TextTask[NextSentenceSplit]):
    """Train and evaluate a masked language model."""

    metrics = (
        loss_metric("nats per masked token"),
        PERPLEXITY,
        fraction("accuracy", "masked token accuracy"),
        loss_metric("nats per pair", "nsp_loss", "NSP loss"),
        fraction("nsp_accuracy", "NSP accuracy"),
    )
    split_size = "words"
    unit = "words"
    name = "masked_lm"
    ragged = False  # all batches have one shape
    data: NextSentencePairs

    def __init__(self, config: Config, data: NextSentencePairs, text: Tokenizer | None = None, seed: int = 0) -> None:
        super().__init__(data, text, seed)
        self.config = config
        self.objective: Callable[..., Tensor] = fused_linear_cross_entropy

    def fit(self, config: Any) -> Any:
        check_length(self.data.max_length, config)
        head = "masked" if isinstance(self.data, MaskedSentences) else "pretraining"
        return replace(config, vocab=self.text.size, head=head)

    def count(self, batch: MaskedBatch) -> int:
        return count_masked(batch)

    def loss(
        self, model: nn.Module, batch: MaskedBatch, step: int = 0, rng: torch.Generator | None = None
    ) -> tuple[Float[Tensor, ""], dict[str, Tensor]]:
        """Return the loss of the masked tokens summed over the batch, plus that of the next sentence ("nsp_loss")."""
        words, follows, pass_state = _masked_and_nsp(model, batch, self.objective)
        total, parts = self.with_layer_losses(words, batch, pass_state), {"loss": words.detach()}
        if follows is None:
            return total, parts
        following = batch.masked_positions.shape[1] * _nsp_loss(follows, batch.next_sentence_labels)
        return total + following, parts | {"nsp_loss": following.detach()}

    def describe(self) -> dict[str, Any]:
        return {"name": self.name, "max_length": self.data.max_length}

    def card(self) -> str:
        train, data, text = self.dataset("train"), self.data, self.text
        return (
            f"{', '.join(data.corpora)}, {len(train):,} sentences, {len(train.tokens):,} tokens, {data.batch_size} "
            f"rows of {data.max_length} a batch, vocabulary {text.size:,} {text.kind}"
        )

    @torch.no_grad()
    def evaluate(self, model: nn.Module, split: str = "val", effort: int = 2) -> dict[str, Any]:
        """Return the metrics of a model on a split, always with the same masks: loss (nats per masked token),
        perplexity, accuracy, words (the number of masked tokens); with documents also nsp_loss (nats per pair),
        nsp_accuracy, pairs. Below effort 2 only `eval_examples` rows are read, always the same ones.
        """
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
            found, follows, _ = _masked_and_nsp(model, batch, fused_linear_loss_and_correct)
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


@dataclass(frozen=True)
class Options:
    """Options of `FillMask`."""

    top_k: int = field(5, low=1, help="words to return for each mask")


class FillMask(EncoderPredictor):
    """Texts with masks in, the most likely words out.

        fill = FillMask(model, text)
        fill("The [MASK] sat on the [MASK].", top_k=3)                 MaskFills: of each mask its most likely words
        fill.nsp_probabilities(["He sat down."], ["Then he ate."])     of each pair, p(the second text follows)

    Every mask is predicted by itself, with the others still masked, as in training. The probabilities are over the
    whole vocabulary. A piece that begins with ## continues the word before it. Next-sentence prediction needs a model
    that was trained on it (the head "pretraining"), and reads two texts in a row: [CLS] first [SEP] second [SEP].
    """

    outputs = MaskFills
    options = Options
    examples = ("A man is riding a [MASK] on the beach.", "Two [MASK] are playing in the [MASK].")

    def __init__(self, model: nn.Module, text: Tokenizer, max_length: int | None = None) -> None:
        if text.mask is None:
            raise BadInput("FillMask needs a tokenizer with a mask token, such as [MASK]; this one has none")
        super().__init__(model, text, max_length)
        self.mask_token = text.pieces([text.mask])[0]  # "[MASK]"

    def predict(self, batch: list[Any], options: Options) -> list[MaskFills]:
        rows = [self.encode(text, number) for number, text in enumerate(check_texts(batch), 1)]
        for number, (text, row) in enumerate(zip(batch, rows, strict=True), 1):
            if self.text.mask not in row:
                wanted = f"write it where a word is to be predicted: {str(text)!r}"
                raise BadInput(f"text {number} has no {self.mask_token}; {wanted}")
        found: dict[int, list[list[MaskPrediction]]] = {}
        at = [[i for i, token in enumerate(row) if token == self.text.mask] for row in rows]
        for some, answer in self._rows(rows, at=at) if rows else ():
            logits = answer[0] if isinstance(answer, tuple) else answer  # a pretraining head returns more than words
            for row, scores in zip(some, logits, strict=True):
                found[row] = self._guesses(scores[: len(at[row])].float().softmax(-1), options.top_k)
        return [self._filled(text, found[row]) for row, text in enumerate(batch)]

    def _filled(self, text: str, masks: list[list[MaskPrediction]]) -> MaskFills:
        best = fill_masks(str(text), [guesses[0].word for guesses in masks], self.mask_token)
        return MaskFills(best, tuple(map(tuple, masks)))

    @property
    def has_nsp_head(self) -> bool:
        """Whether the model was trained on next-sentence prediction."""
        return bool(self.model.config.head == "pretraining")  # type: ignore[union-attr]

    def nsp_probabilities(self, texts: Sequence[str], others: Sequence[str]) -> list[float]:
        """Return the probability that the second text follows the first, for every pair."""
        if not self.has_nsp_head:
            raise Unsupported(
                "this model has no head for next-sentence prediction; train one with the recipe bert_pretrain"
            )
        first, second = check_texts(texts), check_texts(others)
        if len(first) != len(second):
            raise BadInput(f"pairs need as many first as second texts, got {len(first)} and {len(second)}")
        both = zip(map(self.token_ids, first), map(self.token_ids, second), strict=True)
        pairs = [self.text.with_special_tokens(a, b) for a, b in both]
        for number, (row, _) in enumerate(pairs, 1):
            if len(row) > self.room:
                raise BadInput(
                    f"pair {number} has {len(row)} tokens with special tokens, but this model takes {self.room}; "
                    "shorten it"
                )
        found = [0.0] * len(pairs)
        once = [[0]] * len(pairs)  # no token is predicted, but there must be one position
        for some, (_, logits) in self._rows([row for row, _ in pairs], [which for _, which in pairs], once):
            for row, share in zip(some, logits.float().softmax(-1)[:, 0].tolist(), strict=True):
                found[row] = share
        return found

    def encode(self, text: str, number: int = 1) -> list[int]:
        """Return the token ids of a text with special tokens; [MASK] is one token."""
        ids = self.text.with_special_tokens(self.token_ids(text))[0]
        if len(ids) > self.room:
            raise BadInput(
                f"text {number} has {len(ids)} tokens with special tokens, but this model takes {self.room}; shorten it"
            )
        return ids

    def token_ids(self, text: str) -> list[int]:
        """Return the token ids of a text of any length without special tokens; [MASK] is one token."""
        assert self.text.mask is not None
        ids, *parts = self.text.encode(text.split(self.mask_token))
        for part in parts:
            ids = [*ids, self.text.mask, *part]
        return ids

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Return the first and last character (exclusive) of each of these tokens in the text."""
        found, at = list[tuple[int, int]](), 0
        for number, part in enumerate(text.split(self.mask_token)):
            if number:
                found.append((at, at + len(self.mask_token)))
                at += len(self.mask_token)
            found += [(at + begin, at + end) for begin, end in self.text.offsets(part)]
            at += len(part)
        return found

    def _guesses(self, shares: torch.Tensor, k: int) -> list[list[MaskPrediction]]:
        best = shares.topk(min(k, self.text.size, shares.shape[-1]))
        return [
            [MaskPrediction(word, n, p) for word, n, p in zip(self.text.pieces(numbers), numbers, likely, strict=True)]
            for numbers, likely in zip(best.indices.tolist(), best.values.tolist(), strict=True)
        ]


class NextSentenceClassifier(Predictor):
    """Pairs of texts in, "follows" or "does not follow" out, with a `FillMask` that was trained on that."""

    inputs = {"text": Text, "other": Text}  # noqa: RUF012
    outputs = Classes
    examples = ({"text": "He sat down.", "other": "Then he ate."},)

    def __init__(self, filler: FillMask) -> None:
        filler.nsp_probabilities([], [])  # refuses a model without that head
        self.filler, self.model = filler, filler.model

    def predict(self, batch: list[Any], options: Any) -> list[Classes]:
        found = self.filler.nsp_probabilities([each["text"] for each in batch], [each["other"] for each in batch])
        return [Classes.rank(("follows", "does not follow"), (share, 1 - share)) for share in found]


def _masked_and_nsp(
    model: nn.Module, batch: MaskedBatch, loss: Callable[..., Tensor]
) -> tuple[Tensor, Tensor | None, PassState]:
    """Return the loss of the masked tokens, the logits B 2 of the next sentence (None: no such head), the state."""
    inputs = batch.tokens, batch.segments, batch.lengths, batch.masked_positions, batch.targets, loss
    found, pass_state = call_with_state(model, *inputs)
    return (*found, pass_state) if isinstance(found, tuple) else (found, None, pass_state)


def _nsp_loss(logits: Float[Tensor, "B 2"], wanted: Int[Tensor, " B"]) -> Float[Tensor, ""]:
    return F.cross_entropy(logits.float(), wanted, ignore_index=IGNORE_INDEX, reduction="sum")
