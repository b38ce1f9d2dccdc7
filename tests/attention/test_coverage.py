"""Aligners that know what was looked at: by a sum, and by a recurrent network at every place."""

import pytest
import torch

from regard.attention import ALIGNERS
from regard.attention.aligners.additive import AdditiveAligner
from regard.attention.aligners.coverage import CoverageAligner
from regard.attention.aligners.neural_coverage import NeuralCoverageAligner
from regard.core.errors import BadInput
from regard.core.spec import build_part, resolve


@pytest.fixture(autouse=True)
def _double(double):
    pass


def steps(aligner, memory, count=5, mask=None):
    keys, state = aligner.keys(memory), None
    for query in torch.randn(count, memory.shape[0], 3, 4):
        weights, state = aligner(query, keys, mask, state)
        yield query, weights, state


def test_what_is_covered_times_fertility_sums_to_the_number_of_steps():
    aligner, memory = CoverageAligner(4, 5, 6), torch.randn(2, 7, 5)
    mask = torch.arange(7)[None] < torch.tensor([7, 3])[:, None]
    fertility = 2 * torch.sigmoid(memory @ aligner.fertility.weight.T).squeeze(-1)
    total = torch.zeros(2, 3, 7)
    for count, (_, weights, covered) in enumerate(steps(aligner, memory, mask=mask), 1):
        torch.testing.assert_close((covered * fertility[:, None]).sum(-1), torch.full((2, 3), float(count)))
        total = total + weights / fertility[:, None]
        torch.testing.assert_close(covered, total)


def test_coverage_that_counts_for_nothing_is_additive_attention():
    for kind, silent in ((CoverageAligner, "cover"), (NeuralCoverageAligner, "past")):
        aligner, plain = kind(4, 5, 6), AdditiveAligner(4, 5, 6)
        plain.load_state_dict(aligner.state_dict(), strict=False)
        torch.nn.init.zeros_(getattr(aligner, silent).weight)
        memory = torch.randn(2, 7, 5)
        for query, weights, _ in steps(aligner, memory):
            torch.testing.assert_close(weights, plain(query, plain.keys(memory))[0])


def test_what_is_covered_can_be_left_alone():
    """By hand: the score falls with the coverage, so that equal places are looked at in turn."""
    aligner = CoverageAligner(4, 5, 1)
    with torch.no_grad():
        for part, value in ((aligner.query, 0.0), (aligner.memory, 0.0), (aligner.cover, -1.0), (aligner.score, 50.0)):
            part.weight.fill_(value)
    memory = torch.zeros(1, 4, 5)
    state = torch.tensor([[[1.0, 0.0, 1.0, 1.0]]])
    weights, _ = aligner(torch.randn(1, 1, 4), aligner.keys(memory), None, state)
    assert weights.argmax() == 1
    assert weights.max() > 0.99


def test_a_remembered_place_is_a_gated_unit_over_its_own_weights():
    aligner, memory = NeuralCoverageAligner(4, 5, 6, size=3), torch.randn(1, 7, 5)
    units = torch.zeros(7, 3)
    for query, weights, state in steps(aligner, memory):
        for m in range(7):
            asked, stands = query[0, 0] @ aligner.gru_query.weight.T, memory[0, m] @ aligner.gru_key.weight.T
            given = torch.cat([weights[0, 0, m : m + 1], stands, asked])
            units = units.clone()
            units[m] = aligner.gru(given[None], units[m][None])[0]
        torch.testing.assert_close(state[0, 0], units)


def test_what_cannot_be_is_refused():
    widths = {"query_width": 4, "memory_width": 5, "width": 6}
    with pytest.raises(BadInput, match="fertility must be above 0"):
        build_part(ALIGNERS, "coverage(fertility=0.0)", "aligner", **widths)
    with pytest.raises(BadInput, match="size must be at least 1"):
        resolve(ALIGNERS, "neural_coverage", "aligner")(**widths, size=0)
    with pytest.raises(BadInput, match="size of aligner 'neural_coverage' must be at least 1, got 0"):
        build_part(ALIGNERS, "neural_coverage(size=0)", "aligner", **widths)
