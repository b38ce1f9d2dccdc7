"""Pronunciation: a word in, letter by letter; its sounds out.

    objective    translation's: label-smoothed cross-entropy over the sounds of the usual pronunciation
    metric       phoneme error (edits / sounds) and word error (the share of words with any sound wrong), each against
                 the nearest of the listed pronunciations (tasks.text_scores); also by the number of letters
    decoding     beam search (tasks.search)
    predict      `Pronouncer`: words in, sounds out (tasks.pronouncer)

Letters and sounds come in the same order, only not one for one: the easiest place to see what an aligner does, and
where one that can only move forward should lose nothing.

Yao, Zweig: Sequence-to-Sequence Neural Net Models for Grapheme-to-Phoneme Conversion. 2015. arXiv:1506.00196
Toshniwal, Livescu: Jointly Learning to Align and Convert Graphemes to Phonemes with Neural Attention Models. 2016.
arXiv:1610.06540
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import nn

from regard.core.errors import BadInput
from regard.data.pronounced import Pronounced, Words
from regard.tasks import translation
from regard.tasks.by_length import SPELLINGS, by_length
from regard.tasks.parts import vocabulary
from regard.tasks.pronouncer import Pronouncer
from regard.tasks.text_scores import phonemes
from regard.tasks.translation import Translation

if TYPE_CHECKING:
    from regard.tokens.text import Text

ERRORS = ("word_error", "phoneme_error")


@dataclass(frozen=True)
class Config(translation.Config):
    """How it is trained and how pronunciations are searched for; scores count to the letter, so beams gain little."""

    beams: int = 4

    def build(self, data: Pronounced, seed: int = 0, folder: Path | None = None) -> Pronunciation:  # type: ignore[override]
        """The task on these data; with the vocabulary in the folder where one is given, else theirs."""
        return Pronunciation(self, data, vocabulary(folder), seed)

    @staticmethod
    def measured(corpus: str, saved: Mapping[str, Any], **changes: Any) -> Pronounced:  # type: ignore[override]
        """The data of a name to measure a saved model on, whose config.json this is."""
        known: dict[str, Any] = {"corpus": corpus, "stress": saved["task"]["stress"]}
        if wrong := [key for key in changes if key in ("source", "target")]:
            raise BadInput(f"words have no languages to choose from: leave out the {wrong[0]}")
        return Pronounced(**known | changes)


class Pronunciation(Translation):
    """What the training loop trains: the loss, the batches it is measured on, and how good the model is."""

    name = "pronunciation"
    headline = "words_right"
    data: Pronounced  # type: ignore[assignment]

    def __init__(self, config: Config, data: Pronounced, text: Text | None = None, seed: int = 0) -> None:
        super().__init__(config, data, text, seed)  # type: ignore[arg-type]  # pairs of another kind, read as those are

    def describe(self) -> dict[str, Any]:
        """The task as plain values, to stand beside a saved model."""
        return {"name": self.name, "stress": self.data.stress}

    def card(self) -> str:
        """One line on the data, for the run's first line."""
        rows, d = len(self.train.usable()), self.data
        left = len(self.train) - rows
        without = f" ({left:,} left out: over {d.longest} tokens)" if left else ""
        kept = "with stress" if d.stress else "without stress"
        strung = f", strings of up to {d.strung} words" if d.strung > 1 else ""
        return f"{d.corpus}, {rows:,} spellings{without}, {self.text.size} letters and sounds, {kept}{strung}"

    def ready(self, score: bool) -> None:
        """Raise now if there is no validation part."""
        self.part("val")

    def scored(self, model: nn.Module, corpus: Words, beams: int) -> dict[str, Any]:
        """Keys: words_right, word_error and phoneme_error, in per cent, against the nearest listed pronunciation."""
        found = phonemes(self.written(model, corpus, beams=beams), [e.sounds for e in corpus.entries])
        return {"words_right": found["words"].value} | {name: found[name].value for name in ERRORS}

    def written(self, model: nn.Module, corpus: Words, **search: Any) -> list[str]:
        """What a model says each word of a part sounds like."""
        search = {"length_penalty": self.config.length_penalty} | search
        longest = max(64, *(len(e.word) for e in corpus.entries))
        said = Pronouncer(model, self.text, longest=longest)([e.word for e in corpus.entries], **search)
        return list(said)

    def report(self, model: nn.Module, split: str = "test", **search: Any) -> dict[str, Any]:
        """Everything there is to say about a model on one part: the losses, word and phoneme error with how they are
        counted, and by_length: both for words of so many letters."""
        if unknown := search.keys() - {"beams", "length_penalty"}:
            raise BadInput(f"pronunciations are searched for with beams and length_penalty; not {min(unknown)}")
        corpus: Any = self.part(split)
        search = {"beams": self.config.beams, "length_penalty": self.config.length_penalty} | search
        said, right = self.written(model, corpus, **search), [e.sounds for e in corpus.entries]
        result = self.evaluate(model, split, effort=0)
        for name, score in phonemes(said, right).items():
            if name in ERRORS:
                result |= {name: score.value, f"{name}_signature": score.signature, f"{name}_detail": score.detail}

        def measure(rows: list[int]) -> dict[str, float]:
            found = phonemes([said[i] for i in rows], [right[i] for i in rows])
            return {name: found[name].value for name in ERRORS}

        result["by_length"] = by_length([len(e.word) for e in corpus.entries], SPELLINGS, measure)
        return result | {"split": self.data.split(split), "words": len(corpus.entries), **search}
