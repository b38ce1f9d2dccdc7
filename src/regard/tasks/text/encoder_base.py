"""What tasks share in which an encoder reads a text once and a head gives the answer.

A task says which head it needs, what the loss of a batch is and how answers are scored; the vocabulary, the splits of
the data and the length that fits the model are the same for all. `EncoderPredictor` is the base of their predictors.
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

BATCH_TOKENS = 16_384  # that go through a model at a time where nothing is trained


class EncoderTask(TextTask[Any]):
    """A task over texts. What is to be done: `head`, `training_loss`, `evaluate`."""

    def head(self) -> str:
        """The head that a model needs, as a spec."""
        raise NotImplementedError

    def fit(self, config: Any) -> Any:
        """A model's Config with what only the data know: the size of the vocabulary, and the head."""
        check_length(self.data.max_length, config)
        return replace(config, vocab=self.text.size, head=self.head())


class EncoderPredictor(Predictor):
    """An encoder with its vocabulary."""

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
        """Rows through the model, longest first, about so many tokens at a time; gives (row numbers, answer).

        Lengths hide the padding, so that company does not change an answer. `at`: the places of each row at which words
        are asked for, and nowhere else; what is answered beyond them, where another row has more, means nothing.
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
        """The numbers of one text between its marks."""
        return self.text.with_special_tokens(self.text.encode_one(text))[0]

    def attention(self, text: str) -> list[Trace]:
        """The maps of all layers for one text, its pieces as the names of their rows and columns."""
        ids = self.encode(*check_texts([text]))
        if len(ids) > self.room:
            raise BadInput(f"the text has {len(ids)} tokens with its marks, this model reads {self.room}: shorten it")
        return self._maps(ids)

    def _maps(self, ids: list[int], segments: list[int] | None = None) -> list[Trace]:
        """The maps of one row of numbers."""
        device = next(self.model.parameters()).device
        which = None if segments is None else torch.tensor([segments], device=device)
        with torch.no_grad(), watch(self.model) as seen:
            self.model(torch.tensor([ids], device=device), which)
        pieces = self.text.pieces(ids)
        return [trace.with_labels(pieces, pieces) for trace in seen.traces()]


Data = TypeVar("Data")


def evaluation_data(
    kind: Callable[..., Data], corpus: Any, saved: Mapping[str, Any], changes: Mapping[str, Any]
) -> Data:
    """The data of a name to measure a saved model on, whose config.json this is; they must have its labels."""
    task = saved["task"]
    if other := changes.keys() - {"limit"}:
        raise BadInput(f"a model of the task '{task['name']}' is measured on texts as they are; it has no {min(other)}")
    data: Any = kind(corpus, max_length=task.get("max_length") or saved["config"]["length"], **changes)
    labels = task.get("labels")
    if labels is not None and list(data.labels()) != list(labels):
        theirs = ", ".join(map(str, data.labels()))
        raise BadInput(f"{corpus} has the labels {theirs}; this model knows {', '.join(map(str, labels))}")
    found: Data = data
    return found


def check_length(length: int, config: Any) -> None:
    """Refuse rows that are longer than the positions a model learns."""
    if Spec.parse(config.positions).name == "learned" and length > config.length:
        raise BadInput(
            f"rows have up to {length} tokens, but the model learns {config.length} positions: lower data.max_length, "
            f"raise model.length, or take positions that have no end (model.positions=rotary)"
        )


def check_texts(given: Any, what: str = "text") -> list[str]:
    """A list of texts, each of them text and not blank."""
    if isinstance(given, str):
        raise BadInput(f"give a list of {what}s, not a single one")
    found = list(require_iterable(given, f"{what}s"))
    for number, each in enumerate(found, 1):
        if not isinstance(each, str):
            raise BadInput(f"{what} {number} is a {type(each).__name__}, not text")
        if not each.strip():
            raise BadInput(f"{what} {number} is empty; give at least a word")
    return found
