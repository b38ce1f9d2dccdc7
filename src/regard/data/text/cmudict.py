"""Words and how they sound: the CMU pronouncing dictionary, or a folder of the user's own in its layout.

    <name>.<part>.tsv[.gz]    word<TAB>sounds[<TAB>other sounds ...]     tomato  T AH0 M EY1 T OW2  T AH0 M AA1 T OW2

Letters are the source and sounds the target, so every model that translates learns it unchanged. Both sides share one
vocabulary of whole letters and sounds: letters are small, the ARPAbet's sounds are capital, so none means two things.

    source   t o m a t o </s>        target   <s> T AH M EY T OW </s>

Published scores leave the digits of stress out and count a word as right when it is any of its listed pronunciations;
the first of them is the one to train on. `words_per_row` makes longer sources of short ones: several words with a mark between
them, of which only words with one pronunciation are taken, so that one string has one right answer.

    source   c a t _ n a p </s>      target   <s> K AE T _ N AE P </s>

Weide et al.: The Carnegie Mellon Pronouncing Dictionary. 1993 to 2015
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from regard.core.errors import BadInput
from regard.data import data_dir
from regard.data.ragged import RaggedTensor
from regard.data.shards.token_shards import resolve_split
from regard.data.shuffle import Shuffle
from regard.data.text.parallel_corpus import EncodedPairs, encode_lines, read_lines

if TYPE_CHECKING:
    from regard.tokens.tokenizer import Tokenizer

WORD_SEPARATOR = "_"  # the mark between words that are strung together, on both sides


class Entry(NamedTuple):
    """A word and all its pronunciations, each once; the first is the usual one. Sounds have spaces between them."""

    word: str
    pronunciations: tuple[str, ...]


@dataclass(frozen=True)
class CMUDict:
    """Which words, what is kept of their sounds, and how many go into a batch."""

    corpus: str = "cmudict"  # the dataset's name, or the path of a folder
    stress: bool = False  # keep the digits that say which vowel is stressed; published scores leave them out
    all_pronunciations: bool = False  # train on every listed pronunciation, not on the first alone
    words_per_row: int = 1  # words a row: in training 1 to so many in turn, elsewhere always so many
    batch_tokens: int = 8192  # in a batch: rows x the longest of either side
    max_length: int = 64  # longer training rows are left out
    pad_to_multiple_of: int = 4  # padded lengths are multiples of this; words are short
    limit: int | None = None  # only the first so many words of every part

    def quick(self) -> CMUDict:
        """A few words: enough to see that everything runs."""
        return replace(self, limit=128, batch_tokens=min(self.batch_tokens, 512))

    def splits(self) -> list[str]:
        """The parts there are."""
        return sorted(_files(data_dir.find_dataset(self.corpus)))

    def split(self, name: str) -> str:
        """A part by name, or an error that says which there are."""
        return resolve_split(name, self.splits(), self.corpus)

    def read(self, split: str) -> list[Entry]:
        """The words of a part with their sounds; strings of words where that is asked for."""
        found = read_entries(data_dir.find_dataset(self.corpus), self.split(split), self.stress)[: self.limit]
        return found if self.words_per_row == 1 else _join_words(found, self.words_per_row, upto=split == "train")

    def load(self, split: str, tokenizer: Tokenizer | None = None) -> CMUDictSplit:
        """A part as numbers; makes the vocabulary of it where none is given."""
        found = self.read(split)
        if tokenizer is None:
            tokenizer = self._vocabulary(found)
        some = None if self.all_pronunciations and split == "train" else 1
        pairs = [(e.word, one) for e in found for one in e.pronunciations[:some]]
        source = encode_lines(tokenizer, [" ".join(word) for word, _ in pairs], [], [tokenizer.eos])
        target = encode_lines(tokenizer, [sounds for _, sounds in pairs], [tokenizer.bos], [tokenizer.eos])
        return CMUDictSplit(self, self.split(split), tokenizer, source, target, found)

    def _vocabulary(self, found: Sequence[Entry]) -> Tokenizer:
        from regard.tokens.tokenizer import Tokenizer

        sides = [line for e in found for line in (" ".join(e.word), *e.pronunciations)]
        return Tokenizer.train(sides, kind="word", size=1000)  # all there are: some seventy, with stress a hundred


@dataclass(frozen=True, eq=False)
class CMUDictSplit(EncodedPairs):
    """One part of the data as numbers, and as words with all that counts as right."""

    settings: CMUDict
    split: str
    tokenizer: Tokenizer
    source: RaggedTensor
    target: RaggedTensor
    entries: list[Entry]


def read_entries(folder: Path, split: str, stress: bool = False) -> list[Entry]:
    """The words of one file and their pronunciations, each once; stress is taken away unless it is asked for."""
    files = _files(folder)
    if split not in files:
        raise BadInput(f"{folder} has no part '{split}' of words and sounds; there is {', '.join(sorted(files))}")
    return list(_entries(files[split], stress))


def _entries(file: Path, stress: bool) -> Iterator[Entry]:
    for number, line in enumerate(read_lines(file), 1):
        word, *sounds = (cell.strip() for cell in line.split("\t"))
        if not word or " " in word or not sounds or not all(sounds):
            raise BadInput(f"{file}, line {number}: wanted word<TAB>sounds[<TAB>other sounds], not {line!r:.60}")
        said = sounds if stress else [re.sub(r"\d", "", each) for each in sounds]
        yield Entry(word.lower(), tuple(dict.fromkeys(" ".join(each.split()) for each in said)))


def _files(folder: Path) -> dict[str, Path]:
    """Part -> file; ``train.tsv`` and ``cmudict.train.tsv.gz`` are both the part "train"."""
    found = {}
    for path in sorted(folder.iterdir()):
        stem = path.name.removesuffix(".gz")
        if stem.endswith(".tsv"):
            found[stem.removesuffix(".tsv").split(".")[-1]] = path
    if "train" not in found:
        raise BadInput(f"{folder} holds no words to train on; wanted: train.tsv[.gz], word<TAB>sounds in each line")
    return found


def _join_words(found: Sequence[Entry], many: int, upto: bool) -> list[Entry]:
    """Words with one pronunciation, in an order of chance that is always the same, so many to a string; `upto`: 1, 2,
    ... and so many, in turn. Words that are left over at the end are left out."""
    if many < 1:
        raise BadInput(f"data.words_per_row={many}: a row holds one word or more")
    single = [e for e in found if len(e.pronunciations) == 1]
    single = [single[i] for i in Shuffle(len(single), 0)(np.arange(len(single)))]
    made, at, size = list[Entry](), 0, 1 if upto else many
    while at + size <= len(single):
        some = single[at : at + size]
        words, sounds = (
            WORD_SEPARATOR.join(e.word for e in some),
            f" {WORD_SEPARATOR} ".join(e.pronunciations[0] for e in some),
        )
        made.append(Entry(words, (sounds,)))
        at += size
        size = size % many + 1 if upto else many
    if not made:
        raise BadInput(f"there are {len(single)} words with one pronunciation, too few for strings of {many}")
    return made
