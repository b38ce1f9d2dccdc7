"""Plain text, read whole: a file, or a folder with a file for each split.

    input.txt[.gz]                     one file: the last tenth is for validation, the rest for training
    train.txt  valid.txt  test.txt     files of a split, whose name stands between dots: ptb.train.txt.gz
    one.txt  2024/two.txt  ...         several others: read one after another, in the order of their names, as one file;
                                       of .md where there is no .txt

Text without splits also has the split "all".

Rows are windows over the text, as in token_shards. For text that does not fit into memory: regard data pack.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from regard.core.config import field
from regard.core.errors import BadInput
from regard.data import data_dir
from regard.data.base import Dataset
from regard.data.shards.token_shards import TokenWindows
from regard.data.text.table import read_text, suffix

if TYPE_CHECKING:
    from regard.tokens.tokenizer import Tokenizer

log = logging.getLogger("regard")

SPLIT_ALIASES = {"train": "train", "val": "val", "valid": "val", "validation": "val", "dev": "val", "test": "test"}
ENCODE_CHARACTERS = 2**20  # characters encoded at a time


def files_by_split(files: Iterable[Path]) -> dict[str, list[Path]]:
    """Return the files of each split, whose name stands between dots; of one that is there packed or in another format
    too, the first."""
    parts: dict[str, dict[Path, Path]] = {}
    for file in files:
        whole = file.with_name(file.name.removesuffix(".gz"))
        for split in {SPLIT_ALIASES[word] for word in file.name.lower().split(".") if word in SPLIT_ALIASES}:
            parts.setdefault(split, {}).setdefault(whole.with_suffix(""), file)
    return {split: [*chosen.values()] for split, chosen in parts.items()}


def log_unread(files: Iterable[Path], read: Mapping[str, Iterable[Path]]) -> None:
    """Log a line about the files that are not among those that are read."""
    taken = {file for chosen in read.values() for file in chosen}
    if left := [file.name for file in files if file not in taken]:
        names = ", ".join(sorted(file.name for file in taken))
        log.warning(f"{', '.join(left)} in {next(iter(taken)).parent} left out; what is read is {names}")


@dataclass(frozen=True)
class TextFile(Dataset):
    """Settings of the dataset."""

    corpus: str = "tinyshakespeare"  # name of a dataset, or path of a folder or file
    context_length: int = 256  # tokens per row
    batch_size: int = 64  # rows per batch over all processes
    tokenizer: str = "char"  # kind of tokenizer, see tokens.tokenizer
    vocab_size: int = 8000
    val_fraction: float = field(0.1, above=0, below=1)  # share of a single file, at its end
    limit: int | None = None  # use only the first rows of every split

    quick_settings = {"context_length": 32, "batch_size": 4, "vocab_size": 400, "limit": 64}  # noqa: RUF012

    def files(self) -> dict[str, list[Path]]:
        """Return the files of each split; without splits as "all"."""
        path = Path(self.corpus).expanduser()
        if path.is_file():
            return {"all": [path]}
        folder = data_dir.find_dataset(self.corpus)
        inside = sorted(file.relative_to(folder) for file in folder.rglob("*"))
        names = [name for name in inside if not any(part.startswith(".") for part in name.parts)]
        kinds = ([folder / name for name in names if suffix(name) == kind] for kind in (".txt", ".md"))
        texts = [file for file in next(filter(None, kinds), []) if file.is_file()]
        if not texts:
            raise BadInput(f"{folder} has no .txt or .md file; expected some, or train.txt and valid.txt")
        return files_by_split(texts) or {"all": texts}

    def splits(self) -> list[str]:
        found = self.files()
        return ["all", "train", "val"] if "all" in found else sorted(found)

    def read(self, split: str) -> str:
        """Return the text of a split."""
        files, name = self.files(), self.split(split)
        if "all" not in files:
            return "\n".join(map(read_text, files[name]))
        whole = "\n".join(map(read_text, files["all"]))
        if name == "all":
            return whole
        cut = int((1 - self.val_fraction) * len(whole))
        return whole[:cut] if name == "train" else whole[cut:]

    def build_tokenizer(self) -> Tokenizer:
        """Train a tokenizer on the training split."""
        from regard.tokens.tokenizer import Tokenizer

        return Tokenizer.train([self.read("train")], kind=self.tokenizer, size=self.vocab_size)

    def load(self, split: str, tokenizer: Tokenizer | None = None) -> TokenWindows:
        """Return a split as token windows; without a tokenizer one is trained on the training split."""
        tokenizer = self.build_tokenizer() if tokenizer is None else tokenizer
        content = self.read(split)
        pieces = [content[at : at + ENCODE_CHARACTERS] for at in range(0, len(content), ENCODE_CHARACTERS)]
        numbers = [np.array(ids, np.int32) for ids in tokenizer.encode(pieces)]
        tokens = np.concatenate(numbers) if numbers else np.zeros(0, np.int32)
        return TokenWindows([tokens], self.context_length, self.batch_size, vocab_size=tokenizer.size, limit=self.limit)

    def bytes(self, split: str) -> int:
        """Return the length of a split in UTF-8 bytes."""
        return len(self.read(split).encode())
