"""Text to text: many problems, one model, one loss; what is wanted stands in front of the input.

    objective    cross-entropy, summed over the tokens of the target (tasks.linear_loss), whatever the task
    metric       of each task its own (tasks.text_scores), under the task's name; `score` is the mean over the tasks of
                 the first of each. The loss too is given for each task apart
    decoding     greedy while training, beam search in the end (tasks.search)
    predict      `TextToText`: prompts in, texts out (tasks.text_writer)

Data are a mixture of tasks (data.mixture), or running text with pieces taken out (data.spans), which has a loss alone.

Raffel et al. 2020 (T5), arXiv:1910.10683
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from regard.core.errors import BadInput
from regard.core.shapes import Float, Tensor
from regard.data.mixture import Mixed, Mixture, TaskRows
from regard.data.parallel import Pairs, target_tokens
from regard.data.spans import Corrupted, Spans
from regard.tasks.linear_loss import linear_loss, linear_score
from regard.tasks.parts import Worded, vocabulary
from regard.tasks.text_scores import METRICS
from regard.tasks.text_writer import TextToText
from regard.tasks.translation import labels

if TYPE_CHECKING:
    from regard.tokens.text import Text

SPARE = 128


@dataclass(frozen=True)
class Config:
    """How text to text is trained and how its outputs are searched for."""

    smoothing: float = 0.0
    beams: int = 4
    length_penalty: float = 1.0
    looks: int | None = 200  # examples of each task that are decoded at each look while training; None: all

    def quick(self) -> Config:
        """Smaller search, fewer looks."""
        return replace(self, beams=2, looks=4)

    def build(self, data: Mixture | Spans, seed: int = 0, folder: Path | None = None) -> TextTasks:
        """The task on these data; with the vocabulary in the folder where one is given, else one trained on them."""
        return TextTasks(self, data, vocabulary(folder), seed)


class TextTasks(Worded[Mixed | Corrupted]):
    """What the training loop trains: the loss, the batches it is measured on, and how good the model is."""

    name = "text_to_text"
    data: Mixture | Spans

    def __init__(self, config: Config, data: Mixture | Spans, text: Text | None = None, seed: int = 0) -> None:
        super().__init__(data, text, seed)
        self.config = config
        self.ragged = isinstance(data, Mixture)  # rows of running text all have one shape
        self.headline = "score" if self.ragged else "loss"
        self.objective: Callable[[Tensor, Tensor, Tensor], Tensor] = linear_loss
        if config.smoothing:
            self.objective = partial(linear_loss, smoothing=config.smoothing)

    def fit(self, config: Any) -> Any:
        """A model's Config with what only the data know: the size of the vocabulary and its special tokens.

        Some rows more than there are tokens are left as they are: T5's published tables have 28 more.
        """
        text = self.text
        vocab = config.vocab if text.size <= config.vocab < text.size + SPARE else text.size
        return replace(config, vocab=vocab, pad=text.pad, bos=text.bos, eos=text.eos)

    def count(self, batch: Pairs) -> int:
        """The number of target tokens; asked on the host, before the batch travels."""
        return target_tokens(batch)

    def loss(
        self, model: nn.Module, batch: Pairs, step: int = 0, rng: torch.Generator | None = None
    ) -> tuple[Float[Tensor, ""], dict[str, Tensor]]:
        """Cross-entropy summed over real target tokens, taken inside the model's forward pass."""
        total = _ask(model, batch, self.objective)
        return total, {"loss": total.detach()}

    def describe(self) -> dict[str, Any]:
        """The task as plain values, to stand beside a saved model."""
        data = self.data
        longest = data.longest if isinstance(data, Mixture) else data.context
        most = data.longest_target if isinstance(data, Mixture) else data.context
        return {"name": self.name, "longest": longest, "most": most}

    def card(self) -> str:
        """One line on the data, for the run's first line."""
        return f"{self.part('train').card()}; vocabulary {self.text.size:,} {self.text.kind}"

    def ready(self, score: bool) -> None:
        """Raise now if there is no validation part, or nothing to score with."""
        part = self.part("val")
        for task in _scored(part) if score else ():
            if task.metric not in METRICS:
                raise BadInput(
                    f"{task.name} is to be scored by '{task.metric}', which is not among {', '.join(METRICS)}"
                )
            METRICS[task.metric](["a"], [["a"]])

    @torch.no_grad()
    def evaluate(self, model: nn.Module, split: str = "val", effort: int = 2) -> dict[str, Any]:
        """How good a model is on a part of the data. Keys: loss (nats a token of all tasks, each weighing the same),
        perplexity, tokens, and of each task its loss; from effort 1 its scores (0 to 100) with their signatures, and
        score, their mean: greedy over `looks` examples with effort 1, all of them with beams from 2."""
        many = self.config.looks if effort < 2 else None
        search = {"beams": 1 if effort < 2 else self.config.beams, "length_penalty": self.config.length_penalty}
        return self._measured(model, split, many, search if effort else None)[0]

    def report(self, model: nn.Module, split: str = "test", **search: Any) -> dict[str, Any]:
        """Everything there is to say about a model on one part, with the first few outputs of each task."""
        search = {"beams": self.config.beams, "length_penalty": self.config.length_penalty} | search
        result, samples = self._measured(model, split, None, search)
        rows = sum(map(len, _scored(self.part(split))))
        sentences = {"sentences": rows} if rows else {}
        return result | {"split": self.data.split(split), "samples": samples, **sentences, **search}

    def _measured(
        self, model: nn.Module, split: str, many: int | None, search: dict[str, Any] | None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        part = self.part(split)
        model.eval()
        tasks: Sequence[TaskRows | Corrupted] = part.tasks if isinstance(part, Mixed) else [part]
        found = {task.name: self._loss(model, task) for task in tasks}
        loss = sum(nll / max(tokens, 1) for nll, _, tokens in found.values()) / len(found)
        result: dict[str, Any] = {"loss": loss, "perplexity": math.exp(min(loss, 50.0))}
        result["accuracy"] = sum(right / max(tokens, 1) for _, right, tokens in found.values()) / len(found)
        result["tokens"] = sum(tokens for *_, tokens in found.values())
        samples: dict[str, Any] = {}
        if isinstance(part, Mixed):
            result |= {f"{name}_loss": nll / max(tokens, 1) for name, (nll, _, tokens) in found.items()}
        firsts = []
        for task in _scored(part) if search is not None else ():
            outputs = self._written(model, task, many, search or {})
            scores = METRICS[task.metric](outputs, task.right[:many])
            firsts.append(next(iter(scores.values())).value)
            for name, score in scores.items():
                key = f"{task.name}_{name}"
                result |= {key: score.value, f"{key}_signature": score.signature}
            samples[task.name] = list(zip(task.prompts[:3], outputs[:3], strict=True))
        if firsts:
            result["score"] = sum(firsts) / len(firsts)
        return result, samples

    def _written(self, model: nn.Module, task: TaskRows, many: int | None, search: dict[str, Any]) -> list[str]:
        write = TextToText(model, self.text, **{k: v for k, v in self.describe().items() if k != "name"}, long="cut")
        outputs: list[str] = write(task.prompts[:many], quiet=True, **search)
        return outputs

    def _loss(self, model: nn.Module, task: TaskRows | Corrupted) -> tuple[float, float, int]:
        """Nats, right tokens and tokens of one task."""
        device = next(model.parameters()).device
        total = torch.zeros(2, dtype=torch.float64, device=device)
        tokens = 0
        for batch in task.in_order(8192):
            tokens += self.count(batch)
            total += _ask(model, batch.to(device), linear_score)
        nll, right = total.tolist()
        return nll, right, tokens


def _ask(model: nn.Module, batch: Pairs, loss: Callable[[Tensor, Tensor, Tensor], Tensor]) -> Tensor:
    found: Tensor = model(
        batch.source,
        batch.target[:, :-1],
        batch.source_lengths,
        batch.target_lengths - 1,
        targets=labels(batch),
        loss=loss,
    )
    return found


def _scored(part: Mixed | Corrupted) -> list[TaskRows]:
    """The tasks whose outputs have a score."""
    return part.tasks if isinstance(part, Mixed) else []
