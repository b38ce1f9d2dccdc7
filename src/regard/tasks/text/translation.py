"""Translation: one sentence in, the same sentence in another language out.

    objective    label-smoothed cross-entropy, summed over the real tokens of the target:
                     -Σ_t [ (1-ε) log p(y_t) + ε/V Σ_v log p(v) ]         padding adds nothing to it
    metric       BLEU and chrF (metrics.bleu), with their signatures
    decoding     beam search (decoding.beam_search)
    predict      `Translator`: lines in, lines out, whatever the lines hold (tasks.text.translator)

The loss is a sum and not a mean, so that batches of different size, accumulated, weigh every token alike: the training
loop divides by the number of tokens of all of them.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from regard.core.config import field
from regard.core.shapes import Float, Int, Tensor
from regard.data.text import moses
from regard.data.text.parallel_corpus import PairBatch, ParallelCorpus, ParallelSplit, count_target_tokens
from regard.metrics.bleu import bleu, bleu_tokenized, chrf
from regard.metrics.by_length import SENTENCE_BUCKETS, score_by_length
from regard.tasks.base import TextTask, load_tokenizer
from regard.tasks.scheduled_sampling import ScheduledSampling
from regard.tasks.text.translator import Translator

if TYPE_CHECKING:
    from regard.data.audio.speech_batch import SpeechBatch
    from regard.tokens.tokenizer import Tokenizer

log = logging.getLogger("regard")


@dataclass(frozen=True)
class Config:
    """How translation is trained and how its translations are searched for."""

    label_smoothing: float = field(0.1, low=0, below=1)
    beam_size: int = 5
    length_penalty: float = 1.0
    teacher_forcing: str = (
        "always"  # how often the target itself is read in training, as a schedule (tasks.scheduled_sampling)
    )

    def quick(self) -> Config:
        """Smaller search."""
        return replace(self, beam_size=2)

    def build(self, data: ParallelCorpus, seed: int = 0, folder: Path | None = None) -> Translation:
        """The task on these data; with the vocabulary in the folder where one is given, else one trained on them."""
        return Translation(self, data, load_tokenizer(folder), seed)

    @staticmethod
    def eval_data(corpus: str, saved: Mapping[str, Any], **changes: Any) -> ParallelCorpus:
        """The data of a name to measure a saved model on, whose config.json this is."""
        task = saved["task"]
        known = {key: task[key] for key in ("source", "target", "style") if key in task}
        return ParallelCorpus(**known | {"corpus": corpus} | changes)


class Translation(TextTask[ParallelSplit]):
    """What the training loop trains: the loss, the batches it is measured on, and how good the model is."""

    headline = "bleu"  # the number that says how good a model is; higher is better
    name = "translation"
    data: ParallelCorpus

    def __init__(self, config: Config, data: ParallelCorpus, text: Tokenizer | None = None, seed: int = 0) -> None:
        train = data.load("train", None) if text is None else None  # a vocabulary is made while it is read
        super().__init__(data, text if train is None else train.tokenizer, seed)
        self.config, self.teacher_forcing = config, ScheduledSampling(config.teacher_forcing)
        if train is not None:
            self._parts["train"] = train
        self.objective: Callable[[Tensor, Tensor, float], Tensor] = label_smoothed_cross_entropy

    def fit(self, config: Any) -> Any:
        """A model's Config with what only the data know: the size of the vocabulary and its special tokens."""
        text = self.text
        return replace(config, vocab=text.size, pad=text.pad, bos=text.bos, eos=text.eos)

    def count(self, batch: PairBatch) -> int:
        """The number of target tokens; asked on the host, before the batch travels."""
        return count_target_tokens(batch)

    def loss(
        self, model: nn.Module, batch: PairBatch, step: int = 0, rng: torch.Generator | None = None
    ) -> tuple[Float[Tensor, ""], dict[str, Tensor]]:
        """The smoothed loss summed over real target tokens, and its parts for the record."""
        target = batch.target[:, :-1]
        own = self.teacher_forcing(model, target, step, rng)
        logits = model(batch.source, target, batch.source_lengths, batch.target_lengths - 1, **own)
        total = self.objective(logits, shift_targets(batch), self.config.label_smoothing)
        return total, {"loss": total.detach()}

    def describe(self) -> dict[str, Any]:
        """The task as plain values, to stand beside a saved model."""
        data = self.data
        return {"name": self.name, "source": data.source, "target": data.target, "style": data.style}

    def card(self) -> str:
        """One line on the data, for the run's first line."""
        rows, d = len(self.train.usable()), self.data
        left = len(self.train) - rows
        without = f" ({left:,} left out: empty or over {d.max_length} tokens)" if left else ""
        return (
            f"{d.corpus} {d.source}-{d.target}, {rows:,} pairs{without}, vocabulary {self.text.size:,} {self.text.kind}"
        )

    @property
    def train(self) -> ParallelSplit:
        """The training part."""
        return self.dataset("train")

    def fingerprint(self) -> str:
        """A few letters that change when the training data or the vocabulary do."""
        found = blake2b(digest_size=8)
        for side in (self.train.source, self.train.target):
            found.update(side.values.numpy().data)
            found.update(side.lengths.numpy().data)
        return found.hexdigest()

    def ready(self, score: bool) -> None:
        """Raise now if there is no validation part, or nothing to score with."""
        super().ready(score)
        if score:
            bleu(["a"], ["a"])

    @torch.no_grad()
    def evaluate(self, model: nn.Module, split: str = "val", effort: int = 2) -> dict[str, Any]:
        """How good a model is on a part of the data. Keys: loss (nats per token, not smoothed), perplexity, accuracy
        (of the next token, teacher-forced), tokens; from effort 1 bleu (0 to 100) and bleu_signature of the text as the
        model sees it: greedy with effort 1, with beams as configured from 2."""
        corpus, device = self.dataset(split), next(model.parameters()).device
        model.eval()
        nll = torch.zeros((), dtype=torch.float64, device=device)
        right = torch.zeros((), dtype=torch.int64, device=device)
        tokens = 0
        for batch in corpus.eval_batches(max(self.data.batch_tokens, 4096)):
            tokens += self.count(batch)
            batch = batch.to(device)
            logits = model(batch.source, batch.target[:, :-1], batch.source_lengths, batch.target_lengths - 1)
            wanted = shift_targets(batch)
            nll += label_smoothed_cross_entropy(logits, wanted, 0.0)
            right += (logits.argmax(-1) == wanted).sum()
        loss = float(nll) / max(tokens, 1)
        result: dict[str, Any] = {"loss": loss, "perplexity": math.exp(min(loss, 50.0))}
        result |= {"accuracy": int(right) / max(tokens, 1), "tokens": tokens}
        return result | (self.scored(model, corpus, 1 if effort == 1 else self.config.beam_size) if effort else {})

    def scored(self, model: nn.Module, corpus: Any, beam_size: int) -> dict[str, Any]:
        """BLEU over the text as the model sees it: tokenised text is not tokenised again."""
        translator = Translator(model, self.text, self.data.source, self.data.target)
        written = translator(corpus.sides[0], beam_size=beam_size, length_penalty=self.config.length_penalty)
        found = bleu(written, corpus.sides[1], tokenise="none" if self.data.style == "moses" else "13a")
        return {"bleu": found.value, "bleu_signature": found.signature}

    def report(self, model: nn.Module, split: str = "test", **search: Any) -> dict[str, Any]:
        """Everything there is to say about a model on one part: the losses, and BLEU and chrF of the running text that
        comes out, against the untouched references, in all three ways of counting (see metrics.bleu); by_length: BLEU
        for sources of so many words (cased, and of lower-case tokens where those can be had)."""
        corpus = self.dataset(split)
        search = {"beam_size": self.config.beam_size, "length_penalty": self.config.length_penalty} | search
        translator = Translator(model, self.text, self.data.source, self.data.target, self.data.style)
        written = translator(corpus.raw[0], **search)
        references, result = corpus.raw[1], self.evaluate(model, split, effort=0)
        scores = {
            "bleu": bleu(written, references),
            "bleu_lower": bleu(written, references, lower=True),
            "chrf": chrf(written, references),
        }
        if moses.is_available():
            scores["bleu_tokenized"] = bleu_tokenized(written, references, self.data.target)
        for name, found in scores.items():
            result |= {name: found.value, f"{name}_signature": found.signature, f"{name}_detail": found.detail}
        result["by_length"] = self._by_length(corpus.raw[0], written, references)
        return result | {"split": self.data.split(split), "sentences": len(corpus), **search}

    def _by_length(self, sources: list[str], written: list[str], references: list[str]) -> list[dict[str, Any]]:
        """BLEU by the number of words in the source, with spaces between them."""
        kinds = {"bleu": (written, references, "13a")}
        if moses.is_available():
            target = self.data.target
            kinds["bleu_tokenized"] = moses.tokenize(written, target), moses.tokenize(references, target), "none"

        def measure(rows: list[int]) -> dict[str, float]:
            return {
                name: bleu([a[i] for i in rows], [b[i] for i in rows], tokenise=how).value
                for name, (a, b, how) in kinds.items()
            }

        return score_by_length([len(source.split()) for source in sources], SENTENCE_BUCKETS, measure)


def shift_targets(batch: PairBatch | SpeechBatch) -> Int[Tensor, "B T"]:
    """The token after each decoder input; -100 where there is none (by the lengths, not by the padding's value)."""
    wanted = batch.target[:, 1:]
    index = torch.arange(wanted.shape[1], device=wanted.device)
    return wanted.masked_fill(index >= batch.target_lengths[:, None] - 1, -100)


def label_smoothed_cross_entropy(
    logits: Float[Tensor, "B T V"], wanted: Int[Tensor, "B T"], label_smoothing: float
) -> Float[Tensor, ""]:
    """Label-smoothed cross-entropy, summed over the tokens that are wanted; in float32 whatever the logits are."""
    return nn.functional.cross_entropy(
        logits.flatten(0, 1).float(),
        wanted.flatten(),
        ignore_index=-100,
        label_smoothing=label_smoothing,
        reduction="sum",
    )
