"""Pronunciation: a word in, letter by letter; its sounds out.

    objective    translation's: label-smoothed cross-entropy over the sounds of the usual pronunciation
    metric       phoneme error (edits / sounds) and word error (the share of words with any sound wrong), each against
                 the nearest of the listed pronunciations (metrics.generation); also by the number of letters
    decoding     beam search (decoding.beam_search)
    predict      `Pronouncer`: words in, sounds out (tasks.text.pronouncer)

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
from regard.data.text.cmudict import CMUDict, CMUDictSplit
from regard.metrics.by_length import SPELLING_BUCKETS, score_by_length
from regard.metrics.generation import phoneme_error_rate
from regard.tasks.base import load_tokenizer
from regard.tasks.text import translation
from regard.tasks.text.pronouncer import Pronouncer
from regard.tasks.text.translation import Translation

if TYPE_CHECKING:
    from regard.tokens.tokenizer import Tokenizer

ERRORS = ("wer", "per")


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
    headline = "word_accuracy"
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
