"""Base of all searches: time, limits, forced prefixes, and inputs that leave the batch when they are done.

A search steps a model until every input is done. Which inputs are done is checked after each step on a CPU and after
every few on a GPU, where a check waits for the device. Iterating over a search yields at every check; a
`SearchObserver` (decoding.search_observer) sees every step.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from regard.core.cancellation import check_cancelled
from regard.core.decodable import Decodable
from regard.core.errors import BadInput, RegardError
from regard.core.shapes import Float, Int, Tensor
from regard.decoding.sampling import NEG_INF
from regard.decoding.search_observer import current_observer
from regard.runtime import cuda_graph

CUDA_CHECK_INTERVAL = 8  # on a GPU, steps between checks which inputs are done


@dataclass(frozen=True)
class Restrictions:
    """Which tokens may not come next, as in transformers.

    Args:
        no_repeat_ngram_size: no sequence of so many tokens occurs twice in a text, its prompt included; 0: all may.
        min_new_tokens: an output has at least so many tokens before its end token.
    """

    no_repeat_ngram_size: int = 0
    min_new_tokens: int = 0

    def __post_init__(self) -> None:
        for name in ("no_repeat_ngram_size", "min_new_tokens"):
            if getattr(self, name) < 0:
                raise BadInput(f"{name} must be at least 0, got {getattr(self, name)}")


@dataclass(frozen=True)
class Hypothesis:
    """One output: its tokens without bos and eos, its score, and whether it ended with eos."""

    tokens: list[int]
    score: float  # log-probability / length^penalty
    log_probability: float
    finished: bool


class SearchLoop:
    """A search: `run` it, or iterate over it.

    `settings` are Python numbers, which become constants of a captured step.
    """

    settings: Any = ()

    def __init__(
        self,
        model: Decodable,
        inputs: tuple[Tensor, ...],
        max_length: int | Tensor,
        prefix: Sequence[Sequence[int]] | None,
        banned_tokens: Sequence[int],
        beam_size: int,
        restrictions: Restrictions = Restrictions(),
        previous_tokens: Sequence[Sequence[int]] | None = None,
    ) -> None:
        self.restrictions = restrictions
        self.model, self.beam_size, self.eos, self.observer = model, beam_size, model.eos, current_observer()
        self.is_normalized = bool(getattr(model, "normalized_scores", False))
        batch, device = inputs[0].shape[0], inputs[0].device
        self.limit = torch.as_tensor(max_length, device=device).expand(batch).clone()
        self.last = int(self.limit.max()) if batch else 0
        if batch and int(self.limit.min()) < 1:
            raise RegardError("max_length must be at least 1")
        self.forced = _forced_prefixes(prefix, batch, self.last, device)
        self.banned_tokens = (
            torch.tensor(list(banned_tokens), device=device, dtype=torch.long) if banned_tokens else None
        )
        self.origin = torch.arange(batch)  # the input of each row of the batch, on the host
        self.done = torch.zeros(batch, dtype=torch.bool, device=device)
        self.time = torch.zeros((), dtype=torch.long, device=device)
        self.steps = 0  # the value of `time`, on the host
        self.found: list[list[Hypothesis]] = [[] for _ in range(batch)]
        self.tokens: Tensor = self.limit  # the newest token of every beam
        self.state: Any = None
        if batch:
            capacity = -(-(1 + beam_size * self.last) // 16) * 16  # aligned, so that GPU kernels need not pad the mask
            self.tokens, self.state = model.start(*inputs, capacity=capacity)
        self.text_history = _history(previous_tokens, self.tokens, self.last, restrictions.no_repeat_ngram_size)

    def run(self) -> list[list[Hypothesis]]:
        """Step until every input is done and return the outputs of each."""
        for _ in self:
            pass
        return self.found

    def __iter__(self) -> Iterator[None]:
        """Step until every input is done, yielding at every check."""
        cuda = self.done.is_cuda
        if self.observer is not None:
            self.observer.on_start(self)
        replay: Callable[[], None] | None = None
        for t in range(self.last):
            check_cancelled()
            began = time.monotonic()
            with torch.inference_mode():  # not around the yield: the caller is not in inference mode
                if t and (not cuda or t % CUDA_CHECK_INTERVAL == 0):
                    replay = replay if self.drop_finished() else None
                    if not len(self.origin):
                        return
                if t and cuda and replay is None:
                    replay = cuda_graph.replay_step(self, may_capture=t > 2)
                (replay or self.advance)()
            if cuda:
                cuda_graph.add_seconds(self, time.monotonic() - began)
            self.steps = t + 1
            if not cuda or self.steps % CUDA_CHECK_INTERVAL == 0 or self.steps == self.last:
                yield
        if self.last:
            self.collect(torch.arange(len(self.origin)))

    def drop_finished(self) -> bool:
        """Remove inputs that are done once a quarter of the batch is; return False when the batch changed."""
        live = (~self.done).nonzero().squeeze(1)
        # on a GPU a step takes as long for half the inputs, and a new batch size means a new capture
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
        """Return the logits of the next token of every beam, with banned tokens at -inf."""
        logits, self.state = self.model.step(self.tokens, self.state)
        if self.banned_tokens is not None:
            # before the softmax, so that the rest shares their probability
            logits = logits.index_fill_(-1, self.banned_tokens, NEG_INF)
        return logits

    def log_probs(self, logits: Float[Tensor, "B k V"]) -> Float[Tensor, "B k V"]:
        """Return log-probabilities; a model with `normalized_scores` returns them itself."""
        return logits if self.is_normalized else log_probs(logits)

    def apply_prefix(self, logits: Tensor) -> Tensor:
        """Set all logits to -inf but the token that the forced prefix demands at this time."""
        if self.forced is None:
            return logits
        forced = self.forced.index_select(1, self.time[None])[:, :, None]  # B 1 1, -1 where free
        vocabulary = torch.arange(logits.shape[-1], device=logits.device)
        return logits.masked_fill((forced >= 0) & (vocabulary != forced), NEG_INF)

    def restrict(self, scores: Float[Tensor, "B k V"]) -> Float[Tensor, "B k V"]:
        """Set the scores of tokens that may not come next to -inf."""
        if self.restrictions.min_new_tokens:
            every = torch.arange(scores.shape[-1], device=scores.device)
            early = self.time < self.restrictions.min_new_tokens
            scores = scores.masked_fill((every == self.eos) & early, NEG_INF)
        if self.text_history is None:
            return scores
        size = self.restrictions.no_repeat_ngram_size
        end = self.text_history.shape[-1] - self.last + self.time
        last = self.text_history.index_select(-1, end - torch.arange(size - 1, 0, -1, device=scores.device))  # B k n-1
        ngrams = self.text_history.unfold(-1, size, 1)  # B k W n
        repeats = (ngrams[..., :-1] == last[..., None, :]).all(-1) & (ngrams >= 0).all(-1)
        ban = torch.where(repeats, NEG_INF, -NEG_INF).to(scores.dtype)
        shape = (*scores.shape[:2], -1)
        return scores.scatter_reduce(-1, ngrams[..., -1].clamp(min=0).expand(shape), ban.expand(shape), "amin")

    def remember(self, words: Tensor, parents: Tensor | None = None) -> None:
        """Append the newest token of every beam to its text, before the time advances."""
        if self.text_history is None:
            return
        text = self.text_history
        if parents is not None:
            text = text.gather(1, parents[..., None].expand(-1, -1, text.shape[-1]))
        text = text.expand(*words.shape, -1).clone()
        text.index_copy_(-1, (text.shape[-1] - self.last + self.time)[None], words[..., None])
        self.text_history = self.text_history.copy_(text) if self.text_history.shape == text.shape else text

    def advance(self) -> None:
        """Take one step; persistent tensors are written in place, so that it can be replayed."""
        raise NotImplementedError

    def collect(self, rows: Tensor) -> None:
        """Store the outputs of these rows."""
        raise NotImplementedError

    def keep(self, rows: Tensor) -> None:
        """Keep only these rows of the batch."""
        self.done, self.limit = self.done[rows], self.limit[rows]
        self.forced = None if self.forced is None else self.forced[rows]
        self.text_history = None if self.text_history is None else self.text_history[rows]


def log_probs(logits: Float[Tensor, "B k V"]) -> Float[Tensor, "B k V"]:
    """Return log-probabilities in at least float32: one fused pass, cheaper than logsumexp's four."""
    return logits.log_softmax(-1, dtype=torch.promote_types(logits.dtype, torch.float32))


def _history(
    previous: Sequence[Sequence[int]] | None, start: Tensor, last: int, ngram: int
) -> Int[Tensor, "B 1 L"] | None:
    """Return the tokens before the output, at the left of room for `last` more; without any, the first one read.

    -1 is no token. None: nothing needs to be remembered.
    """
    if not ngram:
        return None
    rows = [list(row) for row in (start.tolist() if previous is None else previous)]
    before = max(ngram - 1, *(len(row) for row in rows), 0)
    table = [[-1] * (before - len(row)) + row + [-1] * last for row in rows]
    return torch.tensor(table, dtype=torch.long, device=start.device).view(len(rows), 1, before + last)


def _forced_prefixes(prefix: Sequence[Sequence[int]] | None, batch: int, last: int, device: torch.device) -> Any:
    if prefix is None:
        return None
    if len(prefix) != batch:
        raise RegardError(f"got {len(prefix)} prefixes for {batch} inputs; pass one per input (it may be empty)")
    table = torch.full((batch, last), -1)
    for row, tokens in enumerate(prefix):
        if len(tokens) > last:
            raise RegardError(f"a forced prefix has {len(tokens)} tokens, but max_length is {last}")
        table[row, : len(tokens)] = torch.tensor(list(tokens), dtype=torch.long)
    return table.to(device)
