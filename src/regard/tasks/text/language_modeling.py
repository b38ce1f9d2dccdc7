"""Language modelling: at every place of a text, the token that comes next.

    objective    cross-entropy, summed over all tokens (losses.fused_linear_cross_entropy); no logits are materialised
                 plus, where feed-forwards are mixtures of experts, `balance` times what keeps these equally busy
    metric       loss (nats per token), perplexity, accuracy of the likeliest token; bits per byte, if the text is known
    decoding     sampling, greedy or beam search (decoding.beam_search)
    predict      `TextGenerator`: prompts in, what comes after them out (tasks.text.text_generator)

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

from regard.core.config import field
from regard.core.errors import BadInput
from regard.core.layer_state import PassState
from regard.core.shapes import Float, Tensor
from regard.core.spec import Spec
from regard.data.shards.index import INDEX_FILE
from regard.data.shards.token_shards import TokenBatch, TokenShards, TokenWindows, count_predicted_tokens, find_shards
from regard.data.text.text_file import TextFile
from regard.losses.fused_linear_cross_entropy import fused_linear_cross_entropy, fused_linear_loss_and_correct
from regard.metrics.base import BITS_PER_BYTE, PERPLEXITY, fraction, loss_metric
from regard.tasks.base import TextTask, load_tokenizer

if TYPE_CHECKING:
    from regard.tokens.tokenizer import Tokenizer


@dataclass(frozen=True)
class Config:
    """How a language model is trained and measured."""

    label_smoothing: float = field(0.0, low=0, below=1)
    chunk_size: int | None = None  # rows of logits that exist at a time; None: what suits the device
    eval_examples: int | None = (
        None  # rows read at each look while training, spread evenly; None: the whole validation part
    )
    stride: int | None = None  # of a report: tokens from one row to the next; None: a whole row
    balance: float = field(
        0.0, low=0
    )  # of the loss that keeps the experts of a mixture equally busy (blocks.experts), layers summed

    def quick(self) -> Config:
        """A few rows at each look."""
        return replace(self, eval_examples=8)

    def build(self, data: TextFile | TokenShards, seed: int = 0, folder: Path | None = None) -> LanguageModeling:
        """The task on these data; with the vocabulary in the folder where one is given, else theirs."""
        return LanguageModeling(self, data, load_tokenizer(folder), seed)

    @staticmethod
    def eval_data(corpus: str, saved: Mapping[str, Any], **changes: Any) -> TextFile | TokenShards:
        """The data of a name (shards or plain text) to measure a saved model on, whose config.json this is."""
        if other := changes.keys() - {"limit"}:
            raise BadInput(f"a language model is measured on one text; it has no {min(other)}")
        context = int(saved["config"]["length"])
        with suppress(BadInput):
            if (find_shards(corpus) / INDEX_FILE).is_file():
                return TokenShards(corpus, context_length=context, **changes)
        return TextFile(corpus, context_length=context, **changes)


class LanguageModeling(TextTask[TokenWindows]):
    """What the training loop trains: the loss, the batches it is measured on, and how good the model is."""

    metrics = (loss_metric("nats per token"), PERPLEXITY, BITS_PER_BYTE, fraction("accuracy", "token accuracy"))
    name = "language_modeling"
    ragged = False  # all batches have one shape
    capturable = True
    data: TextFile | TokenShards

    def __init__(
        self, config: Config, data: TextFile | TokenShards, text: Tokenizer | None = None, seed: int = 0
    ) -> None:
        super().__init__(data, text, seed)
        self.config = config
        self.objective: Callable[[Tensor, Tensor, Tensor], Tensor] = fused_linear_cross_entropy
        if config.chunk_size is not None or config.label_smoothing:
            self.objective = partial(
                fused_linear_cross_entropy, chunk_size=config.chunk_size, label_smoothing=config.label_smoothing
            )

    def fit(self, config: Any) -> Any:
        """A model's Config with what only the data know: the size of the vocabulary and its end token."""
        if Spec.parse(config.positions).name == "learned" and self.data.context_length > config.length:
            raise BadInput(
                f"rows have {self.data.context_length} tokens, but the model learns {config.length} positions: lower "
                f"data.context_length, raise model.length, or take positions that have no end (model.positions=rotary)"
            )
        return replace(config, vocab=self.text.size, eos=self.text.eos)

    def count(self, batch: TokenBatch) -> int:
        """The number of tokens to be predicted; asked on the host, before the batch travels."""
        return count_predicted_tokens(batch)

    def loss(
        self, model: nn.Module, batch: TokenBatch, step: int = 0, rng: torch.Generator | None = None
    ) -> tuple[Float[Tensor, ""], dict[str, Tensor]]:
        """Cross-entropy summed over the batch, taken inside the model's forward pass, so that one graph holds both."""
        pass_state, tokens = PassState(), batch.inputs.numel()
        total = model(batch.inputs, targets=batch.targets, loss=self.objective, pass_state=pass_state)
        parts = {"loss": total.detach()}
        layer_losses = pass_state.weighted_loss({"balance": self.config.balance})  # means over tokens
        if layer_losses is not None:
            total = total + tokens * layer_losses
        if balance := pass_state.losses("balance"):
            busiest = torch.stack(pass_state.collect("expert_load")).max()
            parts |= {"balance": tokens * torch.stack(balance).mean().detach(), "busiest": tokens * busiest}
        return total, parts

    def describe(self) -> dict[str, Any]:
        """The task as plain values, to stand beside a saved model."""
        return {"name": self.name}

    def card(self) -> str:
        """One line on the data, for the run's first line."""
        train, text = self.dataset("train"), self.text
        where = self.data.corpus if isinstance(self.data, TextFile) else self.data.path
        return (
            f"{where}, {train.tokens:,} tokens, {self.data.batch_size} rows of {self.data.context_length} a batch, "
            f"vocabulary {text.size:,} {text.kind}"
        )

    def _load(self, split: str) -> TokenWindows:
        data = self.data
        return data.load(split, self.text) if isinstance(data, TextFile) else data.load(split)

    @torch.no_grad()
    def evaluate(
        self, model: nn.Module, split: str = "val", effort: int = 2, stride: int | None = None
    ) -> dict[str, Any]:
        """Return how good a model is on a split: loss (nats per token), perplexity, accuracy (of the likeliest next
        token), tokens, bits_per_byte where the text's size is known, and experts (of each mixture the share of the
        choices that each of its experts got) where there are any. From effort 2 on all of the part, below it the rows
        that `looks` asks for: always the same ones."""
        part, device = self.dataset(split), next(model.parameters()).device
        model.eval()
        total = torch.zeros(2, dtype=torch.float64, device=device)
        tokens, busy = 0, []
        looks = None if effort > 1 else self.config.eval_examples
        for batch in part.eval_batches(max(self.data.context_length, 16_384), looks, stride):
            tokens += self.count(batch)
            batch = batch.to(device)
            pass_state = PassState()
            total += model(
                batch.inputs, targets=batch.targets, loss=fused_linear_loss_and_correct, pass_state=pass_state
            )
            if load := pass_state.collect("expert_load"):
                busy.append(batch.inputs.numel() * torch.stack(load))
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
        about = {"split": self.data.split(split), "context": self.data.context_length}
        return self.evaluate(model, split, stride=stride) | about | ({} if stride is None else {"stride": stride})
