"""DMN: gates of one and zero, attention features against a loop, facts of a whole story, and padding."""

import torch
from torch import nn

import regard
from regard.models.dmn import DMN, Config
from regard.tokens.story_words import PAD


def model(**settings):
    torch.manual_seed(1)
    return DMN(Config(**{"vocab": 19, "num_classes": 6, "width": 5, "hops": 3} | settings)).double().eval()


def story():
    torch.manual_seed(0)
    x, q = torch.randint(2, 19, (3, 4, 5)), torch.randint(2, 19, (3, 3))
    x[0, 1, 2:] = PAD
    x[1, 2] = PAD  # a sentence without words
    q[2, 2] = PAD
    return x, torch.tensor([4, 3, 2]), q


def test_gates_of_one_are_a_gru_and_gates_of_zero_keep_the_first_state():
    episode, facts = model().episode, torch.randn(3, 7, 5, dtype=torch.float64)
    gru = nn.GRU(5, 5, batch_first=True).double()
    for name, value in episode.gru.named_parameters():
        getattr(gru, f"{name}_l0").data.copy_(value)
    _, inputs = episode.prepare(facts, facts[:, 0])
    torch.testing.assert_close(episode.read(inputs, torch.ones(3, 7).double()), gru(facts)[1][0])
    assert (episode.read(inputs, torch.zeros(3, 7).double()) == 0).all()
    half = episode.read(inputs[:, :1], torch.full((3, 1), 0.25).double())
    torch.testing.assert_close(half, 0.25 * gru(facts[:, :1])[1][0])


def test_attention_features_equal_a_loop():
    episode = model().episode
    facts, m, q = (torch.randn(*shape, 5, dtype=torch.float64) for shape in ((3, 4), (3,), (3,)))
    w, found = episode.bilinear.weight, episode.scores(facts, episode.prepare(facts, q)[0], m)
    for b in range(3):
        for s in range(4):
            c = facts[b, s]
            parts = [c, m[b], q[b], c * q[b], c * m[b], (c - q[b]).abs(), (c - m[b]).abs()]
            z = torch.cat([*parts, (c @ w @ q[b])[None], (c @ w @ m[b])[None]])
            wanted = episode.score(torch.tanh(episode.hidden(z)))[0]
            torch.testing.assert_close(found[b, s], wanted)


def test_facts_are_states_of_one_network_over_the_whole_story():
    m, (x, lengths, _) = model(), story()
    found = m._facts(x)
    for b in range(3):
        words, states = [], torch.zeros(1, 5, dtype=torch.float64)
        for s in range(int(lengths[b])):
            words += [w for w in x[b, s].tolist() if w != PAD]
            if words:
                states = m.input(m.words(torch.tensor([words])))[1][0]
            torch.testing.assert_close(found[b, s], states[0])


def test_padding_changes_nothing_and_hops_are_watched():
    m, (x, lengths, q) = model(), story()
    with regard.watch(m) as seen:
        base, scores = m.read(x, lengths, q)
    gates = [trace.weights[:, 0, 0] for trace in seen.traces("hop")]
    assert len(gates) == 3
    torch.testing.assert_close(gates[2][0], scores[0, 2].sigmoid().to(gates[2].dtype))
    assert (gates[0][2, 2:] == 0).all()
    x[2, 2:] = 7
    torch.testing.assert_close(m(x, lengths, q), base)
    torch.testing.assert_close(m(x[2:, :2], lengths[2:], q[2:, :2]), base[2:])
    loss = base.sum()
    loss.backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in m.parameters())
