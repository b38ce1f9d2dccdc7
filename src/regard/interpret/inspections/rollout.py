"""Rollout and relevance through all layers, for sequences of tokens.

A model is a row of layers over one or two streams of tokens (a translator's source and target). One row r, the share of
every token of every stream, is carried down from the top; a layer that writes stream a and reads stream b does

    rollout      r_b += (1 - share) r_a W̄,   r_a ← share · r_a (+ the same, where a is b)        W̄: the mean of heads
    relevance    r_b += r_a Ā,                Ā = mean_h max(0, ∂answer/∂W_h ⊙ W_h)

Rollout's r always sums to one over all streams. Of relevance, what came by no attention at all is taken off. No matrix
of several layers is ever formed; weights are made for the rows that carry something, some at a time.

Abnar, Zuidema: Quantifying Attention Flow in Transformers. ACL 2020. arXiv:2005.00928
Chefer, Gur, Wolf: Generic Attention-model Explainability. ICCV 2021. arXiv:2103.15679
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from regard.attention.capture.map_store import LazyMap, MapStore
from regard.attention.capture.watch import watch
from regard.core.errors import BadInput, Unsupported
from regard.core.shapes import Float, Tensor
from regard.runtime.inference import is_inference_only

RESIDUAL_SHARE = 0.5  # of the way around attention
MAX_ROLLOUT_WEIGHTS = 2**30  # weights that are made for one rollout: some ten seconds on one core
MAX_RELEVANCE_WEIGHTS = 2**27  # weights that are held at once with their gradients for one relevance: 1 GB
_CHUNK_WEIGHTS = 2**24  # weights made at a time

Streams = tuple[str, str]  # written, read


@dataclass(frozen=True, eq=False)
class LayerPaths:
    """The layers of one pass, in the order they ran, and the streams of each."""

    store: MapStore
    streams: Mapping[str, Streams]
    lengths: Mapping[str, int]

    @property
    def whole(self) -> bool:
        """Whether attention between the tokens is all that mixes them: not where a recurrent network reads, nor where
        tokens meet in a memory, in spans or in a relay node."""
        return all(
            held.kind != "align" and held.geometry is None and self._fits(name) for name, held in self.store.items()
        )

    def _fits(self, name: str) -> bool:
        """Whether a map has a row and a column for each token of its streams."""
        held, (writes, reads) = self.store[name], self.streams[name]
        return (held.rows, held.columns) == (self.lengths[writes], self.lengths[reads])

    @property
    def weights(self) -> int:
        """Return the number of weights."""
        return sum(held.heads * held.rows * held.columns for held in self.store.values())

    @torch.no_grad()
    def rollout(self, stream: str, query: int) -> dict[str, np.ndarray]:
        """Return, for every stream, the share of each token in one token of the last layer."""
        self._check(MAX_ROLLOUT_WEIGHTS)
        rows = self._start(stream, query)
        for name in reversed(self.store.names()):
            held, (writes, reads) = self.store[name], self.streams[name]
            own = rows[writes]
            seen = _propagate_row(held, own)
            rows[writes] = RESIDUAL_SHARE * own
            rows[reads] = rows[reads] + (1 - RESIDUAL_SHARE) * seen
        return {name: row.float().cpu().numpy() for name, row in rows.items()}

    def relevance(
        self,
        model: nn.Module,
        inputs: Sequence[Any],
        answer: Callable[[Any], Tensor],
        stream: str,
        query: int,
    ) -> dict[str, np.ndarray]:
        """Return, for every stream, the relevance of each token for a logit read off one token of the last layer."""
        self._check(MAX_RELEVANCE_WEIGHTS)
        require_gradients(model)
        with torch.enable_grad(), watch(model, gradients=True) as seen:
            torch.autograd.grad(answer(model(*inputs)), _input_embeddings(model), allow_unused=True)
        rows = self._start(stream, query)
        for name in reversed(self.store.names()):
            trace, (writes, reads) = seen[name], self.streams[name]
            if trace.gradient is not None:  # None: nothing of this layer reaches the answer
                each = (trace.gradient[0].double() * trace.weights[0].double()).clamp(min=0).mean(0)
                rows[reads] = rows[reads] + rows[writes] @ each
        rows[stream][query] -= 1
        return {name: row.float().cpu().numpy() for name, row in rows.items()}

    def _start(self, stream: str, query: int) -> dict[str, Float[Tensor, " N"]]:
        device = next(held for held in self.store.values()).weights(queries=[0]).device
        rows = {name: torch.zeros(n, dtype=torch.float64, device=device) for name, n in self.lengths.items()}
        rows[stream][query] = 1
        return rows

    def _check(self, most: int) -> None:
        if not self.whole:
            raise Unsupported("attention is not the only way through this model, so its layers cannot be taken as one")
        if self.weights > most:
            raise Unsupported(
                f"all layers as one would need {self.weights:.1e} weights here, more than {most:.1e}; "
                "give a shorter input, or look at single rows"
            )


def require_gradients(model: nn.Module) -> None:
    """Refuse a model without gradients."""
    if is_inference_only(model):
        raise Unsupported("a model that was made ready to serve has no gradients, so there is no relevance")


def _propagate_row(held: LazyMap, row: Float[Tensor, " N"]) -> Float[Tensor, " M"]:
    """A row times the mean of the heads, whose rows sum to one; made of the rows that carry something."""
    real = row.nonzero()[:, 0].tolist()
    out, some = row.new_zeros(held.columns), max(1, _CHUNK_WEIGHTS // (held.heads * held.columns))
    for at in range(0, len(real), some):
        queries = real[at : at + some]
        w = held.weights(queries=queries)[0].mean(0).double()
        total = w.sum(-1, keepdim=True)
        out += row[queries] @ (w / torch.where(total == 0, 1.0, total))
    return out


def _input_embeddings(model: nn.Module) -> list[Tensor]:
    """Return the embedding tables, which all layers depend on."""
    tables = [m.weight for m in model.modules() if isinstance(m, nn.Embedding) and m.weight.requires_grad]
    found = tables or [p for p in model.parameters() if p.requires_grad]
    if not found:
        raise Unsupported("The weights of this model are frozen, so there are no gradients.")
    return found


class TokenPaths:
    """Rollout and relevance of an inspection whose model says at every token which one comes next."""

    writes, reads = "text", "text"  # streams: of the predicted tokens, and of those that are told their share
    chosen: list[int]  # the next token at every place
    predictor: Any
    model_inputs: Any
    _with_interventions: Callable[[], Any]

    @property
    def paths(self) -> LayerPaths:
        """The layers as one."""
        raise NotImplementedError

    def rollout(self, query: int) -> np.ndarray:
        """Return the share of each token that is read in a predicted token, which other predicted ones share in."""
        self._check_token(query)
        return self.paths.rollout(self.writes, query)[self.reads]

    def relevance(self, target: int) -> np.ndarray:
        """Return the relevance of each token that is read for the token that was chosen at `target`."""
        self._check_token(target)
        with self._with_interventions():
            found = self.paths.relevance(
                self.predictor.model,
                self.model_inputs,
                lambda answer: answer[0, target, self.chosen[target]],
                self.writes,
                target,
            )
        return found[self.reads]

    def _check_token(self, number: int) -> None:
        if not 0 <= number < len(self.chosen):
            raise BadInput(f"there is no token {number} in the {self.writes}; there are 0 to {len(self.chosen) - 1}")
