"""Texts with a label each, or pairs of texts: what kind is it, how do the two relate.

    sst2 sst5 trec6 mr subj cr mpqa    the sets at hand, by name
    languages                          sentences of Tatoeba; English, French and German
    reviews.tsv[.gz]                   text<TAB>label or text<TAB>text<TAB>label; columns="label text" for another order
    reviews.csv[.gz]                   the same with commas and quotes; its first row names the columns text and label
    folder with train.tsv, val.tsv     a file a part (or .csv)
    folder with good/*.txt, bad/*.txt  a folder a label, a file a text

What has no validation part gives up a tenth of its training part, and what has no test part another tenth: rows drawn
once, in an order that depends on `fold` alone, which may be 0 to 9 (ten-fold cross-validation: all ten in turn).

    row     [CLS] text [SEP]        [CLS] text [SEP] other text [SEP]
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np
import torch

from regard.core.errors import BadInput
from regard.core.shapes import Int, Tensor
from regard.data import home
from regard.data.batching import AlikeBatches, Stream, mixed
from regard.data.corpora import tatoeba
from regard.data.flat import Flat
from regard.data.parallel import lines
from regard.data.plain import PARTS
from regard.data.shards import chosen
from regard.data.shuffle import Shuffle

if TYPE_CHECKING:
    from regard.tokens.text import Text

T = TypeVar("T")
Row = tuple[str, ...]  # text, perhaps another, label

# Names of what the files write as numbers.
KNOWN: dict[str, dict[str, str]] = {
    "sst2": {"0": "negative", "1": "positive"},
    "sst5": {"0": "very negative", "1": "negative", "2": "neutral", "3": "positive", "4": "very positive"},
    "trec6": {"0": "description", "1": "entity", "2": "abbreviation", "3": "human", "4": "location", "5": "number"},
    "mr": {"0": "negative", "1": "positive"},
    "subj": {"0": "objective", "1": "subjective"},
    "cr": {"0": "negative", "1": "positive"},
    "mpqa": {"0": "negative", "1": "positive"},
}
FOLDS = 10


class Texts(NamedTuple):
    """A batch of texts with their labels, padded on the right."""

    tokens: Int[Tensor, "B N"]
    segments: Int[Tensor, "B N"]
    lengths: Int[Tensor, " B"]
    labels: Int[Tensor, " B"]

    def to(self, device: torch.device | str) -> Texts:
        """The same batch on a device; from pinned memory without waiting for it."""
        return Texts(*(x.to(device, non_blocking=True) for x in self))

    def pin(self) -> Texts:
        """The same batch in page-locked memory, from which a GPU copies while it computes."""
        return Texts(*(x.pin_memory() for x in self))

    def rows(self, n: int) -> Texts:
        """Only the first n texts (the padding stays)."""
        return Texts(*(x[:n] for x in self))


@dataclass(frozen=True)
class Labelled:
    """Which texts, how they are written as numbers, and how many go into a batch."""

    corpus: str = "sst2"  # a name, or the path of a file or a folder
    columns: str = "text label"  # of a file of one's own: text, other, label, in its order (of .csv in any)
    length: int = 128  # tokens a row at most; what is longer is cut
    rows: int = 32  # in a batch, all processes together
    kind: str = "bert"  # of vocabulary, where the model does not bring one
    vocabulary: int = 8000
    lower: bool = True
    fold: int = 0  # which tenths are for validation and test, where the data do not say
    limit: int | None = None  # only the first so many rows of every part

    def quick(self) -> Labelled:
        """A few rows and a small vocabulary: enough to see that everything runs."""
        return replace(
            self, limit=64, length=min(self.length, 32), rows=min(self.rows, 8), vocabulary=min(self.vocabulary, 400)
        )

    def splits(self) -> list[str]:
        """The parts there are."""
        return sorted(_parts(self.corpus, self.columns, self.fold))

    def split(self, name: str) -> str:
        """The full name of a part; the beginning of it will do where it is the only one."""
        return chosen(name, self.splits(), self.corpus)

    def read(self, split: str) -> list[Row]:
        """The rows of a part: text, perhaps another, label."""
        return _parts(self.corpus, self.columns, self.fold)[self.split(split)][: self.limit]

    def labels(self) -> list[str]:
        """The labels of the training part, in the order of their names."""
        found = sorted({row[-1] for row in _parts(self.corpus, self.columns, self.fold)["train"]})
        if len(found) < 2:
            raise BadInput(f"{self.corpus} has {len(found)} label in its training part; there is nothing to tell apart")
        return found

    def text(self) -> Text:
        """A vocabulary of the training part."""
        from regard.tokens.text import Text

        train = (text for row in self.read("train") for text in row[:-1])
        return Text.train(train, kind=self.kind, size=self.vocabulary, lower=self.lower)

    def load(self, split: str, text: Text) -> Labels:
        """A part as numbers."""
        return Labels(text, self.read(split), self.labels(), self.length, self.rows, f"{self.corpus}, {split}")


class Labels:
    """One part as numbers."""

    def __init__(
        self, text: Text, rows: Sequence[Row], labels: Sequence[str], length: int, many: int, where: str
    ) -> None:
        if not rows:
            raise BadInput(f"{where}: there is no row")
        self.text, self.length, self.many = text, length, many
        encoded = [text.encode([row[n] for row in rows]) for n in range(len(rows[0]) - 1)]
        rows_of = [framed(text, ids, length) for ids in zip(*encoded, strict=True)]
        self.cut = sum(sum(map(len, ids)) > length - len(ids) - 1 for ids in zip(*encoded, strict=True))
        self.tokens, self.segments = (Flat.of(side) for side in zip(*rows_of, strict=True))
        number = {label: n for n, label in enumerate(labels)}
        for row in rows:
            if row[-1] not in number:
                raise BadInput(f"{where}: the label {row[-1]!r} is not in the training part ({', '.join(labels)})")
        self.labels = torch.tensor([number[row[-1]] for row in rows])

    def __len__(self) -> int:
        return len(self.labels)

    def fingerprint(self) -> str:
        """A few letters that change when the rows or the vocabulary do."""
        found = blake2b(digest_size=8)
        for part in (self.tokens.values, self.tokens.lengths, self.labels):
            found.update(part.numpy().data)
        return found.hexdigest()

    def collate(self, rows: Int[Tensor, " B"]) -> Texts:
        """These rows as one padded batch."""
        tokens, lengths = self.tokens.padded(rows, self.text.pad, 8)
        tokens, segments = (x[:, : self.length] for x in (tokens, self.segments.padded(rows, 0, 8)[0]))
        return Texts(tokens, segments, lengths, self.labels[rows])

    def stream(self, seed: int) -> Stream[Texts]:
        """Training batches without end."""
        order = lambda epoch: AlikeBatches(self.tokens.lengths, self.many, mixed(seed, epoch))  # noqa: E731
        return Stream(order, self.collate, lambda batch: len(batch.labels))

    def in_order(self, tokens: int) -> Iterator[Texts]:
        """Every row once, longest first: for measuring."""
        order = torch.sort(self.tokens.lengths, descending=True, stable=True).indices
        at = 0
        while at < len(order):
            rows = max(1, tokens // int(self.tokens.lengths[order[at]]))
            yield self.collate(order[at : at + rows])
            at += rows


def framed(text: Text, sides: Sequence[list[int]], room: int) -> tuple[list[int], list[int]]:
    """[CLS] a [SEP] b [SEP] and the segments 0 and 1, within `room`; of two texts the longer one is cut first."""
    if len(sides) == 1:
        return text.enclose(sides[0][: room - 2])
    a, b = sides
    spare = room - 3
    keep = min(len(b), max(spare // 2, spare - len(a)))  # of b
    return text.enclose(a[: spare - keep], b[:keep])


# -- reading -----------------------------------------------------------------------------------------------------------


@home.remembered(4)
def _parts(corpus: str, columns: str, fold: int) -> dict[str, list[Row]]:
    """The rows of every part, with those that the data do not have cut out of the others."""
    found = _known(corpus) if corpus in KNOWN else _languages() if corpus == "languages" else _own(corpus, columns)
    return held_out(found, corpus, fold)


def held_out(found: dict[str, list[T]], where: str, fold: int) -> dict[str, list[T]]:
    """The same rows with the parts that are not there cut out of the training part: a tenth each, by the fold."""
    whole = found.pop("all", None)
    if whole is not None:
        found["train"] = whole
    if "train" not in found:
        raise BadInput(f"{where} has no training part; wanted: one file, or one called train and one called val")
    if not 0 <= fold < FOLDS:
        raise BadInput(f"there are {FOLDS} folds, 0 to {FOLDS - 1}; not {fold}")
    missing = [part for part in ("val", "test") if part not in found and (part == "val" or whole is not None)]
    rows = found["train"]
    order = Shuffle(len(rows), 0)(np.arange(len(rows)))
    tenth = np.arange(len(rows)) * FOLDS // max(len(rows), 1)
    held = [(fold + n) % FOLDS for n in range(len(missing))]
    for part, one in zip(missing, held, strict=True):
        found[part] = [rows[i] for i in np.sort(order[tenth == one])]
        if not found[part]:
            raise BadInput(f"{where} has {len(rows)} rows, too few to give up tenths of them; name parts yourself")
    if missing:
        found["train"] = [rows[i] for i in np.sort(order[~np.isin(tenth, held)])]
    return found


def _known(name: str) -> dict[str, list[Row]]:
    folder, names = home.folder("text_classification"), KNOWN[name]
    found: dict[str, list[Row]] = {}
    for part in ("train", "val", "test", "all"):
        file = folder / f"{name}.{part}.tsv.gz"
        if file.is_file():
            rows = (line.split("\t", 1) for line in lines(file))
            found[part] = [(text, names[label]) for label, text in rows]
    return found


def _languages() -> dict[str, list[Row]]:
    folder, names = home.folder("tatoeba"), {"English": "en", "French": "fr", "German": "de"}
    found: dict[str, list[Row]] = {}
    for part in ("train", "val", "test"):
        rows = [(sentence, name) for name, language in names.items() for sentence in tatoeba(folder, part, language)]
        found[part] = [rows[i] for i in Shuffle(len(rows), 0)(np.arange(len(rows)))]  # so that the first few are of all
    return found


def _own(path: str, columns: str) -> dict[str, list[Row]]:
    asked = Path(path).expanduser()
    if asked.is_file():
        return {"all": _table(asked, columns)}
    folder = home.folder(path)
    named = sorted(folder.iterdir())
    files = [file for file in named if _ends(file, ".tsv")] or [file for file in named if _ends(file, ".csv")]
    parts = {PARTS[word]: _table(file, columns) for file in files for word in file.name.split(".") if word in PARTS}
    if parts:
        return parts
    if len(files) == 1:
        return {"all": _table(files[0], columns)}
    texts = [
        (file, kind.name) for kind in sorted(folder.iterdir()) if kind.is_dir() for file in sorted(kind.glob("*.txt"))
    ]
    if not texts:
        raise BadInput(
            f"{folder} holds no labelled texts; wanted: train.tsv and val.tsv (or .csv), or a folder of .txt a label"
        )
    return {"all": [(" ".join(line.strip() for line in lines(file)), kind) for file, kind in texts]}


def _table(file: Path, columns: str) -> list[Row]:
    names = columns.split()
    if sorted(names) not in (["label", "text"], ["label", "other", "text"]):
        raise BadInput(f"data.columns={columns!r}: wanted are text and label, or text, other and label, in some order")
    wanted = [name for name in ("text", "other", "label") if name in names]
    rows = _by_commas(file, names) if _ends(file, ".csv") else _by_tabs(file, names)
    found: list[Row] = []
    for number, cells in rows:
        row = tuple(cells[name].strip() for name in wanted)
        if not all(row):
            raise BadInput(f"{file}, line {number}: {wanted[row.index('')]} is empty")
        found.append(row)
    return found


def _ends(file: Path, ending: str) -> bool:
    return file.name.removesuffix(".gz").lower().endswith(ending)


def _by_tabs(file: Path, names: Sequence[str]) -> Iterator[tuple[int, dict[str, str]]]:
    for number, line in enumerate(lines(file), 1):
        cells = line.split("\t")
        if len(cells) != len(names):
            raise BadInput(f"{file}, line {number}: {len(cells)} columns; wanted {'<TAB>'.join(names)}")
        yield number, dict(zip(names, cells, strict=True))


def _by_commas(file: Path, names: Iterable[str]) -> Iterator[tuple[int, dict[str, str]]]:
    """Rows of a file whose first row says what its columns are; more of them than are wanted may stand there."""
    rows = csv.reader((f"{line}\n" for line in lines(file)), strict=True)
    try:
        heads = [name.removeprefix("\ufeff").strip().lower() for name in next(rows, [])]  # some begin with such a mark
        for name in names:
            if (many := heads.count(name)) != 1:
                there = ", ".join(f"'{head}'" for head in heads) or "nothing"
                which = f"{'several are' if many else 'none is'} '{name}'; it holds {there}"
                raise BadInput(f"{file}: the first row of a .csv names its columns, and of these {which}")
        for cells in rows:
            if not cells:  # a blank line
                continue
            if len(cells) != len(heads):
                raise BadInput(f"{file}, line {rows.line_num}: {len(cells)} columns; its first row has {len(heads)}")
            texts = (" ".join(cell.splitlines()) for cell in cells)  # between quotes a line may end
            yield rows.line_num, dict(zip(heads, texts, strict=True))
    except csv.Error as error:
        raise BadInput(f"{file}, line {rows.line_num}: {error}") from None
