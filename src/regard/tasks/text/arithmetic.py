"""Arithmetic: two numbers in, their sum out, digit by digit; trained on short numbers, tested on long ones.

    input        Text: "1011+110"
    output       Text: "10001", as the model predicts it
    loss         cross-entropy of the digits of the sum, lowest first, and of its end
    metrics      exact match: the share of sums with no wrong digit, by greedy search; accuracy of digits
    decoding     greedy search (decoding.beam_search); any model that decodes step by step can be trained on it

The curriculum is that of the data (data.synthetic.arithmetic): the length of the numbers depends on the epoch only, so
that a resumed run continues as before.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import torch
from torch import nn

from regard.core.cancellation import check_cancelled
from regard.core.decodable import Decodable
from regard.core.errors import BadInput, shorten
from regard.core.shapes import Float, Tensor
from regard.data.synthetic.arithmetic import BOS, EOS, EVAL_EXAMPLES, FIRST_DIGIT, PAD, Arithmetic, ArithmeticSplit
from regard.data.text.parallel_corpus import PairBatch, count_target_tokens
from regard.decoding.beam_search import greedy_search
from regard.losses.label_smoothed_cross_entropy import label_smoothed_cross_entropy
from regard.metrics.base import EXACT_MATCH, fraction, loss_metric
from regard.modalities.text import Text
from regard.tasks.base import SplitTask, call_with_state
from regard.tasks.predictor import Predictor
from regard.tasks.text.translation import model_inputs, shift_targets


@dataclass(frozen=True)
class Config:
    """Settings of evaluation."""

    eval_examples: int = EVAL_EXAMPLES  # sums of each length

    def quick(self) -> Config:
        """Return the settings of a quick run."""
        return replace(self, eval_examples=8)

    def build(self, data: Arithmetic, seed: int = 0, folder: Path | None = None) -> Addition:
        """Return the task on these data."""
        return Addition(self, data, seed)


class Addition(SplitTask[ArithmeticSplit]):
    """Train and evaluate a model that adds numbers."""

    metrics = (EXACT_MATCH, fraction("accuracy", "digit accuracy"), loss_metric("nats per digit"))
    name = "arithmetic"
    data: Arithmetic

    def __init__(self, config: Config, data: Arithmetic, seed: int = 0) -> None:
        super().__init__(data, seed)
        self.config = config

    def fit(self, config: Any) -> Any:
        return replace(config, vocab=self.data.vocab_size, pad=PAD, bos=BOS, eos=EOS)

    def count(self, batch: PairBatch) -> int:
        return count_target_tokens(batch)

    def loss(
        self, model: nn.Module, batch: PairBatch, step: int = 0, rng: torch.Generator | None = None
    ) -> tuple[Float[Tensor, ""], dict[str, Tensor]]:
        logits, pass_state = call_with_state(model, *model_inputs(batch))
        total = label_smoothed_cross_entropy(logits, shift_targets(batch), 0.0)
        return self.with_layer_losses(total, batch, pass_state), {"loss": total.detach()}

    def describe(self) -> dict[str, Any]:
        return {"name": self.name, "base": self.data.base, "layout": self.data.layout}

    def card(self) -> str:
        d = self.data
        return f"sums in base {d.base}, {d.layout}, of numbers of up to {d.digits} digits; {d.batch_size} a batch"

    @torch.no_grad()
    def evaluate(self, model: nn.Module, split: str = "val", effort: int = 2) -> dict[str, Any]:
        """Return the metrics of a model on a split: loss (nats per digit), accuracy (of digits, teacher-forced);
        from effort 1 exact_match over all lengths, and exact_match_<digits> for each length.
        """
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
    """Return how many sums have no wrong digit."""
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
        """Return the sum as the model predicts it, without leading zeros; the shorter number is padded with zeros."""
        check_cancelled()
        found = re.fullmatch(rf"\s*([0-{self.base - 1}]+)\s*\+\s*([0-{self.base - 1}]+)\s*", line)
        if not found:
            given = shorten(repr(str(line)))
            raise BadInput(f"{given} is not a sum of two numbers in base {self.base}; expected for example 101+11")
        numbers = [number[::-1] for number in found.groups()]
        long = max(map(len, numbers))
        a, b = (torch.tensor([[int(digit) for digit in number.ljust(long, "0")]]) for number in numbers)
        source = self.data.source(a, b).to(next(self.model.parameters()).device)
        lengths = torch.full((1,), source.shape[1], device=source.device)
        (written,) = greedy_search(cast(Decodable, self.model), source, lengths, max_length=long + 2)
        digits = [token - FIRST_DIGIT for token in written.tokens[::-1]]
        # an untrained model may predict tokens that are no digits
        text = "".join(str(digit) if 0 <= digit < self.base else "?" for digit in digits)
        return text.lstrip("0") or "0"
