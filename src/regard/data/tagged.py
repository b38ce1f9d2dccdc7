"""Sentences with a tag for each word: parts of speech, chunks, names.

    conll2000                      by name: words, parts of speech, chunks of the Wall Street Journal
    tagged.txt[.gz]                of one's own: a word and its tags a line, spaces or tabs between, a blank line after
    folder with train.txt, ...     each sentence; a file a part

    words    He      reckons     the     current   account          tags belong to words, a model reads pieces:
    tags     B-NP    B-VP        B-NP    I-NP      I-NP             a word's tag stands at its first piece,
    row      [CLS] he  reck ##ons  the   current   account [SEP]    and nothing is asked at the others

What has no validation part gives up a tenth of its training part. A sentence that is longer than a row is cut between
words into several.

Tjong Kim Sang, Buchholz: Introduction to the CoNLL-2000 Shared Task: Chunking. CoNLL 2000
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import torch

from regard.core.errors import BadInput
from regard.core.shapes import Int, Tensor
from regard.data.batching import AlikeBatches, Stream, mixed
from regard.data.flat import Flat
from regard.data.labelled import held_out
from regard.data.parallel import lines
from regard.data.plain import PlainText
from regard.data.shards import NOTHING, chosen, wanted

if TYPE_CHECKING:
    from regard.tokens.text import Text

Sentence = tuple[tuple[str, ...], tuple[str, ...]]  # words, tags


class Tags(NamedTuple):
    """A batch of sentences with their tags, padded on the right."""

    tokens: Int[Tensor, "B N"]
    lengths: Int[Tensor, " B"]
    targets: Int[Tensor, "B N"]  # a tag at the first piece of a word, NOTHING elsewhere

    def to(self, device: torch.device | str) -> Tags:
        """The same batch on a device; from pinned memory without waiting for it."""
        return Tags(*(x.to(device, non_blocking=True) for x in self))

    def pin(self) -> Tags:
        """The same batch in page-locked memory, from which a GPU copies while it computes."""
        return Tags(*(x.pin_memory() for x in self))

    def rows(self, n: int) -> Tags:
        """Only the first n sentences (the padding stays)."""
        return Tags(*(x[:n] for x in self))


@dataclass(frozen=True)
class Tagged:
    """Which sentences, which of their tags, how they are written as numbers, and how many go into a batch."""

    corpus: str = "conll2000"  # a name, or the path of a file or a folder
    column: int = -1  # of the tags, words being column 0; conll2000: 1 parts of speech, 2 chunks
    length: int = 128  # tokens a row at most
    rows: int = 32  # in a batch, all processes together
    vocabulary: int = 8000  # where the model does not bring one
    lower: bool = True
    limit: int | None = None  # only the first so many sentences of every part

    def quick(self) -> Tagged:
        """A few sentences and a small vocabulary: enough to see that everything runs."""
        return replace(
            self, limit=32, length=min(self.length, 32), rows=min(self.rows, 4), vocabulary=min(self.vocabulary, 400)
        )

    def splits(self) -> list[str]:
        """The parts there are."""
        return sorted(_parts(self.corpus, self.column))

    def split(self, name: str) -> str:
        """The full name of a part; the beginning of it will do where it is the only one."""
        return chosen(name, self.splits(), self.corpus)

    def read(self, split: str) -> list[Sentence]:
        """The sentences of a part: words and tags."""
        return _parts(self.corpus, self.column)[self.split(split)][: self.limit]

    def labels(self) -> list[str]:
        """The tags of the training part, in the order of their names."""
        return sorted({tag for _, tags in _parts(self.corpus, self.column)["train"] for tag in tags})

    def text(self) -> Text:
        """A WordPiece vocabulary of the training part, with BERT's special tokens."""
        from regard.tokens.text import Text

        train = (" ".join(words) for words, _ in self.read("train"))
        return Text.train(train, kind="bert", size=self.vocabulary, lower=self.lower)

    def load(self, split: str, text: Text) -> TaggedWords:
        """A part as numbers."""
        return TaggedWords(text, self.read(split), self.labels(), self.length, self.rows)


class TaggedWords:
    """One part as numbers. A tag that the training part lacks is never right, and nothing is learned from it."""

    def __init__(self, text: Text, sentences: Sequence[Sentence], tags: Sequence[str], length: int, many: int) -> None:
        if not sentences:
            raise BadInput("there is no sentence to tag")
        self.text, self.length, self.many, self.sentences = text, length, many, sentences
        number = {tag: n for n, tag in enumerate(tags)}
        rows, targets = [], []
        for (_, true), cut in zip(sentences, cuts(text, [words for words, _ in sentences], length), strict=True):
            at = 0
            for row, places in cut:
                wanted_here = [NOTHING] * len(row)
                for n, place in enumerate(places):
                    wanted_here[place] = number.get(true[at + n], NOTHING)
                at += len(places)
                rows.append(row)
                targets.append(wanted_here)
        self.tokens, self.targets = Flat.of(rows), Flat.of(targets)

    def __len__(self) -> int:
        return len(self.tokens)

    def fingerprint(self) -> str:
        """A few letters that change when the sentences, the tags or the vocabulary do."""
        found = blake2b(digest_size=8)
        for part in (self.tokens.values, self.tokens.lengths, self.targets.values):
            found.update(part.numpy().data)
        return found.hexdigest()

    def collate(self, rows: Int[Tensor, " B"]) -> Tags:
        """These rows as one padded batch."""
        tokens, lengths = self.tokens.padded(rows, self.text.pad, 8)
        targets = self.targets.padded(rows, NOTHING, 8)[0]
        return Tags(tokens[:, : self.length], lengths, targets[:, : self.length])

    def stream(self, seed: int) -> Stream[Tags]:
        """Training batches without end."""
        order = lambda epoch: AlikeBatches(self.tokens.lengths, self.many, mixed(seed, epoch))  # noqa: E731
        return Stream(order, self.collate, lambda batch: wanted(batch.targets))

    def in_order(self, tokens: int) -> Iterator[Tags]:
        """Every row once, as they come: for measuring."""
        some = max(1, tokens // self.length)
        for at in range(0, len(self), some):
            yield self.collate(torch.arange(at, min(at + some, len(self))))


Cut = list[tuple[list[int], list[int]]]  # rows of tokens, and in each the first piece of every word


def cuts(text: Text, sentences: Sequence[Sequence[str]], length: int) -> list[Cut]:
    """Sentences of words as rows [CLS] pieces [SEP] of at most `length` tokens, cut between words."""
    pieces = word_pieces(text, (word for words in sentences for word in words))
    found = []
    for words in sentences:
        row: list[int] = [text.bos]
        places: list[int] = []
        cut: Cut = []
        for word in words:
            ids = pieces[word][: length - 2]  # a word that no row could hold loses its end
            if len(row) + len(ids) + 1 > length:
                cut.append(([*row, text.eos], places))
                row, places = [text.bos], []
            places.append(len(row))
            row = row + ids
        found.append([*cut, ([*row, text.eos], places)])
    return found


def word_pieces(text: Text, words: Iterable[str]) -> dict[str, list[int]]:
    """The numbers of each word by itself, at least one; a word that comes a thousand times is looked up once."""
    known = sorted(set(words))
    return {word: ids or [text.unk] for word, ids in zip(known, text.encode(known), strict=True)}


@lru_cache(maxsize=4)
def _parts(corpus: str, column: int) -> dict[str, list[Sentence]]:
    """The sentences of every part."""
    found = {part: _read(file, column) for part, file in PlainText(corpus).files().items()}
    return held_out(found, corpus, 0)


def _read(file: Path, column: int) -> list[Sentence]:
    found: list[Sentence] = []
    rows: list[tuple[str, str]] = []
    for number, line in enumerate([*lines(file), ""], 1):
        cells = line.split()
        if not cells and rows:
            words, tags = zip(*rows, strict=True)
            found.append((words, tags))
            rows = []
        elif cells:
            if len(cells) < 2 or not -len(cells) < column < len(cells) or column == 0:
                raise BadInput(f"{file}, line {number}: {len(cells)} columns; wanted a word and its tag in {column}")
            rows.append((cells[0], cells[column]))
    return found
