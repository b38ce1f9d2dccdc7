"""Plain text, read whole: a file, or a folder with a file for each part.

    input.txt[.gz]                     one file: the last tenth is for validation, the rest for training
    train.txt  valid.txt  test.txt     a file a part; the part's name stands between dots: ptb.train.txt.gz

Rows are windows over the text, as over shards (data.shards). For text that does not fit into memory: regard data pack.
"""

from __future__ import annotations

import gzip
import zlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from regard.core.errors import BadInput
from regard.data import home
from regard.data.shards import Windows, chosen

if TYPE_CHECKING:
    from regard.tokens.text import Text

PARTS = {"train": "train", "val": "val", "valid": "val", "validation": "val", "dev": "val", "test": "test"}
PIECE = 2**20  # characters turned into numbers at a time


@dataclass(frozen=True)
class PlainText:
    """Which text, how it is written as numbers, how long a row is, and how many rows go into a batch."""

    corpus: str = "tinyshakespeare"  # a dataset's name, or the path of a folder or of a file
    context: int = 256  # tokens a row
    rows: int = 64  # in a batch, all processes together
    kind: str = "char"  # of vocabulary, see tokens.text
    vocabulary: int = 8000
    validation: float = 0.1  # the share of a single file, at its end
    limit: int | None = None  # only the first so many rows of every part

    def quick(self) -> PlainText:
        """A few short rows and a small vocabulary: enough to see that everything runs."""
        return replace(
            self,
            context=min(self.context, 32),
            rows=min(self.rows, 4),
            vocabulary=min(self.vocabulary, 400),
            limit=64,
        )

    def files(self) -> dict[str, Path]:
        """The file of each part; of a single one, under "all"."""
        asked = Path(self.corpus).expanduser()
        if asked.is_file():
            return {"all": asked}
        folder = home.folder(self.corpus)
        texts = [file for file in sorted(folder.iterdir()) if file.name.removesuffix(".gz").endswith(".txt")]
        parts = {PARTS[word]: file for file in texts for word in file.name.split(".") if word in PARTS}
        if not parts and len(texts) == 1:
            return {"all": texts[0]}
        if not parts:
            raise BadInput(f"{folder} holds {len(texts)} .txt files; wanted: one, or train.txt and valid.txt")
        return parts

    def splits(self) -> list[str]:
        """The parts there are."""
        found = self.files()
        return ["train", "val"] if "all" in found else sorted(found)

    def split(self, name: str) -> str:
        """The full name of a part; the beginning of it will do where it is the only one."""
        return chosen(name, self.splits(), self.corpus)

    def read(self, split: str) -> str:
        """The text of a part."""
        files, name = self.files(), self.split(split)
        if "all" not in files:
            return _text(files[name])
        whole = _text(files["all"])
        cut = int((1 - self.validation) * len(whole))
        return whole[:cut] if name == "train" else whole[cut:]

    def text(self) -> Text:
        """The vocabulary of the training part."""
        from regard.tokens.text import Text

        return Text.train([self.read("train")], kind=self.kind, size=self.vocabulary)

    def load(self, split: str, text: Text | None = None) -> Windows:
        """A part as numbers; by the vocabulary of the training part where none is given."""
        text = self.text() if text is None else text
        content = self.read(split)
        pieces = [content[at : at + PIECE] for at in range(0, len(content), PIECE)]
        numbers = [np.array(ids, np.int32) for ids in text.encode(pieces)]
        tokens = np.concatenate(numbers) if numbers else np.zeros(0, np.int32)
        return Windows([tokens], self.context, self.rows, vocabulary=text.size, limit=self.limit)

    def bytes(self, split: str) -> int:
        """How long a part is in UTF-8."""
        return len(self.read(split).encode())


def _text(file: Path) -> str:
    try:
        content = file.read_bytes()
        return (gzip.decompress(content) if file.suffix == ".gz" else content).decode("utf-8")
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise BadInput(f"cannot read {file}: {error}") from None
