"""Text to text: many problems, one model, one loss; a prompt begins with the name of its task.

    input        Text: a prompt
    output       Text with its score and the other candidates
    loss         cross-entropy, summed over the tokens of the target (losses.fused_linear_cross_entropy), for every task
    metrics      those of each task (metrics.generation), prefixed with its name, and its loss; `score` is the mean over
                 the tasks of the first of each
    decoding     greedy search in training, beam search in reports (decoding.generation_config)

Data are a mixture of tasks (data.text.task_mixture), or text with masked spans (data.text.span_corruption), which has
only a loss. An output does not depend on the other prompts of its batch.

Raffel et al. 2020 (T5), arXiv:1910.10683
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
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
from regard.tasks.base import TextTask, call_with_state, load_tokenizer
from regard.tasks.text.translation import Translator, clean_line, log, model_inputs, shift_targets

if TYPE_CHECKING:
    from regard.tokens.tokenizer import Tokenizer

MAX_SPARE_ROWS = 128


@dataclass(frozen=True)
class Config:
    """Settings of training and evaluation."""

    label_smoothing: float = field(0.0, low=0, below=1)
    beam_size: int = 4
    length_penalty: float = 1.0
    eval_examples: int | None = 200  # of each task, decoded at each evaluation in training; None: all

    def quick(self) -> Config:
        """Return the settings of a quick run."""
        return replace(self, beam_size=2, eval_examples=4)

    def build(self, data: TaskMixture | SpanCorruption, seed: int = 0, folder: Path | None = None) -> TextToTextTask:
        """Return the task on these data, with the tokenizer in the folder if one is given, else that of the data."""
        return TextToTextTask(self, data, load_tokenizer(folder), seed)


class TextToTextTask(TextTask[TaskMixtureSplit | SpanCorruptionSplit]):
    """Train and evaluate a text-to-text model."""

    name = "text_to_text"
    metrics: tuple[Metric, ...] = (loss_metric("nats per token"), PERPLEXITY, fraction("accuracy", "token accuracy"))
    data: TaskMixture | SpanCorruption

    def __init__(
        self, config: Config, data: TaskMixture | SpanCorruption, text: Tokenizer | None = None, seed: int = 0
    ) -> None:
        super().__init__(data, text, seed)
        self.config = config
        self.ragged = isinstance(data, TaskMixture)  # rows of span corruption all have one shape
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
        """Return the config with vocabulary size and special tokens; a slightly larger vocabulary, as T5's, stays."""
        text = self.text
        vocab = config.vocab if text.size <= config.vocab < text.size + MAX_SPARE_ROWS else text.size
        return replace(config, vocab=vocab, pad=text.pad, bos=text.bos, eos=text.eos)

    def count(self, batch: PairBatch) -> int:
        return count_target_tokens(batch)

    def loss(
        self, model: nn.Module, batch: PairBatch, step: int = 0, rng: torch.Generator | None = None
    ) -> tuple[Float[Tensor, ""], dict[str, Tensor]]:
        """Return the cross-entropy summed over the target tokens, computed in the model's forward pass."""
        total, pass_state = call_with_state(
            model, *model_inputs(batch), targets=shift_targets(batch), loss=self.objective
        )
        return self.with_layer_losses(total, batch, pass_state), {"loss": total.detach()}

    def describe(self) -> dict[str, Any]:
        data = self.data
        longest = data.max_length if isinstance(data, TaskMixture) else data.context_length
        most = data.max_target_length if isinstance(data, TaskMixture) else data.context_length
        return {"name": self.name, "max_length": longest, "max_new_tokens": most}

    def card(self) -> str:
        return f"{self.dataset('train').card()}; vocabulary {self.text.size:,} {self.text.kind}"

    def ready(self, score: bool) -> None:
        part = self.dataset("val")
        for task in _scored_tasks(part) if score else ():
            if task.metric not in METRICS:
                raise BadInput(
                    f"task {task.name} has the unknown metric '{task.metric}'; expected one of {', '.join(METRICS)}"
                )
            METRICS[task.metric](["a"], [["a"]])

    @torch.no_grad()
    def evaluate(self, model: nn.Module, split: str = "val", effort: int = 2) -> dict[str, Any]:
        """Return the metrics of a model on a split: loss (nats per token, the mean over the tasks), perplexity, tokens,
        and the loss of each task; from effort 1 the scores of each task (0 to 100) with their signatures, and score,
        their mean: by greedy search on `eval_examples` examples with effort 1, by beam search on all from 2.
        """
        many = self.config.eval_examples if effort < 2 else None
        search = {"beam_size": 1 if effort < 2 else self.config.beam_size, "length_penalty": self.config.length_penalty}
        return self._measured(model, split, many, search if effort else None)[0]

    def report(self, model: nn.Module, split: str = "test", **search: Any) -> dict[str, Any]:
        """Return all metrics of a model on a split, with the first three outputs of each task."""
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
        """Return the summed loss in nats, the number of right tokens and of all tokens of one task."""
        device = next(model.parameters()).device
        total = torch.zeros(2, dtype=torch.float64, device=device)
        tokens = 0
        for batch in task.eval_batches(8192):
            tokens += self.count(batch)
            batch = batch.to(device)
            total += model(*model_inputs(batch), targets=shift_targets(batch), loss=fused_linear_loss_and_correct)
        nll, right = total.tolist()
        return nll, right, tokens


class TextToTextGenerator(Translator):
    """Prompts in, texts out, in the same order.

        answer = regard.load("runs/t5_three_tasks/model")
        answer(["translate English to German: A dog runs.", "sst2 sentence: what a film !"])

    A prompt begins with its task, in the words the model was trained with, and may have several lines. A prompt of more
    than `max_length` tokens, the end token included, is refused, or truncated with a warning if `overflow` is
    "truncate". Outputs have at most `max_new_tokens` tokens. If the vocabulary has sentinels, <extra_id_0> in a prompt
    is read as one (tokens.sentinels).
    """

    continues = False  # its output does not continue the prompt
    warns = True  # log a warning if a prompt is truncated
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
        option_defaults: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(model, text, source="", target="", option_defaults=option_defaults)
        if overflow not in ("error", "truncate"):
            raise BadInput(f"overflow must be 'error' or 'truncate', got {overflow!r}")
        self.max_length, self.max_new_tokens, self.overflow = max_length, max_new_tokens, overflow
        vocabulary = int(getattr(model.config, "vocab", text.size))
        if vocabulary < text.size:
            raise BadInput(
                f"the tokenizer has {text.size} tokens and the model {vocabulary}; use the tokenizer that the model "
                "was trained with"
            )
        self._ban = range(text.size, vocabulary)  # rows that are no token; <pad> may be written, as T5 does

    def _parts(self, lines: Sequence[str], numbers: Sequence[int]) -> list[list[list[int]]]:
        """Return every prompt as one part, truncated if it may be."""
        encoded = self._encode([clean_line(line, number) for number, line in zip(numbers, lines, strict=True)], "")
        room = self.max_length - 1
        for number, ids in zip(numbers, encoded, strict=True):
            if not ids:
                raise BadInput(f"prompt {number} is empty; begin with a task, such as 'summarize: ...'")
            if len(ids) > room and self.overflow == "error":
                raise BadInput(
                    f"prompt {number} has {len(ids)} tokens, but the model was trained on at most {room}: shorten it, "
                    f"or set overflow='truncate'"
                )
            if len(ids) > room and self.warns:
                log.warning("prompt %d has %d tokens and is truncated to %d", number, len(ids), room)
        return [[ids[:room]] for ids in encoded]

    def _encode(self, lines: Sequence[str], language: str) -> list[list[int]]:
        from regard.tokens.sentinels import encode_with_sentinels

        return [
            ids if line.strip() else []
            for line, ids in zip(lines, encode_with_sentinels(self.text, lines), strict=True)
        ]

    def _limits(self, lengths: Int[Tensor, " B"], more: int, options: GenerationConfig) -> Int[Tensor, " B"]:
        """Return the same limit for all: the length of an output does not depend on that of its prompt."""
        return lengths.new_full(lengths.shape, options.max_new_tokens or self.max_new_tokens)

    def _banned(self) -> Sequence[int]:
        return self._ban


def _scored_tasks(part: TaskMixtureSplit | SpanCorruptionSplit) -> list[TaskSplit]:
    """Return the tasks whose outputs have a score."""
    return part.tasks if isinstance(part, TaskMixtureSplit) else []
