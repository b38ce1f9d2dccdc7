"""Pronunciation: the letters of a word in, its phonemes out (grapheme-to-phoneme conversion).

    input        Text: a word
    output       Text: its phonemes, with their score and the other candidates
    loss         label-smoothed cross-entropy over the phonemes of the first pronunciation, as in translation
    metrics      PER % (edits / phonemes) and WER % (the share of words with a wrong phoneme), each against the nearest
                 listed pronunciation (metrics.generation); also by the number of letters
    decoding     beam search (decoding.generation_config)

Letters and phonemes are in the same order, but not one to one: an easy task to see what an aligner does, and one in
which monotonic aligners should lose nothing.

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
PUNCTUATION = '.,;:!?…"“”„«»‹›()[]–—'  # removed around words; an apostrophe is part of a word
# apostrophes are unified, hyphens (soft ones too) removed
CHARACTER_MAP = str.maketrans({"’": "'", "ʼ": "'", "-": None, "‐": None, "\u00ad": None})


@dataclass(frozen=True)
class Config(translation.Config):
    """Settings of training and evaluation."""

    beam_size: int = 4

    def build(self, data: CMUDict, seed: int = 0, folder: Path | None = None) -> Pronunciation:  # type: ignore[override]
        """Return the task on these data, with the tokenizer in the folder if one is given, else that of the data."""
        return Pronunciation(self, data, load_tokenizer(folder), seed)

    @staticmethod
    def eval_data(corpus: str, saved: Mapping[str, Any], **changes: Any) -> CMUDict:  # type: ignore[override]
        """Return the data of a name to evaluate a saved model on, given its config.json."""
        known: dict[str, Any] = {"corpus": corpus, "stress": saved["task"]["stress"]}
        if wrong := [key for key in changes if key in ("source", "target")]:
            raise BadInput(f"pronunciation has no {wrong[0]} language; leave out the {wrong[0]}")
        return CMUDict(**known | changes)


class Pronunciation(Translation):
    """Train and evaluate a pronunciation model."""

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
        super().__init__(config, data, text, seed)  # type: ignore[arg-type]  # pairs of letters and phonemes

    def describe(self) -> dict[str, Any]:
        return {"name": self.name, "stress": self.data.stress}

    def card(self) -> str:
        rows, d = len(self.train.usable()), self.data
        left = len(self.train) - rows
        without = f" ({left:,} left out: over {d.max_length} tokens)" if left else ""
        kept = "with stress" if d.stress else "without stress"
        strung = f", strings of up to {d.words_per_row} words" if d.words_per_row > 1 else ""
        return f"{d.corpus}, {rows:,} spellings{without}, {self.text.size} letters and sounds, {kept}{strung}"

    def ready(self, score: bool) -> None:
        self.dataset("val")

    def scored(self, model: nn.Module, corpus: CMUDictSplit, beam_size: int) -> dict[str, Any]:
        """Return word_accuracy, wer and per in %, against the nearest listed pronunciation."""
        found = phoneme_error_rate(
            self.written(model, corpus, beam_size=beam_size), [e.pronunciations for e in corpus.entries]
        )
        return {"word_accuracy": found["word_accuracy"].value} | {name: found[name].value for name in ERRORS}

    def written(self, model: nn.Module, corpus: CMUDictSplit, **search: Any) -> list[str]:
        """Return the pronunciation of every word of a split."""
        search = {"length_penalty": self.config.length_penalty} | search
        longest = max(64, *(len(e.word) for e in corpus.entries))
        said = Pronouncer(model, self.text, max_length=longest)([e.word for e in corpus.entries], **search)
        return list(said)

    def report(self, model: nn.Module, split: str = "test", **search: Any) -> dict[str, Any]:
        """Return the losses of `evaluate`, WER and PER with their signatures, and both by the number of letters."""
        if unknown := search.keys() - {"beam_size", "length_penalty"}:
            raise BadInput(f"the evaluation takes beam_size and length_penalty, not {min(unknown)}; leave it out")
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
    """Words in, phonemes out, in the same order.

        say = regard.load("sounds-en")
        say("xylophone")                           "Z AY L AH F OW N"
        say("read", num_candidates=2).candidates   "R EH D" and "R IY D", with their scores
        say.attention("xylophone")                 the attention maps over the letters

    Case, accents, hyphens and the punctuation around a word are removed: "Hello," is hello. Any other character that
    the model was not trained on is an error that names it. An empty word has no phonemes. A word of more than
    `max_length` letters is split, with a warning, and its parts are pronounced separately. `stress`: whether the model
    predicts which vowel is stressed.
    """

    examples = ("xylophone", "knight", "thorough")

    def __init__(self, model: nn.Module, text: Tokenizer, stress: bool = False, max_length: int = 64) -> None:
        super().__init__(model, text, "letters", "sounds", max_length=max_length)
        self.stress = stress

    @cached_property
    def letters(self) -> str:
        """The letters that the model takes."""
        known = [piece for i, piece in enumerate(self.text.pieces(range(self.text.size))) if i not in self._marks]
        return "".join(sorted(piece for piece in known if len(piece) == 1 and not piece.isupper()))

    @property
    def _marks(self) -> set[int]:
        return {self.text.pad, self.text.bos, self.text.eos, self.text.unk}

    def _named(self, line: str, number: int) -> str:
        from regard.see.token_display import truncate_middle

        return f"the word {truncate_middle(line)!r}"  # a line may have several words, so its number would not help

    def _encode(self, lines: Sequence[str], language: str) -> list[list[int]]:
        if language == self.source:
            return super()._encode([" ".join(self._spelled(word)) for word in lines], language)
        found = super()._encode(lines, language)
        for line, ids in zip(lines, found, strict=True):
            if self.text.unk in ids:
                raise BadInput(f"{line!r:.60} has an unknown phoneme; write phonemes as in 'HH AH L OW'")
        return found

    def _spelled(self, word: str) -> str:
        """Return a word as the model reads it."""
        spelled = normalize_spelling(word)
        if " " in spelled:
            raise BadInput(f"{word!r:.60} is more than one word; give one word at a time")
        if strange := [letter for letter in spelled if letter not in self.letters]:
            what = f"{word!r:.60} has the character {strange[0]!r}, which this model does not know"
            raise BadInput(f"{what}; it takes {' '.join(self.letters)}")
        if word.strip() and not spelled:
            raise BadInput(f"{word!r:.60} has no letters to pronounce")
        return spelled


def normalize_spelling(word: str) -> str:
    """Return a word in lower case, without accents, hyphens and punctuation: "Café!" is cafe, "e-mail" is email."""
    plain = unicodedata.normalize("NFKD", word.strip().strip(PUNCTUATION).casefold().translate(CHARACTER_MAP))
    return "".join(letter for letter in plain if not unicodedata.combining(letter))
