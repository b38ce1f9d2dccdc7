"""Pronunciation: a word in, letter by letter; its sounds out.

    input        Text: a word
    output       Text: its sounds, with their score and the other candidates
    loss         translation's: label-smoothed cross-entropy over the sounds of the usual pronunciation
    metrics      PER % (edits / sounds) and WER % (the share of words with any sound wrong), each against the nearest of
                 the listed pronunciations (metrics.generation); also by the number of letters
    decoding     beam search (decoding.generation_config)

Letters and sounds come in the same order, only not one for one: the easiest place to see what an aligner does, and
where one that can only move forward should lose nothing.

Yao, Zweig: Sequence-to-Sequence Neural Net Models for Grapheme-to-Phoneme Conversion. 2015. arXiv:1506.00196
Toshniwal, Livescu: Jointly Learning to Align and Convert Graphemes to Phonemes with Neural Attention Models. 2016.
arXiv:1610.06540
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import nn

from regard.core.errors import BadInput
from regard.data.text.cmudict import CMUDict, CMUDictSplit
from regard.metrics.base import PERPLEXITY, Metric, error_rate, fraction, loss_metric
from regard.metrics.by_length import SPELLING_BUCKETS, score_by_length
from regard.metrics.generation import phoneme_error_rate
from regard.tasks.base import load_tokenizer
from regard.tasks.text import translation
from regard.tasks.text.translation import Translation, Translator

if TYPE_CHECKING:
    from regard.tokens.tokenizer import Tokenizer

ERRORS = ("wer", "per")
PUNCTUATION = '.,;:!?…"“”„«»‹›()[]–—'  # of sentences; an apostrophe belongs to its word
CHARACTER_MAP = str.maketrans(
    {"’": "'", "ʼ": "'", "-": None, "‐": None, "\u00ad": None}
)  # apostrophes; hyphens, seen or not


@dataclass(frozen=True)
class Config(translation.Config):
    """How it is trained and how pronunciations are searched for; scores count to the letter, so beams gain little."""

    beam_size: int = 4

    def build(self, data: CMUDict, seed: int = 0, folder: Path | None = None) -> Pronunciation:  # type: ignore[override]
        """The task on these data; with the vocabulary in the folder where one is given, else theirs."""
        return Pronunciation(self, data, load_tokenizer(folder), seed)

    @staticmethod
    def eval_data(corpus: str, saved: Mapping[str, Any], **changes: Any) -> CMUDict:  # type: ignore[override]
        """The data of a name to measure a saved model on, whose config.json this is."""
        known: dict[str, Any] = {"corpus": corpus, "stress": saved["task"]["stress"]}
        if wrong := [key for key in changes if key in ("source", "target")]:
            raise BadInput(f"words have no languages to choose from: leave out the {wrong[0]}")
        return CMUDict(**known | changes)


class Pronunciation(Translation):
    """What the training loop trains: the loss, the batches it is measured on, and how good the model is."""

    name = "pronunciation"
    metrics = (
        Metric("word_accuracy", "word accuracy", "%", high=100.0),
        error_rate("wer", "WER"),
        error_rate("per", "PER"),
        loss_metric("nats per phoneme"),
        PERPLEXITY,
        fraction("accuracy", "phoneme accuracy"),
    )
    split_size = "words"
    data: CMUDict  # type: ignore[assignment]

    def __init__(self, config: Config, data: CMUDict, text: Tokenizer | None = None, seed: int = 0) -> None:
        super().__init__(config, data, text, seed)  # type: ignore[arg-type]  # pairs of another kind, read as those are

    def describe(self) -> dict[str, Any]:
        """The task as plain values, to stand beside a saved model."""
        return {"name": self.name, "stress": self.data.stress}

    def card(self) -> str:
        """One line on the data, for the run's first line."""
        rows, d = len(self.train.usable()), self.data
        left = len(self.train) - rows
        without = f" ({left:,} left out: over {d.max_length} tokens)" if left else ""
        kept = "with stress" if d.stress else "without stress"
        strung = f", strings of up to {d.words_per_row} words" if d.words_per_row > 1 else ""
        return f"{d.corpus}, {rows:,} spellings{without}, {self.text.size} letters and sounds, {kept}{strung}"

    def ready(self, score: bool) -> None:
        """Raise now if there is no validation part."""
        self.dataset("val")

    def scored(self, model: nn.Module, corpus: CMUDictSplit, beam_size: int) -> dict[str, Any]:
        """Keys: word_accuracy, word_error and phoneme_error, in per cent, against the nearest listed pronunciation."""
        found = phoneme_error_rate(
            self.written(model, corpus, beam_size=beam_size), [e.pronunciations for e in corpus.entries]
        )
        return {"word_accuracy": found["word_accuracy"].value} | {name: found[name].value for name in ERRORS}

    def written(self, model: nn.Module, corpus: CMUDictSplit, **search: Any) -> list[str]:
        """What a model says each word of a part sounds like."""
        search = {"length_penalty": self.config.length_penalty} | search
        longest = max(64, *(len(e.word) for e in corpus.entries))
        said = Pronouncer(model, self.text, max_length=longest)([e.word for e in corpus.entries], **search)
        return list(said)

    def report(self, model: nn.Module, split: str = "test", **search: Any) -> dict[str, Any]:
        """Everything there is to say about a model on one part: the losses, word and phoneme error with how they are
        counted, and by_length: both for words of so many letters."""
        if unknown := search.keys() - {"beam_size", "length_penalty"}:
            raise BadInput(f"pronunciations are searched for with beams and length_penalty; not {min(unknown)}")
        corpus: Any = self.dataset(split)
        search = {"beam_size": self.config.beam_size, "length_penalty": self.config.length_penalty} | search
        said, right = self.written(model, corpus, **search), [e.pronunciations for e in corpus.entries]
        result = self.evaluate(model, split, effort=0)
        for name, score in phoneme_error_rate(said, right).items():
            if name in ERRORS:
                result |= {name: score.value, f"{name}_signature": score.signature, f"{name}_detail": score.detail}

        def measure(rows: list[int]) -> dict[str, float]:
            found = phoneme_error_rate([said[i] for i in rows], [right[i] for i in rows])
            return {name: found[name].value for name in ERRORS}

        result["by_length"] = score_by_length([len(e.word) for e in corpus.entries], SPELLING_BUCKETS, measure)
        return result | {"split": self.data.split(split), "words": len(corpus.entries), **search}


class Pronouncer(Translator):
    """Words in, sounds out, in the same order: a translator from letters to sounds.

        say = regard.load("sounds-en")
        say("xylophone")                           "Z AY L AH F OW N"
        say("read", num_candidates=2).candidates   "R EH D" and "R IY D", with their scores
        say.attention("xylophone")                 which letters each sound looked at, to draw

    Case, accents, hyphens and the punctuation around a word are removed: "Hello," is hello. Any other character that
    the model was not trained on is refused by name. An empty word has no sounds. A word of more than `max_length`
    letters is cut, with a warning, and its parts are pronounced one by one. `stress`: whether the model says which
    vowel is stressed.
    """

    examples = ("xylophone", "knight", "thorough")

    def __init__(self, model: nn.Module, text: Tokenizer, stress: bool = False, max_length: int = 64) -> None:
        super().__init__(model, text, "letters", "sounds", max_length=max_length)
        self.stress = stress

    @cached_property
    def letters(self) -> str:
        """The letters it can read."""
        known = [piece for i, piece in enumerate(self.text.pieces(range(self.text.size))) if i not in self._marks]
        return "".join(sorted(piece for piece in known if len(piece) == 1 and not piece.isupper()))

    @property
    def _marks(self) -> set[int]:
        return {self.text.pad, self.text.bos, self.text.eos, self.text.unk}

    def _named(self, line: str, number: int) -> str:
        from regard.see.token_display import truncate_middle

        return f"the word {truncate_middle(line)!r}"  # a line may hold many words: its number is not that of a word

    def _encode(self, lines: Sequence[str], language: str) -> list[list[int]]:
        if language == self.source:
            return super()._encode([" ".join(self._spelled(word)) for word in lines], language)
        found = super()._encode(lines, language)
        for line, ids in zip(lines, found, strict=True):
            if self.text.unk in ids:
                raise BadInput(f"{line!r:.60} holds a sound this model does not know; write them as in 'HH AH L OW'")
        return found

    def _spelled(self, word: str) -> str:
        """A word as the model reads it."""
        spelled = normalize_spelling(word)
        if " " in spelled:
            raise BadInput(f"{word!r:.60} is more than one word; give each word by itself")
        if strange := [letter for letter in spelled if letter not in self.letters]:
            what = f"{word!r:.60} holds {strange[0]!r}, for which this model has no sound"
            raise BadInput(f"{what}; it reads {' '.join(self.letters)}")  # apart: ' is one of them, and no quote
        if word.strip() and not spelled:
            raise BadInput(f"{word!r:.60} holds no letter to pronounce")
        return spelled


def normalize_spelling(word: str) -> str:
    """A word without capitals, accents, hyphens and marks around it: "Café!" is cafe, "e-mail" is email."""
    plain = unicodedata.normalize("NFKD", word.strip().strip(PUNCTUATION).casefold().translate(CHARACTER_MAP))
    return "".join(letter for letter in plain if not unicodedata.combining(letter))
