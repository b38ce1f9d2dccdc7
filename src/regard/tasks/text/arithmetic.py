"""Arithmetic: two numbers in, their sum out, digit by digit; learned from short numbers, tried on long ones.

    input        Text: "1011+110"
    output       Text: "10001", which the model wrote and nobody checked
    loss         cross-entropy of the digits of the sum, lowest first, and of its end
    metrics      exact match: the share of sums with no wrong digit, written greedily; accuracy of digits
    decoding     greedy (decoding.beam_search): every model that writes one token after another can be trained on it

The curriculum is that of the data (data.arithmetic): how long the numbers are depends on the epoch alone, so a run that
is taken up again goes on where it was.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import torch
from torch import nn

from regard.core.decodable import Decodable
from regard.core.errors import BadInput
from regard.core.shapes import Float, Tensor
from regard.data.synthetic.arithmetic import BOS, EOS, EVAL_EXAMPLES, FIRST_DIGIT, PAD, Arithmetic, ArithmeticSplit
from regard.data.text.parallel_corpus import PairBatch, count_target_tokens
from regard.decoding.beam_search import greedy_search
from regard.metrics.base import EXACT_MATCH, fraction, loss_metric
from regard.modalities.text import Text
from regard.tasks.base import SplitTask, call_with_state
from regard.tasks.predictor import Predictor
from regard.tasks.text.translation import label_smoothed_cross_entropy, model_inputs, shift_targets


@dataclass(frozen=True)
class Config:
    """How much is measured."""

    eval_examples: int = EVAL_EXAMPLES  # sums of each length

    def quick(self) -> Config:
        """A few sums."""
        return replace(self, eval_examples=8)

    def build(self, data: Arithmetic, seed: int = 0, folder: Path | None = None) -> Addition:
        """The task on these data."""
        return Addition(self, data, seed)


class Addition(SplitTask[ArithmeticSplit]):
    """What the training loop trains: the loss, the sums it is measured on, and how many of them are right."""

    metrics = (EXACT_MATCH, fraction("accuracy", "digit accuracy"), loss_metric("nats per digit"))
    name = "arithmetic"
    data: Arithmetic

    def __init__(self, config: Config, data: Arithmetic, seed: int = 0) -> None:
        super().__init__(data, seed)
        self.config = config

    def fit(self, config: Any) -> Any:
        """A model's Config with what only the data know: the size of the vocabulary and its special tokens."""
        return replace(config, vocab=self.data.vocab_size, pad=PAD, bos=BOS, eos=EOS)

    def count(self, batch: PairBatch) -> int:
        """The number of digits to be written, and ends."""
        return count_target_tokens(batch)

    def loss(
        self, model: nn.Module, batch: PairBatch, step: int = 0, rng: torch.Generator | None = None
    ) -> tuple[Float[Tensor, ""], dict[str, Tensor]]:
        """The loss summed over the digits of all sums."""
        logits, pass_state = call_with_state(model, *model_inputs(batch))
        total = label_smoothed_cross_entropy(logits, shift_targets(batch), 0.0)
        return self.with_layer_losses(total, batch, pass_state), {"loss": total.detach()}

    def describe(self) -> dict[str, Any]:
        """The task as plain values, to stand beside a saved model."""
        return {"name": self.name, "base": self.data.base, "layout": self.data.layout}

    def card(self) -> str:
        """One line on the data, for the run's first line."""
        d = self.data
        return f"sums in base {d.base}, {d.layout}, of numbers of up to {d.digits} digits; {d.batch_size} a batch"

    @torch.no_grad()
    def evaluate(self, model: nn.Module, split: str = "val", effort: int = 2) -> dict[str, Any]:
        """How good a model is on a part of the data. Keys: loss (nats per digit), digits (share of right ones, when all
        before are given); from effort 1 right (share of sums without a wrong digit), all lengths together, and
        right_<digits> for each length."""
        device = next(model.parameters()).device
        model.eval()
        loss = torch.zeros((), dtype=torch.float64, device=device)
        good, tokens, right = torch.zeros((), dtype=torch.int64, device=device), 0, dict[int, int]()
        for length in self.dataset(split).lengths():
            for batch in self.dataset(split).eval_batches(length, self.config.eval_examples):
                tokens += self.count(batch)
                here = batch.to(device)
                logits, wanted = model(*model_inputs(here)), shift_targets(here)
                loss += label_smoothed_cross_entropy(logits, wanted, 0.0)
                good += (logits.argmax(-1) == wanted).sum()
                if effort:
                    right[length] = right.get(length, 0) + _count_exact(model, here)
        result: dict[str, Any] = {"loss": float(loss) / tokens, "accuracy": int(good) / tokens, "tokens": tokens}
        if right:
            eval_examples = self.config.eval_examples
            result["exact_match"] = sum(right.values()) / (eval_examples * len(right))
            result |= {f"exact_match_{length}": found / eval_examples for length, found in right.items()}
        return result


def _count_exact(model: nn.Module, batch: PairBatch) -> int:
    """How many sums are written without a mistake."""
    written = greedy_search(
        cast(Decodable, model), batch.source, batch.source_lengths, max_length=batch.target.shape[1]
    )
    wanted = batch.target[:, 1:-1].tolist()
    return sum(found.finished and found.tokens == line for found, line in zip(written, wanted, strict=True))


class Calculator(Predictor):
    """Sums as text: ``add("1011+110")`` returns ``"10001"``, in the base of the model."""

    inputs = {"text": Text}  # noqa: RUF012
    outputs = Text
    examples = ("1011+110", "111+1")

    def __init__(self, model: nn.Module, base: int = 2, layout: str = "aligned") -> None:
        self.model, self.base, self.layout = model.eval(), base, layout
        self.data = Arithmetic(base=base, layout=layout)  # type: ignore[arg-type]

    def predict(self, batch: list[Any], options: Any) -> list[Text]:
        return [Text(self.add(line)) for line in batch]

    def add(self, line: str) -> str:
        """Return the sum that the model writes, without leading zeros; the shorter number is padded with zeros."""
        found = re.fullmatch(rf"\s*([0-{self.base - 1}]+)\s*\+\s*([0-{self.base - 1}]+)\s*", line)
        if not found:
            raise BadInput(f"{str(line)!r} is no sum of two numbers in base {self.base}; write for example 101+11")
        numbers = [number[::-1] for number in found.groups()]
        long = max(map(len, numbers))
        a, b = (torch.tensor([[int(digit) for digit in number.ljust(long, "0")]]) for number in numbers)
        source = self.data.source(a, b).to(next(self.model.parameters()).device)
        lengths = torch.full((1,), source.shape[1], device=source.device)
        (written,) = greedy_search(cast(Decodable, self.model), source, lengths, max_length=long + 2)
        digits = [token - FIRST_DIGIT for token in written.tokens[::-1]]
        # what is no digit (a model that is not trained may write anything) is shown as such
        text = "".join(str(digit) if 0 <= digit < self.base else "?" for digit in digits)
        return text.lstrip("0") or "0"
