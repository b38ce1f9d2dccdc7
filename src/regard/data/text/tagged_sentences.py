"""Sentences with a tag for each word: part-of-speech tagging, chunking, named entities.

    conll2000                      words, parts of speech and chunks of the Wall Street Journal
    tagged.txt[.gz]                a word and its tags per line, separated by spaces or tabs, a blank line after
    folder with train.txt, ...     each sentence; one file per split

    words    He      reckons     the     current   account          tags belong to words, the model reads pieces:
    tags     B-NP    B-VP        B-NP    I-NP      I-NP             a word's tag is at its first piece,
    row      [CLS] he  reck ##ons  the   current   account [SEP]    the others have no target

Without a validation split a tenth of the training split is used. A sentence longer than a row is split between words.

Tjong Kim Sang, Buchholz: Introduction to the CoNLL-2000 Shared Task: Chunking. CoNLL 2000
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from regard.core.config import field
from regard.core.errors import BadInput
from regard.core.shapes import Int, Tensor
from regard.data.base import Dataset, TensorBatch, TokenizedSplit
from regard.data.ragged import RaggedTensor
from regard.data.shards.token_shards import IGNORE_INDEX, count_targets
from regard.data.text.labeled_text import fill_missing_splits
from regard.data.text.table import read_lines
from regard.data.text.text_file import TextFile

if TYPE_CHECKING:
    from regard.tokens.tokenizer import Tokenizer

Sentence = tuple[tuple[str, ...], tuple[str, ...]]  # words, tags


@dataclass(frozen=True, eq=False)
class TagBatch(TensorBatch):
    """A batch of sentences with their tags, padded on the right."""

    tokens: Int[Tensor, "B N"]
    lengths: Int[Tensor, " B"]
    targets: Int[Tensor, "B N"]  # a tag at the first piece of a word, IGNORE_INDEX elsewhere


@dataclass(frozen=True)
class TaggedSentences(Dataset):
    """Settings of the dataset."""

    corpus: str = "conll2000"  # name of a dataset, or path of a file or folder
    column: int = field(-1, low=-1000, high=1000)  # of the tags; conll2000: 1 parts of speech, 2 chunks
    max_length: int = 128  # most tokens per row
    batch_size: int = 32  # rows per batch over all processes
    vocab_size: int = 8000  # if the model has no tokenizer
    lowercase: bool = True
    limit: int | None = None  # use only the first sentences of every split

    quick_settings = {"limit": 32, "max_length": 32, "batch_size": 4, "vocab_size": 400}  # noqa: RUF012

    def splits(self) -> list[str]:
        return sorted(_read_splits(self.corpus, self.column))

    def read(self, split: str) -> list[Sentence]:
        """Return the sentences of a split: words and tags."""
        return _read_splits(self.corpus, self.column)[self.split(split)][: self.limit]

    def labels(self) -> list[str]:
        """Return the tags of the training split, sorted."""
        return sorted({tag for _, tags in _read_splits(self.corpus, self.column)["train"] for tag in tags})

    def build_tokenizer(self) -> Tokenizer:
        """Train a WordPiece tokenizer on the training split, with BERT's special tokens."""
        from regard.tokens.tokenizer import Tokenizer

        train = (" ".join(words) for words, _ in self.read("train"))
        return Tokenizer.train(train, kind="bert", size=self.vocab_size, lower=self.lowercase)

    def load(self, split: str, tokenizer: Tokenizer) -> TaggedSentencesSplit:
        """Return a split as token ids."""
        return TaggedSentencesSplit(tokenizer, self.read(split), self.labels(), self.max_length, self.batch_size)


class TaggedSentencesSplit(TokenizedSplit[TagBatch]):
    """One split as token ids. Tags that the training split lacks are ignored by the loss."""

    def __init__(
        self, tokenizer: Tokenizer, sentences: Sequence[Sentence], tags: Sequence[str], length: int, batch_size: int
    ) -> None:
        if not sentences:
            raise BadInput("there is no sentence to tag")
        self.tokenizer, self.max_length, self.batch_size, self.sentences = tokenizer, length, batch_size, sentences
        number = {tag: n for n, tag in enumerate(tags)}
        rows, targets = [], []
        for (_, sentence_tags), encoded_rows in zip(
            sentences, encode_sentences(tokenizer, [words for words, _ in sentences], length), strict=True
        ):
            first_word = 0
            for row, positions in encoded_rows:
                row_targets = [IGNORE_INDEX] * len(row)
                for n, position in enumerate(positions):
                    row_targets[position] = number.get(sentence_tags[first_word + n], IGNORE_INDEX)
                first_word += len(positions)
                rows.append(row)
                targets.append(row_targets)
        self.tokens, self.targets = RaggedTensor.from_rows(rows), RaggedTensor.from_rows(targets)

    def contents(self) -> Iterable[Tensor]:
        return self.tokens.values, self.tokens.lengths, self.targets.values

    def count(self, batch: TagBatch) -> int:
        return count_targets(batch.targets)

    def collate(self, rows: Int[Tensor, " B"]) -> TagBatch:
        tokens, lengths = self.tokens.pad(rows, self.tokenizer.pad, 8)
        targets = self.targets.pad(rows, IGNORE_INDEX, 8)[0]
        return TagBatch(tokens[:, : self.max_length], lengths, targets[:, : self.max_length])


EncodedRows = list[tuple[list[int], list[int]]]  # rows of tokens, each with the positions of the words' first pieces


def encode_sentences(tokenizer: Tokenizer, sentences: Sequence[Sequence[str]], length: int) -> list[EncodedRows]:
    """Encode sentences of words as rows [CLS] pieces [SEP] of at most `length` tokens, split between words."""
    pieces = encode_words(tokenizer, (word for words in sentences for word in words))
    found = []
    for words in sentences:
        row: list[int] = [tokenizer.bos]
        positions: list[int] = []
        full_rows: EncodedRows = []
        for word in words:
            ids = pieces[word][: length - 2]  # a word longer than a row is cut
            if len(row) + len(ids) + 1 > length:
                full_rows.append(([*row, tokenizer.eos], positions))
                row, positions = [tokenizer.bos], []
            positions.append(len(row))
            row = row + ids
        found.append([*full_rows, ([*row, tokenizer.eos], positions)])
    return found


def encode_words(tokenizer: Tokenizer, words: Iterable[str]) -> dict[str, list[int]]:
    """Encode each distinct word, as at least one token."""
    distinct = sorted(set(words))
    return {word: ids or [tokenizer.unk] for word, ids in zip(distinct, tokenizer.encode(distinct), strict=True)}


@lru_cache(maxsize=4)
def _read_splits(corpus: str, column: int) -> dict[str, list[Sentence]]:
    """Return the sentences of every split."""
    found = {
        part: [sentence for file in files for sentence in _read(file, column)]
        for part, files in TextFile(corpus).files().items()
    }
    return fill_missing_splits(found, corpus, 0)


def _read(file: Path, column: int) -> list[Sentence]:
    found: list[Sentence] = []
    rows: list[tuple[str, str]] = []
    for number, line in enumerate([*read_lines(file), ""], 1):
        cells = line.split()
        if not cells and rows:
            words, tags = zip(*rows, strict=True)
            found.append((words, tags))
            rows = []
        elif cells:
            if len(cells) < 2 or not -len(cells) < column < len(cells) or column == 0:
                raise BadInput(
                    f"{file}, line {number}: {len(cells)} columns; expected a word and its tag in column {column}"
                )
            rows.append((cells[0], cells[column]))
    return found
