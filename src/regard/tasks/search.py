"""Searching for an output, over anything that steps: greedy, sampling, beam and diverse beam.

    beam     keep the K best unfinished outputs of each input; an output is finished when it ends in eos
    score    log p(output) / length^penalty, length counted with its eos
    stop     an input is done when no unfinished output, at its present length, scores better than its K-th finished one

What happens to an input depends on that input alone: its own limit, its own stopping, its own random numbers. So a
batch gives what single inputs give. Inputs that are done leave the batch once a quarter of it is done. On a GPU, a step
of a model whose shapes can be frozen is recorded once and replayed.

Diverse beam: Vijayakumar et al. 2018, arXiv:1610.02424; nucleus sampling: Holtzman et al. 2020, arXiv:1904.09751
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from regard.core.errors import RegardError
from regard.core.shapes import Float, Int, Tensor
from regard.core.steps import Steps
from regard.tasks import recorded

DEAD = float("-inf")
LOOK = 8  # on a GPU, steps between looks at who is done (each look waits for the device)


@dataclass(frozen=True)
class Hypothesis:
    """One output: its tokens without bos and eos, its score, and whether it ended by itself."""

    tokens: list[int]
    score: float  # log-probability / length^penalty
    log_probability: float
    finished: bool


def greedy(
    model: Steps,
    *inputs: Tensor,
    max_length: int | Int[Tensor, " B"],
    prefix: Sequence[Sequence[int]] | None = None,
    ban: Sequence[int] = (),
) -> list[Hypothesis]:
    """The likeliest next token, again and again; one output for each input."""

    def choose(logits: Tensor, uniform: Tensor | None) -> Tensor:
        return logits.max(-1).indices if logits.is_cuda else _top(logits, 1)[1].squeeze(-1)  # each is faster there

    return [found[0] for found in _Walk(model, inputs, max_length, prefix, ban, choose, 1, None).run()]


def sample(
    model: Steps,
    *inputs: Tensor,
    max_length: int | Int[Tensor, " B"],
    samples: int = 1,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    seed: int | Sequence[int] = 0,
    prefix: Sequence[Sequence[int]] | None = None,
    ban: Sequence[int] = (),
) -> list[list[Hypothesis]]:
    """Draw `samples` outputs for each input; a seed for each input (or one, counted up) makes them repeatable."""
    if temperature <= 0:
        raise RegardError(f"the temperature is {temperature}; it must be above 0 (greedy search is its limit)")
    if not 0 < top_p <= 1:
        raise RegardError(f"top_p is {top_p}; it must lie in (0, 1]")
    seeds = list(seed) if isinstance(seed, Sequence) else [seed + row for row in range(inputs[0].shape[0])]

    def choose(logits: Tensor, uniform: Tensor | None) -> Tensor:
        assert uniform is not None
        p, words = _nucleus(logits.float() / temperature, top_k, top_p)
        # inverse of the cumulative distribution: one number drawn for each output, whoever else is in the batch
        place = (p.cumsum(-1) <= uniform[..., None] * p.sum(-1, keepdim=True)).sum(-1, keepdim=True)
        return words.gather(-1, place.clamp(max=words.shape[-1] - 1)).squeeze(-1)

    how = temperature, top_k, top_p
    return _Walk(model, inputs, max_length, prefix, ban, choose, samples, seeds, how).run()


def beam(
    model: Steps,
    *inputs: Tensor,
    max_length: int | Int[Tensor, " B"],
    beams: int = 4,
    length_penalty: float = 1.0,
    nbest: int = 1,
    groups: int = 1,
    diversity: float = 0.5,
    prefix: Sequence[Sequence[int]] | None = None,
    ban: Sequence[int] = (),
) -> list[list[Hypothesis]]:
    """The `nbest` best outputs for each input, best first.

    With `groups` > 1 the beams are split into groups that search one after the other; a word that earlier groups chose
    at this step costs `diversity` for each time it was chosen. An output that two groups found is given once.
    """
    if beams < 1 or nbest < 1 or groups < 1 or beams % groups or nbest > beams:
        raise RegardError(f"{beams} beams in {groups} groups, {nbest} best: groups must divide beams, nbest <= beams")
    return _Beam(model, inputs, max_length, prefix, ban, beams, length_penalty, nbest, groups, diversity).run()


class _Search:
    """What walks and beams share: time, limits, prefixes, leaving the batch.

    `how` holds the settings that are numbers in Python and so become part of a recorded step.
    """

    how: tuple[Any, ...] = ()

    def __init__(
        self,
        model: Steps,
        inputs: tuple[Tensor, ...],
        max_length: int | Tensor,
        prefix: Sequence[Sequence[int]] | None,
        ban: Sequence[int],
        beams: int,
    ) -> None:
        self.model, self.beams, self.eos = model, beams, model.eos
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
        self.found: list[list[Hypothesis]] = [[] for _ in range(batch)]
        self.tokens: Tensor = self.limit  # of every beam, the newest
        self.state: Any = None
        if batch:
            room = -(-(1 + beams * self.last) // 16) * 16  # aligned: a GPU's kernels need not pad the mask
            self.tokens, self.state = model.start(*inputs, room=room)

    def run(self) -> list[list[Hypothesis]]:
        """Step until every input is done."""
        if not len(self.found):
            return []
        with torch.inference_mode():
            self.advance()
            replay: Callable[[], None] | None = None
            cuda = self.done.is_cuda
            for t in range(1, self.last):
                if not cuda or t % LOOK == 0:
                    replay = replay if self.leave() else None
                    if not len(self.origin):
                        break
                if cuda and replay is None:
                    replay = recorded.step(self, may_record=t > 1)
                (replay or self.advance)()
            self.collect(torch.arange(len(self.origin)))
        return self.found

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
        """Logits of the next token of every beam, prefix and ban applied; moves time."""
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


class _Walk(_Search):
    """Greedy and sampling: every output goes its own way; K samples are K beams that never meet."""

    def __init__(
        self,
        model: Steps,
        inputs: tuple[Tensor, ...],
        max_length: int | Tensor,
        prefix: Sequence[Sequence[int]] | None,
        ban: Sequence[int],
        choose: Callable[[Tensor, Tensor | None], Tensor],
        samples: int,
        seeds: Sequence[int] | None,
        how: tuple[Any, ...] = (),
    ) -> None:
        with torch.inference_mode():
            super().__init__(model, inputs, max_length, prefix, ban, samples)
        self.choose, self.how = choose, how
        batch, device = len(self.found), self.limit.device
        self.words = torch.full((self.last, batch, samples), self.eos, device=device)
        self.total = torch.zeros(batch, samples, device=device)
        self.ended = torch.zeros(batch, samples, dtype=torch.bool, device=device)
        self.uniform = None
        if seeds is not None:
            drawn = [torch.rand(self.last, samples, generator=torch.Generator().manual_seed(s)) for s in seeds]
            self.uniform = torch.stack(drawn, 1).to(device) if drawn else None  # T B K

    def advance(self) -> None:
        """Choose a word for every output."""
        p = _log_p(self.scores())
        if p.shape[1] != self.beams:  # the first step: one beam becomes K
            self.state = self.model.select(self.state, None, _zeros(self.done, self.beams))
            p = p.expand(-1, self.beams, -1)
        uniform = None if self.uniform is None else self.uniform.index_select(0, self.time[None])[0]
        word = self.choose(self.held(p), uniform)
        gain = p.gather(-1, word[..., None]).squeeze(-1)
        over = self.ended | self.done[:, None]  # ended, or cut off at the input's limit
        word = torch.where(over, self.eos, word)
        self.total.add_(torch.where(over, 0.0, gain))
        self.words.index_copy_(0, self.time[None], word[None])
        self.ended.logical_or_(word == self.eos)
        self.time.add_(1)
        self.done.logical_or_(self.ended.all(1) | (self.time >= self.limit))
        self.tokens = word if self.tokens.shape != word.shape else self.tokens.copy_(word)

    def collect(self, rows: Tensor) -> None:
        """Read the words off, each up to its eos or its input's limit."""
        words = self.words[:, rows].permute(1, 2, 0).tolist()
        for row, outputs, totals, limit in zip(
            rows.tolist(), words, self.total[rows].tolist(), self.limit[rows].tolist(), strict=True
        ):
            for output, total in zip(outputs, totals, strict=True):
                finished = self.eos in output[:limit]
                tokens = output[: output.index(self.eos) if finished else limit]
                length = len(tokens) + finished
                self.found[int(self.origin[row])].append(Hypothesis(tokens, total / length, total, finished))

    def keep(self, rows: Tensor) -> None:
        """Keep only these rows."""
        super().keep(rows)
        self.words, self.total, self.ended = self.words[:, rows], self.total[rows], self.ended[rows]
        self.tokens = self.tokens[rows]
        self.uniform = None if self.uniform is None else self.uniform[:, rows]


class _Beam(_Search):
    """Beam search as a tree: words and parents of every step, walked back once at the end."""

    def __init__(
        self,
        model: Steps,
        inputs: tuple[Tensor, ...],
        max_length: int | Tensor,
        prefix: Sequence[Sequence[int]] | None,
        ban: Sequence[int],
        beams: int,
        penalty: float,
        nbest: int,
        groups: int,
        diversity: float,
    ) -> None:
        with torch.inference_mode():
            super().__init__(model, inputs, max_length, prefix, ban, beams)
        self.penalty, self.nbest, self.groups, self.diversity = penalty, nbest, groups, diversity
        self.how = penalty, groups, diversity
        batch, device, each = len(self.found), self.limit.device, beams // groups
        self.words = torch.full((self.last, batch, beams), self.eos, device=device)
        self.parents = torch.zeros(self.last, batch, beams, dtype=torch.long, device=device)
        self.live = torch.zeros(batch, 1, device=device)
        shape = (batch, groups, each)
        # the pool of the best outputs so far; those cut off by the limit rank below all that ended by themselves
        self.pool = torch.full(shape, DEAD, dtype=torch.float64, device=device)
        self.pool_end = torch.zeros(*shape, 2, dtype=torch.long, device=device)  # time and parent of its last token
        self.pool_total = torch.zeros(shape, device=device)

    def advance(self) -> None:
        """Grow every beam by one word, set aside what ends, keep the best of the rest."""
        each = self.beams // self.groups
        # B K V, where K is 1 at the first step
        p = self.held(_log_p(self.scores()))
        start = p.shape[1] == 1 and self.live.shape[1] == 1
        words, parents, totals, ended = [], [], [], []
        chosen = p.new_zeros(p.shape[0], p.shape[2]) if self.groups > 1 else None
        length = (self.time + 1).double() ** self.penalty
        closing = self.time + 1 >= self.limit  # B
        for group in range(self.groups):
            own = slice(None) if start else slice(group * each, (group + 1) * each)
            first = 0 if start else group * each
            cost = None if chosen is None else self.diversity * chosen
            total, rank, word, parent = _candidates(p[:, own], self.live[:, own], cost, each)
            ends = (word == self.eos) & (total > DEAD)
            ended.append(self.ending(total, parent + first, ends, length))
            # the best that go on; an input always has K of them, some perhaps dead
            rank = torch.where(word == self.eos, DEAD, rank)
            rank, place = rank.topk(each, dim=-1)
            total = torch.where(rank == DEAD, DEAD, total.gather(1, place))
            word, parent = word.gather(1, place), parent.gather(1, place) + first
            if chosen is not None:
                chosen = chosen.scatter_add(1, word, torch.ones_like(total))
            words.append(word)
            parents.append(parent)
            totals.append(total)
        self.grow(torch.cat(words, 1), torch.cat(parents, 1), torch.cat(totals, 1), ended, length, closing)

    def ending(self, total: Tensor, parent: Tensor, ends: Tensor, length: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The outputs that end here (among the best K), for a group's pool; none if the input is done."""
        each = self.pool.shape[2]
        key = torch.where(ends & ~self.done[:, None], total.double() / length, DEAD)[:, :each]
        end = torch.stack([self.time.expand_as(parent), parent], -1)[:, :each]
        return key, end, total[:, :each]

    def merge(self, group: int, *more: tuple[Tensor, Tensor, Tensor]) -> None:
        """Keep the best of the pool and these."""
        pool = self.pool[:, group], self.pool_end[:, group], self.pool_total[:, group]
        key, end, total = (torch.cat(parts, 1) for parts in zip(pool, *more, strict=True))
        key, place = key.topk(self.pool.shape[2], dim=1)
        self.pool_end[:, group] = end.gather(1, place[..., None].expand(-1, -1, 2))
        self.pool_total[:, group] = total.gather(1, place)
        self.pool[:, group] = key

    def grow(
        self, words: Tensor, parents: Tensor, totals: Tensor, ended: list[Any], length: Tensor, closing: Tensor
    ) -> None:
        """Write the new layer of the tree, set aside what ends or reaches its limit, see who is done."""
        each = self.beams // self.groups
        self.words.index_copy_(0, self.time[None], words[None])
        self.parents.index_copy_(0, self.time[None], parents[None])
        slot = torch.arange(self.beams, device=words.device).expand_as(words)
        cut = torch.where((closing & ~self.done)[:, None], totals.double() / length - _CUT, DEAD)
        end = torch.stack([(self.time + 1).expand_as(slot), slot], -1)  # a token beyond: its parent is this layer
        for group in range(self.groups):
            own = slice(group * each, (group + 1) * each)
            self.merge(group, ended[group], (cut[:, own], end[:, own], totals[:, own]))
        best = totals.unflatten(1, (self.groups, each)).amax(2).double() / length  # B G
        stuck = (best <= self.pool[:, :, -1]).all(1)  # what was cut off is in the pool only where all is over anyway
        self.done.logical_or_(closing | stuck)
        self.state = self.model.select(self.state, None, parents)
        self.time.add_(1)
        if self.tokens.shape == words.shape:
            self.tokens.copy_(words)
            self.live.copy_(totals)
        else:
            self.tokens, self.live = words, totals

    def collect(self, rows: Tensor) -> None:
        """Walk back from the ends in the pool, all at once."""
        if not len(rows):
            return
        pool, ends = self.pool[rows].flatten(1).cpu(), self.pool_end[rows].flatten(1, 2).cpu()
        totals = self.pool_total[rows].flatten(1).cpu()
        order = pool.argsort(dim=1, descending=True, stable=True)
        pool, totals = pool.gather(1, order), totals.gather(1, order)
        ends = ends.gather(1, order[..., None].expand(-1, -1, 2))
        words, parents = self.words[:, rows].cpu(), self.parents[:, rows].cpu()
        length, at = ends[..., 0], ends[..., 1]  # an end at time t has t tokens before it
        tokens = torch.full((*length.shape, self.last), -1)
        for t in range(self.last - 1, -1, -1):
            inside = t < length
            tokens[..., t] = torch.where(inside, words[t].gather(1, at), -1)
            at = torch.where(inside, parents[t].gather(1, at), at)
        for place, row in enumerate(rows.tolist()):
            found = self.found[int(self.origin[row])]
            for n in range(order.shape[1]):
                key = float(pool[place, n])
                path = tokens[place, n, : int(length[place, n])].tolist()
                if key == DEAD or len(found) == self.nbest:
                    break
                if self.groups > 1 and any(path == other.tokens for other in found):
                    continue  # two groups may come to the same
                finished = key > -_CUT / 2
                found.append(Hypothesis(path, key if finished else key + _CUT, float(totals[place, n]), finished))

    def keep(self, rows: Tensor) -> None:
        """Keep only these rows."""
        super().keep(rows)
        self.words, self.parents = self.words[:, rows], self.parents[:, rows]
        for name in ("tokens", "live", "pool", "pool_end", "pool_total"):
            setattr(self, name, getattr(self, name)[rows])


_CUT = 1e6  # how far outputs that were cut off rank below the others (in float64, so that their order stays)


def _candidates(
    p: Float[Tensor, "B k V"],
    live: Float[Tensor, "B k"],
    cost: Float[Tensor, "B V"] | None,
    each: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The 2K best continuations, best first: log-probability, rank score (with costs), word, parent.

    2K of them hold at least K that go on.
    """
    wide = min(2 * each, p.shape[-1])
    ranked = p if cost is None else p - cost[:, None]
    rank, word = _top(ranked, wide)  # B k wide
    rank = rank + live[..., None]
    total = rank if cost is None else p.gather(-1, word) + live[..., None]
    if rank.shape[1] * wide < 2 * each:  # a vocabulary smaller than the beam: fill up with the dead
        spare = 2 * each - rank.shape[1] * wide
        rank = torch.cat([rank.flatten(1), rank.new_full((rank.shape[0], spare), DEAD)], 1)
        total = torch.cat([total.flatten(1), total.new_full((total.shape[0], spare), DEAD)], 1)
        words = torch.cat([word.flatten(1), word.new_zeros((word.shape[0], spare))], 1)
    else:
        rank, total, words = rank.flatten(1), total.flatten(1), word.flatten(1)
    rank, place = rank.topk(2 * each, dim=-1)
    parent = (place // wide).clamp(max=p.shape[1] - 1)
    return total.gather(1, place), rank, words.gather(1, place), parent


def _log_p(logits: Float[Tensor, "B k V"]) -> Float[Tensor, "B k V"]:
    """Log-probabilities: one fused pass, cheaper than the four of a logsumexp."""
    return logits.log_softmax(-1, dtype=torch.promote_types(logits.dtype, torch.float32))


def _top(x: Float[Tensor, "B k V"], n: int) -> tuple[Tensor, Tensor]:
    """The n largest along the vocabulary; on a CPU, looked for only in the n blocks with the largest maxima."""
    block = 64
    if x.is_cuda or x.shape[-1] < 4 * n * block:
        return x.topk(n, dim=-1)
    whole = x.shape[-1] // block * block
    blocks = x[..., :whole].unflatten(-1, (-1, block))
    _, which = blocks.amax(-1).topk(n, dim=-1)
    inside = blocks.gather(-2, which[..., None].expand(*which.shape, block)).flatten(-2)
    place = (which[..., None] * block + torch.arange(block, device=x.device)).flatten(-2)
    if whole < x.shape[-1]:
        inside = torch.cat([inside, x[..., whole:]], -1)
        rest = torch.arange(whole, x.shape[-1], device=x.device).expand(*x.shape[:-1], -1)
        place = torch.cat([place, rest], -1)
    best, at = inside.topk(n, dim=-1)
    return best, place.gather(-1, at)


def _nucleus(logits: Tensor, top_k: int, top_p: float) -> tuple[Tensor, Tensor]:
    """Probabilities of the words that may be drawn, likeliest first, and those words."""
    many = min(top_k, logits.shape[-1]) if top_k else logits.shape[-1]
    best, words = logits.topk(many, dim=-1)
    p = best.softmax(-1)
    before = p.cumsum(-1) - p  # a word is in while those before it have not filled the nucleus
    return p.masked_fill(before >= top_p, 0.0), words


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


def _zeros(like: Tensor, beams: int) -> Tensor:
    return torch.zeros(len(like), beams, dtype=torch.long, device=like.device)
