"""Text classification: texts, or pairs of texts, with a label.

    sst2 sst5 trec6 mr subj cr mpqa    known datasets, by name
    languages                          sentences of Tatoeba: English, French and German
    bbc                                articles of the BBC in five topics, some 2,200 bytes each
    reviews.tsv[.gz]                   text<TAB>label or text<TAB>text<TAB>label; columns="label text" for another order
    reviews.csv[.gz]                   the same with commas and quotes; its first row names the columns text and label
    reviews.jsonl[.gz]                 an object with text and label a line
    reviews.parquet                    with pyarrow
    folder with train.tsv, val.tsv     one file per split (or .csv, .jsonl, .parquet)
    folder with good/*.txt, bad/*.txt  one folder per label, one file per text; or such folders in train/, val/, test/

Columns of other names are found by columns="text=review label='star rating'". Without a validation split a tenth of the
training split is used, without a test split another tenth (unless `test_split` is false): rows chosen once, in an order
that depends on `fold` alone, which may be 0 to 9 (ten-fold cross-validation: all ten in turn). Data without splits also
have the split "all".

    row     [CLS] text [SEP]        [CLS] text [SEP] other text [SEP]
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import torch

from regard.core.config import field
from regard.core.errors import BadInput
from regard.core.shapes import Int, Tensor
from regard.data import data_dir
from regard.data.base import Dataset, TensorBatch, TokenizedSplit, longest_first
from regard.data.class_folders import split_folders
from regard.data.ragged import RaggedTensor
from regard.data.shuffle import Shuffle
from regard.data.text.corpora import tatoeba_sentences
from regard.data.text.table import SUFFIXES, is_table, parse_columns, pick_columns, read_lines, read_table, suffix
from regard.data.text.text_file import files_by_split, log_unread

if TYPE_CHECKING:
    from regard.tokens.tokenizer import Tokenizer

T = TypeVar("T")
Row = tuple[str, ...]  # text, optional second text, label

# Names of the numeric labels in the files.
LABEL_NAMES: dict[str, dict[str, str]] = {
    "sst2": {"0": "negative", "1": "positive"},
    "sst5": {"0": "very negative", "1": "negative", "2": "neutral", "3": "positive", "4": "very positive"},
    "trec6": {"0": "description", "1": "entity", "2": "abbreviation", "3": "human", "4": "location", "5": "number"},
    "mr": {"0": "negative", "1": "positive"},
    "subj": {"0": "objective", "1": "subjective"},
    "cr": {"0": "negative", "1": "positive"},
    "mpqa": {"0": "negative", "1": "positive"},
}
NUM_FOLDS = 10

# Usual names of columns, the likeliest first.
TEXT_COLUMNS = ("text", "sentence", "review", "question", "content", "message", "body", "title", "comment", "tweet")
LABEL_COLUMNS = ("label", "class", "category", "sentiment", "topic", "target", "intent", "y", "stars", "rating")


@dataclass(frozen=True, eq=False)
class TextBatch(TensorBatch):
    """A batch of texts with their labels, padded on the right."""

    tokens: Int[Tensor, "B N"]
    segments: Int[Tensor, "B N"]
    lengths: Int[Tensor, " B"]
    labels: Int[Tensor, " B"]


@dataclass(frozen=True)
class LabeledText(Dataset):
    """Settings of the dataset."""

    corpus: str = "sst2"  # name of a dataset, or path of a file or folder
    columns: str = "text label"  # columns of your own table: text, other, label, in order or as text=NAME
    max_length: int = 128  # tokens per row; longer texts are cut
    batch_size: int = 32  # rows per batch over all processes
    tokenizer: str = "bert"  # kind of tokenizer, if the model has none
    vocab_size: int = 8000
    lowercase: bool = True
    fold: int = field(0, low=0, high=9)  # which tenths are for validation and test, if the data have no such splits
    test_split: bool = True  # whether a tenth is kept for test, if the data have no splits
    limit: int | None = None  # use only the first rows of every split

    quick_settings = {"limit": 64, "max_length": 32, "batch_size": 8, "vocab_size": 400}  # noqa: RUF012

    def splits(self) -> list[str]:
        return sorted(self._splits())

    def _splits(self) -> dict[str, list[Row]]:
        return _read_splits(self.corpus, self.columns, self.fold, self.test_split)

    def read(self, split: str) -> list[Row]:
        """Return the rows of a split: text, optional second text, label."""
        return self._splits()[self.split(split)][: self.limit]

    def labels(self) -> list[str]:
        """Return the labels of the training split, sorted."""
        found = sorted({row[-1] for row in self._splits()["train"]})
        if len(found) < 2:
            raise BadInput(
                f"classification needs at least 2 labels; the training split of {self.corpus} has {len(found)} "
                f"({', '.join(found)})"
            )
        return found

    def has_pairs(self) -> bool:
        """Return whether a row has two texts."""
        return len(self.read("train")[0]) == 3

    def build_tokenizer(self) -> Tokenizer:
        """Train a tokenizer on the training split."""
        from regard.tokens.tokenizer import Tokenizer

        train = (text for row in self.read("train") for text in row[:-1])
        return Tokenizer.train(train, kind=self.tokenizer, size=self.vocab_size, lower=self.lowercase)

    def load(self, split: str, tokenizer: Tokenizer) -> LabeledTextSplit:
        """Return a split as token ids."""
        return LabeledTextSplit(
            tokenizer, self.read(split), self.labels(), self.max_length, self.batch_size, f"{self.corpus}, {split}"
        )


class LabeledTextSplit(TokenizedSplit[TextBatch]):
    """One split as token ids."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        rows: Sequence[Row],
        labels: Sequence[str],
        length: int,
        batch_size: int,
        source: str,
    ) -> None:
        if not rows:
            raise BadInput(f"{source}: there are no rows")
        self.tokenizer, self.max_length, self.batch_size = tokenizer, length, batch_size
        encoded = [tokenizer.encode([row[n] for row in rows]) for n in range(len(rows[0]) - 1)]
        encoded_rows = [encode_pair(tokenizer, ids, length) for ids in zip(*encoded, strict=True)]
        self.cut = sum(sum(map(len, ids)) > length - len(ids) - 1 for ids in zip(*encoded, strict=True))
        self.tokens, self.segments = (RaggedTensor.from_rows(side) for side in zip(*encoded_rows, strict=True))
        label_ids = {label: n for n, label in enumerate(labels)}
        for row in rows:
            if row[-1] not in label_ids:
                raise BadInput(f"{source}: the label {row[-1]!r} is not in the training split ({', '.join(labels)})")
        self.labels = torch.tensor([label_ids[row[-1]] for row in rows])

    def contents(self) -> Iterable[Tensor]:
        return self.tokens.values, self.tokens.lengths, self.labels

    def collate(self, rows: Int[Tensor, " B"]) -> TextBatch:
        tokens, lengths = self.tokens.pad(rows, self.tokenizer.pad, 8)
        tokens, segments = (x[:, : self.max_length] for x in (tokens, self.segments.pad(rows, 0, 8)[0]))
        return TextBatch(tokens, segments, lengths, self.labels[rows])

    def eval_batches(self, tokens: int) -> Iterator[TextBatch]:
        """Yield every row once, longest first."""
        for rows in longest_first(self.tokens.lengths, tokens):
            yield self.collate(rows)


def encode_pair(tokenizer: Tokenizer, sides: Sequence[list[int]], limit: int) -> tuple[list[int], list[int]]:
    """Return [CLS] a [SEP] b [SEP] and segments 0 and 1, at most `limit` tokens; the longer text is cut first."""
    if len(sides) == 1:
        return tokenizer.with_special_tokens(sides[0][: limit - 2])
    a, b = sides
    capacity = limit - 3
    b_length = min(len(b), max(capacity // 2, capacity - len(a)))  # of b
    return tokenizer.with_special_tokens(a[: capacity - b_length], b[:b_length])


# -- reading -----------------------------------------------------------------------------------------------------------


@data_dir.cached_by_data_dir(4)
def _read_splits(corpus: str, columns: str, fold: int, test: bool) -> dict[str, list[Row]]:
    """Return the rows of every split; missing splits are cut out of the training split."""
    found = (
        _read_known(corpus)
        if corpus in LABEL_NAMES
        else _read_languages()
        if corpus == "languages"
        else _read_bbc()
        if corpus == "bbc"
        else _read_user_data(corpus, columns)
    )
    whole = found.get("all")
    found = fill_missing_splits(found, corpus, fold, test)
    if whole is not None:
        _keep_rare_labels(found)
    return found if whole is None or corpus in LABEL_NAMES else found | {"all": whole}


def fill_missing_splits(found: dict[str, list[T]], source: str, fold: int, test: bool = True) -> dict[str, list[T]]:
    """Cut missing splits out of the training split: a tenth each, by the fold; with `test`, also a test split."""
    unsplit = found.pop("all", None)
    if unsplit is not None:
        found["train"] = unsplit
    if "train" not in found:
        raise BadInput(f"{source} has no training split; expected one file, or one called train and one called val")
    if not 0 <= fold < NUM_FOLDS:
        raise BadInput(f"data.fold must be 0 to {NUM_FOLDS - 1}, got {fold}")
    wanted = ("val", "test") if test and unsplit is not None else ("val",)
    missing = [part for part in wanted if part not in found]
    rows = found["train"]
    order = Shuffle(len(rows), 0)(np.arange(len(rows)))
    tenth = np.arange(len(rows)) * NUM_FOLDS // max(len(rows), 1)
    held_out = [(fold + n) % NUM_FOLDS for n in range(len(missing))]
    for part, part_tenth in zip(missing, held_out, strict=True):
        found[part] = [rows[i] for i in np.sort(order[tenth == part_tenth])]
        if not found[part]:
            raise BadInput(
                f"{source} has {len(rows)} rows, too few to cut splits out of them; add files for val and test"
            )
    if missing:
        found["train"] = [rows[i] for i in np.sort(order[~np.isin(tenth, held_out)])]
    return found


def _keep_rare_labels(found: dict[str, list[Row]]) -> None:
    """Move rows of a label that training lacks into the training split."""
    known = {row[-1] for row in found["train"]}
    for part in [part for part in found if part != "train"]:
        rare = [row for row in found[part] if row[-1] not in known]
        if len(rare) < len(found[part]):
            found["train"] = found["train"] + rare
            found[part] = [row for row in found[part] if row[-1] in known]


def _read_known(name: str) -> dict[str, list[Row]]:
    folder, names = data_dir.find_dataset("text_classification"), LABEL_NAMES[name]
    found: dict[str, list[Row]] = {}
    for part in ("train", "val", "test", "all"):
        file = folder / f"{name}.{part}.tsv.gz"
        if file.is_file():
            rows = (line.split("\t", 1) for line in read_lines(file))
            found[part] = [(text, names[label]) for label, text in rows]
    return found


def _read_languages() -> dict[str, list[Row]]:
    folder, names = data_dir.find_dataset("tatoeba"), {"English": "en", "French": "fr", "German": "de"}
    found: dict[str, list[Row]] = {}
    for part in ("train", "val", "test"):
        rows = [
            (sentence, name)
            for name, language in names.items()
            for sentence in tatoeba_sentences(folder, part, language)
        ]
        # shuffled, so that the first rows have all languages
        found[part] = [rows[i] for i in Shuffle(len(rows), 0)(np.arange(len(rows)))]
    return found


def _read_bbc() -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {"train": [], "val": [], "test": []}
    for line in read_lines(data_dir.find_dataset("bbc_news_summary") / "bbc_news_summary.jsonl.gz"):
        article = json.loads(line)
        found[article["split"]].append((f"{article['title']} {article['text']}", article["topic"]))
    return found


def _read_user_data(path: str, columns: str) -> dict[str, list[Row]]:
    file_path = Path(path).expanduser()
    if file_path.is_file():
        return {"all": _read_table(file_path, columns)}
    folder = data_dir.find_dataset(path)
    entries = [file for file in sorted(folder.iterdir()) if not file.name.startswith(".")]
    kinds = [[file for file in entries if suffix(file) == ending] for ending in SUFFIXES]
    tables = [*chain.from_iterable(kinds)]
    if parts := files_by_split(tables):
        log_unread(tables, parts)
        return {part: [row for file in files for row in _read_table(file, columns)] for part, files in parts.items()}
    if len(files := next(filter(None, kinds), [])) == 1:
        log_unread(tables, {"all": files})
        return {"all": _read_table(files[0], columns)}
    found = {part: _read_label_folders(place) for part, place in split_folders(folder).items()}
    if not found["train"]:
        raise BadInput(
            f"{folder} has no labelled texts; expected train.tsv and val.tsv (or .csv, .jsonl, "
            f".parquet), or a folder of .txt per label"
        )
    return {"all": found["train"]} if [*found] == ["train"] else found


def _read_label_folders(folder: Path) -> list[Row]:
    """Return the texts of the folders in a folder, each with the name of its folder as label."""
    labels = [place for place in sorted(folder.iterdir()) if place.is_dir() and not place.name.startswith(".")]
    return [
        (" ".join(line.strip() for line in read_lines(file)), place.name)
        for place in labels
        for file in sorted(place.iterdir())
        if suffix(file) == ".txt" and not file.name.startswith(".")
    ]


def _read_table(file: Path, columns: str) -> list[Row]:
    named = parse_columns(columns)
    names = [*named]
    if sorted(names) not in (["label", "text"], ["label", "other", "text"]):
        raise BadInput(
            f"data.columns={columns!r}: expected text and label, or text, other and label, in any order; a column of "
            "another name as text=NAME"
        )
    wanted = [name for name in ("text", "other", "label") if name in names]
    known = [*names, *(own.lower() for own in named.values())]
    return [cells for _, cells in pick_columns(read_table(file, known), wanted, columns)]


def find_columns(path: Path) -> str:
    """Return which columns of a table (or of the first in a folder) are text and label, as `LabeledText.columns`."""
    files = (
        [path] if path.is_file() else [file for file in sorted(data_dir.find_dataset(path).iterdir()) if is_table(file)]
    )
    if not files:
        return "text label"
    table = read_table(files[0], [*TEXT_COLUMNS, *LABEL_COLUMNS])
    if len(table.columns) < 2:
        raise BadInput(f"{files[0]} has one column; expected texts and labels")
    cells = {name: table.column(name) for name in table.columns}
    kinds = {name: len(set(column)) for name, column in cells.items()}
    length = {name: sum(map(len, column)) for name, column in cells.items()}
    text = next((name for name in TEXT_COLUMNS if name in cells), None) or max(length, key=lambda name: length[name])
    others = [name for name in cells if name != text and kinds[name] > 1]
    if not others:
        raise BadInput(f"{files[0]}: no column of labels beside the texts; classification needs at least 2 labels")
    label = next((name for name in LABEL_COLUMNS if name in others), None) or min(others, key=lambda name: kinds[name])
    if "1" in table.columns:  # without names: in order
        if len(table.columns) != 2:
            raise BadInput(f"{files[0]} has {len(table.columns)} columns; expected text<TAB>label, or a line of names")
        return "text label" if text == "1" else "label text"
    if label in (cell.lower() for cell in cells[label]):
        raise BadInput(
            f"{files[0]}: its first row must name the columns (text,label); it is {','.join(table.columns)[:80]}"
        )
    return f"text={shlex.quote(text)} label={shlex.quote(label)}"
