"""Models that decode with a Transformer decoder: what a search needs of them (core.decodable).

AutoregressiveModel   step, select, freeze: the decoder's, between the embedding and the head
EncoderDecoder        start too: the source is encoded once
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from regard.attention.mask import DenseMask, PaddingMask
from regard.core.layer_state import PassState
from regard.core.shapes import Float, Int, Tensor

MAX_TRANSPOSED_ROWS = 256  # up to here reading the weights takes most of the time (estimated, not measured)


def transposed_linear(head: nn.Linear, x: Float[Tensor, "*B C"]) -> Float[Tensor, "*B V"]:
    """Return head(x), computed as (W xᵀ)ᵀ."""
    rows = x.reshape(-1, x.shape[-1])
    return (head.weight @ rows.mT).mT.contiguous().view(*x.shape[:-1], -1)


def _prefers_transposed(head: nn.Module, x: Tensor) -> bool:
    """Whether to transpose the product: rows of an odd number of logits (GPT-2 has 50,257) are not aligned, so that a
    GPU takes a slow kernel (95 of the 720 µs of a step on an H200); columns are. The transposed form has not been
    timed."""
    if type(head) is not nn.Linear or head.bias is not None or x.device.type != "cuda" or x.dtype.itemsize > 2:
        return False
    hooked = head._forward_hooks or head._forward_pre_hooks
    return head.out_features % 8 > 0 and x.numel() <= MAX_TRANSPOSED_ROWS * x.shape[-1] and not hooked


class AutoregressiveModel(nn.Module):
    """A model with an embedding, a decoder that steps, and a head."""

    config: Any
    embed: Any
    decoder: Any
    head: Any

    def embed_tokens(self, tokens: Int[Tensor, "B N"]) -> Float[Tensor, "B N C"]:
        """Return the vectors of tokens that the decoder reads."""
        return self.embed(tokens)

    def logits(self, x: Float[Tensor, "B N C"]) -> Float[Tensor, "B N V"]:
        """Return the logits of the next token."""
        return transposed_linear(self.head, x) if _prefers_transposed(self.head, x) else self.head(x)

    @property
    def eos(self) -> int:
        eos: int = self.config.eos
        return eos

    def step(self, tokens: Int[Tensor, "B K"], state: Any) -> tuple[Float[Tensor, "B K V"], Any]:
        """Return the logits of the next token of every beam."""
        x, state = self.decoder.step(self.embed_tokens(tokens), state)
        return self.logits(x), state

    def select(self, state: Any, rows: Int[Tensor, " R"] | None, beams: Int[Tensor, "R K"]) -> Any:
        """Keep the inputs `rows` (None: all), of each the beams `beams`."""
        return self.decoder.select(state, rows, beams)

    def freeze(self, state: Any) -> Any:
        """Make every shape of the state static, so that a step can be captured and replayed."""
        return self.decoder.freeze(state)


class EncoderDecoder(AutoregressiveModel):
    """A model that encodes a source before it decodes."""

    def encode(
        self,
        source: Int[Tensor, "B N"],
        source_lengths: Int[Tensor, " B"] | None = None,
        pass_state: PassState | None = None,
    ) -> Float[Tensor, "B N C"]:
        """Return the encoder's output."""
        raise NotImplementedError

    def start(
        self, source: Int[Tensor, "B N"], source_lengths: Int[Tensor, " B"] | None = None, *, capacity: int
    ) -> tuple[Int[Tensor, "B 1"], Any]:
        """Encode the source; return the first token of every target and a state for `capacity` slots."""
        padded = source_lengths is not None and int(source_lengths.min()) < source.shape[1]
        return self.start_masked(source, source_lengths if padded else None, capacity)

    def start_masked(
        self, source: Int[Tensor, "B N"], lengths: Int[Tensor, " B"] | None, capacity: int
    ) -> tuple[Int[Tensor, "B 1"], Any]:
        """As `start`, but with lengths the memory is masked whatever they are: a graph reads no values."""
        memory = self.encode(source, lengths)
        mask = None if lengths is None else DenseMask(PaddingMask(lengths).real(source.shape[1])[:, None])
        first = torch.full((source.shape[0], 1), self.config.bos, device=source.device)
        return first, self.decoder.start(memory, mask, capacity)
