"""Streaming: an online model writes while it is still being read to.

    stream = Streamed(model)
    for letter in letters:
        said += stream.read(letter)       # nothing, or the token that was written at this letter
    said += stream.end()                  # what was left to be said when all was read

What comes out is what greedy search over the whole source gives (a law), only sooner: `read` never waits for what comes
later, and what it costs does not depend on how much was read before.
"""

from __future__ import annotations

from typing import Any

import torch

from regard.core.errors import RegardError
from regard.core.shapes import Tensor


class OnlineDecoder:
    """One output that grows while its input does. `most` limits what is said after the end, `ban` is never said."""

    def __init__(self, model: Any, max_trailing_tokens: int = 200, banned_tokens: tuple[int, ...] = ()) -> None:
        if not hasattr(model, "encode_step"):
            raise RegardError(f"{type(model).__name__} reads its whole source first; only an online model can stream")
        self.model, self.max_trailing_tokens, self.banned_tokens = (
            model.eval(),
            max_trailing_tokens,
            list(banned_tokens),
        )
        like = model.end_of_source[None, None]
        self.heard, self.hidden = model.initial_states(model.config.layers, like), model.initial_states(1, like)
        self.word, self.wrote = torch.full((1, 1), model.config.bos, device=like.device), like.new_zeros(1, 1, 1)
        self.waiting: list[Tensor] = []  # frames, until there are as many as are heard at a time
        self.ended = False

    @torch.inference_mode()
    def read(self, x: int | Tensor) -> list[int]:
        """One more token of the source, or one more frame of it; what is written at once."""
        if self.ended:
            return []
        device, stack = self.word.device, self.model.config.frame_stack
        self.waiting.append(torch.as_tensor(x, device=device))
        if len(self.waiting) < stack:
            return []
        self.heard, self.waiting = self.model.encode_step(torch.stack(self.waiting)[None], self.heard), []
        return self._go(self.heard[-1][0], forced=False)

    @torch.inference_mode()
    def end(self) -> list[int]:
        """Nothing more will come: all that is left to be said."""
        said: list[int] = []
        if self.waiting:  # a last group of frames that is not full
            empty = [torch.zeros_like(self.waiting[0])] * (self.model.config.frame_stack - len(self.waiting))
            for frame in empty:
                said += self.read(frame)
        over = self.model.end_of_source[None, None]
        while not self.ended and len(said) < self.max_trailing_tokens:
            said += self._go(over, forced=True)
        self.ended = True
        return said

    def _go(self, heard: Tensor, forced: bool) -> list[int]:
        model = self.model
        known, words = model.cells.input_gates(heard), model.embed_target(self.word)
        self.hidden, emits = model.step_and_decide(known, words, self.wrote, self.hidden)
        emits = emits | forced
        self.wrote = emits[..., None].to(words.dtype)
        if not bool(emits):
            return []
        logits = model.head(self.hidden[-1][0])[0, 0]
        if self.banned_tokens:
            logits[self.banned_tokens] = -torch.inf
        self.word = logits.argmax().view(1, 1)
        token = int(self.word)
        self.ended = token == model.eos
        return [] if self.ended else [token]
