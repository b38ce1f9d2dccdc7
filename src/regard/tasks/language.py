"""Language modelling: at every place of a text, the token that comes next.

    objective    cross-entropy, summed over all tokens (tasks.linear_loss): the logits never exist as a whole
                 plus, where feed-forwards are mixtures of experts, `balance` times what keeps these equally busy
    metric       loss (nats a token), perplexity, accuracy of the likeliest token; bits a byte, where the text is known
    decoding     sampling, greedy or beam search (tasks.search)
    predict      `Writer`: prompts in, what comes after them out (tasks.writer)

A validation text is read from its beginning in rows of the context's length, every token predicted once from what
stands before it in its row; so the first tokens of a row have little to go by. With a stride a report reads rows that
overlap, and every token is predicted from at least context - stride tokens before it: slower, and nearer to the truth.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from regard.blocks.experts import experts
from regard.core.errors import BadInput
from regard.core.shapes import Float, Tensor
from regard.core.spec import Spec
from regard.data.index import INDEX
from regard.data.plain import PlainText
from regard.data.shards import Shards, Tokens, Windows, located, predicted
from regard.tasks.linear_loss import linear_loss, linear_score
from regard.tasks.parts import Worded, vocabulary

if TYPE_CHECKING:
    from regard.tokens.text import Text


@dataclass(frozen=True)
class Config:
    """How a language model is trained and measured."""

    smoothing: float = 0.0
    chunk: int | None = None  # rows of logits that exist at a time; None: what suits the device
    looks: int | None = None  # rows read at each look while training, spread evenly; None: the whole validation part
    stride: int | None = None  # of a report: tokens from one row to the next; None: a whole row
    balance: float = 0.0  # of the loss that keeps the experts of a mixture equally busy (blocks.experts), layers summed

    def quick(self) -> Config:
        """A few rows at each look."""
        return replace(self, looks=8)

    def build(self, data: PlainText | Shards, seed: int = 0, folder: Path | None = None) -> Language:
        """The task on these data; with the vocabulary in the folder where one is given, else theirs."""
        return Language(self, data, vocabulary(folder), seed)

    @staticmethod
    def measured(corpus: str, saved: Mapping[str, Any], **changes: Any) -> PlainText | Shards:
        """The data of a name (shards or plain text) to measure a saved model on, whose config.json this is."""
        if other := changes.keys() - {"limit"}:
            raise BadInput(f"a language model is measured on one text; it has no {min(other)}")
        context = int(saved["config"]["length"])
        with suppress(BadInput):
            if (located(corpus) / INDEX).is_file():
                return Shards(corpus, context=context, **changes)
        return PlainText(corpus, context=context, **changes)


class Language(Worded[Windows]):
    """What the training loop trains: the loss, the batches it is measured on, and how good the model is."""

    headline = "loss"  # the lower the better
    name = "language"
    ragged = False  # all batches have one shape
    data: PlainText | Shards

    def __init__(self, config: Config, data: PlainText | Shards, text: Text | None = None, seed: int = 0) -> None:
        super().__init__(data, text, seed)
        self.config = config
        self.objective: Callable[[Tensor, Tensor, Tensor], Tensor] = linear_loss
        if config.chunk is not None or config.smoothing:
            self.objective = partial(linear_loss, chunk=config.chunk, smoothing=config.smoothing)

    def fit(self, config: Any) -> Any:
        """A model's Config with what only the data know: the size of the vocabulary and its end token."""
        if Spec.parse(config.positions).name == "learned" and self.data.context > config.length:
            raise BadInput(
                f"rows have {self.data.context} tokens, but the model learns {config.length} positions: lower "
                f"data.context, raise model.length, or take positions that have no end (model.positions=rotary)"
            )
        return replace(config, vocab=self.text.size, eos=self.text.eos)

    def count(self, batch: Tokens) -> int:
        """The number of tokens to be predicted; asked on the host, before the batch travels."""
        return predicted(batch)

    def loss(
        self, model: nn.Module, batch: Tokens, step: int = 0, rng: torch.Generator | None = None
    ) -> tuple[Float[Tensor, ""], dict[str, Tensor]]:
        """Cross-entropy summed over the batch, taken inside the model's forward pass, so that one graph holds both."""
        total = model(batch.inputs, targets=batch.targets, loss=self.objective)
        parts = {"loss": total.detach()}
        if mixtures := experts(model):
            tokens, aux = batch.inputs.numel(), torch.stack([part.aux() for part in mixtures])
            total = total + self.config.balance * tokens * aux.sum()
            busiest = torch.stack([part.share() for part in mixtures]).max()
            parts |= {"balance": tokens * aux.mean().detach(), "busiest": tokens * busiest}
        return total, parts

    def describe(self) -> dict[str, Any]:
        """The task as plain values, to stand beside a saved model."""
        return {"name": self.name}

    def card(self) -> str:
        """One line on the data, for the run's first line."""
        train, text = self.part("train"), self.text
        where = self.data.corpus if isinstance(self.data, PlainText) else self.data.path
        return (
            f"{where}, {train.tokens:,} tokens, {self.data.rows} rows of {self.data.context} a batch, "
            f"vocabulary {text.size:,} {text.kind}"
        )

    def _load(self, split: str) -> Windows:
        data = self.data
        return data.load(split, self.text) if isinstance(data, PlainText) else data.load(split)

    @torch.no_grad()
    def evaluate(
        self, model: nn.Module, split: str = "val", effort: int = 2, stride: int | None = None
    ) -> dict[str, Any]:
        """How good a model is on a part of the data. Keys: loss (nats a token), perplexity, accuracy (of the likeliest
        next token), tokens, bits_per_byte where the text's size is known, and experts (of each mixture the share of the
        choices that each of its experts got) where there are any. From effort 2 on all of the part, below it the rows
        that `looks` asks for: always the same ones."""
        part, device = self.part(split), next(model.parameters()).device
        model.eval()
        total = torch.zeros(2, dtype=torch.float64, device=device)
        tokens, mixtures, busy = 0, experts(model), []
        looks = None if effort > 1 else self.config.looks
        for batch in part.in_order(max(self.data.context, 16_384), looks, stride):
            tokens += self.count(batch)
            batch = batch.to(device)
            total += model(batch.inputs, targets=batch.targets, loss=linear_score)
            busy += [batch.inputs.numel() * torch.stack([part.share() for part in mixtures])] if mixtures else []
        nll, right = total.tolist()
        loss = nll / max(tokens, 1)
        result: dict[str, Any] = {"loss": loss, "perplexity": math.exp(min(loss, 50.0))}
        result |= {"accuracy": right / max(tokens, 1), "tokens": tokens}
        if size := self.data.bytes(split):  # shards of an older packing do not know it
            result["bits_per_byte"] = loss / math.log(2) * sum(map(len, part.parts)) / size
        if busy:
            shares = torch.stack(busy).sum(0)
            result["experts"] = [[round(x, 4) for x in row] for row in (shares / shares.sum(1, keepdim=True)).tolist()]
        return result

    def report(self, model: nn.Module, split: str = "test", stride: int | None = None, **search: Any) -> dict[str, Any]:
        """Everything there is to say about a model on one part; nothing is searched for."""
        stride = self.config.stride if stride is None else stride
        about = {"split": self.data.split(split), "context": self.data.context}
        return self.evaluate(model, split, stride=stride) | about | ({} if stride is None else {"stride": stride})
