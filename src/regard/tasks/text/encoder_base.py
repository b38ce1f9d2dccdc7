"""What tasks of an encoder with a head share: classification, tagging, extractive question answering and others.

`EncoderTask` is the base class of the tasks, `EncoderPredictor` that of their predictors.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import nn

from regard.attention.capture.watch import watch
from regard.core.cancellation import check_cancelled
from regard.core.errors import BadInput, require_iterable
from regard.core.spec import Spec
from regard.core.trace import Trace
from regard.data.ragged import RaggedTensor
from regard.modalities.text import Text
from regard.tasks.base import TextTask
from regard.tasks.predictor import Predictor

if TYPE_CHECKING:
    from regard.tokens.tokenizer import Tokenizer

log = logging.getLogger("regard")

BATCH_TOKENS = 16_384  # tokens of a batch in evaluation and prediction


class EncoderTask(TextTask[Any]):
    """A task over texts; a subclass writes `head`, `loss` and `evaluate`."""

    def head(self) -> str:
        """Return the spec of the head that the model needs."""
        raise NotImplementedError

    def fit(self, config: Any) -> Any:
        check_length(self.data.max_length, config)
        return replace(config, vocab=self.text.size, head=self.head())


class EncoderPredictor(Predictor):
    """A predictor with an encoder and a tokenizer."""

    inputs = {"text": Text}  # noqa: RUF012

    def __init__(self, model: nn.Module, text: Tokenizer, max_length: int | None = None) -> None:
        self.model, self.text, self.max_length = model.eval(), text, max_length
        config: Any = model.config
        self.room: int = min(config.length, max_length or config.length)  # tokens of a row, special ones included

    def _rows(
        self,
        rows: Sequence[Sequence[int]],
        segments: Sequence[Sequence[int]] | None = None,
        at: Sequence[Sequence[int]] | None = None,
    ) -> Iterator[Any]:
        """Run the model on rows of token ids, longest first, in batches; yield (row numbers, output) of each.

        The padding is masked, so that other rows do not change an output. `at`: the positions of each row at which
        tokens are predicted; where a row has fewer than others, the rest of its output is undefined.
        """
        flat, device = RaggedTensor.from_rows(rows), next(self.model.parameters()).device
        second = None if segments is None else RaggedTensor.from_rows(segments)
        places = None if at is None else RaggedTensor.from_rows(at)
        order = torch.sort(flat.lengths, descending=True, stable=True).indices
        begin = 0
        while begin < len(order):
            check_cancelled()
            picked = order[begin : begin + max(1, BATCH_TOKENS // int(flat.lengths[order[begin]]))]
            begin += len(picked)
            tokens, lengths = flat.pad(picked, self.text.pad)
            which = None if second is None else second.pad(picked, 0)[0].to(device)
            asked = () if places is None else (places.pad(picked, 0)[0].to(device),)
            with torch.no_grad():
                yield picked.tolist(), self.model(tokens.to(device), which, lengths.to(device), *asked)

    def encode(self, text: str) -> list[int]:
        """Return the token ids of one text with its special tokens."""
        return self.text.with_special_tokens(self.text.encode_one(text))[0]

    def attention(self, text: str) -> list[Trace]:
        """Return the attention maps of all layers for one text, with its tokens as labels."""
        ids = self.encode(*check_texts([text]))
        if len(ids) > self.room:
            raise BadInput(
                f"the text has {len(ids)} tokens with special tokens, but this model takes {self.room}; shorten it"
            )
        return self._maps(ids)

    def _maps(self, ids: list[int], segments: list[int] | None = None) -> list[Trace]:
        """Return the attention maps of one row of token ids."""
        device = next(self.model.parameters()).device
        which = None if segments is None else torch.tensor([segments], device=device)
        with torch.no_grad(), watch(self.model) as seen:
            self.model(torch.tensor([ids], device=device), which)
        pieces = self.text.pieces(ids)
        sizes = ((trace, *trace.weights.shape[2:]) for trace in seen.traces())
        return [trace.with_labels(_labels(pieces, n), _labels(pieces, m)) for trace, n, m in sizes]


def _labels(pieces: list[str], size: int) -> list[str]:
    """Return the tokens as labels of a map's axis; nodes that are no tokens (spans, a memory, a relay) are numbered."""
    tokens = pieces if size >= len(pieces) else []
    return [*tokens, *(f"({number})" for number in range(1, size - len(tokens) + 1))]


Data = TypeVar("Data")


def evaluation_data(
    kind: Callable[..., Data], corpus: Any, saved: Mapping[str, Any], changes: Mapping[str, Any]
) -> Data:
    """Return the data of a name to evaluate a saved model on, given its config.json; labels must be the model's."""
    task = saved["task"]
    if other := changes.keys() - {"limit"}:
        raise BadInput(f"models of the task '{task['name']}' are evaluated on all texts and take no {min(other)}")
    data: Any = kind(corpus, max_length=task.get("max_length") or saved["config"]["length"], **changes)
    labels = task.get("labels")
    if labels is not None and list(data.labels()) != list(labels):
        theirs = ", ".join(map(str, data.labels()))
        raise BadInput(f"{corpus} has the labels {theirs}; this model has {', '.join(map(str, labels))}")
    found: Data = data
    return found


def check_length(length: int, config: Any) -> None:
    """Raise `BadInput` for rows that are longer than the learned positions."""
    if Spec.parse(config.positions).name == "learned" and length > config.length:
        raise BadInput(
            f"rows have up to {length} tokens, but the model learns {config.length} positions: lower data.max_length, "
            f"raise model.length, or use positions without a limit (model.positions=rotary)"
        )


def check_texts(given: Any, what: str = "text") -> list[str]:
    """Return a list of texts, checked to be strings and not blank."""
    if isinstance(given, str):
        raise BadInput(f"give a list of {what}s, not a single one")
    found = list(require_iterable(given, f"{what}s"))
    for number, each in enumerate(found, 1):
        if not isinstance(each, str):
            raise BadInput(f"{what} {number} is a {type(each).__name__}, not text")
        if not each.strip():
            raise BadInput(f"{what} {number} is empty; give at least a word")
    return found
