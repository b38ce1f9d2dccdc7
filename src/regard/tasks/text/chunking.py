"""Chunking as sequence to sequence: a sentence in, the same sentence with brackets out.

    objective    cross-entropy of each decision among those that may be made there (data.bracketed), summed; words are
                 copied and bring no loss of their own
    metric       precision, recall and F1 of whole chunks, as conlleval counts them (metrics.classification); accuracy of tags
    decoding     the likeliest decision, one after another; always well formed
    predict      `Chunker`: sentences in, parses out (tasks.text.chunker)

For parsing as translation, without a treebank: brackets of depth one. Any model that reads a source and writes a target
learns it, the Transformer of translation as it is.

Vinyals et al.: Grammar as a Foreign Language. NeurIPS 2015. arXiv:1412.7449
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import nn

from regard.core.config import field
from regard.core.errors import BadInput
from regard.core.shapes import Float, Tensor
from regard.data.text.chunking_seq2seq import CLOSE, OPEN, ChunkingBatch, ChunkingSeq2Seq, count_decisions
from regard.metrics.classification import accuracy, chunk_f1
from regard.tasks.base import load_tokenizer
from regard.tasks.text.chunker import Chunker
from regard.tasks.text.encoder_base import BATCH_TOKENS, EncoderTask

if TYPE_CHECKING:
    from regard.tokens.tokenizer import Tokenizer


@dataclass(frozen=True)
class Config:
    """How a parser is trained."""

    label_smoothing: float = field(0.0, low=0, below=1)

    def build(self, data: ChunkingSeq2Seq, seed: int = 0, folder: Path | None = None) -> Chunking:
        """The task on these data; with the vocabulary in the folder where one is given, else one trained on them."""
        return Chunking(self, data, load_tokenizer(folder), seed)


class Chunking(EncoderTask):
    """What the training loop trains: the loss, the batches it is measured on, and how good the model is."""

    name = "chunking"
    headline = "f1"
    unit = "decisions"

    def __init__(self, config: Config, data: ChunkingSeq2Seq, text: Tokenizer | None = None, seed: int = 0) -> None:
        super().__init__(data, text, seed)
        self.config, self.symbols = config, data.symbols(self.text)
        self.objective: Callable[..., tuple[Tensor, Tensor]] = _decision_loss

    def fit(self, config: Any) -> Any:
        """A model's Config with what only the data know: the words, the brackets, and the special tokens."""
        text = self.text
        return replace(config, vocab=self.symbols.size, pad=text.pad, bos=text.bos, eos=text.eos)

    def count(self, batch: ChunkingBatch) -> int:
        """The number of decisions."""
        return count_decisions(batch)

    def loss(
        self, model: nn.Module, batch: ChunkingBatch, step: int = 0, rng: torch.Generator | None = None
    ) -> tuple[Float[Tensor, ""], dict[str, Tensor]]:
        """Cross-entropy summed over the decisions."""
        total, _ = self.objective(*self._said(model, batch), self.config.label_smoothing)
        return total, {"loss": total.detach()}

    def _said(self, model: nn.Module, batch: ChunkingBatch) -> tuple[Tensor, Tensor, Tensor]:
        logits = model(batch.source, batch.target[:, :-1], batch.source_lengths, batch.target_lengths - 1)
        symbols = self.symbols
        return logits[..., symbols.base : symbols.base + symbols.decisions], batch.outside, batch.inside

    def describe(self) -> dict[str, Any]:
        """The task as plain values, to stand beside a saved model."""
        return {"name": self.name, "kinds": list(self.symbols.kinds), "speech": list(self.symbols.speech)}

    def card(self) -> str:
        """One line on the data, for the run's first line."""
        train, s = self.dataset("train"), self.symbols
        words = sum(len(sentence.words) for sentence in train.sentences)
        left = len(train) - len(train.usable())
        without = f" ({left:,} left out: over {self.data.max_length} tokens)" if left else ""
        speech = f", {len(s.speech)} parts of speech" if s.speech else ""
        return (
            f"{self.data.corpus}, {len(train):,} sentences{without}, {words:,} words, {len(s.kinds)} kinds of chunks"
            f"{speech}, vocabulary {self.text.size:,} {self.text.kind}"
        )

    @torch.no_grad()
    def evaluate(self, model: nn.Module, split: str = "val", effort: int = 2) -> dict[str, Any]:
        """How good a model is on a part of the data. Keys: loss (nats per decision), right (the share of decisions that
        are right when all before them are); from effort 1 accuracy (of the tags that come out of what is written),
        precision, recall and f1 of chunks, sentences."""
        part, device = self.dataset(split), next(model.parameters()).device
        model.eval()
        found = torch.zeros(2, dtype=torch.float64, device=device)
        many = 0
        for batch in part.eval_batches(BATCH_TOKENS):
            many += self.count(batch)
            found += torch.stack([x.double() for x in _decision_loss(*self._said(model, batch.to(device)), 0.0)])
        loss, right = (found / max(many, 1)).tolist()
        result: dict[str, Any] = {"loss": loss, "token_accuracy": right}
        if effort:
            chunker = Chunker(model, self.text, self.symbols.kinds, self.symbols.speech)
            said = chunker.tags([s.words for s in part.sentences], [s.speech for s in part.sentences])
            true = [list(s.tags) for s in part.sentences]
            result["accuracy"] = accuracy([t for tags in said for t in tags], [t for tags in true for t in tags])
            result |= chunk_f1(said, true)
        return result | {"sentences": len(part)}

    def report(self, model: nn.Module, split: str = "test", **search: Any) -> dict[str, Any]:
        """Everything there is to say about a model on one part."""
        if search:
            raise BadInput(f"decisions are taken one by one, not searched for; leave out {', '.join(search)}")
        return super().report(model, split)


def _decision_loss(logits: Tensor, outside: Tensor, inside: Tensor, label_smoothing: float) -> tuple[Tensor, Tensor]:
    """Cross-entropy of the decisions among those that may be made, summed, and how many of them are right."""
    index = torch.arange(logits.shape[-1], device=logits.device)
    parts = []
    for wanted, banned in ((outside, index == CLOSE), (inside, index >= OPEN)):
        scores = logits.float().masked_fill(banned, float("-inf"))
        logp = scores.log_softmax(-1)
        loss = F.nll_loss(logp.flatten(0, 1), wanted.flatten(), ignore_index=-100, reduction="sum")
        if label_smoothing:
            even = -logp.masked_fill(banned, 0.0).sum(-1) / (~banned).sum()
            loss = (1 - label_smoothing) * loss + label_smoothing * torch.where(wanted >= 0, even, 0.0).sum()
        parts.append(torch.stack([loss, (scores.argmax(-1) == wanted).sum()]))
    total = torch.stack(parts).sum(0)
    return total[0], total[1].detach()
