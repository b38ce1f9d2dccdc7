"""The BP-Transformer: its tree covers a text exactly once, and its attention is that of the tree's edges."""

import pytest
import torch

import regard
from regard.core.errors import BadInput, RegardError, Unsupported
from regard.models import build
from regard.models.bp_transformer import PartitionTree

from .sequence_checks import check_encoder_equals_loop


def spans(tree):
    """The tokens of every node."""
    return [
        range(place << level, min((place + 1) << level, tree.n))
        for level, count in enumerate(tree.counts)
        for place in range(count)
    ]


@pytest.mark.parametrize("k", [1, 2, 3])
def test_what_a_token_sees_covers_the_text_exactly_once(k):
    for n in (1, 2, 3, 5, 8, 13, 22, 33):
        tree = PartitionTree.of(n, k)
        nodes = spans(tree)
        assert len(nodes) == tree.size
        for length in {n, max(1, n - 3), (n + 1) // 2}:
            group = tree.mask(torch.tensor([length]), 2).groups[0]
            for token in range(length):
                seen = group.index[0, token][group.allowed[0, token]].tolist()
                covered = [place for node in seen for place in nodes[node] if place < length]
                assert sorted(covered) == list(range(length))
                assert {*range(max(0, token - k), min(length, token + k + 1))} <= {*seen}  # neighbours one by one


def test_lists_are_as_short_as_the_paper_says():
    """2k nodes of each of log2(N / k) levels."""
    for n in (64, 1024, 4096):
        assert PartitionTree.of(n, 4).places.shape[1] <= 2 * 4 * (n // 4).bit_length() + 1


def test_edges_are_those_of_the_authors_builder():
    """Left and right edges of a token of 8, with k = 1: levels, and types by level, side and distance."""
    tree = PartitionTree.of(8, 1)
    group = tree.mask(torch.tensor([8]), 10).groups[0]
    nodes = spans(tree)
    seen = {
        (tuple(nodes[node]), kind)
        for node, kind, counts in zip(
            group.index[0, 2].tolist(), group.types[2].tolist(), group.allowed[0, 2].tolist(), strict=True
        )
        if counts
    }
    # itself; left: 1, then 0 (half of the span 0 1, taken at level 1); right: 3, then 4 5, then 6 7 (half of 4 ... 7)
    assert seen == {((2,), 0), ((1,), 1), ((3,), 2), ((0,), 4), ((4, 5), 5), ((6, 7), 8)}


def by_loop(model, tokens):
    """The attention of every node over its edges, one by one, for one text."""
    n = len(tokens)
    tree = PartitionTree.of(n, model.config.neighbours)
    nodes = spans(tree)
    group = tree.mask(torch.tensor([n]), model.config.edge_levels).groups[0]
    edges = []
    for node, tokens_inside in enumerate(nodes):
        if node < n:
            counts = group.allowed[0, node]
            edges.append(torch.stack([group.index[0, node], group.types[node]], 1)[counts].tolist())
        else:
            level = next(j for j in range(len(tree.counts)) if node < sum(tree.counts[: j + 1]))
            kind = min(level, model.config.edge_levels - 1) * (2 * model.config.neighbours + 1)
            edges.append([(m, kind) for m in tokens_inside])
    x = torch.cat([model.norm(model.embed(tokens)), torch.zeros(tree.size - n, model.config.width)])
    for block in model.blocks:
        q, k, v = (part[0] for part in block.mix.project(x[None]))  # H T D
        out = []
        for node, seen in enumerate(edges):
            index, kinds = (torch.tensor(part) for part in zip(*seen, strict=True))
            keys = k[:, index] + block.mix.attend.edge_keys[kinds]
            weights = ((keys @ q[:, node, :, None])[..., 0] / q.shape[-1] ** 0.5).softmax(-1)
            out.append((weights[:, None] @ v[:, index])[:, 0])
        x = block.mix_norm(x + block.mix.join(torch.stack(out, 1)[None])[0])
        x = block.feed_norm(x + block.feed(x))
    return x[:n], x[-1]


def test_it_is_attention_over_the_edges_in_value_and_gradient(double):
    model = build("bp_transformer", vocab=19, width=12, heads=3, layers=2, ffn=8, neighbours=1).eval()
    tokens, lengths = torch.randint(19, (4, 11)), torch.tensor([11, 6, 2, 1])
    check_encoder_equals_loop(model, by_loop, tokens, lengths)


def test_watch_sees_tokens_and_spans():
    model = build("bp_transformer", size="tiny", vocab=19, head="classes(3)").eval()
    with torch.no_grad(), regard.watch(model) as seen:
        model(torch.randint(19, (2, 7)), lengths=torch.tensor([7, 3]))
    weights = seen["blocks.1.mix"].weights
    assert weights.shape == (2, 2, 14, 14)  # 7 + 4 + 2 + 1 nodes
    torch.testing.assert_close(weights[0].sum(-1), torch.ones(2, 14))
    assert weights[1, ..., :3, 3:7].max() == 0
    assert (weights[0, 0, -1] > 0).tolist() == [True] * 7 + [False] * 7  # the root sees all tokens


def test_settings_that_make_no_encoder_are_refused():
    for name in ("star_transformer", "bp_transformer"):
        with pytest.raises(Unsupported, match="positions that are added"):
            build(name, size="tiny", vocab=19, positions="rotary")
        with pytest.raises(RegardError, match="no head is called 'masked'"):
            build(name, size="tiny", vocab=19, head="masked")
        model = build(name, size="tiny", vocab=19).eval()
        with pytest.raises(BadInput, match="segment ids must be from 0 to 0, got 1"):
            model(torch.zeros(1, 3, dtype=torch.long), torch.ones(1, 3, dtype=torch.long))
        pairs = build(name, size="tiny", vocab=19, segments=2, head="classes(2)").eval()
        tokens, segments = torch.randint(19, (1, 4)), torch.tensor([[0, 0, 1, 1]])
        assert not torch.allclose(pairs(tokens, segments), pairs(tokens))
