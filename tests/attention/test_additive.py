"""Additive attention against its formula, written out one number at a time."""

import math

import pytest
import torch

from regard.attention import ALIGNERS
from regard.attention.aligners.additive import AdditiveAligner
from regard.attention.capture.watch import watch
from regard.attention.protocol import context
from regard.core.errors import RegardError, UnknownName
from regard.core.spec import build_part


@pytest.fixture(autouse=True)
def _double(double):
    pass


def by_hand(aligner, s, h):
    """softmax over m of v · tanh(W s + U h_m), in Python numbers."""
    w, u, v = (part.weight.tolist() for part in (aligner.query, aligner.memory, aligner.score))

    def times(matrix, vector):
        return [sum(a * b for a, b in zip(row, vector, strict=True)) for row in matrix]

    ws = times(w, s)
    scores = [times(v, [math.tanh(a + b) for a, b in zip(ws, times(u, place), strict=True)])[0] for place in h]
    total = sum(math.exp(e) for e in scores)
    return [math.exp(e) / total for e in scores]


def test_a_number_is_no_aligner():
    with pytest.raises(RegardError, match="3 is no aligner"):
        build_part(ALIGNERS, 3, "aligner")


def test_weights_are_the_formula():
    aligner = AdditiveAligner(query_width=3, memory_width=4, width=5)
    query, memory = torch.randn(2, 3, 3), torch.randn(2, 6, 4)
    weights, state = aligner.weights(query, aligner.keys(memory))
    assert state is None
    for b in range(2):
        for k in range(3):
            expected = torch.tensor(by_hand(aligner, query[b, k].tolist(), memory[b].tolist()))
            torch.testing.assert_close(weights[b, k], expected)


def test_context_is_the_weighted_memory():
    aligner = AdditiveAligner(3, 4, 5)
    query, memory = torch.randn(2, 3, 3), torch.randn(2, 6, 4)
    weights, _ = aligner(query, aligner.keys(memory))
    expected = torch.einsum("bkm,bmc->bkc", weights, memory)
    torch.testing.assert_close(context(weights, memory), expected)


def test_gradients_are_those_of_differences():
    aligner = AdditiveAligner(3, 4, 5)
    query, memory = torch.randn(1, 2, 3, requires_grad=True), torch.randn(1, 4, 4, requires_grad=True)
    mask = torch.tensor([[True, True, False, True]])
    assert torch.autograd.gradcheck(lambda q, h: aligner(q, aligner.keys(h), mask)[0], (query, memory))


def test_watching_gives_one_row_for_each_call():
    aligner = AdditiveAligner(3, 4, 5)
    memory, mask = torch.randn(2, 6, 4), torch.tensor([[True] * 6, [True] * 2 + [False] * 4])
    keys = aligner.keys(memory)
    with watch(aligner) as seen:
        outputs = [aligner(query, keys, mask)[0] for query in torch.randn(4, 2, 1, 3)]
    (trace,) = seen.traces()
    assert trace.kind == "align"
    assert torch.equal(trace.weights, torch.cat(outputs, 1)[:, None])


def test_a_spec_gives_its_arguments():
    aligner = build_part(ALIGNERS, "additive(width=11)", "aligner", query_width=3, memory_width=4, width=5)
    assert aligner.keys(torch.randn(1, 2, 4)).shape == (1, 2, 11)
    with pytest.raises(UnknownName, match="did you mean 'additive'"):
        build_part(ALIGNERS, "aditive", "aligner")
