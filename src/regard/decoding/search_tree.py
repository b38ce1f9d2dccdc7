"""The search tree: every candidate of one search, recorded while it ran.

    node     a candidate token after its parent: its log-probability, that of the whole output, its score
    status   kept (it goes on), finished (it is an output), pruned; `reason` gives the reason
    step     the nodes of one step, the outputs so far, and the attention of every beam

The tree decides nothing: which candidates go on, which end and when the search stops is read from the search itself
(decoding.search_observer), the attention from its own forward passes (attention.capture.watch). One input at a time.

For a model with a source, an attention row is over the source; else (a GPT) it is over the prompt and the beam's own
tokens, in order: the cache holds all beams side by side, and the tree knows which slot belongs to which beam.
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

MAX_ALTERNATIVES = 9  # alternatives recorded per sampled or greedy token


@dataclass(eq=False)
class SearchNode:
    """One candidate token."""

    id: int
    parent: int  # id of the node it continues; -1: the root
    time: int  # the step, from 0; -1: the root
    token: int
    log_prob: float  # log-probability of this token
    total_log_prob: float  # log-probability of the whole output so far
    score: float  # total_log_prob / length^penalty, by which outputs are compared
    status: str = "pruned"  # kept, finished or pruned
    reason: str = ""
    beam: int = -1  # the beam it continues in; when sampling, the output it was a candidate of
    group: int = 0
    pruned_at: int = -1  # of a kept one: the step at which its last continuation was pruned
    rank: float | None = None  # with groups: the total less the diversity cost
    share: float | None = None  # when sampling: its probability after all filters, normalised
    path: tuple[int, ...] = ()  # all tokens so far, without eos


class FinishedOutput(NamedTuple):
    """An output among the best after a step."""

    node: int
    score: float
    finished: bool  # False: cut off by the limit


@dataclass(eq=False)
class SampleDraw:
    """How a token was sampled: probabilities in vocabulary order, a random number falls into one of them."""

    beam: int
    parent: int
    uniform: float
    low: float  # cumulative probability before the sampled token
    high: float
    num_left: int  # tokens with a probability above 0
    num_allowed: int


@dataclass(eq=False)
class SearchStep:
    """The nodes, outputs, attention and draws of one step."""

    nodes: list[SearchNode] = field(default_factory=list)
    outputs: list[FinishedOutput] = field(default_factory=list)  # best first
    attention: list[list[list[float]]] = field(default_factory=list)  # map, beam, column
    draws: list[SampleDraw] = field(default_factory=list)
    stopped: str = ""  # why the search ended at this step


class SearchTree(SearchObserver):
    """A search of one input, as it ran.

    `traces` are those of the watched model; `prompt` is the number of tokens before the first generated one, for a
    model that attends to its own text.
    """

    def __init__(self, traces: Traces | None = None, prompt: int = 0) -> None:
        self.traces, self.prompt = traces, prompt
        self.nodes = [SearchNode(0, -1, -1, -1, 0.0, 0.0, 0.0, "kept", beam=0)]
        self.steps: list[SearchStep] = []
        self.maps: list[Trace] = []  # of the latest step
        self.live: list[SearchNode | None] = [self.nodes[0]]
        self.search: Any = None
        self.over = False
        self._calls: dict[str, int] = {}
        self._ended: dict[tuple[int, int, int], SearchNode] = {}  # by group, time and the parent's beam

    @property
    def hypotheses(self) -> list[Hypothesis]:
        """Return the outputs of the search."""
        found: list[Hypothesis] = self.search.found[0]
        return found

    def ends(self) -> list[SearchNode]:
        """Return the node in which each output ended."""
        ends: list[SearchNode] = []
        for hypothesis in self.hypotheses:
            status, path = "finished" if hypothesis.finished else "kept", tuple(hypothesis.tokens)
            matches = [node for node in self.nodes if node.status == status and node.path == path and node not in ends]
            ends.append(min(matches, key=lambda node: abs(node.total_log_prob - hypothesis.log_probability)))
        return ends

    # -- observer ------------------------------------------------------------------------------------------------------

    def on_start(self, search: SearchLoop) -> None:
        if self.search is not None or len(search.found) != 1:
            raise BadInput("only one search of one input can be recorded: pass a single, shorter input")
        self.search = search
        self._new_traces()

    def on_beam_step(self, search: Any, offered: Sequence[BeamCandidates]) -> None:
        if self.over:  # on a GPU the search notices only later
            return
        step, before, group_size = self._next(), self.live, search.beam_size // search.groups
        self.live = [None] * search.beam_size
        length = len(self.steps) ** search.penalty
        for group, group_candidates in enumerate(offered):
            total, rank, token, parent, kept = (values[0].tolist() for values in group_candidates)
            beam_of = {i: group * group_size + slot for slot, i in enumerate(kept)}
            kept_ranks = [rank[i] for i in kept if rank[i] > NEG_INF and token[i] != search.eos]
            for i, beam in enumerate(parent):
                parent_node = before[beam]
                if total[i] == NEG_INF or parent_node is None:
                    continue
                node = self._add(step, parent_node, token[i], total[i], total[i] / length)
                node.group, node.rank = group, rank[i] if search.groups > 1 else None
                if token[i] == search.eos and i < group_size:
                    node.status = "finished"
                    self._ended[group, node.time, beam] = node
                elif token[i] == search.eos:
                    node.reason = f"it ends, but as number {i + 1}: only ends among the best {group_size} count"
                elif i in beam_of:
                    node.status, node.beam = "kept", beam_of[i]
                    self.live[node.beam] = node
                else:
                    what = "log-probability" if node.rank is None else "log-probability less the diversity cost"
                    node.reason = (
                        f"{what} {rank[i]:.2f} is below the last of the {group_size} kept, {min(kept_ranks):.2f}"
                    )
        self._record_outputs(step)
        self._record_lost_beams(step, before, group_size)
        self._record_end(step)

    def on_sample_step(self, search: Any, drawn: SampledTokens) -> None:
        if self.over:
            return
        step, before = self._next(), self.live
        self.live = [None] * search.beam_size
        sampling: Sampler | None = search.settings[0]
        for beam in range(search.beam_size):
            parent_node = before[beam if len(before) > 1 else 0]
            if parent_node is None or bool(drawn.over[0, beam]):
                continue
            p, logits, chosen = drawn.p[0, beam], drawn.logits[0, beam], int(drawn.token[0, beam])
            shares, cut = _filter_reasons(logits, sampling)
            alternatives = logits.topk(min(MAX_ALTERNATIVES + 1, len(logits))).indices.tolist()
            for token in dict.fromkeys([chosen, *alternatives]):
                if float(logits[token]) == NEG_INF:  # banned, or another word was forced
                    continue
                total = parent_node.total_log_prob + float(p[token])
                node = self._add(step, parent_node, token, total, total / len(self.steps))
                node.beam, node.share = beam, None if shares is None else float(shares[token])
                if token != chosen:
                    node.reason = cut.get(token) or (
                        "not the most likely" if sampling is None else "allowed, but not drawn"
                    )
                elif chosen == search.eos:
                    node.status = "finished"
                else:
                    node.status, self.live[beam] = "kept", node
            if shares is not None and drawn.uniform is not None:
                begins, num_allowed = float(shares[:chosen].sum()), int((logits > NEG_INF).sum())
                u, num_left = float(drawn.uniform[0, beam]), int((shares > 0).sum())
                step.draws.append(
                    SampleDraw(beam, parent_node.id, u, begins, begins + float(shares[chosen]), num_left, num_allowed)
                )
        done = [FinishedOutput(node.id, node.score, True) for node in step.nodes if node.status == "finished"]
        step.outputs = [*(self.steps[-2].outputs if len(self.steps) > 1 else []), *done]
        self._record_end(step)
        if self.over:
            step.outputs += [FinishedOutput(node.id, node.score, False) for node in self.live if node is not None]

    # -- recording -----------------------------------------------------------------------------------------------------

    def _next(self) -> SearchStep:
        self.steps.append(SearchStep(attention=self._attention()))
        return self.steps[-1]

    def _add(self, step: SearchStep, parent_node: SearchNode, token: int, total: float, score: float) -> SearchNode:
        path = parent_node.path if token == self.search.eos else (*parent_node.path, token)
        node = SearchNode(
            len(self.nodes),
            parent_node.id,
            parent_node.time + 1,
            token,
            total - parent_node.total_log_prob,
            total,
            score,
            path=path,
        )
        self.nodes.append(node)
        step.nodes.append(node)
        return node

    def _record_outputs(self, step: SearchStep) -> None:
        """Record the best outputs so far from the search's pool, and the reason for those pushed out."""
        pool, ends = self.search.pool[0].tolist(), self.search.pool_end[0].tolist()
        for group, (keys, group_ends) in enumerate(zip(pool, ends, strict=True)):
            for key, (time, beam) in zip(keys, group_ends, strict=True):
                if key == NEG_INF:
                    continue
                finished = key > -UNFINISHED_PENALTY / 2
                node = self._ended[group, time, beam] if finished else self.live[beam]
                assert node is not None
                step.outputs.append(FinishedOutput(node.id, key if finished else key + UNFINISHED_PENALTY, finished))
        step.outputs.sort(key=lambda output: (not output.finished, -output.score))
        in_pool = {output.node for output in step.outputs}
        for node in self._ended.values():
            if node.id not in in_pool and not node.reason:
                node.reason = f"it ended, but by step {len(self.steps)} enough outputs score better to fill the beam"

    def _record_lost_beams(self, step: SearchStep, before: list[SearchNode | None], group_size: int) -> None:
        """Mark beams without continuation."""
        continued = {node.parent for node in step.nodes if node.status != "pruned"}
        for node in before:
            if node is not None and node.id not in continued:
                node.pruned_at, node.reason = (
                    len(self.steps) - 1,
                    f"no continuation of it is among the best {group_size}",
                )

    def _record_end(self, step: SearchStep) -> None:
        """Record whether the search is over, and why."""
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
            step.stopped = f"the best unfinished beam, {best:.2f}, does not beat the worst output, {worst:.2f}"
            for node in self.live:
                if node is not None:
                    node.reason = "the search ended"

    # -- attention -----------------------------------------------------------------------------------------------------

    def _new_traces(self) -> list[Trace]:
        """Return the traces since the last call."""
        traces = []
        for name in self.traces or ():
            assert self.traces is not None
            calls = self.traces.calls(name)
            if len(calls) > self._calls.get(name, 0):
                traces.append(calls[-1])
            self._calls[name] = len(calls)
        return traces

    def _attention(self) -> list[list[list[float]]]:
        """Return every map averaged over heads, a row per beam: over the source, else over the beam's own text."""
        traces = self._new_traces()
        cross = [trace for trace in traces if trace.kind in ("cross", "align") and self._fits(trace)]
        if cross:
            self.maps = cross
            return [trace.weights[0].float().mean(0).tolist() for trace in cross]
        # the first step reads the prompt's last token, later ones one token per beam
        t, k = len(self.steps), len(self.live)
        slots = self.prompt + t * k if t else self.prompt
        self.maps = [trace for trace in traces if self._fits(trace) and trace.weights.shape[3] == slots and self.prompt]
        return [self._own_columns(trace.weights[0].float().mean(0), k) for trace in self.maps]

    def _fits(self, trace: Trace) -> bool:
        return trace.geometry is None and trace.weights.shape[0] == 1 and trace.weights.shape[2] == len(self.live)

    def _own_columns(self, rows: Float[Tensor, "K M"], k: int) -> list[list[float]]:
        """Return every beam's weights on the prompt and on its own tokens; empty for one that has ended."""
        found: list[list[float]] = []
        for beam, node in enumerate(self.live):
            slots: list[int] = []
            while node is not None and node.parent >= 0:
                slots.insert(0, self.prompt + node.time * k + node.beam)
                node = self.nodes[node.parent]
            has_ended = self.live[beam] is None
            found.append([] if has_ended else rows[beam, [*range(self.prompt), *slots]].tolist())
        return found


def _filter_reasons(
    logits: Float[Tensor, " V"], sampling: Sampler | None
) -> tuple[Float[Tensor, " V"] | None, dict[int, str]]:
    """Return the probabilities tokens are sampled by, and for each excluded token why."""
    if sampling is None:
        return None, {}
    reasons = {
        "top_k": f"cut by top-k: not among the {sampling.top_k} most likely"
        if sampling.top_k
        else "probability rounds to 0",
        "top_p": f"cut by top-p: outside the most likely that make up {sampling.top_p:g}",
        "min_p": f"cut by min-p: less than {sampling.min_p:g} times as likely as the most likely",
    }
    reason_of: dict[int, str] = {}
    shares = logits
    possible = logits > NEG_INF
    for name, shares in sampling.filters(logits):
        excluded = possible & (shares == 0)
        reason_of |= dict.fromkeys(excluded.nonzero()[:, 0].tolist(), reasons[name])
        possible = possible & ~excluded
    return shares / shares.sum(), reason_of
