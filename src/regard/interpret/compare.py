"""What an intervention changes, beside what was: the two outputs, and how likely the original one is under each.

    found = beside(regard.load("en-de"), {"text": "Two dogs play."}, [{"do": "off", "map": "*.cross"}])
    found["original"], found["changed"]          what is said with attention as it is, and as it was changed
    found["target"]                              the tokens of the original output, with their log-probabilities in both
    found["loss"]                                their mean, negated (nats per token): in both

That the words are others says little by itself: a search may tip over a hair. The loss of the words that were said
before says how much. Greedy or beam search is run anew under the change; the loss is one pass over the same tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import torch

from regard.core.errors import BadInput, Unsupported
from regard.core.shapes import Tensor
from regard.data.text.tagged_sentences import encode_sentences
from regard.decoding.generation_config import GenerationConfig
from regard.interpret.interventions import intervene
from regard.modalities.classes import Classes
from regard.tasks.text.classification import TextClassifier
from regard.tasks.text.extractive_qa import LocatedAnswer, QuestionAnswerer
from regard.tasks.text.language_modeling import TextGenerator
from regard.tasks.text.masked_lm import FillMask
from regard.tasks.text.tagging import Tagger
from regard.tasks.text.translation import Translator

TokenLogProbs = list[tuple[str, float]]  # tokens, each with its log-probability


class Comparison(Protocol):
    """A model with one input before it."""

    def predict(self) -> tuple[dict[str, Any], Any]:
        """What it says, to be shown, and the same as it can be asked about."""
        ...

    def log_probs(self, said: Any) -> TokenLogProbs:
        """How likely each part of that is now."""
        ...


def compare_outputs(
    predictor: Any, given: Mapping[str, Any], interventions: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """The original and the changed output, and what the change does to the loss of the original."""
    if not interventions:
        raise BadInput("there is nothing to compare with; give at least one intervention")
    saying = _comparison(predictor, given)
    with torch.no_grad():
        original, said = saying.predict()
        before = saying.log_probs(said)
        with intervene(predictor.model, interventions):
            changed, _ = saying.predict()
            after = saying.log_probs(said)
    return {
        "original": original,
        "changed": changed,
        "same": original.get("text") == changed.get("text"),
        "target": {
            "tokens": [token for token, _ in before],
            "original": [value for _, value in before],
            "changed": [value for _, value in after],
        },
        "loss": {"original": _mean_loss(before), "changed": _mean_loss(after)},
        "interventions": list(interventions),
    }


class TranslationComparison:
    """A translator (a pronouncer, a text-to-text model) and a line."""

    def __init__(self, predictor: Translator, given: Mapping[str, Any]) -> None:
        self.predictor, self.source = predictor, predictor._one(_require_text(given), predictor.source)
        self.beam_size = _require_number(given, "beam_size", 4, 64)
        asked = given.get("translation") or given.get("answer")
        self.asked = predictor._one(asked, predictor.target) if asked else None

    def predict(self) -> tuple[dict[str, Any], list[int]]:
        """The best translation that is found, or the one that was given."""
        if self.asked is not None:
            return {"text": self.predictor._decode([self.asked])[0]}, self.asked
        best = self.predictor._search([self.source], GenerationConfig(self.beam_size), 4096, [0])[0][0]
        return {"text": self.predictor._decode([best.tokens])[0], "score": best.score}, list(best.tokens)

    def log_probs(self, said: list[int]) -> TokenLogProbs:
        """One pass over the finished translation."""
        text, device = self.predictor.text, self.predictor._device()
        rows = [*self.source, text.eos], [text.bos, *said]
        logits = self.predictor.model(*(torch.tensor([row], device=device) for row in rows))
        return _token_log_probs(logits[0], [*said, text.eos], text)


class GenerationComparison:
    """A language model and a prompt."""

    def __init__(self, predictor: TextGenerator, given: Mapping[str, Any]) -> None:
        self.predictor, self.tokens = predictor, _require_number(given, "max_new_tokens", 24, 512)
        (self.prompt,) = predictor._encoded([_require_text(given)])

    def predict(self) -> tuple[dict[str, Any], list[int]]:
        """What it finds likeliest to follow, word by word."""
        (written,) = self.predictor.write([self.prompt], max_new_tokens=self.tokens, temperature=0.0)[0]
        return {"text": written.text}, [
            *written.tokens,
            *([self.predictor.text.eos] if written.finish_reason == "end" else []),
        ]

    def log_probs(self, said: list[int]) -> TokenLogProbs:
        """One pass over prompt and text."""
        device = next(self.predictor.model.parameters()).device
        whole = torch.tensor([[*self.prompt, *said][:-1]], device=device)
        logits = self.predictor.model(whole)[0, len(self.prompt) - 1 :]
        return _token_log_probs(logits, said, self.predictor.text)


class FillMaskComparison:
    """A model that guesses hidden words, and a text with some."""

    def __init__(self, predictor: FillMask, given: Mapping[str, Any]) -> None:
        self.predictor, self.text = predictor, _require_text(given)
        if predictor.mask_token not in self.text:
            raise BadInput(f"the text has no {predictor.mask_token}; write it where a word is to be guessed")

    def predict(self) -> tuple[dict[str, Any], list[int]]:
        """The likeliest words of every mask."""
        found = self.predictor(self.text, top_k=5)
        said = [[{"word": each.word, "probability": each.probability} for each in mask] for mask in found.masks]
        return {"text": found.text, "guesses": said}, [mask[0].token for mask in found.masks]

    def log_probs(self, said: list[int]) -> TokenLogProbs:
        """Each mask by itself."""
        row = self.predictor.encode(self.text)
        tokens = torch.tensor([row], device=next(self.predictor.model.parameters()).device)
        answer = self.predictor.model(tokens)
        logits = (answer[0] if isinstance(answer, tuple) else answer)[0]
        at = [place for place, token in enumerate(row) if token == self.predictor.text.mask]
        return _token_log_probs(logits[at], said, self.predictor.text)


class ClassificationComparison:
    """Something that tells texts or images apart, and one of them."""

    def __init__(self, classify: Callable[[], Classes]) -> None:
        self.classify = classify

    def predict(self) -> tuple[dict[str, Any], str]:
        """The likeliest label, and all of them."""
        found = self.classify()
        return {"text": found.label, "probabilities": found.probabilities}, found.label

    def log_probs(self, said: str) -> TokenLogProbs:
        """Of the label that was the likeliest."""
        share = self.classify().probabilities[said]
        return [(said, float(torch.tensor(share).clamp(min=1e-45).log()))]


class TaggingComparison:
    """A model that tags words, and a sentence."""

    def __init__(self, predictor: Tagger, given: Mapping[str, Any]) -> None:
        self.predictor, self.words = predictor, _require_text(given).split()

    def predict(self) -> tuple[dict[str, Any], list[str]]:
        """Every word with its tag."""
        (tags,) = self.predictor.tags([self.words])
        return {"text": " ".join(f"{word}/{tag}" for word, tag in zip(self.words, tags, strict=True))}, tags

    def log_probs(self, said: list[str]) -> TokenLogProbs:
        """Each word by itself."""
        found: TokenLogProbs = []
        for row, places in encode_sentences(self.predictor.text, [self.words], self.predictor.room)[0]:
            tokens = torch.tensor([row], device=next(self.predictor.model.parameters()).device)
            shares = self.predictor.model(tokens)[0, places].float().log_softmax(-1)
            for values in shares.tolist():
                at = len(found)
                found.append((self.words[at], values[self.predictor.labels.index(said[at])]))
        return found


class QuestionAnsweringComparison:
    """A model that finds answers, a text and a question."""

    def __init__(self, predictor: QuestionAnswerer, given: Mapping[str, Any]) -> None:
        self.predictor, self.text, self.question = predictor, _require_text(given), _require_text(given, "question")

    def predict(self) -> tuple[dict[str, Any], LocatedAnswer]:
        """The answer as it stands in the text."""
        (found,) = self.predictor.find([self.text], [self.question])
        return {"text": found.answer.text, "score": found.answer.score}, found

    def log_probs(self, said: LocatedAnswer) -> TokenLogProbs:
        """Where it begins and where it ends, over the places of the text in the window that held it."""
        device, window = next(self.predictor.model.parameters()).device, said.window
        scores = self.predictor.model(*(torch.tensor([row], device=device) for row in (window.tokens, window.segments)))
        shares = scores[0, window.first : window.first + len(window.spans)].float().log_softmax(0)
        ends = [(said.first, "begins"), (said.last, "ends")]
        return [(what, float(shares[at - window.first, n])) for n, (at, what) in enumerate(ends)]


def _comparison(predictor: Any, given: Mapping[str, Any]) -> Comparison:
    """The input before its model, in the way of its task."""
    from regard.tasks.image.image_classification import ImageClassifier

    if isinstance(predictor, Translator):
        return TranslationComparison(predictor, given)
    if isinstance(predictor, TextGenerator):
        return GenerationComparison(predictor, given)
    if isinstance(predictor, FillMask):
        return FillMaskComparison(predictor, given)
    if isinstance(predictor, Tagger):
        return TaggingComparison(predictor, given)
    if isinstance(predictor, QuestionAnswerer):
        return QuestionAnsweringComparison(predictor, given)
    if isinstance(predictor, TextClassifier):
        texts = [[_require_text(given, part)] for part in ("text", "other") if part in given]
        return ClassificationComparison(lambda: predictor(*texts)[0])
    if isinstance(predictor, ImageClassifier):
        if not isinstance(image := given.get("image"), bytes):
            raise BadInput("give an image")
        return ClassificationComparison(lambda: predictor([image])[0])
    raise Unsupported(f"outputs of a {type(predictor).__name__} cannot be put beside one another yet")


def _token_log_probs(logits: Tensor, said: Sequence[int], text: Any) -> TokenLogProbs:
    values = logits.float().log_softmax(-1)[torch.arange(len(said)), list(said)].tolist()
    return list(zip(text.pieces(said), values, strict=True))


def _mean_loss(log_probs: TokenLogProbs) -> float | None:
    return -sum(value for _, value in log_probs) / len(log_probs) if log_probs else None


def _require_text(given: Mapping[str, Any], name: str = "text") -> str:
    found = given.get(name)
    if not isinstance(found, str) or not found.strip():
        raise BadInput(f"give a {name}")
    return found


def _require_number(given: Mapping[str, Any], name: str, default: int, most: int) -> int:
    found = given.get(name, default)
    if not isinstance(found, int) or not 1 <= found <= most:
        raise BadInput(f"{name} is a number from 1 to {most}, not {found!r:.40}")
    return found
