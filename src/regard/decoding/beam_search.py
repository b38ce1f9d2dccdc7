"""Decoding searches over any `Decodable` model: greedy, sampling, beam and diverse beam.

    beam     keep the K best unfinished outputs of each input; an output is finished when it ends in eos
    score    log p(output) / length^penalty, length counted with its eos
    stop     an input is done when no unfinished output, at its present length, scores better than its K-th finished one
             (early_stopping False); when K are finished (True); or when none could score better at its full length
             ("never"), as in transformers

Each input has its own limit, stopping and random numbers, so a batch gives the same outputs as single inputs. Inputs
that are done leave the batch once a quarter of it is done. On a GPU, the step of a model with static shapes is captured
once and replayed.

Diverse beam: Vijayakumar et al. 2018, arXiv:1610.02424; sampling: decoding.sampling
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from regard.core.decodable import Decodable
from regard.core.errors import RegardError
from regard.core.shapes import Float, Int, Tensor
from regard.decoding.sample_search import SampleSearch
from regard.decoding.sampling import NEG_INF, Sampler, fast_topk
from regard.decoding.search_loop import Hypothesis, Restrictions, SearchLoop
from regard.decoding.search_observer import BeamCandidates

__all__ = ["Hypothesis", "beam_search", "greedy_search", "sample"]


def greedy_search(
    model: Decodable,
    *inputs: Tensor,
    max_length: int | Int[Tensor, " B"],
    repetition_penalty: float = 1.0,
    previous_tokens: Sequence[Sequence[int]] | None = None,
    prefix: Sequence[Sequence[int]] | None = None,
    banned_tokens: Sequence[int] = (),
    no_repeat_ngram_size: int = 0,
    min_new_tokens: int = 0,
) -> list[Hypothesis]:
    """Return one output per input: always the most likely next token. `previous_tokens` also count as repeated."""
    search = SampleSearch(
        model,
        inputs,
        max_length,
        penalty=repetition_penalty,
        previous_tokens=previous_tokens,
        prefix=prefix,
        banned_tokens=banned_tokens,
        restrictions=Restrictions(no_repeat_ngram_size, min_new_tokens),
    )
    return [found[0] for found in search.run()]


def sample(
    model: Decodable,
    *inputs: Tensor,
    max_length: int | Int[Tensor, " B"],
    num_samples: int = 1,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    min_p: float = 0.0,
    repetition_penalty: float = 1.0,
    previous_tokens: Sequence[Sequence[int]] | None = None,
    seed: int | Sequence[int] = 0,
    prefix: Sequence[Sequence[int]] | None = None,
    banned_tokens: Sequence[int] = (),
    no_repeat_ngram_size: int = 0,
    min_new_tokens: int = 0,
) -> list[list[Hypothesis]]:
    """Sample `num_samples` outputs per input; a seed per input (or one, counted up) makes them repeatable."""
    sampler = Sampler(temperature, top_k, top_p, min_p)
    seeds = list(seed) if isinstance(seed, Sequence) else [seed + row for row in range(inputs[0].shape[0])]
    search = SampleSearch(
        model,
        inputs,
        max_length,
        sampler,
        num_samples,
        seeds,
        repetition_penalty,
        previous_tokens,
        prefix,
        banned_tokens,
        Restrictions(no_repeat_ngram_size, min_new_tokens),
    )
    return search.run()


def beam_search(
    model: Decodable,
    *inputs: Tensor,
    max_length: int | Int[Tensor, " B"],
    beam_size: int = 4,
    length_penalty: float = 1.0,
    num_candidates: int = 1,
    groups: int = 1,
    diversity: float = 0.5,
    prefix: Sequence[Sequence[int]] | None = None,
    banned_tokens: Sequence[int] = (),
    early_stopping: bool | str = False,
    no_repeat_ngram_size: int = 0,
    min_new_tokens: int = 0,
    previous_tokens: Sequence[Sequence[int]] | None = None,
) -> list[list[Hypothesis]]:
    """Return the `num_candidates` best outputs per input, best first.

    With `groups` > 1 the beams are split into groups that search one after the other; a token that earlier groups chose
    at this step costs `diversity` for each time it was chosen. An output that two groups find is returned once.
    """
    if beam_size < 1 or num_candidates < 1 or groups < 1 or beam_size % groups or num_candidates > beam_size:
        raise RegardError(
            f"beam_size={beam_size}, groups={groups}, num_candidates={num_candidates}: groups must divide beam_size, "
            "and num_candidates must be 1 to beam_size"
        )
    if early_stopping not in (True, False, "never"):
        raise RegardError(f"early_stopping must be True, False or 'never', got {early_stopping!r}")
    return _BeamSearch(
        model, inputs, max_length, prefix, banned_tokens, beam_size, length_penalty, num_candidates, groups, diversity,
        early_stopping, Restrictions(no_repeat_ngram_size, min_new_tokens), previous_tokens,
    ).run()  # fmt: skip


class _BeamSearch(SearchLoop):
    """Beam search as a tree: tokens and parents of every step, traced back once at the end."""

    def __init__(
        self,
        model: Decodable,
        inputs: tuple[Tensor, ...],
        max_length: int | Tensor,
        prefix: Sequence[Sequence[int]] | None,
        banned_tokens: Sequence[int],
        beam_size: int,
        penalty: float,
        num_candidates: int,
        groups: int,
        diversity: float,
        early_stopping: bool | str,
        restrictions: Restrictions,
        previous_tokens: Sequence[Sequence[int]] | None,
    ) -> None:
        with torch.inference_mode():
            super().__init__(model, inputs, max_length, prefix, banned_tokens, beam_size, restrictions, previous_tokens)
        self.penalty, self.num_candidates, self.groups, self.diversity = penalty, num_candidates, groups, diversity
        self.early_stopping = early_stopping
        self.settings = penalty, groups, diversity, early_stopping, restrictions
        batch, device, group_size = len(self.found), self.limit.device, beam_size // groups
        self.token_history = torch.full((self.last, batch, beam_size), self.eos, device=device)
        self.parents = torch.zeros(self.last, batch, beam_size, dtype=torch.long, device=device)
        self.live = torch.zeros(batch, 1, device=device)
        shape = (batch, groups, group_size)
        # the best outputs so far; those cut off by the limit rank below all that finished
        self.pool = torch.full(shape, NEG_INF, dtype=torch.float64, device=device)
        self.pool_end = torch.zeros(*shape, 2, dtype=torch.long, device=device)  # time and parent of its last token
        self.pool_total = torch.zeros(shape, device=device)

    def advance(self) -> None:
        """Extend every beam by one token, set finished ones aside, keep the best of the rest."""
        group_size = self.beam_size // self.groups
        # B K V, where K is 1 at the first step
        p = self.apply_prefix(self.restrict(self.log_probs(self.scores())))
        is_first_step = p.shape[1] == 1 and self.live.shape[1] == 1
        tokens, parents, totals, finished = [], [], [], []
        candidates: list[BeamCandidates] = []
        chosen = p.new_zeros(p.shape[0], p.shape[2]) if self.groups > 1 else None
        length = (self.time + 1).double() ** self.penalty
        at_limit = self.time + 1 >= self.limit  # B
        for group in range(self.groups):
            beams = slice(None) if is_first_step else slice(group * group_size, (group + 1) * group_size)
            first = 0 if is_first_step else group * group_size
            cost = None if chosen is None else self.diversity * chosen
            total, rank, token, parent = _candidates(p[:, beams], self.live[:, beams], cost, group_size)
            is_end = (token == self.eos) & (total > NEG_INF)
            finished.append(self.finished_candidates(total, parent + first, is_end, length))
            # the best unfinished ones; an input always has K of them, some perhaps with score -inf
            alive_rank, index = torch.where(token == self.eos, NEG_INF, rank).topk(group_size, dim=-1)
            if self.observer is not None:
                candidates.append(BeamCandidates(total, rank, token, parent + first, index))
            total = torch.where(alive_rank == NEG_INF, NEG_INF, total.gather(1, index))
            token, parent = token.gather(1, index), parent.gather(1, index) + first
            if chosen is not None:
                chosen = chosen.scatter_add(1, token, torch.ones_like(total))
            tokens.append(token)
            parents.append(parent)
            totals.append(total)
        self.grow(torch.cat(tokens, 1), torch.cat(parents, 1), torch.cat(totals, 1), finished, length, at_limit)
        if self.observer is not None:
            self.observer.on_beam_step(self, candidates)

    def finished_candidates(
        self, total: Tensor, parent: Tensor, ends: Tensor, length: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the outputs that finish at this step (among the best K); none if the input is done."""
        group_size = self.pool.shape[2]
        key = torch.where(ends & ~self.done[:, None], total.double() / length, NEG_INF)[:, :group_size]
        end = torch.stack([self.time.expand_as(parent), parent], -1)[:, :group_size]
        return key, end, total[:, :group_size]

    def merge(self, group: int, *candidates: tuple[Tensor, Tensor, Tensor]) -> None:
        """Keep the best of a group's pool and these."""
        pool = self.pool[:, group], self.pool_end[:, group], self.pool_total[:, group]
        key, end, total = (torch.cat(parts, 1) for parts in zip(pool, *candidates, strict=True))
        key, index = key.topk(self.pool.shape[2], dim=1)
        self.pool_end[:, group] = end.gather(1, index[..., None].expand(-1, -1, 2))
        self.pool_total[:, group] = total.gather(1, index)
        self.pool[:, group] = key

    def grow(
        self, tokens: Tensor, parents: Tensor, totals: Tensor, finished: list[Any], length: Tensor, at_limit: Tensor
    ) -> None:
        """Store the new layer of the tree, pool outputs that finish or are cut off, and mark inputs that are done."""
        group_size = self.beam_size // self.groups
        self.token_history.index_copy_(0, self.time[None], tokens[None])
        self.parents.index_copy_(0, self.time[None], parents[None])
        slot = torch.arange(self.beam_size, device=tokens.device).expand_as(tokens)
        cut = torch.where((at_limit & ~self.done)[:, None], totals.double() / length - UNFINISHED_PENALTY, NEG_INF)
        end = torch.stack([(self.time + 1).expand_as(slot), slot], -1)  # one step later: its parent is in this layer
        for group in range(self.groups):
            beams = slice(group * group_size, (group + 1) * group_size)
            self.merge(group, finished[group], (cut[:, beams], end[:, beams], totals[:, beams]))
        if self.early_stopping == "never" and self.penalty > 0:  # of the longest output that is possible
            length = (self.limit.double() ** self.penalty)[:, None]
        best = totals.unflatten(1, (self.groups, group_size)).amax(2).double() / length  # B G
        # outputs cut off by the limit enter the pool only when the input is done anyway
        worst = self.pool[:, :, -1]
        cannot_improve = best <= worst
        if self.early_stopping is True:
            cannot_improve |= worst > NEG_INF  # enough are finished
        self.done.logical_or_(at_limit | cannot_improve.all(1))
        self.remember(tokens, parents)
        self.state = self.model.select(self.state, None, parents)
        self.time.add_(1)
        if self.tokens.shape == tokens.shape:
            self.tokens.copy_(tokens)
            self.live.copy_(totals)
        else:
            self.tokens, self.live = tokens, totals

    def collect(self, rows: Tensor) -> None:
        """Trace back from the ends in the pool, all at once."""
        if not len(rows):
            return
        pool, ends = self.pool[rows].flatten(1).cpu(), self.pool_end[rows].flatten(1, 2).cpu()
        totals = self.pool_total[rows].flatten(1).cpu()
        order = pool.argsort(dim=1, descending=True, stable=True)
        pool, totals = pool.gather(1, order), totals.gather(1, order)
        ends = ends.gather(1, order[..., None].expand(-1, -1, 2))
        tree_tokens, tree_parents = self.token_history[:, rows].cpu(), self.parents[:, rows].cpu()
        length, beam = ends[..., 0], ends[..., 1]  # an end at time t has t tokens before it
        tokens = torch.full((*length.shape, self.last), -1)
        for t in range(self.last - 1, -1, -1):
            is_inside = t < length
            tokens[..., t] = torch.where(is_inside, tree_tokens[t].gather(1, beam), -1)
            beam = torch.where(is_inside, tree_parents[t].gather(1, beam), beam)
        for i, row in enumerate(rows.tolist()):
            found = self.found[int(self.origin[row])]
            for n in range(order.shape[1]):
                key = float(pool[i, n])
                path = tokens[i, n, : int(length[i, n])].tolist()
                if key == NEG_INF or len(found) == self.num_candidates:
                    break
                if self.groups > 1 and any(path == other.tokens for other in found):
                    continue  # two groups may find the same output
                finished = key > -UNFINISHED_PENALTY / 2
                found.append(
                    Hypothesis(path, key if finished else key + UNFINISHED_PENALTY, float(totals[i, n]), finished)
                )

    def keep(self, rows: Tensor) -> None:
        super().keep(rows)
        self.token_history, self.parents = self.token_history[:, rows], self.parents[:, rows]
        for name in ("tokens", "live", "pool", "pool_end", "pool_total"):
            setattr(self, name, getattr(self, name)[rows])


UNFINISHED_PENALTY = 1e6  # subtracted from outputs cut off by the limit (in float64, so that their order stays)


def _candidates(
    p: Float[Tensor, "B k V"],
    live: Float[Tensor, "B k"],
    cost: Float[Tensor, "B V"] | None,
    group_size: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the 2K best continuations, best first: log-probability, rank score (less diversity cost), token, parent.

    Among 2K at least K are unfinished.
    """
    width = min(2 * group_size, p.shape[-1])
    ranked = p if cost is None else p - cost[:, None]
    rank, token = fast_topk(ranked, width)  # B k W
    rank = rank + live[..., None]
    total = rank if cost is None else p.gather(-1, token) + live[..., None]
    if rank.shape[1] * width < 2 * group_size:  # a vocabulary smaller than the beam: fill up with -inf
        missing = 2 * group_size - rank.shape[1] * width
        rank = torch.cat([rank.flatten(1), rank.new_full((rank.shape[0], missing), NEG_INF)], 1)
        total = torch.cat([total.flatten(1), total.new_full((total.shape[0], missing), NEG_INF)], 1)
        tokens = torch.cat([token.flatten(1), token.new_zeros((token.shape[0], missing))], 1)
    else:
        rank, total, tokens = rank.flatten(1), total.flatten(1), token.flatten(1)
    rank, index = rank.topk(2 * group_size, dim=-1)
    parent = (index // width).clamp(max=p.shape[1] - 1)
    return total.gather(1, index), rank, tokens.gather(1, index), parent
