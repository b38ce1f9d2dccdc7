"""Inspection of a tagger: one axis, the subwords of the sentence, with each tag at the first subword of its word.

A word is what stands between spaces, as the model learned it; it is cut into pieces by itself, and its tag is read off
the first of them.
"""

from __future__ import annotations

import re
from typing import Any, ClassVar

from regard.core.errors import BadInput
from regard.data.text.tagged_sentences import encode_sentences
from regard.interpret.inspection import Position
from regard.interpret.inspections import text_axes
from regard.interpret.inspections.encoder_base import EncoderInspection
from regard.tasks.text.encoder_base import check_texts
from regard.tasks.text.tagging import Tagger


class TaggingInspection(EncoderInspection):
    """A sentence and the tags of its words; relevance is asked for one of the tags."""

    task = "tagging"
    input_types: ClassVar[dict[str, Any]] = {"text": str}
    predictor: Tagger

    def read(self) -> None:
        """Read the sentence and tag its words."""
        (line,) = check_texts([self.inputs["text"]])
        words = list(re.finditer(r"\S+", line))
        ((row, at), *more) = encode_sentences(
            self.predictor.text, [[word.group() for word in words]], self.predictor.room
        )[0]
        if more:
            raise BadInput(f"the sentence has more than the {self.predictor.room} tokens this model reads: shorten it")
        sizes = _piece_counts(at, row)
        positions = [place for word, many in zip(words, sizes, strict=True) for place in self._within(word, many)]
        likely = self._through(row, positions, line)[0, at].float().softmax(-1)
        shares, best = (each.tolist() for each in likely.max(-1))
        self.at, self.best = at, best
        tags = [self.predictor.labels[one] for one in best]
        self.output = {
            "tags": [
                {"token": place, "word": word.group(), "tag": tag, "probability": share}
                for place, word, tag, share in zip(at, words, tags, shares, strict=True)
            ]
        }
        said = dict(zip(at, tags, strict=True))
        notes = [said.get(place, "") for place in range(len(row))]
        self.axes["text"] = self.axes["text"]._replace(notes=notes)

    def _within(self, word: re.Match[str], many: int) -> list[Position]:
        """The positions of the pieces of a word; the whole of it where it is no piece the model knows."""
        text = self.predictor.text
        positions = text_axes.input_positions(text, text.encode_one(word.group()), word.group())[:many]
        return [text_axes.shift_position(place, word.start()) for place in positions] or [{"text": list(word.span())}]

    @property
    def targets(self) -> list[str]:
        """The tag of every word."""
        return [f"{each['word']}: {each['tag']}" for each in self.output["tags"]]

    def _answer(self, target: int) -> tuple[int, Any]:
        at, tag = self.at[target], self.best[target]
        return at, lambda logits: logits[0, at, tag]


def _piece_counts(at: list[int], row: list[int]) -> list[int]:
    """Return the number of subwords of every word."""
    return [end - begin for begin, end in zip(at, [*at[1:], len(row) - 1], strict=True)]
