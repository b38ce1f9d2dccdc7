"""Word vectors: tell the words near a word from words drawn at random.

    input        Text: a word
    output       Neighbors
    loss         negative sampling, summed over windows (models.word2vec)
    metrics      loss (nats per word, on windows that are always the same)

    nearest      cos(v_word, v)               the words of the largest cosine, the word itself left out
    analogy      cos(v_b - v_a + v_c, v)      with all vectors of length one, the three words left out

Which words are dropped, how far a window reaches and what is drawn against it: data.text.skip_gram. The loss depends on
all three, so it compares runs with the same settings only.

Mikolov, Yih, Zweig: Linguistic Regularities in Continuous Space Word Representations. NAACL 2013
"""

from __future__ import annotations

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

from regard.core.config import field
from regard.core.errors import BadInput, UnknownName
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
    """What is near, and what it is told from."""

    window: int = 5  # words to each side at most
    negatives: int = 5  # words drawn for a window
    power: float = field(0.75, low=0)  # of the frequency they are drawn by
    subsample: float = field(1e-3, low=0)  # words more frequent than this are dropped now and then; 0: never
    eval_examples: int | None = None  # windows at each look; None: all of the validation part

    def quick(self) -> Config:
        """A few windows at each look."""
        return replace(self, eval_examples=512)

    def build(self, data: WordSentences, seed: int = 0, folder: Path | None = None) -> WordVectors:
        """The task on these data; with the vocabulary in the folder where one is given, else theirs."""
        return WordVectors(self, data, load_tokenizer(folder), seed)


class WordVectors(TextTask[ContextWindows]):
    """What the training loop trains."""

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
        """A model's Config with what only the data know: the size of the vocabulary."""
        return replace(config, vocab=self.text.size)

    def count(self, batch: ContextWindowBatch) -> int:
        """The number of words."""
        return len(batch.words)

    def loss(
        self, model: nn.Module, batch: ContextWindowBatch, step: int = 0, rng: torch.Generator | None = None
    ) -> tuple[Float[Tensor, ""], dict[str, Tensor]]:
        """Negative sampling, summed over the batch."""
        total = model(batch.words, batch.contexts, batch.negatives)
        return total, {"loss": total.detach()}

    def describe(self) -> dict[str, Any]:
        """The task as plain values, to stand beside a saved model."""
        return {"name": self.name}

    def card(self) -> str:
        """One line on the data, for the run's first line."""
        return (
            f"{', '.join(self.data.corpora)}, {len(self._parts['train']):,} words, {self.text.size:,} known, "
            f"windows of {self.config.window} to each side, {self.config.negatives} drawn, {self.data.batch_tokens:,} "
            "a batch"
        )

    def _load(self, split: str) -> ContextWindows:
        return self._context_windows(self.data.numbers(split, self.text))

    def fingerprint(self) -> str:
        """A few letters that change when the training data do."""
        return self.data.fingerprint("train")

    @torch.no_grad()
    def evaluate(self, model: nn.Module, split: str = "val", effort: int = 2) -> dict[str, Any]:
        """How good a model is on a part of the data. Keys: loss (nats per word), words."""
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
    words.analogy("man", "woman", "king")             what is to king as woman is to man
    words.vectors(["dog", "cat"])                     2 C
    """

    inputs = {"word": Text}  # noqa: RUF012
    outputs = Neighbors
    options = Options
    examples = ("dog", "three", "happy")

    def __init__(self, model: nn.Module, text: Tokenizer) -> None:
        self.model, self.text = model.eval(), text

    def predict(self, batch: list[Any], options: Options) -> list[Neighbors]:
        return [Neighbors(str(word), tuple(self.nearest(word, options.top_k))) for word in batch]

    def nearest(self, word: str, top_k: int = 10) -> list[WordNeighbor]:
        """Return the words whose vectors have the largest cosine with that of `word`."""
        own = self.word_id(word)
        return self._nearest(self._units[own], top_k, [own])

    def analogy(self, a: str, b: str, c: str, top_k: int = 10) -> list[WordNeighbor]:
        """Return what is to c as b is to a: ``analogy("man", "woman", "king")``."""
        given = [self.word_id(word) for word in (a, b, c)]
        x, y, z = self._units[given]
        return self._nearest(F.normalize(y - x + z, dim=0), top_k, given)

    def vectors(self, words: Sequence[str]) -> Float[Tensor, "K C"]:
        """The vectors of words, as they were trained."""
        if isinstance(words, str):
            raise BadInput("vectors takes a list of words; for one word give a list of one")
        numbers = torch.tensor([self.word_id(word) for word in words], dtype=torch.long)
        return self._table[numbers]

    def word_id(self, word: str) -> int:
        """The row of a word; an unknown one is an error that offers what is spelled like it."""
        if not isinstance(word, str) or not word.strip():
            raise BadInput("give a word: this one is empty")
        if word in self._numbers:  # as it is spelled there: data that came cut into words hold some that we would cut
            return self._numbers[word]
        found = self.text.encode_one(word)
        if len(found) == 1 and found[0] in self._known:
            return found[0]
        if len(found) > 1:
            raise BadInput(f"'{word}' is {len(found)} words ({', '.join(self.text.pieces(found))}); give one at a time")
        close = get_close_matches(word.lower(), self._spelled, n=4, cutoff=0.6)
        hint = f"spelled like it: {', '.join(close)}" if close else "and none is spelled like it"
        raise UnknownName(f"'{word}' is not among the {len(self._known):,} words of this model; {hint}")

    @property
    def vocabulary(self) -> list[str]:
        """The words there are, the most frequent first."""
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
        """All vectors with length one, those of no word with length zero."""
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
