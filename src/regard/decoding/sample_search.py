"""Greedy search and sampling: the K outputs of an input are K independent beams.

    search = SampleSearch(model, inputs, max_length=200, num_samples=2, seeds=[1, 2])
    for _ in search:                                   # yields after each step, on a GPU after every few
        for input, sample, tokens, over in search.new_tokens():
            ...                                        # show them; or search.end_outputs([(input, sample)])
    search.found                                       # the results, as of any search

So text can be shown while it is generated, and an output can be ended from outside.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import torch

from regard.core.decodable import Decodable
from regard.core.errors import BadInput
from regard.core.shapes import Tensor
from regard.decoding.sampling import Sampler, apply_repetition_penalty, fast_topk, uniform_numbers
from regard.decoding.search_loop import Hypothesis, Restrictions, SearchLoop
from regard.decoding.search_observer import SampledTokens


class SampleSearch(SearchLoop):
    """Generates one token after another, drawn by a `Sampler`, or the most likely without one."""

    def __init__(
        self,
        model: Decodable,
        inputs: tuple[Tensor, ...],
        max_length: int | Tensor,
        sampling: Sampler | None = None,
        num_samples: int = 1,
        seeds: Sequence[int] = (),
        penalty: float = 1.0,
        previous_tokens: Sequence[Sequence[int]] | None = None,
        prefix: Sequence[Sequence[int]] | None = None,
        banned_tokens: Sequence[int] = (),
        restrictions: Restrictions = Restrictions(),  # noqa: B008
    ) -> None:
        if not penalty > 0:
            raise BadInput(f"repetition_penalty must be above 0 (1: none, 1.2: mild), got {penalty}")
        if num_samples < 1:
            raise BadInput(f"num_samples must be 1 or more, got {num_samples}")
        with torch.inference_mode():
            super().__init__(
                model, inputs, max_length, prefix, banned_tokens, num_samples, restrictions, previous_tokens
            )
        self.penalty, self.settings = penalty, (sampling, penalty, restrictions)
        self.choose: Callable[[Tensor, Tensor | None], Tensor] = _argmax if sampling is None else sampling  # type: ignore[assignment]
        batch, device = len(self.found), self.limit.device
        self.token_history = torch.full((self.last, batch, num_samples), self.eos, device=device)
        self.total = torch.zeros(batch, num_samples, device=device)
        self.ended = torch.zeros(batch, num_samples, dtype=torch.bool, device=device)
        self.uniform = (
            uniform_numbers(seeds, self.last, num_samples).to(device) if sampling is not None and batch else None
        )
        self.before = (
            [list(row) for row in previous_tokens] if previous_tokens is not None else [[] for _ in range(batch)]
        )
        self.previous_tokens: Tensor | None = None  # B K V: True for tokens in the output or its prompt
        self.reported, self.over = 0, set[tuple[int, int]]()

    def advance(self) -> None:
        """Choose a token for every output."""
        logits = self.scores()
        p = self.log_probs(logits)
        if p.shape[1] != self.beam_size:  # the first step: one beam becomes K
            beams = torch.zeros(len(self.done), self.beam_size, dtype=torch.long, device=self.done.device)
            self.state = self.model.select(self.state, None, beams)
            p = p.expand(-1, self.beam_size, -1)
        uniform = None if self.uniform is None else self.uniform.index_select(0, self.time[None])[0]
        allowed = p if self.penalty == 1 else apply_repetition_penalty(logits, self._previous(p), self.penalty)
        allowed = self.apply_prefix(self.restrict(allowed))
        token = self.choose(allowed, uniform)
        gain = p.gather(-1, token[..., None]).squeeze(-1)
        is_over = self.ended | self.done[:, None]  # ended, or at the input's limit
        token = torch.where(is_over, self.eos, token)
        self.total.add_(torch.where(is_over, 0.0, gain))
        self.token_history.index_copy_(0, self.time[None], token[None])
        if self.previous_tokens is not None:
            self.previous_tokens.scatter_(-1, token[..., None], True)
        self.ended.logical_or_(token == self.eos)
        self.remember(token)
        self.time.add_(1)
        self.done.logical_or_(self.ended.all(1) | (self.time >= self.limit))
        self.tokens = token if self.tokens.shape != token.shape else self.tokens.copy_(token)
        if self.observer is not None:
            self.observer.on_sample_step(self, SampledTokens(p, allowed, uniform, token, is_over))

    def _previous(self, p: Tensor) -> Tensor:
        """Return the table of previous tokens, built at the first step, when the vocabulary size is known."""
        if self.previous_tokens is None:
            table = torch.zeros(len(self.before), p.shape[-1], dtype=torch.bool)
            for row, tokens in zip(table, self.before, strict=True):
                row[torch.tensor(tokens, dtype=torch.long)] = True
            self.previous_tokens = table.to(p.device)[:, None].repeat(1, self.beam_size, 1)
        return self.previous_tokens

    # -- during the search ---------------------------------------------------------------------------------------------

    def new_tokens(self) -> list[tuple[int, int, list[int], bool]]:
        """Return the tokens since the last call: input, sample, tokens, and whether the output is over.

        To be called at every iteration; an output that is over is not reported again.
        """
        tokens_by_output = self.token_history[self.reported : self.steps].permute(1, 2, 0).tolist()
        limits, found = self.limit.tolist(), []
        for row, (origin, outputs) in enumerate(zip(self.origin.tolist(), tokens_by_output, strict=True)):
            for sample, new in enumerate(outputs):
                if (origin, sample) in self.over:
                    continue
                remaining = limits[row] - self.reported
                tokens = new[: new.index(self.eos) if self.eos in new else remaining][:remaining]
                is_over = self.eos in new[:remaining] or self.steps >= limits[row]
                found.append((origin, sample, tokens, is_over))
                if is_over:
                    self.over.add((origin, sample))
        self.reported = self.steps
        return found

    def end_outputs(self, outputs: Iterable[tuple[int, int]]) -> None:
        """End these outputs (input, sample) here; the tokens already written stay."""
        rows = {origin: row for row, origin in enumerate(self.origin.tolist())}
        indices = [(rows[origin], sample) for origin, sample in outputs if origin in rows]
        if not indices:
            return
        self.over.update(outputs)
        with torch.inference_mode():
            row, sample = torch.tensor(indices, device=self.ended.device).T
            self.ended[row, sample] = True
            self.done.logical_or_(self.ended.all(1))

    # -- at the end ----------------------------------------------------------------------------------------------------

    def collect(self, rows: Tensor) -> None:
        tokens_by_output = self.token_history[:, rows].permute(1, 2, 0).tolist()
        for row, outputs, totals, limit in zip(
            rows.tolist(), tokens_by_output, self.total[rows].tolist(), self.limit[rows].tolist(), strict=True
        ):
            for output, total in zip(outputs, totals, strict=True):
                finished = self.eos in output[:limit]
                tokens = output[: output.index(self.eos) if finished else limit]
                length = len(tokens) + finished
                self.found[int(self.origin[row])].append(Hypothesis(tokens, total / length, total, finished))

    def keep(self, rows: Tensor) -> None:
        super().keep(rows)
        self.token_history, self.total, self.ended = self.token_history[:, rows], self.total[rows], self.ended[rows]
        self.tokens = self.tokens[rows]
        self.uniform = None if self.uniform is None else self.uniform[:, rows]
        self.previous_tokens = None if self.previous_tokens is None else self.previous_tokens[rows]


def _argmax(logits: Tensor, uniform: Tensor | None) -> Tensor:
    return logits.max(-1).indices if logits.is_cuda else fast_topk(logits, 1)[1].squeeze(-1)  # each is faster there
