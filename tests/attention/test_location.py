"""Location-aware attention: its formula, its filters, and what is left of it without them."""

import pytest
import torch
import torch.nn.functional as F

from regard.attention import ALIGNERS
from regard.attention.aligners.additive import AdditiveAligner
from regard.attention.aligners.location import LocationAligner
from regard.core.errors import BadInput, UnknownName
from regard.core.spec import build_part, resolve


@pytest.fixture(autouse=True)
def _double(double):
    pass


def test_with_zero_filters_it_is_additive_attention():
    aligner, plain = LocationAligner(4, 5, 6), AdditiveAligner(4, 5, 6)
    plain.load_state_dict(aligner.state_dict(), strict=False)
    torch.nn.init.zeros_(aligner.filters.weight)
    memory, state = torch.randn(2, 7, 5), None
    for query in torch.randn(4, 2, 3, 4):
        weights, state = aligner(query, aligner.keys(memory), None, state)
        torch.testing.assert_close(weights, plain(query, plain.keys(memory))[0])


def test_the_first_step_is_additive_attention_and_the_second_is_not():
    aligner, plain = LocationAligner(4, 5, 6), AdditiveAligner(4, 5, 6)
    plain.load_state_dict(aligner.state_dict(), strict=False)
    memory, query = torch.randn(2, 7, 5), torch.randn(2, 3, 4)
    first, state = aligner(query, aligner.keys(memory))
    second, _ = aligner(query, aligner.keys(memory), None, state)
    torch.testing.assert_close(first, plain(query, plain.keys(memory))[0])
    assert (second - first).abs().max() > 1e-4


def test_the_second_step_is_the_formula():
    aligner = LocationAligner(4, 5, 6, filters=3, radius=2)
    memory, query = torch.randn(1, 7, 5), torch.randn(1, 1, 4)
    _, before = aligner(query, aligner.keys(memory))
    weights, _ = aligner(query, aligner.keys(memory), None, before)
    padded = F.pad(before[0, 0], (2, 2))
    scores = []
    for m in range(7):
        seen = aligner.filters.weight[:, 0] @ padded[m : m + 5]  # the 5 weights around place m
        joined = query[0, 0] @ aligner.query.weight.T + memory[0, m] @ aligner.memory.weight.T
        scores.append(torch.tanh(joined + aligner.location.weight @ seen) @ aligner.score.weight[0])
    torch.testing.assert_close(weights[0, 0], torch.stack(scores).softmax(-1))


def test_a_filter_can_ask_for_the_next_place():
    """By hand: the score is ten times the last weight of the place before, so that each step looks one further."""
    aligner = LocationAligner(1, 1, 1, filters=1, radius=1)
    with torch.no_grad():
        aligner.filters.weight[0, 0] = torch.tensor([1.0, 0.0, 0.0])
        for part, value in (
            (aligner.query, 0.0),
            (aligner.memory, 0.0),
            (aligner.location, 3.0),
            (aligner.score, 30.0),
        ):
            part.weight.fill_(value)
    keys, state = aligner.keys(torch.zeros(1, 6, 1)), F.one_hot(torch.tensor([[0]]), 6).double()
    for step in range(1, 6):
        weights, state = aligner(torch.zeros(1, 1, 1), keys, None, state)
        assert weights.argmax(-1).item() == step
        assert weights.max() > 0.99


def test_smoothing_is_the_sigmoid_over_its_sum():
    aligner = LocationAligner(4, 5, 6, normalizer="sigmoid", sharpness=2.0)
    memory, query = torch.randn(2, 7, 5), torch.randn(2, 3, 4)
    keys = aligner.keys(memory)
    mask = torch.arange(7)[None] < torch.tensor([7, 4])[:, None]
    weights, _ = aligner(query, keys, mask)
    share = torch.sigmoid(2 * aligner.scores(query, keys)) * mask[:, None]
    torch.testing.assert_close(weights, share / share.sum(-1, keepdim=True))


def test_what_cannot_be_is_refused():
    widths = {"query_width": 4, "memory_width": 5, "width": 6}
    with pytest.raises(UnknownName, match="did you mean 'sigmoid'"):
        build_part(ALIGNERS, "location(normalizer='sigmod')", "aligner", **widths)
    with pytest.raises(BadInput, match="filters >= 1"):
        resolve(ALIGNERS, "location", "aligner")(**widths, filters=0)
    with pytest.raises(BadInput, match="filters of aligner 'location' must be at least 1, got 0"):
        build_part(ALIGNERS, "location(filters=0)", "aligner", **widths)
