"""Scores that remember nothing, each against its formula or against what it equals."""

import pytest
import torch

from regard.attention import ALIGNERS
from regard.attention.aligners.additive import AdditiveAligner
from regard.attention.aligners.bilinear import BilinearAligner
from regard.attention.aligners.concat import ConcatAligner
from regard.attention.aligners.dot import DotAligner
from regard.attention.aligners.scaled_dot import ScaledDotAligner
from regard.attention.mask import PaddingMask
from regard.attention.masked_softmax import masked_softmax
from regard.attention.mechanisms.softmax import BACKENDS, SoftmaxAttention
from regard.attention.protocol import context
from regard.core.errors import Unsupported
from regard.core.spec import build_part


@pytest.fixture(autouse=True)
def _double(double):
    pass


@pytest.mark.parametrize("backend", [b for b in BACKENDS if b != "flex"])
def test_scaled_dot_is_the_softmax_mechanism_with_one_head(backend):
    query, memory, lengths = torch.randn(3, 4, 7), torch.randn(3, 9, 7), torch.tensor([9, 4, 1])
    aligner, mechanism = ScaledDotAligner(7, 7), SoftmaxAttention(backend=backend).eval()
    mask = PaddingMask(lengths)
    weights, _ = aligner(query, aligner.keys(memory), mask.real(9))
    torch.testing.assert_close(weights, mechanism.weights(query[:, None], memory[:, None], mask)[:, 0])
    expected = mechanism(query[:, None], memory[:, None], memory[:, None], mask)[:, 0]
    torch.testing.assert_close(context(weights, memory), expected)


def test_dot_is_the_scaled_dot_without_its_scale():
    query, memory = torch.randn(2, 3, 5), torch.randn(2, 6, 5)
    dot, scaled = DotAligner(5, 5), ScaledDotAligner(5, 5)
    assert not list(dot.parameters())
    ours, _ = dot(query, dot.keys(memory))
    torch.testing.assert_close(ours, torch.einsum("bkc,bmc->bkm", query, memory).softmax(-1))
    torch.testing.assert_close(ours, scaled(query * 5**0.5, scaled.keys(memory))[0])


@pytest.mark.parametrize("name", ["dot", "scaled_dot"])
def test_a_product_refuses_unequal_widths_and_says_what_to_do(name):
    with pytest.raises(Unsupported, match=f"'{name}'.*5 and 7 wide.*use 'bilinear'") as error:
        build_part(ALIGNERS, name, "aligner", query_width=5, memory_width=7, width=6)
    assert "\n" not in str(error.value)


def test_bilinear_is_its_formula_and_with_the_identity_the_dot():
    query, memory = torch.randn(2, 3, 4), torch.randn(2, 6, 5)
    aligner = BilinearAligner(4, 5)
    expected = torch.einsum("bkq,qc,bmc->bkm", query, aligner.memory.weight, memory).softmax(-1)
    torch.testing.assert_close(aligner(query, aligner.keys(memory))[0], expected)
    same = BilinearAligner(5, 5)
    torch.nn.init.eye_(same.memory.weight)
    query = torch.randn(2, 3, 5)
    torch.testing.assert_close(same(query, same.keys(memory))[0], DotAligner(5, 5)(query, memory)[0])


def test_concat_is_additive_with_the_two_halves_of_its_matrix():
    concat, additive = ConcatAligner(4, 5, 6), AdditiveAligner(4, 5, 6)
    with torch.no_grad():
        additive.query.weight.copy_(concat.joined.weight[:, :4])
        additive.memory.weight.copy_(concat.joined.weight[:, 4:])
        additive.score.weight.copy_(concat.score.weight)
    query, memory = torch.randn(2, 3, 4), torch.randn(2, 6, 5)
    ours, _ = concat(query, concat.keys(memory))
    torch.testing.assert_close(ours, additive(query, additive.keys(memory))[0])
    pairs = torch.cat([query[:, :, None].expand(2, 3, 6, 4), memory[:, None].expand(2, 3, 6, 5)], -1)
    torch.testing.assert_close(ours, concat.score(torch.tanh(concat.joined(pairs))).squeeze(-1).softmax(-1))


def test_masked_softmax_is_in_float32_at_least_and_zero_where_nothing_is_allowed():
    scores = torch.randn(3, 5, dtype=torch.bfloat16)
    allowed = torch.tensor([[True] * 5, [False] * 5, [True, False, True, False, False]])
    weights = masked_softmax(scores, allowed)
    assert weights.dtype == torch.float32
    assert weights[1].abs().max() == 0
    torch.testing.assert_close(weights[2, [0, 2]], scores[2, [0, 2]].float().softmax(-1))
