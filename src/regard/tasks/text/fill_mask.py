"""Filling in: a text with [MASK] in it, and the words that may stand there.

    fill = FillMask(model, text)
    fill(["The [MASK] sat on the [MASK]."], k=3)      of each text, of each mask, the k likeliest, likeliest first
    fill.follows(["He sat down."], ["Then he ate."])  of each pair, how likely it is that the second text follows

Every mask is guessed by itself, with the others still hidden, as in training. The probabilities are over the whole
vocabulary. A piece that begins with ## goes on with the word before it. Whether a text follows another is asked of a
model that was trained on that too (the head "pretraining"), on two texts in a row: [CLS] first [SEP] second [SEP].

Devlin, Chang, Lee, Toutanova: BERT. NAACL 2019. arXiv:1810.04805
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import nn

from regard.core.errors import BadInput, Unsupported
from regard.tasks.text.encoder_base import EncoderPredictor, check_texts

if TYPE_CHECKING:
    from regard.tokens.tokenizer import Tokenizer


@dataclass(frozen=True)
class MaskPrediction:
    """What may stand at a mask, as it is written in the vocabulary, its number there, and how likely it is."""

    word: str
    token: int
    probability: float


class FillMask(EncoderPredictor):
    """A model that guesses hidden words, with its vocabulary, to be called."""

    def __init__(self, model: nn.Module, text: Tokenizer, max_length: int | None = None) -> None:
        if text.mask is None:
            raise BadInput("this vocabulary has no token for a hidden word; a FillMask needs one, such as [MASK]")
        super().__init__(model, text, max_length)
        self.mask_token = text.pieces([text.mask])[0]  # "[MASK]"

    def __call__(self, texts: Sequence[str], k: int = 5) -> list[list[list[MaskPrediction]]]:
        """Of every text, of every mask in it, the k likeliest words."""
        if k < 1:
            raise BadInput(f"{k} words cannot be guessed; ask for 1 or more")
        rows = [self.encode(text, number) for number, text in enumerate(check_texts(texts), 1)]
        for number, (text, row) in enumerate(zip(texts, rows, strict=True), 1):
            if self.text.mask not in row:
                wanted = f"write it where a word is to be guessed: {text!r}"
                raise BadInput(f"text {number} has no {self.mask_token}; {wanted}")
        found: list[list[list[MaskPrediction]]] = [[] for _ in rows]
        at = [[i for i, token in enumerate(row) if token == self.text.mask] for row in rows]
        for some, answer in self._rows(rows, at=at):
            logits = answer[0] if isinstance(answer, tuple) else answer  # a pretraining head says more than words
            for row, scores in zip(some, logits, strict=True):
                found[row] = self._guesses(scores[: len(at[row])].float().softmax(-1), k)
        return found

    @property
    def has_nsp_head(self) -> bool:
        """Whether it was trained to say if a text follows another."""
        return bool(self.model.config.head == "pretraining")  # type: ignore[union-attr]

    def nsp_probabilities(self, texts: Sequence[str], others: Sequence[str]) -> list[float]:
        """Of every text and the other one, how likely it is that the other follows: 0 to 1."""
        if not self.has_nsp_head:
            raise Unsupported(
                "this model was not trained to say whether a text follows another: it has no head for that (the recipe "
                "bert_pretrain trains one that has)"
            )
        first, second = check_texts(texts), check_texts(others)
        if len(first) != len(second):
            raise BadInput(f"{len(first)} texts and {len(second)} others are not pairs")
        both = zip(map(self.token_ids, first), map(self.token_ids, second), strict=True)
        pairs = [self.text.with_special_tokens(a, b) for a, b in both]
        for number, (row, _) in enumerate(pairs, 1):
            if len(row) > self.room:
                raise BadInput(
                    f"pair {number} has {len(row)} tokens with its marks, this model reads {self.room}: shorten it"
                )
        found = [0.0] * len(pairs)
        once = [[0]] * len(pairs)  # no word is asked for; the first is the fewest that can be
        for some, (_, logits) in self._rows([row for row, _ in pairs], [which for _, which in pairs], once):
            for row, share in zip(some, logits.float().softmax(-1)[:, 0].tolist(), strict=True):
                found[row] = share
        return found

    def encode(self, text: str, number: int = 1) -> list[int]:
        """The numbers of a text between its marks, [MASK] read as one of them."""
        ids = self.text.with_special_tokens(self.token_ids(text))[0]
        if len(ids) > self.room:
            raise BadInput(
                f"text {number} has {len(ids)} tokens with its marks, this model reads {self.room}: shorten it"
            )
        return ids

    def token_ids(self, text: str) -> list[int]:
        """The numbers of a text, no marks added, however many; [MASK] is read as one of them."""
        assert self.text.mask is not None
        ids, *parts = self.text.encode(text.split(self.mask_token))
        for part in parts:
            ids = [*ids, self.text.mask, *part]
        return ids

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Where each of those numbers stands in the text, from which character to which (as `Text.spans`)."""
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


def fill_masks(text: str, words: Sequence[str], mark: str = "[MASK]") -> str:
    """The text with these words where its masks were; a piece that begins with ## joins what stands before it."""
    first, *rest = text.split(mark)
    for word, after in zip(words, rest, strict=True):
        first = (first.rstrip() + word[2:] if word.startswith("##") and len(word) > 2 else first + word) + after
    return first
