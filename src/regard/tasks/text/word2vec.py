"""Word vectors: tell the words near a word from random words.

    input        Text: a word
    output       Neighbors
    loss         negative sampling, summed over windows (models.word2vec)
    metrics      loss (nats per word, on windows that are always the same)

    nearest      cos(v_word, v)               the words with the largest cosine, without the word itself
    analogy      cos(v_b - v_a + v_c, v)      with all vectors of length one, without the three words, of which one is
                                              nearer than the answer more often than not

Subsampling, windows and negatives are those of data.text.skip_gram. The loss depends on all three, so that only runs
with the same settings can be compared.

Mikolov, Yih, Zweig: Linguistic Regularities in Continuous Space Word Representations. NAACL 2013
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from regard.core.cancellation import check_cancelled
from regard.core.config import field
from regard.core.errors import BadInput, UnknownName, shorten
from regard.core.shapes import Float, Tensor
from regard.data.text.skip_gram import ContextWindowBatch, ContextWindows
from regard.data.text.word_sentences import WordSentences
from regard.metrics.base import loss_metric
from regard.modalities.neighbors import Neighbors, WordNeighbor
from regard.modalities.text import Text
from regard.tasks.base import TextTask, load_tokenizer
from regard.tasks.predictor import Predictor

if TYPE_CHECKING:
    from regard.tokens.tokenizer import Tokenizer


@dataclass(frozen=True)
class Config:
    """Settings of the windows, of negative sampling and of evaluation."""

    window: int = 5  # most words on each side
    negatives: int = 5  # random words for each window
    power: float = field(0.75, low=0)  # of the frequency, in the distribution of negatives
    subsample: float = field(1e-3, low=0)  # words more frequent than this are dropped at random; 0: none
    eval_examples: int | None = None  # windows of each evaluation in training; None: the whole split

    def quick(self) -> Config:
        """Return the settings of a quick run."""
        return replace(self, eval_examples=512)

    def build(self, data: WordSentences, seed: int = 0, folder: Path | None = None) -> WordVectors:
        """Return the task on these data, with the tokenizer in the folder if one is given, else that of the data."""
        return WordVectors(self, data, load_tokenizer(folder), seed)


class WordVectors(TextTask[ContextWindows]):
    """Train and evaluate word vectors."""

    metrics = (loss_metric("nats per word, positives and negatives"),)
    split_size = "words"
    unit = "words"
    name = "word2vec"
    data: WordSentences

    def __init__(self, config: Config, data: WordSentences, text: Tokenizer | None = None, seed: int = 0) -> None:
        super().__init__(data, text, seed)
        self.config = config
        numbers = data.numbers("train", self.text)
        self.counts = np.bincount(numbers.values.numpy(), minlength=self.text.size)
        self.counts[[self.text.pad, self.text.bos, self.text.eos, self.text.unk]] = 0
        self._parts["train"] = self._context_windows(numbers)

    def fit(self, config: Any) -> Any:
        return replace(config, vocab=self.text.size)

    def count(self, batch: ContextWindowBatch) -> int:
        return len(batch.words)

    def loss(
        self, model: nn.Module, batch: ContextWindowBatch, step: int = 0, rng: torch.Generator | None = None
    ) -> tuple[Float[Tensor, ""], dict[str, Tensor]]:
        """Return the loss of negative sampling, summed over the batch."""
        total = model(batch.words, batch.contexts, batch.negatives)
        return total, {"loss": total.detach()}

    def describe(self) -> dict[str, Any]:
        return {"name": self.name}

    def card(self) -> str:
        return (
            f"{', '.join(self.data.corpora)}, {len(self._parts['train']):,} words, vocabulary {self.text.size:,}, "
            f"windows of {self.config.window} on each side, {self.config.negatives} negatives, "
            f"{self.data.batch_tokens:,} words a batch"
        )

    def _load(self, split: str) -> ContextWindows:
        return self._context_windows(self.data.numbers(split, self.text))

    def fingerprint(self) -> str:
        return self.data.fingerprint("train")

    @torch.no_grad()
    def evaluate(self, model: nn.Module, split: str = "val", effort: int = 2) -> dict[str, Any]:
        """Return the metrics of a model on a split: loss (nats per word), words."""
        device = next(model.parameters()).device
        model.eval()
        total, words = torch.zeros((), dtype=torch.float64, device=device), 0
        for batch in self.dataset(split).eval_batches(None if effort > 1 else self.config.eval_examples):
            words += self.count(batch)
            batch = batch.to(device)
            total += model(batch.words, batch.contexts, batch.negatives)
        return {"loss": float(total) / max(words, 1), "words": words}

    def _context_windows(self, numbers: Any) -> ContextWindows:
        c = self.config
        return ContextWindows(
            numbers, self.counts, batch_size=self.data.batch_tokens, window=c.window, negatives=c.negatives,
            sample=c.subsample, power=c.power,
        )  # fmt: skip


@dataclass(frozen=True)
class Options:
    """Options of `NearestWords`."""

    top_k: int = field(10, low=1, help="neighbours of each word")


class NearestWords(Predictor):
    """Words in, the words with the most similar vectors out.

    words = regard.load("words-en")
    words("dog", top_k=5)                             Neighbors
    words("king - man + woman")                       the same for a sum of words
    words.analogy("man", "woman", "king")             what is to king as woman is to man
    words.vectors(["dog", "cat"])                     2 C
    """

    inputs = {"word": Text}  # noqa: RUF012
    outputs = Neighbors
    options = Options
    examples = ("dog", "three", "king - man + woman")

    def __init__(self, model: nn.Module, text: Tokenizer) -> None:
        self.model, self.text = model.eval(), text

    def predict(self, batch: list[Any], options: Options) -> list[Neighbors]:
        return [self._neighbors(str(word), options.top_k) for word in batch]

    def nearest(self, word: str, top_k: int = 10) -> list[WordNeighbor]:
        """Return the words whose vectors have the largest cosine with that of `word`, or with "king - man + woman"."""
        return [*self._neighbors(word, top_k).neighbors]

    def analogy(self, a: str, b: str, c: str, top_k: int = 10) -> list[WordNeighbor]:
        """Return what is to c as b is to a: ``analogy("man", "woman", "king")``."""
        return self.nearest(f"{b} - {a} + {c}", top_k)

    def _neighbors(self, word: str, top_k: int) -> Neighbors:
        """Return the neighbours of a word, or of the sum of the unit vectors of several, without the words given."""
        check_cancelled()
        first, *rest = re.split(r"\s+([+-])\s+", word) if isinstance(word, str) else [word]
        signs, words = ["+", *rest[::2]], [first, *rest[1::2]]
        given = [self.word_id(each) for each in words]
        total = sum(self._units[i] if sign == "+" else -self._units[i] for sign, i in zip(signs, given, strict=True))
        wanted = F.normalize(total, dim=0)  # type: ignore[arg-type]
        found = tuple(self._nearest(wanted, top_k, given))
        if len(given) == 1:
            return Neighbors(word, found)
        own = (WordNeighbor(self._known[i], float(self._units[i] @ wanted)) for i in given)
        return Neighbors(word, found, tuple(own))

    def vectors(self, words: Sequence[str]) -> Float[Tensor, "K C"]:
        """Return the vectors of words, not normalised."""
        if isinstance(words, str):
            raise BadInput("vectors takes a list of words; for one word give a list of one")
        numbers = torch.tensor([self.word_id(word) for word in words], dtype=torch.long)
        return self._table[numbers]

    def word_id(self, word: str) -> int:
        """Return the row of a word; raise `UnknownName` with similar words if there is none."""
        if not isinstance(word, str) or not word.strip():
            raise BadInput("the word is empty; give a word")
        if word in self._numbers:  # pretokenised data may have words that our tokenizer splits
            return self._numbers[word]
        found = self.text.encode_one(word)
        if len(found) == 1 and found[0] in self._known:
            return found[0]
        if len(found) > 1:
            words = shorten(", ".join(self.text.pieces(found[:40])))
            raise BadInput(f"'{shorten(word)}' is {len(found):,} words ({words}); give one at a time")
        close = get_close_matches(word.lower(), self._spelled, n=4, cutoff=0.6)
        hint = f"similar ones: {', '.join(close)}" if close else "none is spelled like it"
        raise UnknownName(f"'{shorten(word)}' is not among the {len(self._known):,} words of this model; {hint}")

    @property
    def vocabulary(self) -> list[str]:
        """All words, the most frequent first."""
        return self._spelled

    @cached_property
    def _numbers(self) -> dict[str, int]:
        from regard.tokens.word_tokenizer import word_ids

        return word_ids(self.text)

    @cached_property
    def _known(self) -> dict[int, str]:
        return {i: word for word, i in self._numbers.items()}

    @cached_property
    def _spelled(self) -> list[str]:
        return [*self._known.values()]

    @property
    def _table(self) -> Tensor:
        table = self.model.get_submodule("embed").weight
        assert isinstance(table, Tensor)
        return table.detach()

    @cached_property
    def _units(self) -> Tensor:
        """All vectors with length one; rows that are no word are zero."""
        real = torch.zeros(len(self._table), 1, device=self._table.device)
        real[[*self._known]] = 1
        return F.normalize(self._table.float(), dim=1) * real

    def _nearest(self, wanted: Tensor, top_k: int, without: Sequence[int]) -> list[WordNeighbor]:
        if top_k < 1:
            raise BadInput(f"top_k must be at least 1, got {top_k}")
        cosines = self._units @ wanted
        left_out = [i for i in range(len(cosines)) if i not in self._known]
        cosines[[*without, *left_out]] = -torch.inf
        best = cosines.topk(min(top_k, int(cosines.isfinite().sum())))
        return [
            WordNeighbor(self._known[i], c) for c, i in zip(best.values.tolist(), best.indices.tolist(), strict=True)
        ]
