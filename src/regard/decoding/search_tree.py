"""The tree of hypotheses: everything that one search offered itself, written down while it ran.

    node     a word that was offered after what its parent says: its log-probability, that of all so far, its score
    fate     kept (it goes on), ended (it is an output), pruned; `error_message` says the reason in words
    step     the nodes of one step, the outputs so far, and where every beam looked while it wrote

Nothing is decided here: who goes on, who ends and when all is over is read off the search itself (decoding.search_observer),
where the beams looked off its own passes (attention.watch). One input at a time: a tree is there to be looked at.

Where a model has a source beside what it writes, a row is over the source; else (a GPT) it is over the prompt and the
words that are the beam's own, in order: the cache holds all beams side by side, and the tree knows whose slot is whose.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from regard.attention.capture.watch import Traces
from regard.core.errors import BadInput
from regard.core.shapes import Float, Tensor
from regard.core.trace import Trace
from regard.decoding.beam_search import UNFINISHED_PENALTY
from regard.decoding.sampling import NEG_INF, Sampler
from regard.decoding.search_loop import Hypothesis, SearchLoop
from regard.decoding.search_observer import BeamCandidates, SampledTokens, SearchObserver

MAX_ALTERNATIVES = 9  # words beside the chosen one that are written down where outputs go their own ways


@dataclass(eq=False)
class SearchNode:
    """One word that was offered."""

    id: int
    parent: int  # the node it continues; -1: this is the beginning
    time: int  # the step, from 0; -1: the beginning
    token: int
    gain: float  # its own log-probability
    total: float  # that of all so far
    score: float  # what outputs are compared by: total / length^penalty
    fate: str = "pruned"  # kept, ended or pruned
    why: str = ""
    beam: int = -1  # where it goes on; of outputs that go their own ways: whose word it was to be
    group: int = 0
    lost: int = -1  # kept, but nothing that continues it was: the step at which it was lost
    rank: float | None = None  # with groups: the total less what words that earlier groups chose cost
    share: float | None = None  # where words are drawn: its probability after all cuts, of 1 in all
    path: tuple[int, ...] = ()  # all tokens so far, without the end


class FinishedOutput(NamedTuple):
    """An output as it stands among the best after a step."""

    node: int
    score: float
    finished: bool  # False: cut off by the limit


@dataclass(eq=False)
class SampleDraw:
    """How a word was drawn: shares are laid side by side in the vocabulary's order, a random number falls into one."""

    beam: int
    parent: int
    uniform: float
    begins: float  # where the share of the word that was drawn begins
    ends: float
    left: int  # words that could be drawn
    of: int


@dataclass(eq=False)
class SearchStep:
    """What happened at one time."""

    nodes: list[SearchNode] = field(default_factory=list)
    outputs: list[FinishedOutput] = field(default_factory=list)  # best first
    looked: list[list[list[float]]] = field(default_factory=list)  # map, beam, column: where every beam looked
    draws: list[SampleDraw] = field(default_factory=list)
    stopped: str = ""  # why the search ended here


class SearchTree(SearchObserver):
    """A search of one input, as it ran.

    `observe` is what watches the model meanwhile; `prompt` is how many tokens stand before the first that is written, for
    a model that looks back at its own text.
    """

    def __init__(self, seen: Traces | None = None, prompt: int = 0) -> None:
        self.seen, self.prompt = seen, prompt
        self.nodes = [SearchNode(0, -1, -1, -1, 0.0, 0.0, 0.0, "kept", beam=0)]
        self.steps: list[SearchStep] = []
        self.maps: list[Trace] = []  # of the latest step, those that looked
        self.live: list[SearchNode | None] = [self.nodes[0]]
        self.search: Any = None
        self.over = False
        self._calls: dict[str, int] = {}
        self._ended: dict[tuple[int, int, int], SearchNode] = {}  # by group, time and the parent's beam

    @property
    def found(self) -> list[Hypothesis]:
        """What the search gave."""
        found: list[Hypothesis] = self.search.found[0]
        return found

    def ends(self) -> list[SearchNode]:
        """The node in which each output that was found ended."""
        ends: list[SearchNode] = []
        for one in self.found:
            fate, path = "ended" if one.finished else "kept", tuple(one.tokens)
            fits = [node for node in self.nodes if node.fate == fate and node.path == path and node not in ends]
            ends.append(min(fits, key=lambda node: abs(node.total - one.log_probability)))
        return ends

    # -- told by the search --------------------------------------------------------------------------------------------

    def on_start(self, search: SearchLoop) -> None:
        """Note which search it is; there is one, of one input."""
        if self.search is not None or len(search.found) != 1:
            raise BadInput("only one search of one input can be followed: give a shorter input, and one of it")
        self.search = search
        self._fresh()

    def on_beam_step(self, search: Any, offered: Sequence[BeamCandidates]) -> None:
        """A step of a beam search."""
        if self.over:  # a GPU looks only now and then whether it is
            return
        step, before, each = self._next(), self.live, search.beam_size // search.groups
        self.live = [None] * search.beam_size
        length = len(self.steps) ** search.penalty
        for group, some in enumerate(offered):
            total, rank, word, parent, kept = (values[0].tolist() for values in some)
            places = {place: group * each + slot for slot, place in enumerate(kept)}
            going = [rank[place] for place in kept if rank[place] > NEG_INF and word[place] != search.eos]
            for place, beam in enumerate(parent):
                onto = before[beam]
                if total[place] == NEG_INF or onto is None:
                    continue
                node = self._add(step, onto, word[place], total[place], total[place] / length)
                node.group, node.rank = group, rank[place] if search.groups > 1 else None
                if word[place] == search.eos and place < each:
                    node.fate = "ended"
                    self._ended[group, node.time, beam] = node
                elif word[place] == search.eos:
                    node.why = f"it ends, but as number {place + 1}: only ends among the best {each} count"
                elif place in places:
                    node.fate, node.beam = "kept", places[place]
                    self.live[node.beam] = node
                else:
                    what = "log-probability" if node.rank is None else "log-probability less what diversity costs"
                    node.why = f"{what} {rank[place]:.2f} is below the last of the {each} kept, {min(going):.2f}"
        self._pooled(step)
        self._losses(step, before, each)
        self._see_end(step)

    def on_sample_step(self, search: Any, drawn: SampledTokens) -> None:
        """A step of outputs that go their own ways."""
        if self.over:
            return
        step, before = self._next(), self.live
        self.live = [None] * search.beam_size
        sampling: Sampler | None = search.how[0]
        for beam in range(search.beam_size):
            onto = before[beam if len(before) > 1 else 0]
            if onto is None or bool(drawn.over[0, beam]):
                continue
            p, logits, word = drawn.p[0, beam], drawn.logits[0, beam], int(drawn.word[0, beam])
            shares, cut = _filter_reasons(logits, sampling)
            others = logits.topk(min(MAX_ALTERNATIVES + 1, len(logits))).indices.tolist()
            for token in dict.fromkeys([word, *others]):
                if float(logits[token]) == NEG_INF:  # banned, or another word was forced
                    continue
                total = onto.total + float(p[token])
                node = self._add(step, onto, token, total, total / len(self.steps))
                node.beam, node.share = beam, None if shares is None else float(shares[token])
                if token != word:
                    node.why = cut.get(token) or ("not the likeliest" if sampling is None else "allowed, but not drawn")
                elif word == search.eos:
                    node.fate = "ended"
                else:
                    node.fate, self.live[beam] = "kept", node
            if shares is not None and drawn.uniform is not None:
                begins, many = float(shares[:word].sum()), int((logits > NEG_INF).sum())
                u, left = float(drawn.uniform[0, beam]), int((shares > 0).sum())
                step.draws.append(SampleDraw(beam, onto.id, u, begins, begins + float(shares[word]), left, many))
        done = [FinishedOutput(node.id, node.score, True) for node in step.nodes if node.fate == "ended"]
        step.outputs = [*(self.steps[-2].outputs if len(self.steps) > 1 else []), *done]
        self._see_end(step)
        if self.over:
            step.outputs += [FinishedOutput(node.id, node.score, False) for node in self.live if node is not None]

    # -- what is written down ------------------------------------------------------------------------------------------

    def _next(self) -> SearchStep:
        self.steps.append(SearchStep(looked=self._looked()))
        return self.steps[-1]

    def _add(self, step: SearchStep, onto: SearchNode, word: int, total: float, score: float) -> SearchNode:
        path = onto.path if word == self.search.eos else (*onto.path, word)
        node = SearchNode(len(self.nodes), onto.id, onto.time + 1, word, total - onto.total, total, score, path=path)
        self.nodes.append(node)
        step.nodes.append(node)
        return node

    def _pooled(self, step: SearchStep) -> None:
        """The best outputs so far, from the pool of the search; who has just been pushed out of it is told so."""
        pool, ends = self.search.pool[0].tolist(), self.search.pool_end[0].tolist()
        for group, (keys, places) in enumerate(zip(pool, ends, strict=True)):
            for key, (time, beam) in zip(keys, places, strict=True):
                if key == NEG_INF:
                    continue
                finished = key > -UNFINISHED_PENALTY / 2
                node = self._ended[group, time, beam] if finished else self.live[beam]
                assert node is not None
                step.outputs.append(FinishedOutput(node.id, key if finished else key + UNFINISHED_PENALTY, finished))
        step.outputs.sort(key=lambda output: (not output.finished, -output.score))
        inside = {output.node for output in step.outputs}
        for node in self._ended.values():
            if node.id not in inside and not node.why:
                node.why = f"it ended, but by step {len(self.steps)} as many outputs as there are places score better"

    def _losses(self, step: SearchStep, before: list[SearchNode | None], each: int) -> None:
        """Beams that nothing continues."""
        onward = {node.parent for node in step.nodes if node.fate != "pruned"}
        for node in before:
            if node is not None and node.id not in onward:
                node.lost, node.why = len(self.steps) - 1, f"nothing that continues it is among the best {each}"

    def _see_end(self, step: SearchStep) -> None:
        """Whether the search is over, and why."""
        search = self.search
        self.over = bool(search.done[0])
        if not self.over:
            return
        if not any(self.live):
            step.stopped = "every output has ended"
        elif int(search.time) >= int(search.limit[0]):
            step.stopped = f"the limit of {int(search.limit[0])} tokens is reached"
        else:
            best = max(node.score for node in self.live if node is not None)
            worst = min(output.score for output in step.outputs)
            step.stopped = f"no unfinished one, at {best:.2f} at best, beats the last of the outputs, {worst:.2f}"
            for node in self.live:
                if node is not None:
                    node.why = "it would have gone on, but the search is over"

    # -- where the beams looked ----------------------------------------------------------------------------------------

    def _fresh(self) -> list[Trace]:
        """What has looked since this was asked last."""
        fresh = []
        for name in self.seen or ():
            assert self.seen is not None
            calls = self.seen.calls(name)
            if len(calls) > self._calls.get(name, 0):
                fresh.append(calls[-1])
            self._calls[name] = len(calls)
        return fresh

    def _looked(self) -> list[list[list[float]]]:
        """The mean over heads of every map, a row a beam: over the source, else over a beam's own text."""
        fresh = self._fresh()
        beside = [trace for trace in fresh if trace.kind in ("cross", "align") and self._fits(trace)]
        if beside:
            self.maps = beside
            return [trace.weights[0].float().mean(0).tolist() for trace in beside]
        t, k = len(self.steps), len(self.live)  # the first step reads the prompt's last token, later ones a word a beam
        slots = self.prompt + t * k if t else self.prompt
        self.maps = [trace for trace in fresh if self._fits(trace) and trace.weights.shape[3] == slots and self.prompt]
        return [self._own(trace.weights[0].float().mean(0), k) for trace in self.maps]

    def _fits(self, trace: Trace) -> bool:
        return trace.geometry is None and trace.weights.shape[0] == 1 and trace.weights.shape[2] == len(self.live)

    def _own(self, rows: Float[Tensor, "K M"], k: int) -> list[list[float]]:
        """Of every beam its weights on the prompt and on its own words; of one that has ended, none."""
        found: list[list[float]] = []
        for beam, node in enumerate(self.live):
            slots: list[int] = []
            while node is not None and node.parent >= 0:
                slots.insert(0, self.prompt + node.time * k + node.beam)
                node = self.nodes[node.parent]
            over = self.live[beam] is None
            found.append([] if over else rows[beam, [*range(self.prompt), *slots]].tolist())
        return found


def _filter_reasons(
    logits: Float[Tensor, " V"], sampling: Sampler | None
) -> tuple[Float[Tensor, " V"] | None, dict[int, str]]:
    """The shares that words are drawn by, and for each word that may not be drawn why."""
    if sampling is None:
        return None, {}
    reasons = {
        "top_k": f"cut by top-k: not among the {sampling.top_k} likeliest" if sampling.top_k else "rounded to nothing",
        "top_p": f"cut by top-p: outside the likeliest that fill {sampling.top_p:g}",
        "min_p": f"cut by min-p: less than {sampling.min_p:g} times as likely as the likeliest",
    }
    why: dict[int, str] = {}
    shares = logits
    possible = logits > NEG_INF
    for name, shares in sampling.filters(logits):
        gone = possible & (shares == 0)
        why |= dict.fromkeys(gone.nonzero()[:, 0].tolist(), reasons[name])
        possible = possible & ~gone
    return shares / shares.sum(), why
