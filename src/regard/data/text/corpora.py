"""Running text as documents of sentences: known corpora by name, or a text file.

    name       a document is                          consecutive sentences
    brown      one of 500 samples of prose of 1961    yes
    ptb        32 lines of the Wall Street Journal    yes; article boundaries are unknown, so 32 lines at a time
    bbc        an article                             yes
    tatoeba    an everyday English sentence           no; each is independent
    a path     text between blank lines               yes; a file, or a folder with train.txt and valid.txt

The last 2,012 lines of ptb's training split are left out: they are section 20 of the Journal, the test data of
conll2000. Tatoeba's English sides of both language pairs are merged, each sentence once and in one split only, in a
random order. BBC articles quote one another across splits, which is not corrected.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from regard.data import data_dir
from regard.data.text.table import read_lines
from regard.data.text.text_file import TextFile

Document = list[str]  # sentences

PTB_DOCUMENT_LINES = 32  # lines per document of ptb
PTB_SECTION_20_LINES = 2012  # lines at the end of ptb's training split

_END = re.compile(r"(?<=[.!?…])[\"'»”’)\]]*\s+|(?<=[。！？])")
_GAP = re.compile(r"\n[^\S\n]*\n\s*")


@dataclass(frozen=True)
class Corpus:
    """A name, its splits, how to read one, and whether sentences are consecutive."""

    name: str
    parts: tuple[str, ...]
    read: Callable[[str], list[Document]]
    follow: bool = True


def get_corpus(name: str) -> Corpus:
    """Return the corpus of a name or a path."""
    if name in _CORPORA:
        return Corpus(name, ("test", "train", "val"), lambda part: _read_known(name, part), _CORPORA[name][2])
    plain = TextFile(name)
    return Corpus(name, tuple(plain.splits()), lambda part: split_documents(plain.read(part)))


@data_dir.cached_by_data_dir(8)  # a run reads its training split for the vocabulary and for the batches
def _read_known(name: str, part: str) -> list[Document]:
    dataset, read, _ = _CORPORA[name]
    return read(data_dir.find_dataset(dataset), part)


def split_documents(text: str) -> list[Document]:
    """Split a text at blank lines into documents, and those into sentences."""
    cut = ([s for line in gap.split("\n") for s in split_sentences(line)] for gap in _GAP.split(text))
    return [document for document in cut if document]


def split_sentences(line: str) -> list[str]:
    """Split a line into sentences."""
    cuts = [0, *(match.end() for match in _END.finditer(line)), len(line)]
    pieces = [line[a:b].strip() for a, b in pairwise(cuts)]
    return [piece for piece in pieces if piece]


# -- one function per corpus -------------------------------------------------------------------------------------------


def _brown(folder: Path, part: str) -> list[Document]:
    samples: dict[str, Document] = {}
    for row in read_lines(folder / f"brown.{part}.tsv.gz"):
        name, words, _ = row.split("\t")
        samples.setdefault(name, []).append(words.replace("``", '"').replace("''", '"'))
    return list(samples.values())


def _ptb(folder: Path, part: str) -> list[Document]:
    found = [line.strip() for line in read_lines(folder / f"ptb.{'valid' if part == 'val' else part}.txt.gz")]
    if part == "train":
        found = found[:-PTB_SECTION_20_LINES]
    return [found[at : at + PTB_DOCUMENT_LINES] for at in range(0, len(found), PTB_DOCUMENT_LINES)]


def _bbc(folder: Path, part: str) -> list[Document]:
    articles = map(json.loads, read_lines(folder / "bbc_news_summary.jsonl.gz"))
    texts = (f"{a['title']}\n{a['text']}" for a in articles if a["split"] == part)
    return [[s for line in text.split("\n") for s in split_sentences(line)] for text in texts]


def _tatoeba(folder: Path, part: str) -> list[Document]:
    return [[sentence] for sentence in tatoeba_sentences(folder, part, "en")]


def tatoeba_sentences(folder: Path, part: str, language: str) -> list[str]:
    """Return the sentences of a split in one language (en, de, fr), each in one split only, in a fixed order."""
    sentences = set(_tatoeba_side(folder, [part], language))
    sentences -= set(
        _tatoeba_side(folder, [other for other in ("test", "val") if part not in (other, "test")], language)
    )
    found = sorted(sentences)
    random.Random(0).shuffle(found)
    return found


def _tatoeba_side(folder: Path, parts: Iterable[str], language: str) -> Iterator[str]:
    for part in parts:
        for other in ("de", "fr") if language == "en" else (language,):
            rows = (line.split("\t") for line in read_lines(folder / f"en-{other}.{part}.tsv.gz"))
            yield from (row[language != "en"].strip() for row in rows)


_CORPORA: dict[str, tuple[str, Callable[[Path, str], list[Document]], bool]] = {
    "brown": ("brown", _brown, True),
    "ptb": ("ptb", _ptb, True),
    "bbc": ("bbc_news_summary", _bbc, True),
    "tatoeba": ("tatoeba", _tatoeba, False),
}
