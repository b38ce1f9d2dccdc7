"""Two stretches of text in a row, of which the second follows the first or does not: what BERT is trained on.

    document    one two three | four five | six seven eight nine | ...        sentences end to end
    stretch     as many sentences of one document as fit into a row; every tenth is cut shorter, at random
    row         [CLS] a [SEP] b [SEP]     a: the stretch up to a sentence drawn at random;
                                          b: the rest of it, or (one time in two) sentences of another document of
                                          the same corpus, so that the corpus gives nothing away
                [CLS] a [SEP]             where there is no sentence after a, or none that has to do with it (Tatoeba):
                                          then nobody asks whether b follows

Stretches, splits, second texts and masks (data.masking) are drawn by number from (seed, epoch, first sentence): other
ones in every epoch, and the same for any number of processes or threads. The state is Place(epoch, position).

Devlin, Chang, Lee, Toutanova: BERT. NAACL 2019. arXiv:1810.04805
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import blake2b
from typing import TYPE_CHECKING

import numpy as np
import torch

from regard.core.errors import BadInput
from regard.core.shapes import Int, Tensor
from regard.data.batching import BatchStream, RowBatches, mix_seed
from regard.data.shards.token_shards import IGNORE_INDEX, count_targets, resolve_split
from regard.data.text.corpora import Document, get_corpus
from regard.data.text.token_masking import MaskedBatch, bits_to_range, bits_to_unit, keyed_random_bits, mask_tokens

if TYPE_CHECKING:
    from regard.tokens.tokenizer import Tokenizer

SHORT_FRACTION = 0.1  # of the stretches
UNKNOWN_WORD = "<unk>"  # as ptb writes a word that was taken out
ENCODE_SENTENCES = 10_000  # sentences turned into numbers at a time


@dataclass(frozen=True)
class NextSentencePairs:
    """Which corpora, how they are written as numbers, how long a row is, and how many rows go into a batch."""

    corpora: tuple[str, ...] = ("brown", "ptb", "bbc", "tatoeba")  # names (data.corpora), or paths
    max_length: int = 128  # tokens a row, special ones included
    batch_size: int = 256  # in a batch, all processes together
    vocab_size: int = 8000
    lowercase: bool = True  # forget case
    limit: int | None = None  # only the first so many documents of every corpus

    def quick(self) -> NextSentencePairs:
        """A few documents and a small vocabulary: enough to see that everything runs."""
        return replace(
            self,
            max_length=min(self.max_length, 32),
            batch_size=min(self.batch_size, 4),
            vocab_size=min(self.vocab_size, 400),
            limit=8,
        )

    def splits(self) -> list[str]:
        """The parts that every corpus has."""
        if not self.corpora:
            raise BadInput("there is no corpus to read: give data.corpora=brown,ptb or the path of a text file")
        return sorted(set.intersection(*(set(get_corpus(name).parts) for name in self.corpora)))

    def split(self, name: str) -> str:
        """The full name of a part; the beginning of it will do where it is the only one."""
        return resolve_split(name, self.splits(), ", ".join(self.corpora))

    def read(self, split: str) -> list[list[Document]]:
        """The documents of a part, corpus by corpus."""
        name = self.split(split)
        return [get_corpus(each).read(name)[: self.limit] for each in self.corpora]

    def build_tokenizer(self) -> Tokenizer:
        """A WordPiece vocabulary of the training part, with BERT's five special tokens."""
        from regard.tokens.tokenizer import Tokenizer

        lines = (s.replace(UNKNOWN_WORD, " ") for found in self.read("train") for document in found for s in document)
        return Tokenizer.train(lines, kind="bert", size=self.vocab_size, lower=self.lowercase)

    def load(self, split: str, tokenizer: Tokenizer) -> NextSentenceSplit:
        """A part as numbers."""
        capacity = self.max_length - 3  # [CLS], [SEP], [SEP]
        if capacity < 4:
            raise BadInput(f"a row of {self.max_length} tokens has no room for two texts; raise data.max_length")
        follow = [get_corpus(name).follow for name in self.corpora]
        return NextSentenceSplit(tokenizer, self.read(split), follow, self.max_length, self.batch_size, capacity)


class NextSentenceSplit:
    """One part as numbers: sentences end to end, where they begin, and to which document and corpus each belongs."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        corpora: Sequence[Sequence[Document]],
        follow: Sequence[bool],
        length: int,
        rows: int,
        capacity: int,
    ) -> None:
        self.tokenizer, self.max_length, self.batch_size, self.capacity = tokenizer, length, rows, capacity
        if rows < 1:
            raise BadInput(f"a batch of {rows} rows holds nothing; give 1 or more")
        if tokenizer.mask is None:
            raise BadInput(f"this vocabulary ({tokenizer.kind}) has no [MASK]; take one of kind 'bert'")
        self.mask = tokenizer.mask
        numbers: list[np.ndarray] = []
        ends: list[int] = []  # of sentences, in tokens
        documents: list[int] = []  # of each sentence, its document; a corpus without an order is one
        names: list[int] = []  # of each sentence, its corpus
        document = total = 0
        for name, (found, ordered) in enumerate(zip(corpora, follow, strict=True)):
            for at in range(0, len(found), ENCODE_SENTENCES):
                some = found[at : at + ENCODE_SENTENCES]
                encoded = iter(_encode_sentences(tokenizer, [s for each in some for s in each]))
                for each in some:
                    for ids in (next(encoded) for _ in each):
                        for cut in range(0, len(ids), capacity):  # a sentence that no row could hold is several
                            numbers.append(np.array(ids[cut : cut + capacity], np.int32))
                            total += len(numbers[-1])
                            ends.append(total)
                            documents.append(document)
                            names.append(name)
                    document += ordered
            document += not ordered
        if not numbers:
            raise BadInput("there is nothing to make batches of: the corpora hold no sentence")
        self.tokens = np.concatenate(numbers)
        self.starts = np.array([0, *ends])  # sentence s is tokens[starts[s] : starts[s + 1]]
        self.begin, self.end = _run_bounds(np.array(documents))  # of each sentence, its document's first, and one past
        self.first, self.last = _run_bounds(np.array(names))  # the same of its corpus
        self.ordered = np.array(follow)[np.array(names)]

    def __len__(self) -> int:
        """Sentences."""
        return len(self.starts) - 1

    def fingerprint(self) -> str:
        """A few letters that change when the text or the vocabulary do."""
        found = blake2b(digest_size=8)
        for part in (self.tokens, self.starts, self.begin, self.first):
            found.update(np.ascontiguousarray(part).data)
        return found.hexdigest()

    @cached_property
    def special(self) -> np.ndarray:
        """Which numbers of the vocabulary are no words."""
        text, found = self.tokenizer, np.zeros(self.tokenizer.size, bool)
        found[[text.pad, text.bos, text.eos, text.unk, self.mask]] = True
        return found

    # -- stretches -----------------------------------------------------------------------------------------------------

    def sentence_spans(self, key: int) -> Int[Tensor, "R 3"]:
        """Every sentence once: the first of each stretch, one past its last, and the key that its row is drawn from."""
        chance = keyed_random_bits(np.array([key]), np.arange(len(self)))
        shorter = 2 + bits_to_range(
            keyed_random_bits(np.array([key]), ~np.arange(len(self))), np.array(self.capacity - 1)
        )
        capacity = np.where(bits_to_unit(chance) < SHORT_FRACTION, shorter, self.capacity)
        after = np.searchsorted(self.starts, self.starts[:-1] + capacity, "right") - 1
        after = np.clip(after, np.arange(1, len(self) + 1), self.end)
        found, at, ahead = [], 0, after.tolist()
        while at < len(self):
            found.append((at, ahead[at], key))
            at = ahead[at]
        return torch.tensor(found)

    def stream(self, seed: int) -> BatchStream[MaskedBatch]:
        """Training batches without end."""
        return BatchStream(lambda epoch: _Epoch(self, mix_seed(seed, epoch)), self.collate, count_masked)

    def eval_batches(self, rows: int, most: int | None = None) -> Iterator[MaskedBatch]:
        """Every sentence once, in order, so many rows in a batch, always with the same masks: for measuring.

        With `most`, only so many rows, spread evenly.
        """
        found = self.sentence_spans(0)
        if most is not None and most < len(found):
            found = found[torch.arange(most) * len(found) // most]
        for at in range(0, len(found), rows):
            yield self.collate(found[at : at + rows])

    # -- rows ----------------------------------------------------------------------------------------------------------

    def collate(self, sentence_spans: Int[Tensor, "B 3"]) -> MaskedBatch:
        """These stretches as rows with words to be guessed."""
        begin, end, key = sentence_spans.numpy().T
        keys = keyed_random_bits(key, begin)
        (a, a_end), (b, b_end), follows = self.pairs(begin, end, keys)
        tokens, segments, lengths = self.joined(a, a_end, b, b_end)
        seen, at, targets = mask_tokens(tokens, keys, self.special, self.mask)
        return MaskedBatch(*map(torch.from_numpy, (seen, segments, lengths, at, targets, follows)))

    def pairs(
        self, begin: np.ndarray, end: np.ndarray, keys: np.ndarray
    ) -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray], np.ndarray]:
        """Where in the tokens a and b begin and end, and whether b follows a (IGNORE_INDEX: there is no b)."""
        bits = [keyed_random_bits(keys, np.array(n)) for n in (-1, -2, -3)]
        own = self.end[begin] - self.begin[begin]  # sentences of this document, and of its corpus
        others = self.last[begin] - self.first[begin] - own
        split = self.ordered[begin] & (end - begin > 1) & (others > 0)
        middle = np.where(split, begin + 1 + bits_to_range(bits[0], end - begin - 1), end)
        strange = split & (bits_to_unit(bits[1]) < 0.5)
        other = self.first[begin] + bits_to_range(bits[2], others)
        other = np.where(other >= self.begin[begin], other + own, other)  # step over the own document
        b = np.where(strange, np.minimum(other, len(self) - 1), middle)
        a_start, a_end = self.starts[begin], self.starts[middle]
        capacity = self.capacity - (a_end - a_start)
        fits = np.searchsorted(self.starts, self.starts[b] + capacity, "right") - 1  # whole sentences, but at least one
        last = np.clip(fits, np.minimum(b + 1, len(self)), self.end[np.minimum(b, len(self) - 1)])
        b_end = np.minimum(self.starts[np.where(strange, last, end)], self.starts[b] + capacity)
        follows = np.where(split, strange.astype(np.int64), IGNORE_INDEX)
        return (a_start, a_end), (self.starts[b], b_end), follows

    def joined(
        self, a: np.ndarray, a_end: np.ndarray, b: np.ndarray, b_end: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """[CLS] a [SEP] b [SEP], or [CLS] a [SEP] where b is empty: tokens and segments B N, lengths B."""
        index = np.arange(self.max_length)
        many, more = (a_end - a)[:, None], (b_end - b)[:, None]
        second = index - many - 2  # the place in b
        length = np.where(more > 0, many + more + 3, many + 2)
        place = np.where(second >= 0, b[:, None] + second, a[:, None] + index - 1)
        found = self.tokens[np.clip(place, 0, len(self.tokens) - 1)].astype(np.int64)
        found[:, 0] = self.tokenizer.bos
        found = np.where((index == many + 1) | (index == length - 1), self.tokenizer.eos, found)
        found = np.where(index >= length, self.tokenizer.pad, found)
        return found, ((second >= 0) & (index < length)).astype(np.int64), length[:, 0]


class _Epoch:
    """The batches of one epoch."""

    def __init__(self, pages: NextSentenceSplit, key: int) -> None:
        self.sentence_spans = pages.sentence_spans(key)
        self.order = RowBatches(len(self.sentence_spans), pages.batch_size, key)

    def __len__(self) -> int:
        return len(self.order)

    def __getitem__(self, i: int) -> Int[Tensor, "B 3"]:
        return self.sentence_spans[self.order[i]]


def count_masked(batch: MaskedBatch) -> int:
    """How many words the model is asked for."""
    return count_targets(batch.targets)


def _encode_sentences(tokenizer: Tokenizer, sentences: Sequence[str]) -> list[list[int]]:
    """Sentences as numbers; a word that the corpus itself had taken out is the unknown one."""
    parts = [s.split(UNKNOWN_WORD) for s in sentences]
    encoded = iter(tokenizer.encode([part for some in parts for part in some]))
    found = []
    for some in parts:
        ids = list(next(encoded))
        for _ in some[1:]:
            ids += [tokenizer.unk, *next(encoded)]
        found.append(ids)
    return found


def _run_bounds(labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of each place, where the run of equal labels that it is in begins and ends."""
    cuts = np.flatnonzero(np.diff(labels)) + 1
    begins, ends = np.array([0, *cuts]), np.array([*cuts, len(labels)])
    many = ends - begins
    return np.repeat(begins, many), np.repeat(ends, many)
