"""MemN2N against softmax attention, the published position encoding, and what padding and unknown words may not do."""

import pytest
import torch
import torch.nn.functional as F

import regard
from regard.attention.mechanisms.softmax import SoftmaxAttention
from regard.blocks.sentence_vectors import sentence_vectors
from regard.core.errors import BadInput
from regard.models.memn2n import Config, MemN2N
from regard.tokens.story_words import PAD, UNKNOWN


def story(rows=3, sentences=5, words=4, vocab=19):
    torch.manual_seed(0)
    x, q = torch.randint(2, vocab, (rows, sentences, words)), torch.randint(2, vocab, (rows, 3))
    x[0, 1, 2:] = PAD  # a short sentence
    x[1, 3] = PAD  # an empty one
    return x, torch.tensor([sentences, sentences - 1, 2][:rows]), q


def model(**settings):
    torch.manual_seed(1)
    made = MemN2N(Config(**{"vocab": 19, "num_classes": 6, "width": 7, "max_sentences": 8} | settings)).double()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.normal_()
    return made


def position_encoding(sentence, table):
    """The formula of the paper, section 4.1, number by number."""
    words = [w for w in sentence.tolist() if w != PAD]
    d, n = table.shape[1], len(words)
    total = torch.zeros(d, dtype=table.dtype)
    for j, word in enumerate(words, 1):
        for k in range(1, d + 1):
            if word != UNKNOWN:
                total[k - 1] += ((1 - j / n) - (k / d) * (1 - 2 * j / n)) * table[word, k - 1]
    return total


def reference(m, sentences, length, question, hops):
    """One story in loops, from the equations of the paper; every hop is softmax attention with scale 1."""
    adjacent = m.config.tying == "adjacent"
    scale = m.config.position_scale
    u = scale * position_encoding(question, m.words[:, 0] if adjacent else m.questions[:, 0])
    attend = SoftmaxAttention(scale=1.0)
    for hop in range(hops):
        a, c = (hop, hop + 1) if adjacent else (0, 1)
        rows = range(length)
        keys, values = (
            torch.stack(
                [scale * position_encoding(sentences[i], m.words[:, t]) + m.ages[length - 1 - i, t] for i in rows]
            )
            for t in (a, c)
        )
        if m.config.empty_slots:  # zeros, and nothing masked
            keys, values = (F.pad(x, (0, 0, 0, m.config.max_sentences - length)) for x in (keys, values))
        out = attend(u[None, None, None], keys[None, None], values[None, None])
        u = (u if adjacent else m.between(u)) + out[0, 0, 0]
    return (m.words[2 : 2 + m.config.num_classes, -1] if adjacent else m.head.weight) @ u


def test_hops_equal_softmax_attention_with_scale_one():
    x, lengths, q = story()
    x[0, 0, 1] = UNKNOWN
    for tying, empty_slots in (("adjacent", True), ("adjacent", False), ("layerwise", True), ("layerwise", False)):
        for hops in (1, 3):
            m = model(tying=tying, hops=hops, empty_slots=empty_slots, position_scale=1.0 + empty_slots)
            found = m(x, lengths, q)
            wanted = torch.stack([reference(m, x[i], int(lengths[i]), q[i], hops) for i in range(3)])
            torch.testing.assert_close(found, wanted)
            parameters = list(m.parameters())
            for a, b in zip(
                torch.autograd.grad(found.sin().sum(), parameters),
                torch.autograd.grad(wanted.sin().sum(), parameters),
                strict=True,
            ):
                torch.testing.assert_close(a, b)


def test_linear_start_is_the_same_without_softmax():
    x, lengths, q = story()
    m = model(hops=1)
    logits, scores = m.read(x, lengths, q, linear=True)
    u = position_encoding(q[2], m.words[:, 0])
    memory = [position_encoding(x[2, i], m.words[:, 1]) + m.ages[1 - i, 1] for i in range(2)]
    u = u + scores[2, 0, 0] * memory[0] + scores[2, 0, 1] * memory[1]
    torch.testing.assert_close(logits[2], m.words[2:8, -1] @ u)


def test_padding_and_gaps_in_ages():
    x, lengths, q = story()
    m = model()
    base = m(x, lengths, q)
    x[2, 2:] = 5  # padding of the third story
    torch.testing.assert_close(m(x, lengths, q), base, rtol=0, atol=0)
    ages = (lengths[:, None] - 1 - torch.arange(5)).clamp(min=0)
    torch.testing.assert_close(m(x, lengths, q, ages), base, rtol=0, atol=0)
    assert not torch.allclose(m(x, lengths, q, ages + 1), base)
    empty = m(x, torch.zeros(3, dtype=torch.long), q)  # no sentence: the question alone answers
    torch.testing.assert_close(empty, sentence_vectors(q, m.words)[:, 0] @ m.words[2:8, -1].T)


def test_watch_sees_the_weights_of_every_hop():
    x, lengths, q = story()
    m = model(empty_slots=False)
    with regard.watch(m) as seen:
        _, scores = m.read(x, lengths, q)
    traces = seen.traces("hop")
    assert len(traces) == 3
    torch.testing.assert_close(traces[1].weights[2, 0, 0, :2], scores[2, 1, :2].softmax(-1).to(traces[1].weights.dtype))
    for trace in traces:
        torch.testing.assert_close(trace.weights.sum(-1), torch.ones(3, 1, 1, dtype=trace.weights.dtype))


def test_empty_slots_take_their_share_and_a_full_memory_has_none():
    x, lengths, q = story()
    m, full = model(hops=1), model(hops=1, max_sentences=5)
    for each in (m, full):
        with regard.watch(each) as seen:
            scores = each.read(x, lengths, q)[1][:, 0]
        found = seen.traces("hop")[0].weights[:, 0, 0]
        for i, n in enumerate(lengths.tolist()):
            own = scores[i, :n].exp()
            wanted = own / (own.sum() + each.config.max_sentences - n)
            torch.testing.assert_close(found[i, :n], wanted.to(found.dtype))
        assert (float(found[0].sum()) > 1 - 1e-6) == (each is full)


def test_more_answers_than_words_are_refused():
    with pytest.raises(BadInput, match="num_classes must be at most vocab - 2 = 4"):
        model(vocab=6, num_classes=5)
