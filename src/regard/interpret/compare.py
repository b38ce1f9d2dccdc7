"""Compare a model with and without an intervention: both outputs, and the loss of the original output under each.

    found = compare_outputs(regard.load("en-de"), {"text": "Two dogs play."}, [{"do": "off", "map": "*.cross"}])
    found["original"], found["changed"]          the outputs without and with the intervention
    found["target"]                              the tokens of the original output, with their log-probabilities in both
    found["loss"]                                their mean, negated (nats per token): in both

A search can change its output for a tiny difference, so the loss of the original output says how much was changed.
Greedy or beam search runs again under the intervention; the loss is one pass over the original tokens.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import torch

from regard.core.errors import BadInput, Unsupported
from regard.core.shapes import Tensor
from regard.data.text.tagged_sentences import encode_sentences
from regard.interpret.interventions import intervene
from regard.modalities.classes import Classes
from regard.tasks.predictor import Predictor
from regard.tasks.text.extractive_qa import LocatedAnswer, QuestionAnswerer
from regard.tasks.text.language_modeling import TextGenerator
from regard.tasks.text.masked_lm import FillMask
from regard.tasks.text.tagging import Tagger
from regard.tasks.text.translation import Translator

TokenLogProbs = list[tuple[str, float]]  # tokens, each with its log-probability


class Comparison(Protocol):
    """A predictor with one input."""

    def predict(self) -> tuple[dict[str, Any], Any]:
        """Return the output as plain values, and in the form that `log_probs` takes."""
        ...

    def log_probs(self, output: Any) -> TokenLogProbs:
        """Return the log-probability of each token of an output."""
        ...


def compare_outputs(
    predictor: Any, inputs: Mapping[str, Any], interventions: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """Return both outputs, and the loss of the original one without and with the interventions."""
    if not interventions:
        raise BadInput("There is nothing to compare; give at least one intervention.")
    comparison = _comparison(predictor, inputs)
    with torch.no_grad():
        original, output = comparison.predict()
        before = comparison.log_probs(output)
        with intervene(predictor.model, interventions):
            changed, _ = comparison.predict()
            after = comparison.log_probs(output)
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
    """A translator, pronouncer or text-to-text model."""

    def __init__(self, predictor: Translator, inputs: Mapping[str, Any]) -> None:
        self.predictor, self.source = predictor, predictor._one(_require_text(inputs), predictor.source)
        self.beam_size = _require_number(inputs, "beam_size", 4, 64) if "beam_size" in inputs else None
        asked = inputs.get("target_text")
        self.asked = predictor._one(asked, predictor.target) if asked else None

    def predict(self) -> tuple[dict[str, Any], list[int]]:
        """Return the best translation, or `target_text` where it was given."""
        if self.asked is not None:
            return {"text": self.predictor._decode([self.asked])[0]}, self.asked
        best = self.predictor.best(self.source, self.beam_size)
        return {"text": self.predictor._decode([best.tokens])[0], "score": best.score}, list(best.tokens)

    def log_probs(self, output: list[int]) -> TokenLogProbs:
        text, device = self.predictor.text, self.predictor._device()
        rows = [*self.source, text.eos], [self.predictor.bos, *output]
        logits = self.predictor.model(*(torch.tensor([row], device=device) for row in rows))
        return _token_log_probs(logits[0], [*output, text.eos], text)


class GenerationComparison:
    """A language model."""

    def __init__(self, predictor: TextGenerator, inputs: Mapping[str, Any]) -> None:
        self.predictor, self.tokens = predictor, _require_number(inputs, "max_new_tokens", 24, 512)
        (self.prompt,) = predictor._encoded([_require_text(inputs)])

    def predict(self) -> tuple[dict[str, Any], list[int]]:
        """Return the greedy continuation."""
        (written,) = self.predictor.write([self.prompt], max_new_tokens=self.tokens, temperature=0.0)[0]
        return {"text": written.text}, [
            *written.tokens,
            *([self.predictor.text.eos] if written.finish_reason == "end" else []),
        ]

    def log_probs(self, output: list[int]) -> TokenLogProbs:
        device = next(self.predictor.model.parameters()).device
        whole = torch.tensor([[*self.prompt, *output][:-1]], device=device)
        logits = self.predictor.model(whole)[0, len(self.prompt) - 1 :]
        return _token_log_probs(logits, output, self.predictor.text)


class FillMaskComparison:
    """A masked language model."""

    def __init__(self, predictor: FillMask, inputs: Mapping[str, Any]) -> None:
        self.predictor, self.text = predictor, _require_text(inputs)
        if predictor.mask_token not in self.text:
            raise BadInput(f"the text has no {predictor.mask_token}; put it in place of a word")

    def predict(self) -> tuple[dict[str, Any], list[int]]:
        found = self.predictor(self.text, top_k=5)
        output = [[{"word": each.word, "probability": each.probability} for each in mask] for mask in found.masks]
        return {"text": found.text, "guesses": output}, [mask[0].token for mask in found.masks]

    def log_probs(self, output: list[int]) -> TokenLogProbs:
        row = self.predictor.encode(self.text)
        tokens = torch.tensor([row], device=next(self.predictor.model.parameters()).device)
        answer = self.predictor.model(tokens)
        logits = (answer[0] if isinstance(answer, tuple) else answer)[0]
        at = [place for place, token in enumerate(row) if token == self.predictor.text.mask]
        return _token_log_probs(logits[at], output, self.predictor.text)


class OutputComparison:
    """Any predictor that declares its inputs: only its outputs are compared."""

    def __init__(self, predictor: Predictor, inputs: Mapping[str, Any]) -> None:
        options = {name: value for name, value in inputs.items() if name not in predictor.inputs}
        self.predictor, self.options = predictor, predictor.fill_options(options)
        self.item = predictor.item_from_json({name: inputs[name] for name in predictor.inputs if name in inputs})

    def predict(self) -> tuple[dict[str, Any], Any]:
        (found,) = self.predictor.predict([self.item], self.options)
        return {"text": str(found)}, found

    def log_probs(self, output: Any) -> TokenLogProbs:
        return []


class ClassificationComparison:
    """A predictor whose output is `Classes`: the distribution over labels."""

    def __init__(self, predictor: Any, inputs: Mapping[str, Any]) -> None:
        for name in inputs:
            if name in ("text", "other"):
                _require_text(inputs, name)
        self.predictor, self.columns = predictor, [[value] for value in inputs.values()]

    def classify(self) -> Classes:
        found: Classes = self.predictor(*self.columns)[0]
        return found

    def predict(self) -> tuple[dict[str, Any], str]:
        found = self.classify()
        return {"text": found.label, "probabilities": found.probabilities}, found.label

    def log_probs(self, label: str) -> TokenLogProbs:
        probability = self.classify().probabilities[label]
        return [(label, float(torch.tensor(probability).clamp(min=1e-45).log()))]


class TaggingComparison:
    """A tagger."""

    def __init__(self, predictor: Tagger, inputs: Mapping[str, Any]) -> None:
        self.predictor, self.words = predictor, _require_text(inputs).split()

    def predict(self) -> tuple[dict[str, Any], list[str]]:
        (tags,) = self.predictor.tags([self.words])
        return {"text": " ".join(f"{word}/{tag}" for word, tag in zip(self.words, tags, strict=True))}, tags

    def log_probs(self, output: list[str]) -> TokenLogProbs:
        found: TokenLogProbs = []
        for row, positions in encode_sentences(self.predictor.text, [self.words], self.predictor.room)[0]:
            tokens = torch.tensor([row], device=next(self.predictor.model.parameters()).device)
            shares = self.predictor.model(tokens)[0, positions].float().log_softmax(-1)
            for values in shares.tolist():
                at = len(found)
                found.append((self.words[at], values[self.predictor.labels.index(output[at])]))
        return found


class QuestionAnsweringComparison:
    """An extractive question answerer."""

    def __init__(self, predictor: QuestionAnswerer, inputs: Mapping[str, Any]) -> None:
        self.predictor, self.text, self.question = predictor, _require_text(inputs), _require_text(inputs, "question")

    def predict(self) -> tuple[dict[str, Any], LocatedAnswer]:
        (found,) = self.predictor.find([self.text], [self.question])
        return {"text": found.answer.text, "score": found.answer.score}, found

    def log_probs(self, output: LocatedAnswer) -> TokenLogProbs:
        """Return those of its first and its last token, over the positions of the window that holds it."""
        device, window = next(self.predictor.model.parameters()).device, output.window
        scores = self.predictor.model(*(torch.tensor([row], device=device) for row in (window.tokens, window.segments)))
        shares = scores[0, window.first : window.first + len(window.spans)].float().log_softmax(0)
        ends = [(output.first, "begins"), (output.last, "ends")]
        return [(what, float(shares[at - window.first, n])) for n, (at, what) in enumerate(ends)]


# By a predictor's class, else by the type of its outputs.
COMPARISONS: dict[type, Any] = {
    Translator: TranslationComparison,
    TextGenerator: GenerationComparison,
    FillMask: FillMaskComparison,
    Tagger: TaggingComparison,
    QuestionAnswerer: QuestionAnsweringComparison,
    Classes: ClassificationComparison,
}


def _comparison(predictor: Any, inputs: Mapping[str, Any]) -> Comparison:
    """Return the comparison for a predictor with its inputs."""
    if not isinstance(predictor, Predictor):
        raise Unsupported(f"{type(predictor).__name__} is no Predictor: it declares no outputs to compare.")
    kinds = (*type(predictor).__mro__, *predictor.outputs.__mro__)
    made: Comparison = next((COMPARISONS[kind] for kind in kinds if kind in COMPARISONS), OutputComparison)(
        predictor, inputs
    )
    return made


def _token_log_probs(logits: Tensor, output: Sequence[int], text: Any) -> TokenLogProbs:
    values = logits.float().log_softmax(-1)[torch.arange(len(output)), list(output)].tolist()
    return list(zip(text.pieces(output), values, strict=True))


def _mean_loss(log_probs: TokenLogProbs) -> float | None:
    return -sum(value for _, value in log_probs) / len(log_probs) if log_probs else None


def _require_text(inputs: Mapping[str, Any], name: str = "text") -> str:
    found = inputs.get(name)
    if not isinstance(found, str) or not found.strip():
        raise BadInput(f"give a {name}")
    return found


def _require_number(inputs: Mapping[str, Any], name: str, default: int, most: int) -> int:
    found = inputs.get(name, default)
    if not isinstance(found, int) or not 1 <= found <= most:
        raise BadInput(f"{name} is a number from 1 to {most}, not {found!r:.40}")
    return found
