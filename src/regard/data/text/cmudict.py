"""Words and their pronunciations: the CMU pronouncing dictionary, or a folder in its layout.

    <name>.<split>.tsv[.gz]   word<TAB>phonemes[<TAB>other phonemes ...]    tomato  T AH0 M EY1 T OW2  T AH0 M AA1 T OW2

Letters are the source and phonemes the target, so every translation model can be trained on it. Both sides share one
vocabulary: letters are lower case, ARPAbet phonemes upper case.

    source   t o m a t o </s>        target   <s> T AH M EY T OW </s>

Published scores leave out the stress digits and count any listed pronunciation as correct; the first one is used for
training. `words_per_row` joins several words with a separator; only words with a single pronunciation are used, so that
each row has one correct answer.

    source   c a t _ n a p </s>      target   <s> K AE T _ N AE P </s>

Weide et al.: The Carnegie Mellon Pronouncing Dictionary. 1993 to 2015
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from regard.core.errors import BadInput
from regard.data import data_dir
from regard.data.base import Dataset
from regard.data.ragged import RaggedTensor
from regard.data.shuffle import Shuffle
from regard.data.text.parallel_corpus import EncodedPairs, encode_lines
from regard.data.text.table import read_lines

if TYPE_CHECKING:
    from regard.tokens.tokenizer import Tokenizer

WORD_SEPARATOR = "_"  # between joined words, on both sides


class Entry(NamedTuple):
    """A word and all its pronunciations, each once, the usual one first; phonemes are separated by spaces."""

    word: str
    pronunciations: tuple[str, ...]


@dataclass(frozen=True)
class CMUDict(Dataset):
    """Settings of the dataset."""

    corpus: str = "cmudict"  # name of a dataset, or path of a folder
    stress: bool = False  # keep the stress digits; published scores leave them out
    all_pronunciations: bool = False  # train on every listed pronunciation, not only on the first
    words_per_row: int = 1  # words per row: in training 1 to this many in turn, elsewhere always this many
    batch_tokens: int = 8192  # rows x the longest of either side, per batch
    max_length: int = 64  # longer training rows are left out
    pad_to_multiple_of: int = 4  # of padded lengths
    limit: int | None = None  # use only the first words of every split

    quick_settings = {"limit": 128, "batch_tokens": 512}  # noqa: RUF012

    def splits(self) -> list[str]:
        return sorted(_files(data_dir.find_dataset(self.corpus)))

    def read(self, split: str) -> list[Entry]:
        """Return the words of a split with their pronunciations; joined words if words_per_row > 1."""
        found = read_entries(data_dir.find_dataset(self.corpus), self.split(split), self.stress)[: self.limit]
        return found if self.words_per_row == 1 else _join_words(found, self.words_per_row, upto=split == "train")

    def load(self, split: str, tokenizer: Tokenizer | None = None) -> CMUDictSplit:
        """Return a split as token ids; without a tokenizer one is built from it."""
        found = self.read(split)
        if tokenizer is None:
            tokenizer = self._vocabulary(found)
        limit = None if self.all_pronunciations and split == "train" else 1
        pairs = [(e.word, pronunciation) for e in found for pronunciation in e.pronunciations[:limit]]
        source = encode_lines(tokenizer, [" ".join(word) for word, _ in pairs], [], [tokenizer.eos])
        target = encode_lines(tokenizer, [sounds for _, sounds in pairs], [tokenizer.bos], [tokenizer.eos])
        return CMUDictSplit(self, self.split(split), tokenizer, source, target, found)

    def _vocabulary(self, found: Sequence[Entry]) -> Tokenizer:
        from regard.tokens.tokenizer import Tokenizer

        sides = [line for e in found for line in (" ".join(e.word), *e.pronunciations)]
        return Tokenizer.train(sides, kind="word", size=1000)  # all symbols: about seventy, with stress a hundred


@dataclass(frozen=True, eq=False)
class CMUDictSplit(EncodedPairs):
    """One split as token ids, and as words with all accepted pronunciations."""

    settings: CMUDict
    split: str
    tokenizer: Tokenizer
    source: RaggedTensor
    target: RaggedTensor
    entries: list[Entry]


def read_entries(folder: Path, split: str, stress: bool = False) -> list[Entry]:
    """Return the words of one file and their pronunciations, each once; stress digits are removed unless `stress`."""
    files = _files(folder)
    if split not in files:
        raise BadInput(f"{folder} has no split '{split}'; it has {', '.join(sorted(files))}")
    return list(_read_file(files[split], files[split].stat().st_mtime_ns, stress))


@lru_cache(maxsize=4)  # a run reads its training words for the vocabulary and for the batches
def _read_file(file: Path, modified: int, stress: bool) -> tuple[Entry, ...]:
    return tuple(_entries(file, stress))


def _entries(file: Path, stress: bool) -> Iterator[Entry]:
    for number, line in enumerate(read_lines(file), 1):
        word, *sounds = (cell.strip() for cell in line.split("\t"))
        if not word or " " in word or not sounds or not all(sounds):
            raise BadInput(f"{file}, line {number}: expected word<TAB>phonemes[<TAB>other phonemes], got {line!r:.60}")
        pronunciations = sounds if stress else [re.sub(r"\d", "", phonemes) for phonemes in sounds]
        yield Entry(word.lower(), tuple(dict.fromkeys(" ".join(phonemes.split()) for phonemes in pronunciations)))


def _files(folder: Path) -> dict[str, Path]:
    """Return split -> file; ``train.tsv`` and ``cmudict.train.tsv.gz`` are both the split "train"."""
    found = {}
    for path in sorted(folder.iterdir()):
        stem = path.name.removesuffix(".gz")
        if stem.endswith(".tsv"):
            found[stem.removesuffix(".tsv").split(".")[-1]] = path
    if "train" not in found:
        raise BadInput(f"{folder} has no training words; expected train.tsv[.gz] with word<TAB>phonemes in each line")
    return found


def _join_words(found: Sequence[Entry], words_per_row: int, upto: bool) -> list[Entry]:
    """Join words with one pronunciation in a fixed random order, `words_per_row` each; `upto`: 1, 2, ... in turn.

    Leftover words are dropped.
    """
    if words_per_row < 1:
        raise BadInput(f"data.words_per_row must be 1 or more, got {words_per_row}")
    single = [e for e in found if len(e.pronunciations) == 1]
    single = [single[i] for i in Shuffle(len(single), 0)(np.arange(len(single)))]
    joined, start, size = list[Entry](), 0, 1 if upto else words_per_row
    while start + size <= len(single):
        entries = single[start : start + size]
        words, sounds = (
            WORD_SEPARATOR.join(e.word for e in entries),
            f" {WORD_SEPARATOR} ".join(e.pronunciations[0] for e in entries),
        )
        joined.append(Entry(words, (sounds,)))
        start += size
        size = size % words_per_row + 1 if upto else words_per_row
    if not joined:
        raise BadInput(
            f"there are only {len(single)} words with one pronunciation, too few for data.words_per_row={words_per_row}"
        )
    return joined
