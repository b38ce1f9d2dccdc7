"""Sentences of words out of several corpora: Brown, Penn Treebank, Tatoeba's English, BBC news, or a text of yours.

    brown, ptb    come cut into words: taken as they are (quotes as ", PTB's "do n't" as "don't", its N as 0)
    tatoeba       the English side of both sets of pairs, each sentence once
    bbc           the articles, cut where a sentence seems to end
    a path        a file or folder of text (data.plain), a sentence a line

One vocabulary for all, of the words that are frequent in the training parts. What a batch is made of is the task's
business: windows of words (data.nearby), or sentences with the letters of their words (data.spelled).
"""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from regard.core.errors import BadInput
from regard.data import home
from regard.data.flat import Flat
from regard.data.plain import PlainText
from regard.data.shards import chosen

if TYPE_CHECKING:
    from regard.tokens.text import Text

Words = list[str]
PARTS = ("train", "val", "test")


@dataclass(frozen=True)
class WordSentences:
    """Which corpora, which of their words are known, and how many words go into a batch."""

    corpora: tuple[str, ...] = ("brown", "ptb", "tatoeba", "bbc")
    vocabulary: int = 30_000
    least: int = 5  # a word that is rarer in training is not in the vocabulary
    lower: bool = True  # forget case
    tokens: int = 8192  # words a batch, all processes together
    longest: int = 200  # words; a longer sentence is cut in pieces
    limit: int | None = None  # only the first so many sentences of every part of every corpus

    def quick(self) -> WordSentences:
        """A few sentences and a small vocabulary: enough to see that everything runs."""
        return replace(self, vocabulary=min(self.vocabulary, 400), tokens=min(self.tokens, 256), longest=32, limit=200)

    def splits(self) -> list[str]:
        """The parts that all corpora have."""
        found = [set(PARTS) if name in READERS else set(PlainText(name).splits()) for name in self.corpora]
        for name in self.corpora:
            if name in READERS:
                home.folder(FOLDERS.get(name, name))  # says where it was looked for
        return [part for part in PARTS if all(part in each for each in found)]

    def split(self, name: str) -> str:
        """The full name of a part; the beginning of it will do."""
        return chosen(name, self.splits(), ", ".join(self.corpora))

    def read(self, split: str) -> list[Words]:
        """The sentences of a part, corpus after corpus; read once and kept."""
        return _read(self, self.split(split))

    def text(self) -> Text:
        """The vocabulary of the training parts."""
        from regard.tokens.words import vocabulary

        return vocabulary(self.read("train"), self.vocabulary, self.least, self.lower)

    def numbers(self, split: str, text: Text) -> Flat:
        """A part as numbers of the vocabulary, the unknown one among them."""
        from regard.tokens.words import numbers

        known, sentences = numbers(text), self.read(split)
        flat = (
            (word.lower() for words in sentences for word in words) if self.lower else (w for s in sentences for w in s)
        )
        values = np.fromiter((known.get(word, text.unk) for word in flat), np.int32)
        return Flat.cut(torch.from_numpy(values), torch.tensor([len(words) for words in sentences]))

    def fingerprint(self, split: str) -> str:
        """A few letters that change when the sentences do."""
        found = blake2b(digest_size=8)
        for words in self.read(split):
            found.update(" ".join(words).encode("utf-8", "replace") + b"\n")
        return found.hexdigest()


@home.remembered(8)
def _read(data: WordSentences, split: str) -> list[Words]:
    found: list[Words] = []
    for name in data.corpora:
        rows = READERS[name](split) if name in READERS else _plain(name, split)
        for words in islice(rows, data.limit):
            found.extend(words[at : at + data.longest] for at in range(0, len(words), data.longest))
    if not found:
        raise BadInput(f"there is no sentence in the {split} part of {', '.join(data.corpora)}")
    return found


# -- the corpora -------------------------------------------------------------------------------------------------------


def _brown(split: str) -> Iterator[Words]:
    for line in _lines("brown", f"brown.{split}.tsv.gz"):
        yield [_QUOTES.get(word, word) for word in line.split("\t")[1].split(" ") if word]


def _ptb(split: str) -> Iterator[Words]:
    for line in _lines("ptb", f"ptb.{'valid' if split == 'val' else split}.txt.gz"):
        whole = re.sub(r" (n't|'(?:s|re|ve|ll|d|m))\b", r"\1", line)
        yield ["0" if word == "N" else word for word in whole.split()]


def _tatoeba(split: str) -> Iterator[Words]:
    from regard.tokens.words import split as cut

    seen: dict[str, None] = {}
    for other in ("fr", "de"):
        for line in _lines("tatoeba", f"en-{other}.{split}.tsv.gz"):
            seen[line.split("\t")[0]] = None
    held_out = set() if split == "train" else {line for words in _others() for line in words}
    yield from (cut(line) for line in seen if line not in held_out)


def _others() -> Iterator[list[str]]:
    """The English of both training parts: a sentence held out of one set of pairs may stand in the other."""
    for other in ("fr", "de"):
        yield [line.split("\t")[0] for line in _lines("tatoeba", f"en-{other}.train.tsv.gz")]


def _bbc(split: str) -> Iterator[Words]:
    from regard.tokens.words import split as cut

    for line in _lines("bbc_news_summary", "bbc_news_summary.jsonl.gz"):
        row = json.loads(line)
        if row["split"] == split:
            for paragraph in row["text"].split("\n"):
                yield from (cut(each) for each in _END.split(paragraph) if each.strip())


def _plain(name: str, split: str) -> Iterator[Words]:
    from regard.tokens.words import split as cut

    yield from (cut(line) for line in PlainText(name).read(split).splitlines() if line.strip())


READERS: dict[str, Callable[[str], Iterator[Words]]] = {"brown": _brown, "ptb": _ptb, "tatoeba": _tatoeba, "bbc": _bbc}
FOLDERS = {"bbc": "bbc_news_summary"}

_QUOTES = {"``": '"', "''": '"'}
_END = re.compile(r"(?<=[.!?])[\"']?\s+(?=[A-Z\"'])")


def _lines(folder: str, file: str) -> Iterator[str]:
    path: Path = home.folder(folder) / file
    try:
        with gzip.open(path, "rt", encoding="utf-8", newline="\n") as lines:
            yield from (line.rstrip("\n") for line in lines)
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise BadInput(f"cannot read {path}: {error}") from None
