"""word2vec: the loss is the papers' formula, and the gradient touches what it names."""

import pytest
import torch
import torch.nn.functional as F

from regard.core.errors import UnknownName
from regard.models.word2vec import Config, Pairs, Word2Vec, pair_means, pair_scores

WORDS = torch.tensor([5, 7, 11, 5])
CONTEXTS = torch.tensor([[7, -1, 9, 6], [5, 11, -1, -1], [-1, -1, -1, -1], [7, 7, 6, 5]])
NEGATIVES = torch.tensor([[8, 12, 9], [7, 5, 5], [8, 8, 6], [12, 6, 7]])


def model(reads):
    made = Word2Vec(Config(vocab=13, width=6, algorithm=reads)).double()
    with torch.no_grad():
        for p in made.parameters():
            p.normal_()
    return made


def plain(m, words, contexts, negatives):
    """Pair by pair, as it stands in the papers; a drawn word that is the one wanted is left out."""
    v, u, total = m.embed.weight, m.output.weight, 0
    for word, near, drawn in zip(words.tolist(), contexts.tolist(), negatives.tolist(), strict=True):
        near = [c for c in near if c >= 0]
        if m.config.algorithm == "skipgram":
            tasks = [(v[word], c) for c in near]
        else:
            tasks = [(torch.stack([v[c] for c in near]).mean(0), word)] if near else []
        for h, wanted in tasks:
            total = total - F.logsigmoid(h @ u[wanted])
            for k in drawn:
                if k != wanted:
                    total = total - F.logsigmoid(-(h @ u[k]))
    return total


@pytest.mark.parametrize("reads", ["skipgram", "cbow"])
def test_loss_and_gradient_equal_the_reference_implementation(reads):
    m = model(reads)
    found, wanted = m(WORDS, CONTEXTS, NEGATIVES), plain(m, WORDS, CONTEXTS, NEGATIVES)
    torch.testing.assert_close(found, wanted)
    mine, twin = (torch.autograd.grad(x, [*m.parameters()]) for x in (found, wanted))
    for a, b in zip(mine, twin, strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize(("reads", "read"), [("skipgram", {5, 7}), ("cbow", {5, 6, 7, 9, 11})])
def test_the_gradient_touches_only_the_rows_that_were_used(reads, read):
    m = model(reads)
    m(WORDS, CONTEXTS, NEGATIVES).backward()
    assert set(m.embed.weight.grad.abs().sum(1).nonzero().flatten().tolist()) == read
    predicted = {5, 6, 7, 9, 11} if reads == "skipgram" else {5, 7}
    moved = set(m.output.weight.grad.abs().sum(1).nonzero().flatten().tolist())
    assert predicted <= moved
    assert moved <= predicted | set(NEGATIVES[[0, 1, 3]].flatten().tolist())


def test_batch_equals_singles():
    for reads in ("skipgram", "cbow"):
        m = model(reads)
        alone = sum(m(WORDS[i : i + 1], CONTEXTS[i : i + 1], NEGATIVES[i : i + 1]) for i in range(4))
        torch.testing.assert_close(m(WORDS, CONTEXTS, NEGATIVES), alone)


def test_without_context_it_returns_vectors():
    m = model("skipgram")
    assert torch.equal(m(WORDS), m.embed.weight[WORDS])
    assert m(CONTEXTS.clamp(min=0)).shape == (4, 4, 6)


def test_an_unknown_part_suggests_the_nearest():
    with pytest.raises(UnknownName, match="did you mean 'skipgram'"):
        Word2Vec(Config(vocab=5, algorithm="skipgrams"))


@pytest.mark.parametrize("mkl", [True, False], ids=["sampled", "gathered"])
def test_products_of_pairs_equal_the_full_product(monkeypatch, mkl):
    if not mkl:
        monkeypatch.setattr(torch.backends.mkl, "is_available", lambda: False)
        monkeypatch.setattr("regard.models.word2vec.CHUNK", 4)
    real = torch.rand(7, 5) < 0.6
    real[3] = False
    words = torch.randint(0, 11, (7, 5))
    pairs = Pairs.from_mask(words, real)
    h, table = torch.randn(7, 3, dtype=torch.float64), torch.randn(11, 3, dtype=torch.float64)
    h.requires_grad_()
    table.requires_grad_()
    whole = (h @ table.T).gather(1, words)[real]
    torch.testing.assert_close(pair_scores(h, table, pairs), whole)
    g = torch.randn(len(whole), dtype=torch.float64)
    mine = torch.autograd.grad(pair_scores(h, table, pairs), [h, table], g)
    for a, b in zip(mine, torch.autograd.grad(whole, [h, table], g), strict=True):
        torch.testing.assert_close(a, b)
    mean = (table[words] * real[..., None]).sum(1) / real.sum(1, keepdim=True).clamp(min=1)
    torch.testing.assert_close(pair_means(table, pairs), mean)
    d = torch.randn_like(mean)
    (mine,) = torch.autograd.grad(pair_means(table, pairs), [table], d)
    torch.testing.assert_close(mine, torch.autograd.grad(mean, [table], d)[0])


def test_without_targets_the_loss_is_zero():
    m = model("skipgram")
    loss = m(WORDS[2:3], CONTEXTS[2:3], NEGATIVES[2:3])
    assert float(loss) == 0
    loss.backward()
    assert float(m.embed.weight.grad.abs().sum()) == 0
