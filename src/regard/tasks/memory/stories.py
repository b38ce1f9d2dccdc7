"""Story answering: choose the answer to a question about a story, by reading its sentences in several hops.

    inputs       Text, Text: story and question
    output       Classes: the answers
    loss         cross-entropy of the answer; with gate_weight > 0 plus that of the supporting sentence of every hop.
                 of a model with hard choices (memnn): margin ranking of supporting sentences and of the answer
    metrics      mean error over the tasks, tasks failed (error above 5 %), accuracy by task; loss (nats per question)
    facts        facts_hop1, ..., of each task facts_<task>_hop1, ...: share of questions whose most-read sentence of
                 that hop is a supporting one (of the questions whose supporting sentences the data name)

Settings of training: with `linear_start` the first updates leave the softmax out of the hops; `time_noise` leaves
random gaps between the ages of sentences; `gate_weight` trains the hops on the supporting sentences; `margin` is that
of ranking. All are part of the recipe, which is saved with every checkpoint, and none has state: they depend on the
update and its generator.
Evaluation is of the model as it is used, with softmax and exact ages.

Weston et al.: Towards AI-Complete Question Answering. 2015. arXiv:1502.05698
Sukhbaatar, Szlam, Weston, Fergus: End-To-End Memory Networks. NeurIPS 2015. arXiv:1503.08895
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from regard.attention.capture.watch import watch
from regard.core.cancellation import check_cancelled
from regard.core.config import field
from regard.core.errors import BadInput, shorten
from regard.core.shapes import Float, Int, Tensor
from regard.data.shards.token_shards import IGNORE_INDEX
from regard.data.text.stories import Stories, StoryBatch, StorySplit
from regard.metrics.base import ACCURACY, Metric, error_rate, fraction, loss_metric
from regard.modalities.classes import Classes
from regard.modalities.text import Text
from regard.tasks.base import EVAL_ROWS, SplitTask
from regard.tasks.predictor import Predictor, check_label_count, config_value
from regard.tokens.story_words import StoryWords, split_sentences, split_words

log = logging.getLogger("regard")

MAX_WORDS = 500  # of a sentence that is asked about
FAILED = 0.05  # a task with a larger error counts as failed


@dataclass(frozen=True)
class Config:
    """Settings of training."""

    linear_start: int = field(0, low=0, help="updates at the start without softmax in the hops")
    time_noise: float = field(0.0, low=0, high=1, help="gaps between the ages of sentences, as a share of the story")
    gate_weight: float = field(0.0, low=0, help="weight of the loss that trains hops on the supporting sentences")
    margin: float = field(0.1, above=0, help="of the ranking that trains memnn on supporting sentences and answers")

    def build(self, data: Stories, seed: int = 0, folder: Path | None = None) -> StoryAnswering:
        """Return the task on these data."""
        return StoryAnswering(self, data, seed)


class StoryAnswering(SplitTask[StorySplit]):
    """Train and evaluate a model that answers questions about stories."""

    name = "story_answering"
    unit = split_size = "questions"
    metrics = (
        error_rate("error", "mean error", scale=100),
        Metric("failed", "tasks failed", higher_is_better=False, digits=0),
        ACCURACY,
        fraction("facts", "facts found"),
        loss_metric("nats per question"),
    )
    data: Stories

    def __init__(self, config: Config, data: Stories, seed: int = 0) -> None:
        super().__init__(data, seed)
        self.config, self.words = config, data.words()

    def _load(self, split: str) -> StorySplit:
        return self.data.load(split, self.words)

    def fit(self, config: Any) -> Any:
        found = {"vocab": self.words.size, "num_classes": len(self.words.answers)}
        return replace(config, **found, max_sentences=self.data.max_sentences)

    def loss(
        self, model: nn.Module, batch: StoryBatch, step: Any = 0, rng: torch.Generator | None = None
    ) -> tuple[Float[Tensor, ""], dict[str, Tensor]]:
        if hasattr(model, "rank"):
            return self._ranking_loss(model, batch)
        c, takes = self.config, inspect.signature(model.forward).parameters
        settings: dict[str, Any] = {"linear": step < c.linear_start} if "linear" in takes else {}
        if c.time_noise and "ages" in takes:
            settings["ages"] = noisy_ages(batch.lengths, batch.sentences.shape[1], c.time_noise, rng)
        logits, scores = model.read(*batch[:3], **settings)  # type: ignore[operator]
        total = F.cross_entropy(logits.float(), batch.labels, reduction="sum", ignore_index=IGNORE_INDEX)
        parts = {"loss": total.detach()}
        if c.gate_weight:
            gates = gate_loss(scores, batch)
            parts["gate_loss"] = gates.detach()
            total = total + c.gate_weight * gates
        return total, parts

    def _ranking_loss(self, model: nn.Module, batch: StoryBatch) -> tuple[Float[Tensor, ""], dict[str, Tensor]]:
        if not len(self.dataset("train").support.values):
            raise BadInput(
                f"{self.data.corpus} names no supporting sentences, which train this model; use memn2n, or add them"
            )
        logits, ahead, behind, rivals = model.rank(*batch[:3], batch.support)  # type: ignore[operator]
        facts = ((self.config.margin - ahead).relu() + (self.config.margin + behind).relu()).where(rivals, 0).sum()
        answers = F.multi_margin_loss(logits, batch.labels, margin=self.config.margin, reduction="sum")
        answers = answers * logits.shape[1]  # PyTorch divides by the number of classes
        return facts + answers, {"loss": answers.detach(), "facts_loss": facts.detach()}

    @torch.no_grad()
    def evaluate(self, model: nn.Module, split: str = "val", effort: int = 2) -> dict[str, Any]:
        """Return error (mean over tasks), failed, accuracy (also for each task), facts_hop<n>, and loss.

        With an effort of 2 also the facts found of each task.
        """
        part, device = self.dataset(split), next(model.parameters()).device
        model.eval()
        nll, right, facts = 0.0, [], []
        for batch in part.eval_batches(EVAL_ROWS):
            batch = batch.to(device)
            logits, scores = model.read(*batch[:3])  # type: ignore[operator]
            nll += float(F.cross_entropy(logits, batch.labels, reduction="sum", ignore_index=IGNORE_INDEX))
            right.append(logits.argmax(-1) == batch.labels)
            score, most_read = _real_scores(scores, batch).max(-1)
            read = score > torch.finfo(score.dtype).min  # of memnn, a hop may read nothing
            found = (read & (most_read[..., None] == batch.support[:, None]).any(-1)).double()
            facts.append(found.masked_fill((batch.support < 0).all(1)[:, None], torch.nan))  # nothing to find
        return self._summary(part, torch.cat(right).double().cpu(), torch.cat(facts).cpu(), effort > 1) | {
            "loss": nll / len(part),
            "questions": len(part),
        }

    def _summary(self, part: StorySplit, right: Tensor, facts: Float[Tensor, "N hops"], by_hop: bool) -> dict[str, Any]:
        by_task = {int(task): float(right[part.tasks == task].mean()) for task in part.tasks.unique()}
        errors = [1 - share for share in by_task.values()]
        found: dict[str, Any] = {
            "error": sum(errors) / len(errors),
            "failed": float(sum(error > FAILED for error in errors)),
            "accuracy": float(right.mean()),
        }
        found |= {f"accuracy_{task}": share for task, share in by_task.items()}
        kinds = {"": facts} | {f"{task}_": facts[part.tasks == task] for task in by_task if by_hop}
        for name, rows in kinds.items():
            shares = rows.nanmean(0).tolist()
            found |= {f"facts_{name}hop{hop}": share for hop, share in enumerate(shares, 1) if share == share}
        return found

    def describe(self) -> dict[str, Any]:
        words = {"answers": list(self.words.answers), "words": list(self.words.others)}
        return {"name": self.name, **words, "max_sentences": self.data.max_sentences}

    def card(self) -> str:
        kinds = len(self.dataset("train").tasks.unique())
        known = f"{self.words.size} words, {len(self.words.answers)} answers"
        return f"{self.data.corpus}, {kinds} tasks, {len(self.dataset('train')):,} questions to train on, {known}"


def noisy_ages(
    lengths: Int[Tensor, " B"], sentences: int, share: float, rng: torch.Generator | None = None
) -> Int[Tensor, "B S"]:
    """Return the ages of sentences with up to ``share * length`` random gaps in each story: the newest first.

    As if that many empty sentences stood between the others.
    """
    device = lengths.device
    gaps = torch.rand(len(lengths), generator=rng, device=device) * ((share * lengths).ceil() + 1)
    slots, many = torch.arange(sentences + int(share * sentences + 1), device=device), lengths + gaps.long()
    order = torch.rand(len(lengths), len(slots), generator=rng, device=device)
    order = order.masked_fill(slots >= many[:, None], 2.0)  # of the slots of a story, `length` random ones are taken
    rank = order.argsort(1).argsort(1)
    taken = (rank < lengths[:, None]).to(order.dtype)
    ages = taken.argsort(dim=1, descending=True, stable=True)[:, :sentences]  # ages of the taken slots, newest first
    place = torch.arange(sentences, device=device)
    return ages.gather(1, (lengths[:, None] - 1 - place).clamp(min=0))


def gate_loss(scores: Float[Tensor, "B hops S"], batch: StoryBatch) -> Float[Tensor, ""]:
    """Return the cross-entropy of the supporting sentence of every hop over the sentences, summed.

    Hops beyond the supporting sentences, and sentences that were forgotten, train nothing.
    """
    hops = min(scores.shape[1], batch.support.shape[1])
    wanted = batch.support[:, :hops].masked_fill(batch.support[:, :hops] < 0, IGNORE_INDEX)
    logits = _real_scores(scores, batch)[:, :hops].float()
    return F.cross_entropy(logits.flatten(0, 1), wanted.flatten(), reduction="sum", ignore_index=IGNORE_INDEX)


def _real_scores(scores: Float[Tensor, "B hops S"], batch: StoryBatch) -> Float[Tensor, "B hops S"]:
    padding = torch.arange(scores.shape[2], device=scores.device) >= batch.lengths[:, None]
    return scores.masked_fill(padding[:, None], torch.finfo(scores.dtype).min)


@dataclass(frozen=True)
class StoryReading:
    """What was read of a story: its sentences, the weight of each at every hop, and the answers."""

    sentences: list[str]
    weights: Float[Tensor, "hops S"]
    answer: Classes


class StoryAnswerer(Predictor):
    """A story and a question in, the answers with their probabilities out.

    answer = regard.load("stories")
    answer("Mary moved to the bathroom. John went to the hallway.", "Where is Mary?").label        "bathroom"
    """

    inputs = {"text": Text, "question": Text}  # noqa: RUF012
    outputs = Classes
    examples = (
        {"text": "Mary moved to the bathroom. John went to the hallway.", "question": "Where is Mary?"},
        {"text": "Sandra took the milk. Sandra went to the garden.", "question": "Where is the milk?"},
    )

    def __init__(self, model: nn.Module, answers: Sequence[str], words: Sequence[str], max_sentences: int = 50) -> None:
        check_label_count(answers, config_value(model, "num_classes"))
        self.vocabulary = StoryWords(tuple(answers), tuple(words))
        self.vocabulary.check_size(config_value(model, "vocab"))
        if max_sentences < 1:
            raise BadInput(f"max_sentences must be at least 1, got {max_sentences}")
        self.model, self.answers, self.words, self.max_sentences = model.eval(), answers, words, max_sentences

    def predict(self, batch: list[Any], options: Any) -> list[Classes]:
        return [self._answer(*self._read(each["text"], each["question"])[1:]) for each in batch]

    def read_story(self, text: str, question: str) -> StoryReading:
        """Return the answers to a question about a story, and the weights of its sentences at every hop."""
        sentences, story, asked = self._read(text, question)
        with watch(self.model) as seen:
            found = self._answer(story, asked)
        return StoryReading(sentences, torch.stack([trace.weights[0, 0, 0] for trace in seen.traces("hop")]), found)

    def sentences(self, text: str) -> list[str]:
        """Return the sentences of a story that are read: the newest."""
        return split_sentences(text)[-self.max_sentences :]

    def _read(self, text: str, question: str) -> tuple[list[str], Int[Tensor, "1 S W"], Int[Tensor, "1 W"]]:
        """Return the sentences that are kept, and the word ids of them and of the question."""
        sentences = split_sentences(text)
        if not sentences:
            raise BadInput(f"the story has no sentence with words, got {shorten(repr(text), 60)}")
        if not split_words(question):
            raise BadInput(f"the question has no words, got {shorten(repr(question), 60)}")
        longest = max(len(split_words(sentence)) for sentence in [*sentences, question])
        if longest > MAX_WORDS:  # all sentences are padded to the longest
            raise BadInput(f"a sentence may have at most {MAX_WORDS} words, got {longest:,}; cut it up")
        if unknown := self.vocabulary.unknown([*sentences, question]):
            log.warning(
                f"words that the model does not know are read as unknown: {shorten(', '.join(unknown[:10]), 200)}"
            )
        if len(sentences) > self.max_sentences:
            log.warning(f"the story has {len(sentences)} sentences; the newest {self.max_sentences} are read")
            sentences = self.sentences(text)
        return sentences, self.vocabulary.encode(sentences)[None], self.vocabulary.encode([question])

    @torch.no_grad()
    def _answer(self, story: Int[Tensor, "1 S W"], asked: Int[Tensor, "1 W"]) -> Classes:
        check_cancelled()
        device = next(self.model.parameters()).device
        lengths = torch.full((1,), story.shape[1], device=device)
        logits = self.model(story.to(device), lengths, asked.to(device))
        return Classes.rank(list(self.answers), logits[0].double().softmax(-1).tolist())
