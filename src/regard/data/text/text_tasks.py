"""Tasks as text to text: a prefix names the task, and the answer is text.

    translate      translate English to German: A dog runs.                Ein Hund läuft.            bleu
    sentiment      sst2 sentence: a gorgeous , witty film                  positive                   accuracy
    summarize      summarize: The firm said on Friday that ...             sentences of the article   rouge
    headline       headline: The firm said on Friday that ...              Ad sales boost profit      rouge
    pronounce      pronounce: xylophone                                    Z AY1 L AH0 F OW2 N        per

A task has a `name`, a `prefix`, its `metric` (metrics.generation), `splits` and `read`. A spec names it in a mixture:
``translate(corpus='tatoeba', name='tatoeba')``.

Raffel et al. 2020 (T5), arXiv:1910.10683
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from regard.core.errors import BadInput
from regard.data import data_dir
from regard.data.base import resolve_split
from regard.data.text.cmudict import read_entries
from regard.data.text.labeled_text import LabeledText
from regard.data.text.parallel_corpus import ParallelCorpus
from regard.data.text.table import read_lines

LANGUAGES = {"en": "English", "de": "German", "fr": "French", "cs": "Czech", "es": "Spanish", "it": "Italian"}


class Example(NamedTuple):
    """An input without its prefix, the answer to train on, and all accepted answers."""

    source: str
    target: str
    references: tuple[str, ...]


class TextTask(Protocol):
    """Protocol of a task in a mixture."""

    name: str
    metric: str

    @property
    def prefix(self) -> str:
        """Text before every input."""
        ...

    def splits(self) -> list[str]:
        """Return the splits: train, val, test."""
        ...

    def read(self, split: str) -> list[Example]:
        """Return the examples of a split."""
        ...


@dataclass(frozen=True)
class Translate:
    """Sentence pairs (parallel_corpus.py)."""

    corpus: str = "multi30k"
    source: str = "en"
    target: str = "de"
    test: str = "test"  # beginning of the test split's name; the first match is used
    name: str = "translate"
    metric: str = "bleu"

    @property
    def prefix(self) -> str:
        source, target = (LANGUAGES.get(code, code) for code in (self.source, self.target))
        return f"translate {source} to {target}: "

    def splits(self) -> list[str]:
        return _standard_splits(self.corpus)

    def read(self, split: str) -> list[Example]:
        data = ParallelCorpus(self.corpus, self.source, self.target)
        if split == "test":
            split = next((name for name in data.splits() if name.startswith(self.test)), self.test)
        sides = (
            data.preprocess(side, code) for side, code in zip(data.read(split), (self.source, self.target), strict=True)
        )
        return [Example(a, b, (b,)) for a, b in zip(*sides, strict=True) if a and (b or split != "train")]


@dataclass(frozen=True)
class Sentiment:
    """Texts with a label (labeled_text.py); the label's name is the answer."""

    corpus: str = "sst2"
    name: str = "sentiment"
    metric: str = "accuracy"

    @property
    def prefix(self) -> str:
        return f"{self.corpus} sentence: "

    def splits(self) -> list[str]:
        return LabeledText(self.corpus).splits()

    def read(self, split: str) -> list[Example]:
        return [Example(text, label, (label,)) for text, label in LabeledText(self.corpus).read(split)]


@dataclass(frozen=True)
class Summarize:
    """News articles, cut to their first `words` words, and the sentences that make the summary.

    The dataset's summaries are whole sentences of the article, the most important first, without spaces between them.
    Here they are in the order of the article, with spaces, and the training target has only those that occur in the
    input. Scores are against the whole summary.

    In training a long article gives several examples: further windows of it, each from the beginning of a sentence
    about `stride` words after the last.
    """

    words: int = 256
    stride: int = 96  # 0: only the beginning of every article
    name: str = "summarize"
    metric: str = "rouge"
    prefix: str = "summarize: "

    def splits(self) -> list[str]:
        return _standard_splits("bbc_news_summary")

    def read(self, split: str) -> list[Example]:
        examples = []
        for article in _read_news(split):
            article_text = _normalize_spaces(article["text"])
            spans = _summary_spans(article_text, article["summary"])
            summary = " ".join(article_text[a:b] for a, b in spans)
            windows = _text_windows(article_text, self.words, self.stride if split == "train" else 0)
            for first, last in windows:
                target = " ".join(article_text[a:b] for a, b in spans if first <= a and b <= last)
                if target or split != "train":
                    examples.append(Example(article_text[first:last], target, (summary,)))
        return examples


@dataclass(frozen=True)
class Headline:
    """News articles, cut to their first `words` words, and their titles."""

    words: int = 96
    name: str = "headline"
    metric: str = "rouge"
    prefix: str = "headline: "

    def splits(self) -> list[str]:
        return _standard_splits("bbc_news_summary")

    def read(self, split: str) -> list[Example]:
        return [
            Example(_first_words(_normalize_spaces(a["text"]), self.words), a["title"], (a["title"],))
            for a in _read_news(split)
        ]


@dataclass(frozen=True)
class Pronounce:
    """Words, letter by letter, and their phonemes (CMU dictionary, ARPAbet); any listed pronunciation is accepted."""

    stress: bool = False  # keep the stress digits; published scores leave them out
    name: str = "pronounce"
    metric: str = "per"
    prefix: str = "pronounce: "

    def splits(self) -> list[str]:
        return _standard_splits("cmudict")

    def read(self, split: str) -> list[Example]:
        found = read_entries(data_dir.find_dataset("cmudict"), split, self.stress)
        return [Example(" ".join(word), sounds[0], sounds) for word, sounds in found]


def read_examples(task: TextTask, split: str, limit: int | None = None) -> list[Example]:
    """Return the examples of a split by name."""
    found = task.read(resolve_split(split, task.splits(), task.name))[:limit]
    if not found:
        raise BadInput(f"{task.name}: the split {split} has no examples")
    return found


def _standard_splits(dataset: str) -> list[str]:
    """Return the three splits of a dataset, which must exist."""
    data_dir.find_dataset(dataset)
    return ["test", "train", "val"]


def _read_news(split: str) -> list[dict[str, str]]:
    articles = map(json.loads, read_lines(data_dir.find_dataset("bbc_news_summary") / "bbc_news_summary.jsonl.gz"))
    return [article for article in articles if article["split"] == split]


def _normalize_spaces(text: str) -> str:
    return " ".join(text.split())


def _first_words(text: str, words: int) -> str:
    return " ".join(text.split()[:words])


def _text_windows(text: str, words: int, stride: int) -> list[tuple[int, int]]:
    """Return where the first `words` words of a text are, and later windows while half of their words are left."""
    spans = [match.span() for match in re.finditer(r"\S+", text)]
    begins = [0]
    for n in range(1, len(spans) - words // 2 if stride else 0):
        if n - begins[-1] >= stride and text[spans[n - 1][1] - 1] in '.!?"':
            begins.append(n)
    return [(spans[n][0], spans[min(n + words, len(spans)) - 1][1]) for n in begins]


# boundaries of joined sentences: after an end or closing quote, before a capital or opening one; not after "U.S."
_GLUED_SENTENCES = re.compile(r"(?:(?<=[.!?])(?<!\b[A-Z]\.)|(?<=[\"'”)]))(?=[A-Z\"'“(£$])")


def _summary_spans(article: str, summary: str) -> list[tuple[int, int]]:
    """Return where in an article the sentences of its summary are; adjacent ones are merged."""
    found = []
    for piece in _GLUED_SENTENCES.split(_normalize_spaces(summary)):
        start = article.find(piece)
        if start >= 0 and len(piece) > 3:  # a lone quote is found with its sentence
            found.append((start, start + len(piece)))
    merged: list[tuple[int, int]] = []
    for begin, end in sorted(found):
        if merged and not article[merged[-1][1] : begin].strip(" \"'"):
            begin, end = merged[-1][0], max(end, merged[-1][1])
            merged.pop()
        merged.append((begin, end))
    return [_extend_quotes(article, *span) for span in merged]


def _extend_quotes(article: str, begin: int, end: int) -> tuple[int, int]:
    """Extend a span by the quotation marks that belong to it."""
    before, after = article[max(begin - 1, 0) : begin] == '"', article[end : end + 1] == '"'
    if article.count('"', begin, end) % 2:
        return (begin, end + 1) if after else (begin - before, end)
    return (begin - 1, end + 1) if before and after else (begin, end)
