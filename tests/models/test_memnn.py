"""MemNN against loops over all memories written from the papers: scores, chosen facts, loss and gradient."""

import itertools

import pytest
import torch

import regard
from regard.core.errors import BadInput
from regard.data.text.stories import StoryBatch
from regard.models.memnn import HASH, Config, MemNN
from regard.tasks.memory import stories
from regard.tokens.story_words import PAD, UNKNOWN

VOCAB, ANSWERS, WIDTH, MARGIN = 19, 6, 5, 0.3
VARIANTS = (
    {"hops": 1},
    {"hops": 2, "adaptive": False},
    {"hops": 3},
    {"hops": 2, "ngrams": 3, "ngram_rows": 7},
    {"hops": 2, "nonlinear": True},
)


def model(**settings):
    torch.manual_seed(1)
    found = MemNN(Config(**{"vocab": VOCAB, "num_classes": ANSWERS, "width": WIDTH} | settings)).double().eval()
    with torch.no_grad():
        for parameter in found.parameters():
            parameter.copy_(torch.randn_like(parameter))
    return found


def story(rows=6, seed=0):
    torch.manual_seed(seed)
    x, q = torch.randint(2, VOCAB, (rows, 4, 5)), torch.randint(2, VOCAB, (rows, 3))
    x[0, 1, 2:] = PAD
    x[1, 2] = PAD  # a sentence without words
    x[2, 0, 1] = UNKNOWN
    q[2, 2] = PAD
    lengths = torch.tensor([4, 3, 2, 4, 1, 0])
    return x, lengths, q


class Loops:
    """The papers' equations: vectors of features Φ, one matrix U for the facts and one for the answer."""

    def __init__(self, m):
        self.m, self.c = m, m.config
        self.rows = len(m.memories)
        # columns of U: words of the question, of facts, of memories to choose, the empty memory, time
        nothing = m.nothing[None] if hasattr(m, "nothing") else m.time.new_zeros(1, WIDTH)
        self.u_o = torch.cat([m.questions[:, 0], m.memories[:, 1], m.memories[:, 0], nothing, m.time]).T
        self.u_r = torch.cat([m.questions[:, 1], *m.memories[:, 2:].unbind(1), m.answers]).T  # facts by their number

    def features(self, words):
        """How often each word, and each n-gram, occurs."""
        phi = torch.zeros(self.rows, dtype=torch.float64)
        for n in range(1, self.c.ngrams + 1):
            for start in range(len(words) - n + 1):
                gram = words[start : start + n].tolist()
                if min(gram) > UNKNOWN:
                    hashed = sum(word * HASH**k for k, word in enumerate(gram)) % self.c.ngram_rows
                    phi[gram[0] if n == 1 else VOCAB + hashed] += 1
        return phi

    def e(self, u, phi, part):
        found = u @ phi
        return getattr(self.m, part)(found.tanh()).tanh() if self.c.nonlinear else found

    def phi(self, u, begin, values):
        phi = torch.zeros(u.shape[1], dtype=torch.float64)
        phi[begin : begin + len(values)] = values
        return phi

    def score(self, knowns, memories, y, z):
        """s(x, y, y'); memories after the last are the empty one. `knowns` are features and places, question first."""
        r = self.rows
        x = [self.phi(self.u_o, r * (n > 0), words) for n, (words, _) in enumerate(knowns)]
        one = torch.ones(1, dtype=torch.float64)
        one_y, one_z = (
            self.phi(self.u_o, 2 * r, memories[i]) if i < len(memories) else self.phi(self.u_o, 3 * r, one)
            for i in (y, z)
        )
        e_x = self.e(self.u_o, sum(x), "output")
        total = e_x @ (self.e(self.u_o, one_y, "output") - self.e(self.u_o, one_z, "output"))
        for phi, (_, place) in zip(x, knowns, strict=True):
            times = torch.tensor([place - y, place - z, y - z], dtype=torch.float64).sign()
            total = total + (self.u_o @ phi) @ (self.u_o @ self.phi(self.u_o, 3 * r + 1, times))
        return total

    def respond(self, knowns):
        x = sum(self.phi(self.u_r, self.rows * n, words) for n, (words, _) in enumerate(knowns))
        e_x, one = self.e(self.u_r, x, "response"), torch.ones(1, dtype=torch.float64)
        answers = [
            self.e(self.u_r, self.phi(self.u_r, (1 + self.c.hops) * self.rows + k, one), "response")
            for k in range(ANSWERS)
        ]
        return torch.stack([e_x @ answer for answer in answers])

    def read(self, sentences, question):
        """Return the scores of the answers and the facts chosen."""
        memories = [self.features(words) for words in sentences]
        knowns, chosen = [(self.features(question), len(memories) + 1)], []
        for hop in range(self.c.hops if memories else 0):
            t = 0
            for i in range(1, len(memories) + (hop > 0 and self.c.adaptive)):
                if self.score(knowns, memories, i, t) > 0:
                    t = i
            if t == len(memories):
                break
            chosen.append(t)
            knowns.append((memories[t], t))
        return self.respond(knowns), chosen

    def loss(self, sentences, question, support, label):
        memories, zero = [self.features(words) for words in sentences], torch.zeros(())
        knowns, total = [(self.features(question), len(memories) + 1)], 0.0
        for hop in range(self.c.hops):
            stops = hop >= len(support)
            if stops and (not hop or not self.c.adaptive):
                break
            fact = len(memories) if stops else support[hop]
            for i in range(len(memories) + (hop > 0 and self.c.adaptive)):
                if i != fact:
                    total = total + torch.maximum(zero, MARGIN - self.score(knowns, memories, fact, i))
                    total = total + torch.maximum(zero, MARGIN + self.score(knowns, memories, i, fact))
            if stops:
                break
            knowns.append((memories[fact], fact))
        scores = self.respond(knowns)
        for k in range(ANSWERS):
            if k != label:
                total = total + torch.maximum(zero, MARGIN - scores[label] + scores[k])
        return total


def test_scores_and_chosen_facts_equal_a_loop_over_all_memories():
    kinds = set()
    for settings, seed in itertools.product(VARIANTS, range(3)):
        m, (x, lengths, q) = model(**settings), story(seed=seed)
        logits, scores = m.read(x, lengths, q)
        for b, length in enumerate(lengths.tolist()):
            wanted, facts = Loops(m).read(x[b, :length], q[b])
            torch.testing.assert_close(logits[b], wanted)
            chosen = [int(row.argmax()) for row in scores[b] if row.max() == 0]
            assert chosen == facts, settings
            kinds.add(len(facts))
    assert kinds == {0, 1, 2, 3}


class Data:
    corpus = "own"

    def words(self):
        return None


def task_on(values):
    task = stories.StoryAnswering(stories.Config(margin=MARGIN), Data())
    task.dataset = lambda split: type("Split", (), {"support": type("Support", (), {"values": values})})
    return task


def test_ranking_equals_a_loop_in_value_and_gradient():
    support = torch.tensor([[2, 0, 1], [1, -1, -1], [-1, 1, -1], [3, 3, -1], [0, -1, -1], [-1, -1, -1]])
    for settings in VARIANTS:
        m, (x, lengths, q) = model(**settings), story()
        batch = StoryBatch(x, lengths, q, torch.tensor([0, 5, 2, 3, 1, 4]), support, torch.ones(6))
        found, _ = task_on(support).loss(m, batch)
        wanted = sum(
            Loops(m).loss(x[b, :n], q[b], [f for f in support[b].tolist() if f >= 0], int(batch.labels[b]))
            for b, n in enumerate(lengths.tolist())
        )
        torch.testing.assert_close(found, wanted)
        ours, theirs = (torch.autograd.grad(loss, list(m.parameters())) for loss in (found, wanted))
        for mine, other in zip(ours, theirs, strict=True):
            torch.testing.assert_close(mine, other)
            assert mine.abs().sum() > 0


def test_stories_without_supporting_sentences_are_refused():
    with pytest.raises(BadInput, match="own names no supporting sentences"):
        task_on(torch.zeros(0)).loss(model(), None)


def test_padding_changes_nothing_and_choices_are_watched():
    m, (x, lengths, q) = model(hops=2, adaptive=False), story()
    with regard.watch(m) as seen:
        base, scores = m.read(x, lengths, q)
    first, second = (trace.weights[:, 0, 0] for trace in seen.traces("hop"))
    assert first.sum(-1).tolist() == second.sum(-1).tolist() == [1, 1, 1, 1, 1, 0]  # the last story is empty
    assert torch.equal(second.double(), scores[:, 1].exp())
    x[2, 2:] = 7
    torch.testing.assert_close(m(x, lengths, q), base)
    torch.testing.assert_close(m(x[2:3, :2], lengths[2:3], q[2:3, :2]), base[2:3])


def test_the_newest_of_equal_sentences_can_win():
    """The third time feature alone decides between sentences with the same words."""
    m = model(hops=1)
    x, q = torch.full((1, 4, 2), 3), torch.full((1, 2), 4)
    with torch.no_grad():
        for sign, wanted in ((1, 3), (-1, 0)):
            m.time.zero_()
            m.time[2] = sign * m.questions[4, 0]
            assert int(m.read(x, torch.tensor([4]), q)[1].argmax()) == wanted
