"""What an intervention changes, beside what was: the two outputs, and how likely the original one is under each.

    found = beside(regard.load("en-de"), {"text": "Two dogs play."}, [{"do": "off", "map": "*.cross"}])
    found["original"], found["changed"]          what is said with attention as it is, and as it was changed
    found["target"]                              the tokens of the original output, with their log-probabilities in both
    found["loss"]                                their mean, negated (nats a token): in both

That the words are others says little by itself: a search may tip over a hair. The loss of the words that were said
before says how much. Greedy or beam search is run anew under the change; the loss is one pass over the same tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import torch

from regard.core.errors import BadInput, Unsupported
from regard.core.shapes import Tensor
from regard.data.tagged import cuts
from regard.tasks.answerer import Answerer, Found
from regard.tasks.classifier import Classified, Classifier
from regard.tasks.filler import Filler, filled
from regard.tasks.interventions import intervened
from regard.tasks.tagger import Tagger
from regard.tasks.translator import Search, Translator
from regard.tasks.writer import Writer

Likely = list[tuple[str, float]]  # tokens, each with its log-probability


class Saying(Protocol):
    """A model with one input before it."""

    def say(self) -> tuple[dict[str, Any], Any]:
        """What it says, to be shown, and the same as it can be asked about."""
        ...

    def likely(self, said: Any) -> Likely:
        """How likely each part of that is now."""
        ...


def beside(predictor: Any, given: Mapping[str, Any], interventions: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The original and the changed output, and what the change does to the loss of the original."""
    if not interventions:
        raise BadInput("there is nothing to compare with; give at least one intervention")
    saying = _saying(predictor, given)
    with torch.no_grad():
        original, said = saying.say()
        before = saying.likely(said)
        with intervened(predictor.model, interventions):
            changed, _ = saying.say()
            after = saying.likely(said)
    return {
        "original": original,
        "changed": changed,
        "same": original.get("text") == changed.get("text"),
        "target": {
            "tokens": [token for token, _ in before],
            "original": [value for _, value in before],
            "changed": [value for _, value in after],
        },
        "loss": {"original": _loss(before), "changed": _loss(after)},
        "interventions": list(interventions),
    }


class Translating:
    """A translator (a pronouncer, a text-to-text model) and a line."""

    def __init__(self, predictor: Translator, given: Mapping[str, Any]) -> None:
        self.by, self.source = predictor, predictor._one(_text(given), predictor.source)
        self.beams = _number(given, "beams", 4, 64)
        asked = given.get("translation") or given.get("answer")
        self.asked = predictor._one(asked, predictor.target) if asked else None

    def say(self) -> tuple[dict[str, Any], list[int]]:
        """The best translation that is found, or the one that was given."""
        if self.asked is not None:
            return {"text": self.by._decode([self.asked])[0]}, self.asked
        best = self.by._search([self.source], Search(self.beams), 4096, [0])[0][0]
        return {"text": self.by._decode([best.tokens])[0], "score": best.score}, list(best.tokens)

    def likely(self, said: list[int]) -> Likely:
        """One pass over the finished translation."""
        text, device = self.by.text, self.by._device()
        rows = [*self.source, text.eos], [text.bos, *said]
        logits = self.by.model(*(torch.tensor([row], device=device) for row in rows))
        return _read(logits[0], [*said, text.eos], text)


class Writing:
    """A language model and a prompt."""

    def __init__(self, predictor: Writer, given: Mapping[str, Any]) -> None:
        self.by, self.tokens = predictor, _number(given, "tokens", 24, 512)
        (self.prompt,) = predictor._encoded([_text(given)])

    def say(self) -> tuple[dict[str, Any], list[int]]:
        """What it finds likeliest to follow, word by word."""
        (written,) = self.by.write([self.prompt], tokens=self.tokens, temperature=0.0)[0]
        return {"text": written.text}, [*written.tokens, *([self.by.text.eos] if written.why == "end" else [])]

    def likely(self, said: list[int]) -> Likely:
        """One pass over prompt and text."""
        whole = torch.tensor([[*self.prompt, *said][:-1]], device=self.by._device())
        logits = self.by.model(whole)[0, len(self.prompt) - 1 :]
        return _read(logits, said, self.by.text)


class Filling:
    """A model that guesses hidden words, and a text with some."""

    def __init__(self, predictor: Filler, given: Mapping[str, Any]) -> None:
        self.by, self.text = predictor, _text(given)
        if predictor.hidden_by not in self.text:
            raise BadInput(f"the text has no {predictor.hidden_by}; write it where a word is to be guessed")

    def say(self) -> tuple[dict[str, Any], list[int]]:
        """The likeliest words of every mask."""
        (masks,) = self.by([self.text], k=5)
        best = [guesses[0] for guesses in masks]
        said = [[{"word": each.word, "probability": each.probability} for each in guesses] for guesses in masks]
        text = filled(self.text, [each.word for each in best], self.by.hidden_by)
        return {"text": text, "guesses": said}, [each.token for each in best]

    def likely(self, said: list[int]) -> Likely:
        """Each mask by itself."""
        row = self.by.encode(self.text)
        tokens = torch.tensor([row], device=next(self.by.model.parameters()).device)
        answer = self.by.model(tokens)
        logits = (answer[0] if isinstance(answer, tuple) else answer)[0]
        at = [place for place, token in enumerate(row) if token == self.by.text.mask]
        return _read(logits[at], said, self.by.text)


class Classifying:
    """Something that tells texts or images apart, and one of them."""

    def __init__(self, classify: Callable[[], Classified]) -> None:
        self.classify = classify

    def say(self) -> tuple[dict[str, Any], str]:
        """The likeliest label, and all of them."""
        found = self.classify()
        return {"text": found.label, "probabilities": found.probabilities}, found.label

    def likely(self, said: str) -> Likely:
        """Of the label that was the likeliest."""
        share = self.classify().probabilities[said]
        return [(said, float(torch.tensor(share).clamp(min=1e-45).log()))]


class Tagging:
    """A model that tags words, and a sentence."""

    def __init__(self, predictor: Tagger, given: Mapping[str, Any]) -> None:
        self.by, self.words = predictor, _text(given).split()

    def say(self) -> tuple[dict[str, Any], list[str]]:
        """Every word with its tag."""
        (tags,) = self.by([self.words])
        return {"text": " ".join(f"{word}/{tag}" for word, tag in zip(self.words, tags, strict=True))}, tags

    def likely(self, said: list[str]) -> Likely:
        """Each word by itself."""
        found: Likely = []
        for row, places in cuts(self.by.text, [self.words], self.by.room)[0]:
            tokens = torch.tensor([row], device=next(self.by.model.parameters()).device)
            shares = self.by.model(tokens)[0, places].float().log_softmax(-1)
            for values in shares.tolist():
                at = len(found)
                found.append((self.words[at], values[self.by.labels.index(said[at])]))
        return found


class Answering:
    """A model that finds answers, a text and a question."""

    def __init__(self, predictor: Answerer, given: Mapping[str, Any]) -> None:
        self.by, self.text, self.question = predictor, _text(given), _text(given, "question")

    def say(self) -> tuple[dict[str, Any], Found]:
        """The answer as it stands in the text."""
        (found,) = self.by.find([self.text], [self.question])
        return {"text": found.answer.text, "score": found.answer.score}, found

    def likely(self, said: Found) -> Likely:
        """Where it begins and where it ends, over the places of the text in the window that held it."""
        device, window = next(self.by.model.parameters()).device, said.window
        scores = self.by.model(*(torch.tensor([row], device=device) for row in (window.tokens, window.segments)))
        shares = scores[0, window.first : window.first + len(window.spans)].float().log_softmax(0)
        ends = [(said.first, "begins"), (said.last, "ends")]
        return [(what, float(shares[at - window.first, n])) for n, (at, what) in enumerate(ends)]


def _saying(predictor: Any, given: Mapping[str, Any]) -> Saying:
    """The input before its model, in the way of its task."""
    from regard.tasks.image_classifier import ImageClassifier

    if isinstance(predictor, Translator):
        return Translating(predictor, given)
    if isinstance(predictor, Writer):
        return Writing(predictor, given)
    if isinstance(predictor, Filler):
        return Filling(predictor, given)
    if isinstance(predictor, Tagger):
        return Tagging(predictor, given)
    if isinstance(predictor, Answerer):
        return Answering(predictor, given)
    if isinstance(predictor, Classifier):
        texts = [[_text(given, part)] for part in ("text", "other") if part in given]
        return Classifying(lambda: predictor(*texts)[0])
    if isinstance(predictor, ImageClassifier):
        if not isinstance(image := given.get("image"), bytes):
            raise BadInput("give an image")
        return Classifying(lambda: predictor([image])[0])
    raise Unsupported(f"outputs of a {type(predictor).__name__} cannot be put beside one another yet")


def _read(logits: Tensor, said: Sequence[int], text: Any) -> Likely:
    values = logits.float().log_softmax(-1)[torch.arange(len(said)), list(said)].tolist()
    return list(zip(text.pieces(said), values, strict=True))


def _loss(likely: Likely) -> float | None:
    return -sum(value for _, value in likely) / len(likely) if likely else None


def _text(given: Mapping[str, Any], name: str = "text") -> str:
    found = given.get(name)
    if not isinstance(found, str) or not found.strip():
        raise BadInput(f"give a {name}")
    return found


def _number(given: Mapping[str, Any], name: str, default: int, most: int) -> int:
    found = given.get(name, default)
    if not isinstance(found, int) or not 1 <= found <= most:
        raise BadInput(f"{name} is a number from 1 to {most}, not {found!r:.40}")
    return found
