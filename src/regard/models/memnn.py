"""MemNN: finds the sentences that support an answer one after the other, each with those before it, then answers.

    input, generalisation    a sentence is a bag of features Φ, words or n-grams; each is written to the next memory
    output                   the fact o of (x, memories); x is the question, then the question and the facts so far
    response                 argmax over answers r of E(x)·E(r)                    x: the question and all facts
    score of a pair          s(x, y, y') = E(x)·(E(y) - E(y')) + UΦ(x)·UΦ_t(x, y, y')      > 0: y rather than y'
    winner                   t <- 1, then for i = 2, 3, ...: t <- i if s(x, m_i, m_t) > 0          O(S D) a fact
    embedding                E = UΦ, or tanh(W tanh(UΦ)) with `nonlinear`

The choice is hard, so that the answer cannot train it: supporting facts of the data do, by margin ranking against all
other memories in both orders (`rank`; the task sums it). MemN2N makes the choice soft, and needs answers alone.

Φ_t are three numbers: x against y, x against y', y against y', 1 if the first is newer, -1 if it is older. A word has a
vector of its own for each of its parts: in a question, in a memory to choose, in a fact and, for the response, in the
first fact, the second, ... With `adaptive` an empty memory after the newest may win from the second fact on, and ends
the search. n-grams share `ngram_rows` vectors by a hash.

What differs from the papers: their time features are 1 for older and 0 for newer. A challenger in the loop is newer
than the winner and older than the question: all three would be 0, and "the newest wins" could not be learned. Of
several x each has its own time. Their response adds all facts up by the same vectors, so that it cannot tell "Mary went
to the hall. Then she went to the garden." from its reverse. Ranking sums over all memories and answers; the papers
sample.

Weston, Chopra, Bordes: Memory Networks. ICLR 2015. arXiv:1410.3916
Weston et al.: Towards AI-Complete Question Answering. 2015. arXiv:1502.05698 (adaptive, n-grams, nonlinear)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from regard.attention.observed_weights import ObservedWeights
from regard.core.shapes import Bool, Float, Int, Tensor
from regard.core.validation import validate
from regard.models.contract import ModelContract
from regard.tokens.story_words import PAD, UNKNOWN, check_answers

HASH = 1_000_003  # a prime


@dataclass(frozen=True)
class Config:
    """Hyperparameters."""

    vocab: int = 200  # word ids, those of padding and unknown words included
    num_classes: int = 20  # answers
    width: int = 50
    hops: int = 2  # most supporting facts
    max_sentences: int = 50  # of the data; the model itself has no limit
    adaptive: bool = True  # may stop before that many facts; False: never
    ngrams: int = 1  # longest n-gram; 1: words alone
    ngram_rows: int = 5000  # vectors of n-grams of two and more words
    nonlinear: bool = False  # embed by tanh(W tanh(UΦ))


SIZES: dict[str, dict[str, Any]] = {"tiny": {"width": 20}, "base": {}, "ngrams": {"ngrams": 3, "nonlinear": True}}


class MemNN(ModelContract):
    """Stories and questions in, scores of the answers out."""

    forward_methods = ("read", "rank")
    trained_by_task = ("time", "nothing", "output")

    def __init__(self, config: Config) -> None:
        super().__init__()
        validate(config)
        check_answers(config.num_classes, config.vocab)
        self.config, width = config, config.width
        rows = config.vocab + (config.ngram_rows if config.ngrams > 1 else 0)
        # to choose; as a fact to go on, and to answer as the first fact, the second, ...
        self.memories = nn.Parameter(0.1 * torch.randn(rows, 2 + config.hops, width))
        self.questions = nn.Parameter(0.1 * torch.randn(rows, 2, width))  # to choose, to answer
        self.answers = nn.Parameter(0.1 * torch.randn(config.num_classes, width))
        self.time = nn.Parameter(0.1 * torch.randn(3, width))
        if config.adaptive and config.hops > 1:
            self.nothing = nn.Parameter(0.1 * torch.randn(width))  # the empty memory
        if config.nonlinear:
            self.output, self.response = (nn.Linear(width, width, bias=False) for _ in range(2))
        self.hops = nn.ModuleList([Hop() for _ in range(config.hops)])

    def forward(
        self, sentences: Int[Tensor, "B S W"], story_lengths: Int[Tensor, " B"], questions: Int[Tensor, "B V"]
    ) -> Float[Tensor, "B K"]:
        """Return the scores of the answers; a story has `story_lengths` sentences, oldest first."""
        return self.read(sentences, story_lengths, questions)[0]

    def read(
        self, sentences: Int[Tensor, "B S W"], story_lengths: Int[Tensor, " B"], questions: Int[Tensor, "B V"]
    ) -> tuple[Float[Tensor, "B K"], Float[Tensor, "B hops S"]]:
        """Return the scores of the answers, and for every hop 0 at the chosen sentence and -inf elsewhere."""
        search = self._begin(sentences, story_lengths, questions)
        for hop in self.hops:
            search.step(hop, search.contest().winner(search.open))
        weights = torch.stack(search.weights, 1)
        return self._respond(search), weights.log()

    def rank(
        self,
        sentences: Int[Tensor, "B S W"],
        story_lengths: Int[Tensor, " B"],
        questions: Int[Tensor, "B V"],
        support: Int[Tensor, "B F"],
    ) -> tuple[Float[Tensor, "B K"], Float[Tensor, "B hops M"], Float[Tensor, "B hops M"], Bool[Tensor, "B hops M"]]:
        """Return the scores of the answers given the supporting facts, and those of the facts against all memories.

        Of memory m and fact f of a hop: s(x, f, m), s(x, m, f), and whether m is a rival of f. Supporting facts are
        numbers of sentences, -1: none. A hop without one is won by the empty memory, the first has no rivals then.
        """
        search = self._begin(sentences, story_lengths, questions)
        order = (support < 0).to(torch.int8).argsort(dim=1, stable=True)  # forgotten ones are left out
        support = F.pad(support.gather(1, order), (0, self.config.hops), value=-1)
        found = []
        for number, hop in enumerate(self.hops):
            fact = support[:, number]
            if number and hasattr(self, "nothing"):
                fact = torch.where(fact < 0, sentences.shape[1], fact)
            found.append(search.contest().against(fact, search.open))
            search.step(hop, fact)
        ahead, behind, rivals = (torch.stack(parts, 1) for parts in zip(*found, strict=True))
        return self._respond(search), ahead, behind, rivals

    def _begin(self, sentences: Tensor, lengths: Tensor, questions: Tensor) -> Search:
        memories = self._bag(sentences.flatten(0, 1), self.memories).unflatten(0, sentences.shape[:2])
        asked, replied = self._bag(questions, self.questions).unbind(1)
        return Search(self, memories, lengths, asked, replied)

    def _respond(self, search: Search) -> Float[Tensor, "B K"]:
        return F.linear(self.embed(search.told, "response"), self.embed(self.answers, "response"))

    def embed(self, features: Float[Tensor, "*any D"], part: str) -> Float[Tensor, "*any D"]:
        """Return E of summed features, for the output or the response."""
        return getattr(self, part)(features.tanh()).tanh() if self.config.nonlinear else features

    def _bag(self, words: Int[Tensor, "N W"], table: Tensor) -> Float[Tensor, "N parts D"]:
        """Return the sums of the vectors of all features of sentences, for every part."""
        c, features, known = self.config, words, words > UNKNOWN
        real = [known]
        for n in range(2, c.ngrams + 1):
            if words.shape[1] < n:
                break
            windows = words.unfold(1, n, 1)
            powers = HASH ** torch.arange(n, device=words.device)
            ids = c.vocab + (windows * powers).sum(-1) % c.ngram_rows
            features = torch.cat([features, ids], 1)
            real.append(known.unfold(1, n, 1).all(-1))
        features = torch.where(torch.cat(real, 1), features, PAD)
        bags = F.embedding_bag(features, table.flatten(1), mode="sum", padding_idx=PAD)
        return bags.view(-1, *table.shape[1:])


class Search:
    """The search for the facts of a batch of questions: what is known so far, and the memories to choose from."""

    def __init__(self, model: MemNN, memories: Tensor, lengths: Tensor, asked: Tensor, replied: Tensor) -> None:
        self.model, size = model, memories.shape[1]
        to_choose, self.facts = memories[:, :, 0], memories[:, :, 1:]
        if hasattr(model, "nothing"):
            to_choose = torch.cat([to_choose, model.nothing.expand(asked.shape[0], 1, -1)], 1)
        self.candidates = model.embed(to_choose, "output")
        self.place = torch.arange(to_choose.shape[1], device=asked.device)
        self.sentences = self.place < lengths[:, None]
        self.open = self.sentences  # memories that may be chosen
        self.known = [(asked, torch.full_like(lengths, size + 1))]  # features and place; the question is the newest
        self.told = replied
        self.weights: list[Tensor] = []

    def contest(self) -> Contest:
        """Return the scores of all pairs of memories, given what is known."""
        total = sum(features for features, _ in self.known[1:]) + self.known[0][0]
        scores = torch.einsum("bmd,bd->bm", self.candidates, self.model.embed(total, "output"))
        first = second = scores
        newest = scores.new_zeros(scores.shape[0])
        for features, place in self.known:
            times = F.linear(features, self.model.time)
            newer = (place[:, None] - self.place).sign().to(scores.dtype)
            first, second = first + newer * times[:, :1], second - newer * times[:, 1:2]
            newest = newest + times[:, 2]
        return Contest(first, second, newest, self.place)

    def step(self, hop: nn.Module, chosen: Int[Tensor, " B"]) -> None:
        """Take a memory into what is known; -1 and the empty memory are nothing, and end the search."""
        size = self.facts.shape[1]
        read, weights = hop(chosen, self.facts)
        self.known.append((read[:, 0], chosen))
        self.told = self.told + read[:, len(self.known) - 1]
        self.weights.append(weights)
        goes_on = ((chosen >= 0) & (chosen < size))[:, None]
        self.open = (self.sentences | (self.place == size)) & goes_on


class Hop(nn.Module):
    """One chosen memory, read by weights of one and zero."""

    def __init__(self) -> None:
        super().__init__()
        self.observed = ObservedWeights("hop")

    def forward(
        self, chosen: Int[Tensor, " B"], facts: Float[Tensor, "B S parts D"]
    ) -> tuple[Float[Tensor, "B parts D"], Float[Tensor, "B S"]]:
        """Return the memory, zeros for a number that is none, and the weights."""
        weights = chosen[:, None] == torch.arange(facts.shape[1], device=facts.device)
        weights = self.observed(weights.to(facts.dtype)[:, None, None])[:, 0, 0]
        return torch.einsum("bs,bspd->bpd", weights, facts), weights


@dataclass(frozen=True)
class Contest:
    """Scores of all pairs of memories, s(y, y') = first(y) - second(y') + newest, - newest if y is older than y'."""

    first: Float[Tensor, "B M"]
    second: Float[Tensor, "B M"]
    newest: Float[Tensor, " B"]
    place: Int[Tensor, " M"]

    def winner(self, open: Bool[Tensor, "B M"]) -> Int[Tensor, " B"]:
        """Return the winner of a loop over the memories, in which each challenges the one that won so far; -1: none."""
        best = torch.full_like(self.newest, float("-inf"))
        chosen = torch.full_like(open[:, 0], -1, dtype=torch.int64)
        challengers = (self.first + self.newest[:, None]).unbind(1)
        for place, (mine, after) in enumerate(zip(challengers, self.second.unbind(1), strict=True)):
            wins = open[:, place] & (mine > best)
            best, chosen = torch.where(wins, after, best), torch.where(wins, place, chosen)
        return chosen

    def against(
        self, fact: Int[Tensor, " B"], open: Bool[Tensor, "B M"]
    ) -> tuple[Float[Tensor, "B M"], Float[Tensor, "B M"], Bool[Tensor, "B M"]]:
        """Return s(fact, m) and s(m, fact) of all memories m, and which of them are rivals of the fact."""
        fact = fact[:, None]
        there = fact.clamp(min=0)
        ahead = self.first.gather(1, there) - self.second + (fact - self.place).sign() * self.newest[:, None]
        behind = self.first - self.second.gather(1, there) + (self.place - fact).sign() * self.newest[:, None]
        return ahead, behind, open & (fact >= 0) & (self.place != fact)
