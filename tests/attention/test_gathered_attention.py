"""Gathered attention equals softmax attention under its mask, and a key that is listed twice counts twice."""

import pytest
import torch

from regard.attention.gathered_attention import GatheredAttention, NeighbourGroup, Neighbours
from regard.attention.mechanisms.softmax import SoftmaxAttention
from regard.core.errors import Unsupported


@pytest.fixture(autouse=True)
def _double(double):
    pass


def parts():
    return [torch.randn(2, 3, n, 4, requires_grad=True) for n in (5, 7, 7)]


def lists(duplicates=False):
    """Two groups, of three queries with four keys each and two with six; some entries do not count."""
    groups = []
    for n, j in ((3, 4), (2, 6)):
        index = torch.stack([torch.stack([torch.randperm(7)[:j] for _ in range(n)]) for _ in range(2)])
        index = torch.cat([index[..., :1], index], -1) if duplicates else index
        groups.append(NeighbourGroup(index, torch.rand(index.shape) < 0.7))
    return Neighbours(groups)


def test_it_is_softmax_attention_under_its_mask():
    q, k, v = parts()
    mask = lists()
    found, expected = GatheredAttention(4)(q, k, v, mask), SoftmaxAttention(backend="eager")(q, k, v, mask)
    torch.testing.assert_close(found, expected)
    ours, reference = (torch.autograd.grad(x.square().sum(), (q, k, v)) for x in (found, expected))
    for a, b in zip(ours, reference, strict=True):
        torch.testing.assert_close(a, b)


def test_weights_at_v_equals_forward():
    q, k, v = parts()
    for attend in (GatheredAttention(4), GatheredAttention(4, edge_types=3)):
        mask = lists(duplicates=True)
        for group in mask.groups:
            object.__setattr__(group, "types", torch.randint(3, group.index.shape[1:]))
        weights = attend.weights(q, k, mask)
        torch.testing.assert_close(weights @ v, attend(q, k, v, mask))
        assert weights.masked_fill(mask.dense(2, 5, 7), 0).abs().max() == 0
        torch.testing.assert_close(attend.weights(q, k, mask, queries=[4, 1]), weights[:, :, [4, 1]])


def test_duplicates_count_and_edges_add_a_vector_to_the_key():
    q, k, v = (x.detach() for x in parts())
    attend = GatheredAttention(4, edge_types=2)
    group = NeighbourGroup(torch.tensor([[[2, 2, 5]]]), torch.tensor([[[True, True, True]]]), torch.tensor([[1, 0, 1]]))
    found = attend(q[:, :, :1], k, v, Neighbours([group]))
    keys = k[:, :, [2, 2, 5]] + attend.edge_keys[[1, 0, 1]]
    weights = (q[:, :, :1] @ keys.mT / 2).softmax(-1)
    torch.testing.assert_close(found, weights @ v[:, :, [2, 2, 5]])


def test_other_masks_are_refused():
    with pytest.raises(Unsupported, match="needs the mask Neighbours"):
        GatheredAttention(4)(*parts())
