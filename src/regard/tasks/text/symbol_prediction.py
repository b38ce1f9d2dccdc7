"""Symbol prediction: answers at marked places of a row of symbols; associative recall and copying.

    input        Text: "5 31 2 40 . 2?"
    output       Text: "40", the answers at all marks
    loss         cross-entropy of the answer at every mark, summed
    metrics      answer accuracy; loss (nats per answer)
    decoding     the most likely symbol of every mark by itself

A causal model (GPT) predicts an answer from what stands up to its mark, an encoder (BERT, a class for each token) from
the whole row; the rows are the same (data.synthetic.symbols).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from regard.core.cancellation import check_cancelled
from regard.core.errors import BadInput, shorten
from regard.core.shapes import Float, Tensor
from regard.data.shards.token_shards import IGNORE_INDEX, TokenBatch, count_predicted_tokens
from regard.data.synthetic.symbols import FIRST_SYMBOL, WORDS, SymbolRows, SymbolSplit
from regard.metrics.base import fraction, loss_metric
from regard.modalities.text import Text
from regard.tasks.base import SplitTask, call_with_state
from regard.tasks.predictor import Predictor
from regard.tasks.text.encoder_base import check_length


@dataclass(frozen=True)
class Config:
    """No settings."""

    def build(self, data: SymbolRows, seed: int = 0, folder: Path | None = None) -> SymbolPrediction:
        """Return the task on these data."""
        return SymbolPrediction(data, seed)


class SymbolPrediction(SplitTask[SymbolSplit]):
    """Train and evaluate a model that predicts symbols at marked places."""

    metrics = (fraction("accuracy", "answer accuracy"), loss_metric("nats per answer"))
    name = "symbol_prediction"
    split_size = "rows"
    unit = "answers"
    ragged = False  # all batches have one shape
    data: SymbolRows

    def fit(self, config: Any) -> Any:
        check_length(self.data.context_length, config)
        head = {"head": f"tags({self.data.vocab_size})"} if any(f.name == "head" for f in fields(config)) else {}
        return replace(config, vocab=self.data.vocab_size, **head)

    def count(self, batch: TokenBatch) -> int:
        return count_predicted_tokens(batch)

    def loss(
        self, model: nn.Module, batch: TokenBatch, step: int = 0, rng: torch.Generator | None = None
    ) -> tuple[Float[Tensor, ""], dict[str, Tensor]]:
        logits, pass_state = call_with_state(model, batch.inputs)
        total = _cross_entropy(logits, batch.targets).sum()
        return self.with_layer_losses(total, batch, pass_state), {"loss": total.detach()}

    def measure(self, model: nn.Module, batch: TokenBatch) -> dict[str, Tensor]:
        logits, asked = model(batch.inputs), batch.targets != IGNORE_INDEX
        right = (logits.argmax(-1) == batch.targets) & asked
        nats, many = _cross_entropy(logits, batch.targets).sum(1), asked.sum(1)
        return {"accuracy": (right.sum(1) / many).sum(), "loss": (nats / many).sum()}

    def describe(self) -> dict[str, Any]:
        return {"name": self.name, "max_length": self.data.context_length}

    def card(self) -> str:
        d = self.data
        return f"{d.title()}, rows of {d.context_length} tokens, {d.symbols} symbols; {d.batch_size} rows a batch"


def _cross_entropy(logits: Float[Tensor, "B N V"], targets: Tensor) -> Float[Tensor, "B N"]:
    """Return the nats of every answer; zero elsewhere."""
    return F.cross_entropy(logits.mT.float(), targets, ignore_index=IGNORE_INDEX, reduction="none")


class SymbolPredictor(Predictor):
    """Rows of symbols in, the answers at their marks out: ``fill("5 31 2 40 . 2?")`` returns ``["40"]``."""

    inputs = {"text": Text}  # noqa: RUF012
    outputs = Text
    examples = ("0 9 1 12 2 8 . 1?", "3 1 4 . ? ? ?")

    def __init__(self, model: nn.Module, max_length: int | None = None) -> None:
        self.model, self.max_length = model.eval(), max_length

    def predict(self, batch: list[Any], options: Any) -> list[Text]:
        return [Text(" ".join(self.fill(line))) for line in batch]

    @torch.no_grad()
    def fill(self, line: str) -> list[str]:
        """Return the most likely symbol at every mark of one row."""
        check_cancelled()
        words = line.split()
        asked = [n for n, word in enumerate(words) if word.endswith("?")]
        tokens = torch.tensor([self._encode(words, asked)], device=next(self.model.parameters()).device)
        logits = self.model(tokens)[0, asked]
        logits[:, :FIRST_SYMBOL] = float("-inf")  # an answer is a symbol
        return [str(found - FIRST_SYMBOL) for found in logits.argmax(-1).tolist()]

    def _encode(self, words: Sequence[str], asked: Sequence[int]) -> list[int]:
        config: Any = self.model.config
        symbols, special = config.vocab - FIRST_SYMBOL, {word: token for token, word in WORDS.items()}
        limit = config.length if self.max_length is None else self.max_length
        if not asked or len(words) > limit:
            raise BadInput(
                f"give 1 to {limit} symbols separated by spaces, at least one of them a blank ? or marked as in 5?, "
                f"got {len(words)}"
            )
        found = []
        known = {str(number): FIRST_SYMBOL + number for number in range(symbols)}
        for word in words:
            symbol = word if word in special else word.removesuffix("?")
            if symbol not in special and symbol not in known:
                raise BadInput(
                    f"{shorten(repr(word))} is no symbol; expected 0 to {symbols - 1}, with a ? where an answer is "
                    "asked, ? for a blank or . for filler"
                )
            found.append(special[symbol] if symbol in special else known[symbol])
        return found
