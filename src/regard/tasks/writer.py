"""Writing on: prompts in, what comes after them out.

    write = Writer(model, text)
    write(["ROMEO:"], tokens=200, temperature=0.8, top_k=40)

Every prompt is written on by itself: its own random numbers, its own end, whoever else is in the batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from regard.core.errors import BadInput
from regard.core.spec import Spec
from regard.tasks.search import greedy, sample

if TYPE_CHECKING:
    from regard.tokens.text import Text


class Writer:
    """A language model with its vocabulary, to be called."""

    def __init__(self, model: nn.Module, text: Text) -> None:
        self.model, self.text = model.eval(), text
        named = {text.pad, text.bos, text.unk}
        self.ban = sorted(i for i in named - {text.eos} if i is not None)  # marks, not words

    def __call__(
        self,
        prompts: Sequence[str],
        tokens: int = 200,
        temperature: float = 1.0,
        top_k: int = 0,
        top_p: float = 1.0,
        seed: int = 0,
    ) -> list[str]:
        """What follows each prompt, up to `tokens` tokens or the end token; temperature 0 takes the likeliest."""
        if isinstance(prompts, str):
            raise BadInput("give a list of prompts, not a single one")
        ids = self.text.encode(list(prompts))
        for prompt, numbers in zip(prompts, ids, strict=True):
            self._check(prompt, numbers, tokens)
        if not ids:
            return []
        device = next(self.model.parameters()).device
        lengths = torch.tensor([len(numbers) for numbers in ids])
        rows = torch.zeros(len(ids), int(lengths.max()), dtype=torch.long)
        for row, numbers in zip(rows, ids, strict=True):
            row[: len(numbers)] = torch.tensor(numbers)
        inputs: Any = (self.model, rows.to(device), lengths.to(device))
        if temperature == 0:
            found = greedy(*inputs, max_length=tokens, ban=self.ban)
        else:
            how: dict[str, Any] = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "seed": seed}
            found = [each[0] for each in sample(*inputs, max_length=tokens, ban=self.ban, **how)]
        whole = self.text.decode([[*a, *b.tokens] for a, b in zip(ids, found, strict=True)])
        before = self.text.decode(ids)
        return [text[len(start) :] for text, start in zip(whole, before, strict=True)]

    def _check(self, prompt: str, numbers: list[int], tokens: int) -> None:
        """Refuse what cannot be written on, rather than cut it."""
        if not numbers:
            raise BadInput(f"the prompt {prompt!r} is empty; give at least a character")
        config: Any = self.model.config
        room = config.length if Spec.parse(config.positions).name == "learned" else None
        if room is not None and len(numbers) + tokens > room + 1:  # the last token written is not read again
            raise BadInput(
                f"a prompt of {len(numbers)} tokens and {tokens} more do not fit the model's {room}: "
                f"shorten the prompt, or ask for at most {max(0, room + 1 - len(numbers))} tokens"
            )
