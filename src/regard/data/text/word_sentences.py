"""Sentences of words from several corpora: Brown, Penn Treebank, Tatoeba's English, BBC news, or your own text.

    brown, ptb    are split into words already (quotes as ", PTB's "do n't" as "don't", its N as 0)
    tatoeba       the English side of both language pairs, each sentence once
    bbc           the articles, split into sentences
    a path        a file or folder of text (text_file.py), a sentence per line

One vocabulary for all, of the words that are frequent in the training splits. The task makes the batches: context
windows (skip_gram.py), or sentences with the letters of their words (char_sentences.py).
"""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from regard.core.config import field
from regard.core.errors import BadInput
from regard.data import data_dir
from regard.data.base import Dataset
from regard.data.ragged import RaggedTensor
from regard.data.text.text_file import TextFile

if TYPE_CHECKING:
    from regard.tokens.tokenizer import Tokenizer

Words = list[str]
SPLITS = ("train", "val", "test")


@dataclass(frozen=True)
class WordSentences(Dataset):
    """Settings of the dataset."""

    corpora: tuple[str, ...] = ("brown", "ptb", "tatoeba", "bbc")
    vocab_size: int = 30_000
    min_count: int = field(5, low=0)  # rarer training words are unknown
    lowercase: bool = True
    batch_tokens: int = 8192  # words per batch over all processes
    max_length: int = 200  # words; longer sentences are split
    limit: int | None = None  # use only the first sentences of every split of every corpus

    quick_settings = {"vocab_size": 400, "batch_tokens": 256, "max_length": 32, "limit": 200}  # noqa: RUF012

    def splits(self) -> list[str]:
        """Return the splits that all corpora have."""
        found = [set(SPLITS) if name in READERS else set(TextFile(name).splits()) for name in self.corpora]
        for name in self.corpora:
            if name in READERS:
                data_dir.find_dataset(FOLDERS.get(name, name))  # raises if it is missing
        return [part for part in SPLITS if all(part in corpus_splits for corpus_splits in found)]

    def title(self) -> str:
        return ", ".join(self.corpora)

    def read(self, split: str) -> list[Words]:
        """Return the sentences of a split, corpus after corpus; cached."""
        return _read(self, self.split(split))

    def build_tokenizer(self) -> Tokenizer:
        """Build the vocabulary of the training splits."""
        from regard.tokens.word_tokenizer import build_vocabulary

        return build_vocabulary(self.read("train"), self.vocab_size, self.min_count, self.lowercase)

    def numbers(self, split: str, tokenizer: Tokenizer) -> RaggedTensor:
        """Return a split as token ids, with the unknown token."""
        from regard.tokens.word_tokenizer import word_ids

        ids, sentences = word_ids(tokenizer), self.read(split)
        words_in_order = (
            (word.lower() for words in sentences for word in words)
            if self.lowercase
            else (w for s in sentences for w in s)
        )
        values = np.fromiter((ids.get(word, tokenizer.unk) for word in words_in_order), np.int32)
        return RaggedTensor.from_lengths(torch.from_numpy(values), torch.tensor([len(words) for words in sentences]))

    def fingerprint(self, split: str) -> str:
        found = blake2b(digest_size=8)
        for words in self.read(split):
            found.update(" ".join(words).encode("utf-8", "replace") + b"\n")
        return found.hexdigest()


@data_dir.cached_by_data_dir(8)
def _read(data: WordSentences, split: str) -> list[Words]:
    found: list[Words] = []
    for name in data.corpora:
        rows = READERS[name](split) if name in READERS else _user_text(name, split)
        for words in islice(rows, data.limit):
            found.extend(words[start : start + data.max_length] for start in range(0, len(words), data.max_length))
    if not found:
        raise BadInput(f"the split {split} of {', '.join(data.corpora)} has no sentence")
    return found


# -- corpora -----------------------------------------------------------------------------------------------------------


def _brown(split: str) -> Iterator[Words]:
    for line in _lines("brown", f"brown.{split}.tsv.gz"):
        yield [_QUOTES.get(word, word) for word in line.split("\t")[1].split(" ") if word]


def _ptb(split: str) -> Iterator[Words]:
    for line in _lines("ptb", f"ptb.{'valid' if split == 'val' else split}.txt.gz"):
        joined = re.sub(r" (n't|'(?:s|re|ve|ll|d|m))\b", r"\1", line)
        yield ["0" if word == "N" else word for word in joined.split()]


def _tatoeba(split: str) -> Iterator[Words]:
    from regard.tokens.word_tokenizer import split_words as cut

    sentences: dict[str, None] = {}
    for language in ("fr", "de"):
        for line in _lines("tatoeba", f"en-{language}.{split}.tsv.gz"):
            sentences[line.split("\t")[0]] = None
    training = set() if split == "train" else {line for words in _tatoeba_train() for line in words}
    yield from (cut(line) for line in sentences if line not in training)


def _tatoeba_train() -> Iterator[list[str]]:
    """Yield the English of both training splits: a held-out sentence of one pair may be in the other."""
    for language in ("fr", "de"):
        yield [line.split("\t")[0] for line in _lines("tatoeba", f"en-{language}.train.tsv.gz")]


def _bbc(split: str) -> Iterator[Words]:
    from regard.tokens.word_tokenizer import split_words as cut

    for line in _lines("bbc_news_summary", "bbc_news_summary.jsonl.gz"):
        row = json.loads(line)
        if row["split"] == split:
            for paragraph in row["text"].split("\n"):
                yield from (cut(sentence) for sentence in _END.split(paragraph) if sentence.strip())


def _user_text(name: str, split: str) -> Iterator[Words]:
    from regard.tokens.word_tokenizer import split_words as cut

    yield from (cut(line) for line in TextFile(name).read(split).splitlines() if line.strip())


READERS: dict[str, Callable[[str], Iterator[Words]]] = {"brown": _brown, "ptb": _ptb, "tatoeba": _tatoeba, "bbc": _bbc}
FOLDERS = {"bbc": "bbc_news_summary"}

_QUOTES = {"``": '"', "''": '"'}
_END = re.compile(r"(?<=[.!?])[\"']?\s+(?=[A-Z\"'])")


def _lines(folder: str, file: str) -> Iterator[str]:
    path: Path = data_dir.find_dataset(folder) / file
    try:
        with gzip.open(path, "rt", encoding="utf-8", newline="\n") as lines:
            yield from (line.rstrip("\n") for line in lines)
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise BadInput(f"cannot read {path}: {error}") from None
