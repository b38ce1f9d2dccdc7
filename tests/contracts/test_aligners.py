"""Laws over the table of aligners: adding an aligner adds its tests. Each walks several steps, with the state."""

import pytest
import torch

from regard.attention import ALIGNERS
from regard.attention.protocol import Aligner, context
from regard.core.spec import make

EVERY = list(ALIGNERS)
QUERY, MEMORY, STEPS = 5, 7, 3


@pytest.fixture(autouse=True)
def _double(double):
    pass


def parts(name, batch=3, k=4, m=9):
    aligner = make(ALIGNERS, name, "aligner", query_width=QUERY, memory_width=MEMORY, width=6).eval()
    queries = torch.randn(STEPS, batch, k, QUERY, requires_grad=True)
    memory = torch.randn(batch, m, MEMORY, requires_grad=True)
    return aligner, queries, memory


def walk(aligner, queries, memory, mask=None):
    """The weights of every step: T B K M."""
    keys, state, seen = aligner.keys(memory), None, []
    for query in queries:
        weights, state = aligner(query, keys, mask, state)
        seen.append(weights)
    return torch.stack(seen)


def real(lengths, m=9):
    return torch.arange(m)[None] < torch.tensor(lengths)[:, None]


@pytest.mark.parametrize("name", EVERY)
def test_is_an_aligner_and_calling_it_gives_its_weights(name):
    aligner, queries, memory = parts(name)
    assert isinstance(aligner, Aligner)
    keys, mask = aligner.keys(memory), real([9, 4, 1])
    called, _ = aligner(queries[0], keys, mask, None)
    asked, _ = aligner.weights(queries[0], keys, mask, None)
    assert torch.equal(called, asked)


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("lengths", [None, [9, 4, 1]])
def test_weights_sum_to_one_and_are_never_negative(name, lengths):
    aligner, queries, memory = parts(name)
    weights = walk(aligner, queries, memory, None if lengths is None else real(lengths))
    assert weights.shape == (STEPS, 3, 4, 9)
    assert weights.min() >= 0
    torch.testing.assert_close(weights.sum(-1), torch.ones(STEPS, 3, 4))


@pytest.mark.parametrize("name", EVERY)
def test_masked_place_has_no_influence(name):
    aligner, queries, memory = parts(name)
    mask = real([9, 4, 1])
    hidden = ~mask[:, :, None]
    weights = walk(aligner, queries, memory, mask)
    assert (weights * ~mask[:, None]).abs().max() == 0
    loud = torch.where(hidden, 1e3 * torch.randn(3, 9, 1), 0.0)
    assert torch.equal(walk(aligner, queries, memory + loud, mask), weights)
    sum(context(w, memory).square().sum() for w in weights).backward()
    assert (memory.grad * hidden).abs().max() == 0
    assert (memory.grad * ~hidden).abs().max() > 0


@pytest.mark.parametrize("name", EVERY)
def test_an_input_without_a_place_gives_zeros_and_no_nan(name):
    aligner, queries, memory = parts(name)
    weights = walk(aligner, queries, memory, real([9, 0, 2]))
    assert weights[:, 1].abs().max() == 0
    sum(context(w, memory).square().sum() for w in weights).backward()
    grads = [g for g in (queries.grad, memory.grad, *(p.grad for p in aligner.parameters())) if g is not None]
    assert all(torch.isfinite(g).all() for g in grads)
    if queries.grad is not None:  # the likeliest place of a hard aligner has no derivative
        assert queries.grad[:, 1].abs().max() == 0
    assert memory.grad[1].abs().max() == 0


@pytest.mark.parametrize("name", EVERY)
def test_many_queries_at_once_equal_each_alone(name):
    aligner, queries, memory = parts(name)
    mask = real([9, 4, 1])
    together = walk(aligner, queries, memory, mask)
    for k in range(4):
        torch.testing.assert_close(walk(aligner, queries[:, :, k : k + 1], memory, mask), together[:, :, k : k + 1])


@pytest.mark.parametrize("name", EVERY)
def test_a_batch_equals_its_singles(name):
    aligner, queries, memory = parts(name)
    lengths = [9, 4, 1]
    together = walk(aligner, queries, memory, real(lengths))
    for row, length in enumerate(lengths):
        single = walk(aligner, queries[:, row : row + 1], memory[row : row + 1, :length])
        torch.testing.assert_close(together[:, row : row + 1, :, :length], single)


@pytest.mark.parametrize("name", EVERY)
def test_compiles_without_a_graph_break(name, unchecked):
    aligner, queries, memory = parts(name)
    keys, mask = aligner.keys(memory), real([9, 4, 1])
    run = torch.compile(lambda query: aligner(query, keys, mask, None)[0], backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(run(queries[0]), aligner(queries[0], keys, mask, None)[0])
