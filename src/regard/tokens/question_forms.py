"""Forms of questions: which questions a model was taught, so that others can be refused with the reason.

    form     "what {word} is the {thing}"      words in braces are slots
    slots    {"word": ["colour", "color"], "thing": ["bag", "shoe"]}
             ""  among the words of a slot: it may be left out

Case and punctuation do not matter. Words of a slot that occurs twice in a form must differ: nobody was taught what is
left of itself.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cached_property

from regard.core.errors import shorten
from regard.tokens.story_words import split_words

_SLOT = re.compile(r"{(\w+)}")


class QuestionForms:
    """Forms of questions, with the words that may stand in their slots."""

    def __init__(self, forms: Sequence[str], slots: Mapping[str, Sequence[str]]) -> None:
        self.forms, self.slots = list(forms), {name: list(words) for name, words in slots.items()}

    def explain_refusal(self, question: str) -> str:
        """Return why a question is none of these, in one sentence; "" where it is one."""
        words = split_words(question)
        if not words:
            return f"the question has no words, got {question!r:.60}"
        filled = [found for pattern in self._patterns if (found := pattern.fullmatch(" ".join(words) + " "))]
        if any(_differ(found) for found in filled):
            return ""
        if filled:
            return "a thing is not compared with itself"
        known = {*self.words()}
        if unknown := [word for word in dict.fromkeys(words) if word not in known]:
            return f"words that were never learned: {shorten(', '.join(unknown[:10]), 200)}"
        return "a form of question that was never learned"

    def words(self) -> list[str]:
        """Return all words of forms and slots, sorted."""
        fixed = (split_words(_SLOT.sub(" ", form)) for form in self.forms)
        return sorted({word for words in (*fixed, *self.slots.values()) for word in words if word})

    def describe(self) -> str:
        """Return the forms and the words of slots, for people."""
        names = {name for form in self.forms for name in _SLOT.findall(form)}
        slots = (f"{{{name}}}: {', '.join(filter(None, self.slots[name]))}" for name in sorted(names))
        return "; ".join([*self.forms, *slots])

    @cached_property
    def _patterns(self) -> list[re.Pattern[str]]:
        return [re.compile("".join(map(self._part, form.split()))) for form in self.forms]

    def _part(self, part: str) -> str:
        """Return the regular expression of one word of a form, with the space after it."""
        if not (slot := _SLOT.fullmatch(part)):
            return f"{re.escape(part)} "
        words = self.slots[slot[1]]
        return f"((?:{'|'.join(map(re.escape, filter(None, words)))}) ){'?' if '' in words else ''}"


def _differ(found: re.Match[str]) -> bool:
    words = [word for word in found.groups() if word is not None]
    return len({*words}) == len(words)
