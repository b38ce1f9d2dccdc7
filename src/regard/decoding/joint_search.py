"""Joint decoding: a decoder with attention and CTC judge every hypothesis together, token by token.

    score(g) = (1 - λ) log p_attention(g) + λ log p_ctc(g ...)          + log p_ctc(g) in place of it, once g has ended

p_ctc(g ...) is the probability that the labels begin with g, summed over all alignments and all continuations. With
γ_b(t) and γ_n(t), the probability of all alignments of g with the first t frames that end in a blank or in its last
label,

    p_ctc(g c ...) = Σ_t φ(t-1) p_t(c)              φ = γ_b + γ_n, or γ_b alone where c repeats the last label of g
    p_ctc(g)       = γ_b(T) + γ_n(T)                the end

Both recursions are linear, x(t) = (x(t-1) + a(t)) p(t), so with P(t) = Σ log p they are a cumulative sum: x(t) =
exp P(t) · Σ_s a(s) / exp P(s-1), computed by `logcumsumexp` in float64. So a step costs O(K V T) for the scores of all
continuations and O(K T) for the tokens chosen, without a loop over frames.

    decodable = JointDecodable(model, ctc_weight=0.3)        anything with encode, start_from and ctc_logits
    beam_search(decodable, frames, lengths, max_length=..., beam_size=8)

Watanabe, Hori, Kim, Hershey, Hayashi: Hybrid CTC/Attention Architecture for End-to-End Speech Recognition. IEEE JSTSP
2017 (algorithm 2). Graves: Supervised Sequence Labelling with Recurrent Neural Networks. 2008 (prefix search)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import torch
import torch.nn.functional as F

from regard.blocks.decoder_state import gather_beams
from regard.core.decodable import Decodable
from regard.core.errors import BadInput
from regard.core.shapes import Float, Int, Tensor
from regard.decoding.search_loop import log_probs

NEG_INF = float("-inf")
MIN_LOG_PROB = -1e4  # of a label at a frame; below, sums over frames would lose digits


class HybridModel(Decodable, Protocol):
    """What joint decoding needs of a model."""

    def encode(self, frames: Tensor, lengths: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return the encoded frames and their numbers."""
        ...

    def ctc_logits(self, memory: Tensor) -> Tensor:
        """Return the logits of labels and, last, the blank at encoded frames."""
        ...

    def start_from(self, memory: Tensor, lengths: Tensor, *, capacity: int) -> tuple[Tensor, Any]:
        """Return the first tokens and the state of the decoder for encoded frames."""
        ...


@dataclass(frozen=True, eq=False)
class PrefixState:
    """CTC's view of every hypothesis: the alignments with the first t frames, t = 0 ... T, in float64."""

    blank: Float[Tensor, "B K frames"]  # log γ_b
    label: Float[Tensor, "B K frames"]  # log γ_n
    prefix: Float[Tensor, "B K"]  # log p_ctc(g ...)
    last: Int[Tensor, "B K"]  # last label of g; -1 before the first


class CTCPrefixScorer:
    """Scores of prefixes under the log-probabilities of CTC, B T V+1 with the blank last."""

    def __init__(self, log_probs: Float[Tensor, "B T L"], lengths: Int[Tensor, " B"]) -> None:
        x = log_probs.double().clamp(min=MIN_LOG_PROB)
        self.real = torch.arange(x.shape[1], device=x.device) < lengths[:, None]
        self.labels, self.blanks = x[..., :-1], x[..., -1].masked_fill(~self.real, 0.0)  # padding is blank for certain

    def start(self) -> PrefixState:
        """Return the state of the empty prefix: all frames so far are blank."""
        blank = F.pad(self.blanks.cumsum(1), (1, 0))[:, None]
        prefix = blank.new_zeros(len(blank), 1)
        return PrefixState(
            blank, torch.full_like(blank, NEG_INF), prefix, torch.full_like(prefix, -1, dtype=torch.long)
        )

    def scores(self, state: PrefixState, eos: int) -> Float[Tensor, "B K V"]:
        """Return log p_ctc(g c ...) for every next label c, and log p_ctc(g) in the column of `eos`."""
        total = torch.logaddexp(state.blank, state.label)
        labels = self.labels.exp() * self.real[..., None]
        repeated = torch.arange(labels.shape[2], device=labels.device) == state.last[..., None]  # B K V
        found = torch.where(repeated, _sum(state.blank[..., :-1], labels), _sum(total[..., :-1], labels))
        found[..., eos] = total[..., -1]  # padding is blank: what the last real frame ended with
        return found

    def extend(self, state: PrefixState, tokens: Int[Tensor, "B K"], prefix: Float[Tensor, "B K"]) -> PrefixState:
        """Return the state of every prefix with one more label; `prefix` are their scores."""
        emitted = self.labels.gather(2, tokens[:, None].expand(-1, self.labels.shape[1], -1)).mT  # B K T
        repeated = (tokens == state.last)[..., None]
        source = torch.where(repeated, state.blank, torch.logaddexp(state.blank, state.label))
        label = _recursion(source[..., :-1], emitted)
        label[..., 1:].masked_fill_(~self.real[:, None], NEG_INF)
        blank = _recursion(label[..., :-1], self.blanks[:, None].expand_as(emitted))
        return PrefixState(blank, label, prefix, tokens)

    def select_rows(self, rows: Int[Tensor, " R"]) -> CTCPrefixScorer:
        """Return the scorer of some recordings."""
        chosen = object.__new__(CTCPrefixScorer)
        chosen.real, chosen.labels, chosen.blanks = self.real[rows], self.labels[rows], self.blanks[rows]
        return chosen


def _sum(source: Float[Tensor, "B K T"], labels: Float[Tensor, "B T V"]) -> Float[Tensor, "B K V"]:
    """Return log Σ_t exp(source) labels, scaled by the largest of the source."""
    high = source.amax(-1, keepdim=True).clamp(min=torch.finfo(source.dtype).min)
    return ((source - high).exp() @ labels).log() + high


def _recursion(added: Float[Tensor, "B K T"], kept: Float[Tensor, "B K T"]) -> Float[Tensor, "B K frames"]:
    """Return log x(0) ... log x(T), where x(0) = 0 and x(t) = (x(t-1) + added(t)) kept(t); all are logarithms."""
    total = kept.cumsum(-1)
    return F.pad(total + torch.logcumsumexp(added - (total - kept), -1), (1, 0), value=NEG_INF)


# -- a decodable model -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class JointState:
    """The state of the decoder, and CTC's."""

    decoder: Any
    scorer: CTCPrefixScorer
    prefixes: PrefixState
    scores: Float[Tensor, "B K V"] | None = None  # of the last step, by which the tokens were chosen


class JointDecodable:
    """A hybrid model as one that any search can decode: its scores are those of decoder and CTC together."""

    normalized_scores = True  # a search takes them as log-probabilities, as they are

    def __init__(self, model: HybridModel, ctc_weight: float) -> None:
        if not 0 <= ctc_weight <= 1:
            raise BadInput(f"ctc_weight must be 0 to 1, got {ctc_weight}")
        self.model, self.weight = model, ctc_weight

    @property
    def eos(self) -> int:
        return self.model.eos

    def start(
        self, source: Float[Tensor, "B N F"], source_lengths: Int[Tensor, " B"] | None = None, *, capacity: int
    ) -> tuple[Int[Tensor, "B 1"], JointState]:
        memory, lengths = self.model.encode(source, source_lengths)
        scorer = CTCPrefixScorer(log_probs(self.model.ctc_logits(memory)), lengths)
        first, state = self.model.start_from(memory, lengths, capacity=capacity)
        return first, JointState(state, scorer, scorer.start())

    def step(self, tokens: Int[Tensor, "B K"], state: JointState) -> tuple[Float[Tensor, "B K V"], JointState]:
        """Return the joint score of every next token: how much it adds to the hypothesis."""
        logits, decoder = self.model.step(tokens, state.decoder)
        prefixes = state.prefixes
        if state.scores is not None:
            chosen = state.scores.gather(2, tokens[..., None]).squeeze(-1)
            prefixes = state.scorer.extend(prefixes, tokens, chosen)
        scores = state.scorer.scores(prefixes, self.eos)
        gain = torch.where(scores > NEG_INF, scores - prefixes.prefix[..., None], NEG_INF)
        both = log_probs(logits) if self.weight < 1 else torch.zeros_like(gain)
        if self.weight:
            both = (1 - self.weight) * both + self.weight * gain.to(both.dtype)
        return both, JointState(decoder, state.scorer, prefixes, scores)

    def select(self, state: JointState, rows: Int[Tensor, " R"] | None, beams: Int[Tensor, "R K"]) -> JointState:
        p = state.prefixes
        kept = gather_beams((p.blank, p.label, p.prefix, p.last, state.scores), rows, beams)
        scorer = state.scorer if rows is None else state.scorer.select_rows(rows)
        return JointState(self.model.select(state.decoder, rows, beams), scorer, PrefixState(*kept[:4]), kept[4])
