"""What all searches share: time, limits, forced beginnings, and inputs that leave the batch when they are done.

A search steps a model until every input is done. On a CPU it looks after each step at who is done, on a GPU after every
few: a look waits for the device. Whoever iterates over a search gets a turn at every look; whoever wants to see how it
came to what it found looks on (tasks.observer).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from regard.core.errors import RegardError
from regard.core.shapes import Float, Tensor
from regard.core.steps import Steps
from regard.tasks import recorded
from regard.tasks.observer import observer
from regard.tasks.sampling import DEAD

LOOK = 8  # on a GPU, steps between looks at who is done


@dataclass(frozen=True)
class Hypothesis:
    """One output: its tokens without bos and eos, its score, and whether it ended by itself."""

    tokens: list[int]
    score: float  # log-probability / length^penalty
    log_probability: float
    finished: bool


class Search:
    """A search that has not begun: `run` it, or iterate over it.

    `how` holds the settings that are numbers in Python and so become part of a recorded step.
    """

    how: Any = ()

    def __init__(
        self,
        model: Steps,
        inputs: tuple[Tensor, ...],
        max_length: int | Tensor,
        prefix: Sequence[Sequence[int]] | None,
        ban: Sequence[int],
        beams: int,
    ) -> None:
        self.model, self.beams, self.eos, self.observer = model, beams, model.eos, observer()
        batch, device = inputs[0].shape[0], inputs[0].device
        self.limit = torch.as_tensor(max_length, device=device).expand(batch).clone()
        self.last = int(self.limit.max()) if batch else 0
        if batch and int(self.limit.min()) < 1:
            raise RegardError("max_length must be at least 1")
        self.forced = _forced(prefix, batch, self.last, device)
        self.ban = torch.tensor(list(ban), device=device, dtype=torch.long) if ban else None
        self.origin = torch.arange(batch)  # which input each row of the batch is, on the host
        self.done = torch.zeros(batch, dtype=torch.bool, device=device)
        self.time = torch.zeros((), dtype=torch.long, device=device)
        self.steps = 0  # the time, on the host
        self.found: list[list[Hypothesis]] = [[] for _ in range(batch)]
        self.tokens: Tensor = self.limit  # of every beam, the newest
        self.state: Any = None
        if batch:
            room = -(-(1 + beams * self.last) // 16) * 16  # aligned: a GPU's kernels need not pad the mask
            self.tokens, self.state = model.start(*inputs, room=room)

    def run(self) -> list[list[Hypothesis]]:
        """Step until every input is done."""
        for _ in self:
            pass
        return self.found

    def __iter__(self) -> Iterator[None]:
        """Step until every input is done, with a break at every look."""
        cuda = self.done.is_cuda
        if self.observer is not None:
            self.observer.begins(self)
        replay: Callable[[], None] | None = None
        for t in range(self.last):
            with torch.inference_mode():  # not around the breaks: whoever iterates is not in it
                if t and (not cuda or t % LOOK == 0):
                    replay = replay if self.leave() else None
                    if not len(self.origin):
                        return
                if t and cuda and replay is None:
                    replay = recorded.step(self, may_record=t > 2)
                (replay or self.advance)()
            self.steps = t + 1
            if not cuda or self.steps % LOOK == 0 or self.steps == self.last:
                yield
        if self.last:
            self.collect(torch.arange(len(self.origin)))

    def leave(self) -> bool:
        """Let inputs that are done leave once a quarter of the batch is done; False when the batch changed."""
        live = (~self.done).nonzero().squeeze(1)
        # a GPU's step takes as long for half the inputs, and another batch means another recording
        share = 1 if live.is_cuda else 3
        if 4 * len(live) > share * len(self.done):
            return True
        self.collect(self.done.nonzero().squeeze(1).cpu())
        beams = torch.arange(self.tokens.shape[1], device=live.device).expand(len(live), -1)
        if len(live):
            self.state = self.model.select(self.state, live, beams)
        self.origin = self.origin[live.cpu()]
        self.keep(live)
        return False

    def scores(self) -> Tensor:
        """Logits of the next token of every beam, those that are banned ruled out; moves time."""
        logits, self.state = self.model.step(self.tokens, self.state)
        if self.ban is not None:
            logits = logits.index_fill_(-1, self.ban, DEAD)  # before the softmax: the rest shares their probability
        return logits

    def held(self, logits: Tensor) -> Tensor:
        """The logits with every word ruled out but the one that a prefix asks for at this time."""
        if self.forced is None:
            return logits
        word = self.forced.index_select(1, self.time[None])[:, :, None]  # B 1 1, -1 where free
        every = torch.arange(logits.shape[-1], device=logits.device)
        return logits.masked_fill((word >= 0) & (every != word), DEAD)

    def advance(self) -> None:
        """One step; every tensor that lives on is written in place, so that it can be replayed."""
        raise NotImplementedError

    def collect(self, rows: Tensor) -> None:
        """Put down the outputs of these rows."""
        raise NotImplementedError

    def keep(self, rows: Tensor) -> None:
        """Keep only these rows."""
        self.done, self.limit = self.done[rows], self.limit[rows]
        self.forced = None if self.forced is None else self.forced[rows]


def log_p(logits: Float[Tensor, "B k V"]) -> Float[Tensor, "B k V"]:
    """Log-probabilities: one fused pass, cheaper than the four of a logsumexp."""
    return logits.log_softmax(-1, dtype=torch.promote_types(logits.dtype, torch.float32))


def _forced(prefix: Sequence[Sequence[int]] | None, batch: int, last: int, device: torch.device) -> Any:
    if prefix is None:
        return None
    if len(prefix) != batch:
        raise RegardError(f"{len(prefix)} prefixes were given for {batch} inputs; give one for each (perhaps empty)")
    table = torch.full((batch, last), -1)
    for row, words in enumerate(prefix):
        if len(words) > last:
            raise RegardError(f"a forced prefix has {len(words)} tokens, but the output may have {last}")
        table[row, : len(words)] = torch.tensor(list(words), dtype=torch.long)
    return table.to(device)
