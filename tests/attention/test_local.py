"""Windows over the memory: what is inside them, where they stand, and what they are when they hold everything."""

import pytest
import torch

from regard.attention import ALIGNERS
from regard.attention.aligners.local_monotonic import LocalMonotonicAligner
from regard.attention.aligners.local_predictive import LocalPredictiveAligner
from regard.core.errors import BadInput, UnknownName, Unsupported
from regard.core.spec import build_part, resolve


@pytest.fixture(autouse=True)
def _double(double):
    pass


def walk(aligner, queries, memory, mask=None):
    keys, state, weights, centres = aligner.keys(memory), None, [], []
    for query in queries:
        one, state = aligner(query, keys, mask, state)
        weights.append(one)
        centres.append(aligner.centres(state))
    return torch.stack(weights), torch.stack(centres)


def test_the_monotonic_window_stands_at_its_step_and_stays_at_the_end():
    aligner = LocalMonotonicAligner(4, 5, 6, window=2)
    mask = torch.arange(9)[None] < torch.tensor([9, 5])[:, None]
    weights, centres = walk(aligner, torch.randn(12, 2, 3, 4), torch.randn(2, 9, 5), mask)
    for row, length in enumerate((9, 5)):
        for step in range(12):
            centre = min(step, length - 1)
            assert (centres[step, row] == centre).all()
            inside = [m for m in range(length) if abs(m - centre) <= 2]
            assert (weights[step, row][:, inside] > 0).all()
            outside = [m for m in range(9) if m not in inside]
            assert weights[step, row][:, outside].abs().max() == 0


def test_a_step_may_be_a_part_of_a_place():
    aligner = LocalMonotonicAligner(4, 5, 6, window=1, step=0.25)
    _, centres = walk(aligner, torch.randn(9, 1, 1, 4), torch.randn(1, 9, 5))
    assert centres.flatten().tolist() == [step / 4 for step in range(9)]


@pytest.mark.parametrize("score", ["bilinear", "additive", "concat"])
def test_a_window_over_everything_is_the_score_itself(score):
    aligner = LocalMonotonicAligner(4, 5, 6, window=20, score=score)
    queries, memory = torch.randn(3, 2, 3, 4), torch.randn(2, 9, 5)
    mask = torch.arange(9)[None] < torch.tensor([9, 5])[:, None]
    weights, _ = walk(aligner, queries, memory, mask)
    inner = aligner.score
    for query, ours in zip(queries, weights, strict=True):
        torch.testing.assert_close(ours, inner(query, inner.keys(memory), mask)[0])


def test_the_predicted_centre_and_its_bell_are_the_formula():
    aligner = LocalPredictiveAligner(4, 5, 6, window=2)
    query, memory = 3 * torch.randn(1, 2, 4), torch.randn(1, 9, 5)
    weights, centres = walk(aligner, query[None], memory)
    share = torch.sigmoid(torch.tanh(query @ aligner.position_hidden.weight.T) @ aligner.position_score.weight.T)
    torch.testing.assert_close(centres[0], 8 * share)
    for k in range(2):
        p = centres[0, 0, k].item()
        inside = [m for m in range(9) if abs(m - round(p)) <= 2]
        scores = aligner.score.scores(query, aligner.keys(memory))[0, k, inside]
        expected = scores.softmax(-1) * torch.tensor([2.718281828459045 ** -((m - p) ** 2 / 2) for m in inside])
        torch.testing.assert_close(weights[0, 0, k, inside], expected)
        torch.testing.assert_close(weights[0, 0, k].sum(), expected.sum())


def test_the_predicted_centre_learns_through_the_bell():
    aligner = LocalPredictiveAligner(4, 5, 6, window=3)
    query, memory = torch.randn(1, 1, 4), torch.zeros(1, 9, 5)  # all scores are equal: only the bell can tell places
    weights, _ = aligner(query, aligner.keys(memory), None, None)
    weights[0, 0, 7:].sum().backward()
    assert aligner.position_score.weight.grad.abs().max() > 0
    assert aligner.position_hidden.weight.grad.abs().max() > 0


def test_the_centre_lies_within_the_real_places():
    aligner = LocalPredictiveAligner(4, 5, 6, window=2)
    mask = torch.arange(9)[None] < torch.tensor([9, 3, 1])[:, None]
    _, centres = walk(aligner, 50 * torch.randn(6, 3, 4, 4), torch.randn(3, 9, 5), mask)
    assert centres.min() >= 0
    assert (centres <= torch.tensor([8.0, 2.0, 0.0])[:, None, None]).all()


def test_only_the_window_is_scored():
    """A place outside every window may hold anything: its key is never read."""
    aligner = LocalMonotonicAligner(4, 5, 6, window=1)
    memory = torch.randn(1, 50, 5)
    query, keys = torch.randn(1, 1, 4), aligner.keys(memory)
    expected, _ = aligner(query, keys, None, None)
    keys = keys.detach().clone()
    keys[:, 2:] = torch.nan
    assert torch.equal(aligner(query, keys, None, None)[0], expected)


def test_windows_refuse_what_cannot_be():
    widths = {"query_width": 4, "memory_width": 5, "width": 6}
    with pytest.raises(BadInput, match="window must be at least 1"):
        resolve(ALIGNERS, "local_monotonic", "aligner")(**widths, window=0)
    with pytest.raises(BadInput, match="window of aligner 'local_monotonic' must be at least 1, got 0"):
        build_part(ALIGNERS, "local_monotonic(window=0)", "aligner", **widths)
    with pytest.raises(BadInput, match="step must be above 0"):
        build_part(ALIGNERS, "local_monotonic(step=0.0)", "aligner", **widths)
    for remembers in ("gmm", "location", "coverage", "neural_coverage", "monotonic"):
        with pytest.raises(Unsupported, match=f"without state, not '{remembers}'"):
            build_part(ALIGNERS, f"local_predictive(score='{remembers}')", "aligner", **widths)
    with pytest.raises(UnknownName, match="did you mean 'bilinear'"):
        build_part(ALIGNERS, "local_predictive(score='bilinar')", "aligner", **widths)
    with pytest.raises(Unsupported, match="use 'bilinear'"):
        build_part(ALIGNERS, "local_predictive(score='dot')", "aligner", **widths)
