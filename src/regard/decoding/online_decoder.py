"""Streaming decoder: an online model writes while it still reads.

    stream = OnlineDecoder(model)
    for letter in letters:
        tokens += stream.read(letter)       # empty, or the token written at this letter
    tokens += stream.end()                  # the tokens left when all was read

The output equals greedy search over the whole source (tested), only sooner: `read` never waits for later input, and its
cost does not depend on the length read so far.
"""

from __future__ import annotations

from typing import Any

import torch

from regard.core.errors import RegardError
from regard.core.shapes import Tensor


class OnlineDecoder:
    """One output that grows with its input. At most `max_trailing_tokens` follow the end of the input."""

    def __init__(self, model: Any, max_trailing_tokens: int = 200, banned_tokens: tuple[int, ...] = ()) -> None:
        if not hasattr(model, "encode_step"):
            raise RegardError(f"{type(model).__name__} reads its whole source first; only an online model can stream")
        self.model, self.max_trailing_tokens, self.banned_tokens = (
            model.eval(),
            max_trailing_tokens,
            list(banned_tokens),
        )
        example = model.end_of_source[None, None]
        self.encoder_state, self.hidden = (
            model.initial_states(model.config.layers, example),
            model.initial_states(1, example),
        )
        self.token, self.has_written = (
            torch.full((1, 1), model.config.bos, device=example.device),
            example.new_zeros(1, 1, 1),
        )
        self.frames: list[Tensor] = []  # buffered until there are `frame_stack` of them
        self.ended = False

    @torch.inference_mode()
    def read(self, x: int | Tensor) -> list[int]:
        """Read one more token or frame of the source; return the tokens written."""
        if self.ended:
            return []
        device, stack = self.token.device, self.model.config.frame_stack
        self.frames.append(torch.as_tensor(x, device=device))
        if len(self.frames) < stack:
            return []
        self.encoder_state, self.frames = self.model.encode_step(torch.stack(self.frames)[None], self.encoder_state), []
        return self._step(self.encoder_state[-1][0], forced=False)

    @torch.inference_mode()
    def end(self) -> list[int]:
        """Signal the end of the source; return the remaining tokens."""
        tokens: list[int] = []
        if self.frames:  # an incomplete last group of frames
            empty = [torch.zeros_like(self.frames[0])] * (self.model.config.frame_stack - len(self.frames))
            for frame in empty:
                tokens += self.read(frame)
        end_of_source = self.model.end_of_source[None, None]
        while not self.ended and len(tokens) < self.max_trailing_tokens:
            tokens += self._step(end_of_source, forced=True)
        self.ended = True
        return tokens

    def _step(self, encoder_state: Tensor, forced: bool) -> list[int]:
        model = self.model
        input_gates, embedded = model.cells.input_gates(encoder_state), model.embed_target(self.token)
        self.hidden, is_written = model.step_and_decide(input_gates, embedded, self.has_written, self.hidden)
        is_written = is_written | forced
        self.has_written = is_written[..., None].to(embedded.dtype)
        if not bool(is_written):
            return []
        logits = model.head(self.hidden[-1][0])[0, 0]
        if self.banned_tokens:
            logits[self.banned_tokens] = -torch.inf
        self.token = logits.argmax().view(1, 1)
        token = int(self.token)
        self.ended = token == model.eos
        return [] if self.ended else [token]
