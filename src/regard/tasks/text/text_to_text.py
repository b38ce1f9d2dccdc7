"""Text to text: many problems, one model, one loss; the task stands in front of the input.

    input        Text: a prompt
    output       Text with its score and the other candidates
    loss         cross-entropy, summed over the tokens of the target (losses.fused_linear_cross_entropy), for every task
    metrics      of each task its own (metrics.generation), under the task's name; `score` is the mean over the tasks of
                 the first of each. The loss is also given per task
    decoding     greedy while training, beam search in the end (decoding.generation_config)

Data are a mixture of tasks (data.text.task_mixture), or running text with spans taken out (data.text.span_corruption),
which has a loss alone. An answer never depends on the other prompts of its batch.

Raffel et al. 2020 (T5), arXiv:1910.10683
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import nn

from regard.core.config import field
from regard.core.errors import BadInput
from regard.core.shapes import Float, Int, Tensor
from regard.data.text.parallel_corpus import PairBatch, count_target_tokens
from regard.data.text.span_corruption import SpanCorruption, SpanCorruptionSplit
from regard.data.text.task_mixture import TaskMixture, TaskMixtureSplit, TaskSplit
from regard.decoding.generation_config import GenerationConfig
from regard.losses.fused_linear_cross_entropy import fused_linear_cross_entropy, fused_linear_loss_and_correct
from regard.metrics.base import PERPLEXITY, Metric, fraction, loss_metric, score
from regard.metrics.generation import DECLARED, METRICS
from regard.tasks.base import TextTask, load_tokenizer
from regard.tasks.text.translation import Translator, clean_line, log, shift_targets

if TYPE_CHECKING:
    from regard.tokens.tokenizer import Tokenizer

MAX_SPARE_ROWS = 128


@dataclass(frozen=True)
class Config:
    """How text to text is trained and how its outputs are searched for."""

    label_smoothing: float = field(0.0, low=0, below=1)
    beam_size: int = 4
    length_penalty: float = 1.0
    eval_examples: int | None = 200  # examples of each task that are decoded at each look while training; None: all

    def quick(self) -> Config:
        """Smaller search, fewer looks."""
        return replace(self, beam_size=2, eval_examples=4)

    def build(self, data: TaskMixture | SpanCorruption, seed: int = 0, folder: Path | None = None) -> TextToTextTask:
        """The task on these data; with the vocabulary in the folder where one is given, else one trained on them."""
        return TextToTextTask(self, data, load_tokenizer(folder), seed)


class TextToTextTask(TextTask[TaskMixtureSplit | SpanCorruptionSplit]):
    """What the training loop trains: the loss, the batches it is measured on, and how good the model is."""

    name = "text_to_text"
    metrics: tuple[Metric, ...] = (loss_metric("nats per token"), PERPLEXITY, fraction("accuracy", "token accuracy"))
    data: TaskMixture | SpanCorruption

    def __init__(
        self, config: Config, data: TaskMixture | SpanCorruption, text: Tokenizer | None = None, seed: int = 0
    ) -> None:
        super().__init__(data, text, seed)
        self.config = config
        self.ragged = isinstance(data, TaskMixture)  # rows of running text all have one shape
        if isinstance(data, TaskMixture):
            own = [
                replace(metric, key=f"{task.name}_{metric.key}", name=f"{task.name} {metric.name}")
                for task in data.parts()
                for metric in DECLARED[task.metric]
            ]
            self.metrics = (score("score", "mean score"), *own, *self.metrics)
        self.objective: Callable[[Tensor, Tensor, Tensor], Tensor] = fused_linear_cross_entropy
        if config.label_smoothing:
            self.objective = partial(fused_linear_cross_entropy, label_smoothing=config.label_smoothing)

    def fit(self, config: Any) -> Any:
        """A model's Config with what only the data know: the size of the vocabulary and its special tokens.

        Some rows more than there are tokens are left as they are: T5's published tables have 28 more.
        """
        text = self.text
        vocab = config.vocab if text.size <= config.vocab < text.size + MAX_SPARE_ROWS else text.size
        return replace(config, vocab=vocab, pad=text.pad, bos=text.bos, eos=text.eos)

    def count(self, batch: PairBatch) -> int:
        """The number of target tokens; asked on the host, before the batch travels."""
        return count_target_tokens(batch)

    def loss(
        self, model: nn.Module, batch: PairBatch, step: int = 0, rng: torch.Generator | None = None
    ) -> tuple[Float[Tensor, ""], dict[str, Tensor]]:
        """Cross-entropy summed over real target tokens, taken inside the model's forward pass."""
        total = _forward(model, batch, self.objective)
        return total, {"loss": total.detach()}

    def describe(self) -> dict[str, Any]:
        """The task as plain values, to stand beside a saved model."""
        data = self.data
        longest = data.max_length if isinstance(data, TaskMixture) else data.context_length
        most = data.max_target_length if isinstance(data, TaskMixture) else data.context_length
        return {"name": self.name, "max_length": longest, "max_new_tokens": most}

    def card(self) -> str:
        """One line on the data, for the run's first line."""
        return f"{self.dataset('train').card()}; vocabulary {self.text.size:,} {self.text.kind}"

    def ready(self, score: bool) -> None:
        """Raise now if there is no validation part, or nothing to score with."""
        part = self.dataset("val")
        for task in _scored_tasks(part) if score else ():
            if task.metric not in METRICS:
                raise BadInput(
                    f"{task.name} is to be scored by '{task.metric}', which is not among {', '.join(METRICS)}"
                )
            METRICS[task.metric](["a"], [["a"]])

    @torch.no_grad()
    def evaluate(self, model: nn.Module, split: str = "val", effort: int = 2) -> dict[str, Any]:
        """How good a model is on a part of the data. Keys: loss (nats per token of all tasks, each weighing the same),
        perplexity, tokens, and of each task its loss; from effort 1 its scores (0 to 100) with their signatures, and
        score, their mean: greedy over `looks` examples with effort 1, all of them with beams from 2."""
        many = self.config.eval_examples if effort < 2 else None
        search = {"beam_size": 1 if effort < 2 else self.config.beam_size, "length_penalty": self.config.length_penalty}
        return self._measured(model, split, many, search if effort else None)[0]

    def report(self, model: nn.Module, split: str = "test", **search: Any) -> dict[str, Any]:
        """Everything there is to say about a model on one part, with the first few outputs of each task."""
        search = {"beam_size": self.config.beam_size, "length_penalty": self.config.length_penalty} | search
        result, samples = self._measured(model, split, None, search)
        rows = sum(map(len, _scored_tasks(self.dataset(split))))
        sentences = {"sentences": rows} if rows else {}
        return result | {"split": self.data.split(split), "samples": samples, **sentences, **search}

    def _measured(
        self, model: nn.Module, split: str, many: int | None, search: dict[str, Any] | None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        part = self.dataset(split)
        model.eval()
        tasks: Sequence[TaskSplit | SpanCorruptionSplit] = part.tasks if isinstance(part, TaskMixtureSplit) else [part]
        found = {task.name: self._loss(model, task) for task in tasks}
        loss = sum(nll / max(tokens, 1) for nll, _, tokens in found.values()) / len(found)
        result: dict[str, Any] = {"loss": loss, "perplexity": math.exp(min(loss, 50.0))}
        result["accuracy"] = sum(right / max(tokens, 1) for _, right, tokens in found.values()) / len(found)
        result["tokens"] = sum(tokens for *_, tokens in found.values())
        samples: dict[str, Any] = {}
        if isinstance(part, TaskMixtureSplit):
            result |= {f"{name}_loss": nll / max(tokens, 1) for name, (nll, _, tokens) in found.items()}
        firsts = []
        for task in _scored_tasks(part) if search is not None else ():
            outputs = self._written(model, task, many, search or {})
            scores = METRICS[task.metric](outputs, task.references[:many])
            firsts.append(next(iter(scores.values())).value)
            for name, each in scores.items():
                key = f"{task.name}_{name}"
                result |= {key: each.value, f"{key}_signature": each.signature}
            samples[task.name] = list(zip(task.prompts[:3], outputs[:3], strict=True))
        if firsts:
            result["score"] = sum(firsts) / len(firsts)
        return result, samples

    def _written(self, model: nn.Module, task: TaskSplit, many: int | None, search: dict[str, Any]) -> list[str]:
        write = TextToTextGenerator(
            model, self.text, **{k: v for k, v in self.describe().items() if k != "name"}, overflow="truncate"
        )
        write.warns = False
        outputs: list[str] = write(task.prompts[:many], **search)
        return outputs

    def _loss(self, model: nn.Module, task: TaskSplit | SpanCorruptionSplit) -> tuple[float, float, int]:
        """Nats, right tokens and tokens of one task."""
        device = next(model.parameters()).device
        total = torch.zeros(2, dtype=torch.float64, device=device)
        tokens = 0
        for batch in task.eval_batches(8192):
            tokens += self.count(batch)
            total += _forward(model, batch.to(device), fused_linear_loss_and_correct)
        nll, right = total.tolist()
        return nll, right, tokens


class TextToTextGenerator(Translator):
    """Prompts in, texts out, in the same order.

        answer = regard.load("runs/t5_three_tasks/model")
        answer(["translate English to German: A dog runs.", "sst2 sentence: what a film !"])

    The task stands in front of the input, in the words the model was trained with. A prompt is one input, however many
    lines it has: one that is longer than `max_length` tokens, its end token included, is refused, or cut at its end
    with a warning where `overflow` is "truncate". Outputs have at most `max_new_tokens` tokens. Where the vocabulary
    has sentinels, <extra_id_0> in a prompt is read as one (tokens.sentinels).
    """

    continues = False  # an answer stands by itself, not behind the prompt
    warns = True  # log a warning where a prompt is cut
    examples = (
        "translate English to German: Two dogs are playing in the snow.",
        "sst2 sentence: a stirring , funny film",
        "summarize: Two men walked along the beach for hours, and then it began to rain.",
    )

    def __init__(
        self,
        model: nn.Module,
        text: Tokenizer,
        max_length: int = 512,
        max_new_tokens: int = 256,
        overflow: Literal["error", "truncate"] = "error",
    ) -> None:
        super().__init__(model, text, source="", target="")
        if overflow not in ("error", "truncate"):
            raise BadInput(f"overflow={overflow!r}: prompts that are too long are dealt with by 'error' or 'truncate'")
        self.max_length, self.max_new_tokens, self.overflow = max_length, max_new_tokens, overflow
        vocabulary = int(getattr(model.config, "vocab", text.size))
        if vocabulary < text.size:
            raise BadInput(
                f"the vocabulary has {text.size} tokens, the model {vocabulary}: they do not belong together"
            )
        marks = {text.pad, text.bos} - {text.eos}
        self._ban = (*sorted(marks), *range(text.size, vocabulary))  # some tables have more rows than there are tokens

    def _parts(self, lines: Sequence[str], numbers: Sequence[int]) -> list[list[list[int]]]:
        """Every prompt as one part, whole or cut."""
        encoded = self._encode([clean_line(line, number) for number, line in zip(numbers, lines, strict=True)], "")
        room = self.max_length - 1
        for number, ids in zip(numbers, encoded, strict=True):
            if not ids:
                raise BadInput(f"prompt {number} is empty; say what is wanted, such as 'summarize: ...'")
            if len(ids) > room and self.overflow == "error":
                raise BadInput(
                    f"prompt {number} has {len(ids)} tokens, the model was trained on {room} at most: shorten it, or "
                    f"let it be cut with overflow='truncate'"
                )
            if len(ids) > room and self.warns:
                log.warning("prompt %d: %d tokens, the first %d are read", number, len(ids), room)
        return [[ids[:room]] for ids in encoded]

    def _encode(self, lines: Sequence[str], language: str) -> list[list[int]]:
        from regard.tokens.sentinels import encode_with_sentinels

        return [
            ids if line.strip() else []
            for line, ids in zip(lines, encode_with_sentinels(self.text, lines), strict=True)
        ]

    def _limits(self, lengths: Int[Tensor, " B"], more: int, options: GenerationConfig) -> Int[Tensor, " B"]:
        """Return the same limit for all: an answer's length has little to do with that of its prompt."""
        return lengths.new_full(lengths.shape, options.max_new_tokens or self.max_new_tokens)

    def _banned(self) -> Sequence[int]:
        return self._ban


def _forward(model: nn.Module, batch: PairBatch, loss: Callable[[Tensor, Tensor, Tensor], Tensor]) -> Tensor:
    found: Tensor = model(
        batch.source,
        batch.target[:, :-1],
        batch.source_lengths,
        batch.target_lengths - 1,
        targets=shift_targets(batch),
        loss=loss,
    )
    return found


def _scored_tasks(part: TaskMixtureSplit | SpanCorruptionSplit) -> list[TaskSplit]:
    """The tasks whose outputs have a score."""
    return part.tasks if isinstance(part, TaskMixtureSplit) else []
