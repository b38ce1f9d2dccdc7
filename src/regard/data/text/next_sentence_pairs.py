"""BERT's pre-training data: two text segments per row, where the second follows the first or does not.

    document    one two three | four five | six seven eight nine | ...        sentences end to end
    span        as many sentences of one document as fit into a row; every tenth is shorter, at random
    row         [CLS] a [SEP] b [SEP]     a: the span up to a random sentence;
                                          b: the rest of it, or (one time in two) sentences of another document of
                                          the same corpus, so that the corpus gives nothing away
                [CLS] a [SEP]             where there is no sentence after a, or sentences are independent (Tatoeba):
                                          then there is no next-sentence label

Spans, splits, second segments and masks (token_masking) are sampled by hashing (seed, epoch, first sentence): anew in
every epoch, and the same for any number of processes or threads.

Devlin, Chang, Lee, Toutanova: BERT. NAACL 2019. arXiv:1810.04805
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import torch

from regard.core.errors import BadInput
from regard.core.shapes import Int, Tensor
from regard.data.base import Dataset, DatasetSplit
from regard.data.batching import RowBatches, mix_seed
from regard.data.shards.token_shards import IGNORE_INDEX, count_targets
from regard.data.text.corpora import Document, get_corpus
from regard.data.text.token_masking import MaskedBatch, bits_to_range, bits_to_unit, keyed_random_bits, mask_tokens

if TYPE_CHECKING:
    from regard.tokens.tokenizer import Tokenizer

SHORT_FRACTION = 0.1  # of the spans
UNKNOWN_WORD = "<unk>"  # unknown words in ptb
ENCODE_SENTENCES = 10_000  # sentences encoded at a time


@dataclass(frozen=True)
class NextSentencePairs(Dataset):
    """Settings of the dataset."""

    corpora: tuple[str, ...] = ("brown", "ptb", "bbc", "tatoeba")  # names (corpora.py) or paths
    max_length: int = 128  # tokens per row, with special tokens
    batch_size: int = 256  # rows per batch over all processes
    vocab_size: int = 8000
    lowercase: bool = True
    limit: int | None = None  # use only the first documents of every corpus

    quick_settings = {"max_length": 32, "batch_size": 4, "vocab_size": 400, "limit": 8}  # noqa: RUF012

    def splits(self) -> list[str]:
        """Return the splits that every corpus has."""
        if not self.corpora:
            raise BadInput("data.corpora is empty: give data.corpora=brown,ptb or the path of a text file")
        return sorted(set.intersection(*(set(get_corpus(name).parts) for name in self.corpora)))

    def title(self) -> str:
        return ", ".join(self.corpora)

    def read(self, split: str) -> list[list[Document]]:
        """Return the documents of a split, corpus by corpus."""
        name = self.split(split)
        return [get_corpus(each).read(name)[: self.limit] for each in self.corpora]

    def build_tokenizer(self) -> Tokenizer:
        """Train a WordPiece tokenizer on the training split, with BERT's five special tokens."""
        from regard.tokens.tokenizer import Tokenizer

        lines = (s.replace(UNKNOWN_WORD, " ") for found in self.read("train") for document in found for s in document)
        return Tokenizer.train(lines, kind="bert", size=self.vocab_size, lower=self.lowercase)

    def load(self, split: str, tokenizer: Tokenizer) -> NextSentenceSplit:
        """Return a split as token ids."""
        capacity = self.max_length - 3  # [CLS], [SEP], [SEP]
        if capacity < 4:
            raise BadInput(f"data.max_length={self.max_length} is too short for two segments; raise data.max_length")
        follow = [get_corpus(name).follow for name in self.corpora]
        return NextSentenceSplit(tokenizer, self.read(split), follow, self.max_length, self.batch_size, capacity)


class NextSentenceSplit(DatasetSplit[MaskedBatch]):
    """One split as token ids: sentences end to end, their starts, and the document and corpus of each."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        corpora: Sequence[Sequence[Document]],
        follow: Sequence[bool],
        length: int,
        batch_size: int,
        capacity: int,
    ) -> None:
        self.tokenizer, self.max_length, self.batch_size, self.capacity = tokenizer, length, batch_size, capacity
        if batch_size < 1:
            raise BadInput(f"data.batch_size must be 1 or more, got {batch_size}")
        if tokenizer.mask is None:
            raise BadInput(f"this tokenizer ({tokenizer.kind}) has no [MASK]; use one of kind 'bert'")
        self.mask = tokenizer.mask
        pieces: list[np.ndarray] = []
        ends: list[int] = []  # ends of sentences, in tokens
        documents: list[int] = []  # document of each sentence; a corpus of independent sentences is one document
        names: list[int] = []  # corpus of each sentence
        document = total = 0
        for name, (sentences_by_document, ordered) in enumerate(zip(corpora, follow, strict=True)):
            for start in range(0, len(sentences_by_document), ENCODE_SENTENCES):
                chunk = sentences_by_document[start : start + ENCODE_SENTENCES]
                encoded = iter(
                    _encode_sentences(tokenizer, [s for document_sentences in chunk for s in document_sentences])
                )
                for document_sentences in chunk:
                    for ids in (next(encoded) for _ in document_sentences):
                        for cut in range(0, len(ids), capacity):  # split sentences that are longer than a row
                            pieces.append(np.array(ids[cut : cut + capacity], np.int32))
                            total += len(pieces[-1])
                            ends.append(total)
                            documents.append(document)
                            names.append(name)
                    document += ordered
            document += not ordered
        if not pieces:
            raise BadInput("the corpora have no sentence, so there are no batches")
        self.tokens = np.concatenate(pieces)
        self.starts = np.array([0, *ends])  # sentence s is tokens[starts[s] : starts[s + 1]]
        self.begin, self.end = _run_bounds(np.array(documents))  # first and last + 1 sentence of the document
        self.first, self.last = _run_bounds(np.array(names))  # the same for its corpus
        self.ordered = np.array(follow)[np.array(names)]

    def __len__(self) -> int:
        """Return the number of sentences."""
        return len(self.starts) - 1

    def contents(self) -> Iterable[np.ndarray]:
        return self.tokens, self.starts, self.begin, self.first

    @cached_property
    def special(self) -> np.ndarray:
        """True for special tokens."""
        text, found = self.tokenizer, np.zeros(self.tokenizer.size, bool)
        found[[text.pad, text.bos, text.eos, text.unk, self.mask]] = True
        return found

    # -- spans ---------------------------------------------------------------------------------------------------------

    def sentence_spans(self, key: int) -> Int[Tensor, "R 3"]:
        """Return spans that cover every sentence once: first sentence, last + 1, and the key of the row."""
        chance = keyed_random_bits(np.array([key]), np.arange(len(self)))
        shorter = 2 + bits_to_range(
            keyed_random_bits(np.array([key]), ~np.arange(len(self))), np.array(self.capacity - 1)
        )
        capacity = np.where(bits_to_unit(chance) < SHORT_FRACTION, shorter, self.capacity)
        after = np.searchsorted(self.starts, self.starts[:-1] + capacity, "right") - 1
        after = np.clip(after, np.arange(1, len(self) + 1), self.end)
        found, sentence, next_sentence = [], 0, after.tolist()
        while sentence < len(self):
            found.append((sentence, next_sentence[sentence], key))
            sentence = next_sentence[sentence]
        return torch.tensor(found)

    def order(self, seed: int, epoch: int) -> _Epoch:
        return _Epoch(self, mix_seed(seed, epoch))

    def count(self, batch: MaskedBatch) -> int:
        return count_masked(batch)

    def eval_batches(self, rows: int, max_rows: int | None = None) -> Iterator[MaskedBatch]:
        """Yield every sentence once, in order, with fixed masks; with `max_rows`, only so many rows, spread evenly."""
        found = self.sentence_spans(0)
        if max_rows is not None and max_rows < len(found):
            found = found[torch.arange(max_rows) * len(found) // max_rows]
        for start in range(0, len(found), rows):
            yield self.collate(found[start : start + rows])

    # -- rows ----------------------------------------------------------------------------------------------------------

    def collate(self, sentence_spans: Int[Tensor, "B 3"]) -> MaskedBatch:
        """Return these spans as rows with masked tokens."""
        begin, end, key = sentence_spans.numpy().T
        keys = keyed_random_bits(key, begin)
        (a, a_end), (b, b_end), follows = self.pairs(begin, end, keys)
        tokens, segments, lengths = self.joined(a, a_end, b, b_end)
        masked, positions, targets = mask_tokens(tokens, keys, self.special, self.mask)
        return MaskedBatch(*map(torch.from_numpy, (masked, segments, lengths, positions, targets, follows)))

    def pairs(
        self, begin: np.ndarray, end: np.ndarray, keys: np.ndarray
    ) -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray], np.ndarray]:
        """Return where in the tokens a and b begin and end, and the next-sentence label (IGNORE_INDEX without b)."""
        bits = [keyed_random_bits(keys, np.array(n)) for n in (-1, -2, -3)]
        num_own = self.end[begin] - self.begin[begin]  # sentences of this document, and of the rest of its corpus
        num_others = self.last[begin] - self.first[begin] - num_own
        split = self.ordered[begin] & (end - begin > 1) & (num_others > 0)
        middle = np.where(split, begin + 1 + bits_to_range(bits[0], end - begin - 1), end)
        is_random = split & (bits_to_unit(bits[1]) < 0.5)
        random_sentence = self.first[begin] + bits_to_range(bits[2], num_others)
        random_sentence = np.where(
            random_sentence >= self.begin[begin], random_sentence + num_own, random_sentence
        )  # skip the own document
        b = np.where(is_random, np.minimum(random_sentence, len(self) - 1), middle)
        a_start, a_end = self.starts[begin], self.starts[middle]
        capacity = self.capacity - (a_end - a_start)
        fits = np.searchsorted(self.starts, self.starts[b] + capacity, "right") - 1  # whole sentences, at least one
        last = np.clip(fits, np.minimum(b + 1, len(self)), self.end[np.minimum(b, len(self) - 1)])
        b_end = np.minimum(self.starts[np.where(is_random, last, end)], self.starts[b] + capacity)
        follows = np.where(split, is_random.astype(np.int64), IGNORE_INDEX)
        return (a_start, a_end), (self.starts[b], b_end), follows

    def joined(
        self, a: np.ndarray, a_end: np.ndarray, b: np.ndarray, b_end: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return [CLS] a [SEP] b [SEP], or [CLS] a [SEP] if b is empty: tokens and segments B N, lengths B."""
        index = np.arange(self.max_length)
        a_length, b_length = (a_end - a)[:, None], (b_end - b)[:, None]
        second = index - a_length - 2  # position in b
        length = np.where(b_length > 0, a_length + b_length + 3, a_length + 2)
        source_index = np.where(second >= 0, b[:, None] + second, a[:, None] + index - 1)
        found = self.tokens[np.clip(source_index, 0, len(self.tokens) - 1)].astype(np.int64)
        found[:, 0] = self.tokenizer.bos
        found = np.where((index == a_length + 1) | (index == length - 1), self.tokenizer.eos, found)
        found = np.where(index >= length, self.tokenizer.pad, found)
        return found, ((second >= 0) & (index < length)).astype(np.int64), length[:, 0]


class _Epoch:
    """Batches of one epoch."""

    def __init__(self, split: NextSentenceSplit, key: int) -> None:
        self.sentence_spans = split.sentence_spans(key)
        self.order = RowBatches(len(self.sentence_spans), split.batch_size, key)

    def __len__(self) -> int:
        return len(self.order)

    def __getitem__(self, i: int) -> Int[Tensor, "B 3"]:
        return self.sentence_spans[self.order[i]]


def count_masked(batch: MaskedBatch) -> int:
    """Return the number of masked tokens."""
    return count_targets(batch.targets)


def _encode_sentences(tokenizer: Tokenizer, sentences: Sequence[str]) -> list[list[int]]:
    """Encode sentences; the corpus's own unknown words become the unknown token."""
    parts = [s.split(UNKNOWN_WORD) for s in sentences]
    encoded = iter(tokenizer.encode([part for sentence_parts in parts for part in sentence_parts]))
    found = []
    for sentence_parts in parts:
        ids = list(next(encoded))
        for _ in sentence_parts[1:]:
            ids += [tokenizer.unk, *next(encoded)]
        found.append(ids)
    return found


def _run_bounds(labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return for each position the begin and end of its run of equal labels."""
    cuts = np.flatnonzero(np.diff(labels)) + 1
    begins, ends = np.array([0, *cuts]), np.array([*cuts, len(labels)])
    sizes = ends - begins
    return np.repeat(begins, sizes), np.repeat(ends, sizes)
