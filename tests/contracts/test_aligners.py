"""Laws over the table of aligners: adding an aligner adds its tests. Each walks several steps, with the state."""

import pytest
import torch

from regard.attention import ALIGNERS
from regard.attention.aligners.base import align
from regard.attention.aligners.hard import ForcedChoices, collect_choices
from regard.attention.protocol import Aligner, context
from regard.core.errors import Unsupported
from regard.core.layer_state import PassState
from regard.core.spec import build_part
from tests.long_params import rest_is_long

EVERY = list(ALIGNERS)
QUERY, MEMORY, STEPS = 5, 7, 3


@pytest.fixture(autouse=True)
def _double(double):
    pass


def built(name, query_width=QUERY, memory_width=MEMORY):
    """An aligner in eval mode and the width its queries have: those that multiply need that of the memory."""
    widths = {"memory_width": memory_width, "width": 6}
    try:
        return build_part(ALIGNERS, name, "aligner", query_width=query_width, **widths).eval(), query_width
    except Unsupported:
        return build_part(ALIGNERS, name, "aligner", query_width=memory_width, **widths).eval(), memory_width


def parts(name, batch=3, k=4, m=9, steps=STEPS):
    aligner, width = built(name)
    queries = torch.randn(steps, batch, k, width, requires_grad=True)
    memory = torch.randn(batch, m, MEMORY, requires_grad=True)
    return aligner, queries, memory


def walk(aligner, queries, memory, mask=None, pass_state=None):
    """The weights of every step: T B K M."""
    keys, state, seen = aligner.keys(memory), None, []
    pass_state = PassState() if pass_state is None else pass_state
    for t, query in enumerate(queries):
        weights, state = align(aligner, query, keys, mask, state, pass_state.layer(t))
        seen.append(weights)
    return torch.stack(seen)


def real(lengths, m=9):
    return torch.arange(m)[None] < torch.tensor(lengths)[:, None]


def each(change, state):
    """Every tensor of a state, changed."""
    if state is None:
        return None
    return tuple(each(change, part) for part in state) if isinstance(state, tuple) else change(state)


def tensors(state):
    if state is None:
        return []
    return [x for part in state for x in tensors(part)] if isinstance(state, tuple) else [state]


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float32])
def test_a_model_in_a_narrow_type_looks_about_where_it_did(name, kind):
    aligner, queries, memory = parts(name, steps=4)
    whole = walk(aligner, queries, memory)
    narrow = walk(aligner.to(kind), queries.to(kind), memory.to(kind))
    assert narrow.dtype == kind
    if name not in ("hard", "gumbel"):  # which may choose a neighbour that is as good
        torch.testing.assert_close(narrow.to(whole), whole, rtol=0, atol=0.1 if kind == torch.bfloat16 else 1e-4)


@pytest.mark.parametrize("name", EVERY)
def test_is_an_aligner_and_calling_it_gives_its_weights(name):
    aligner, queries, memory = parts(name)
    assert isinstance(aligner, Aligner)
    assert isinstance(aligner.normalised, bool)
    assert isinstance(aligner.monotonic, bool)
    keys, mask = aligner.keys(memory), real([9, 4, 1])
    called, _ = aligner(queries[0], keys, mask, None)
    asked, _ = aligner.weights(queries[0], keys, mask, None)
    assert torch.equal(called, asked)


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("lengths", [None, [9, 4, 1]])
def test_weights_are_never_negative_and_sum_to_one_where_that_is_claimed(name, lengths):
    aligner, queries, memory = parts(name)
    weights = walk(aligner, queries, memory, None if lengths is None else real(lengths))
    assert weights.shape == (STEPS, 3, 4, 9)
    assert weights.min() >= 0
    if aligner.normalised:
        torch.testing.assert_close(weights.sum(-1), torch.ones(STEPS, 3, 4))


@pytest.mark.parametrize("name", [n for n in EVERY if not built(n)[0].normalised])
def test_what_is_not_claimed_to_sum_to_one_does_not(name):
    aligner, queries, memory = parts(name, steps=6)
    sums = walk(aligner.train(), queries, memory).sum(-1)
    assert (sums - 1).abs().max() > 1e-3


@pytest.mark.parametrize("name", EVERY)
def test_masked_place_has_no_influence(name):
    aligner, queries, memory = parts(name)
    mask = real([9, 4, 1])
    hidden = ~mask[:, :, None]
    weights = walk(aligner, queries, memory, mask)
    assert (weights * ~mask[:, None]).abs().max() == 0
    loud = torch.where(hidden, 1e3 * torch.randn(3, 9, 1), 0.0)
    assert torch.equal(walk(aligner, queries, memory + loud, mask), weights)
    sum(context(w, memory).square().sum() for w in walk(aligner.train(), queries, memory, mask)).backward()
    assert (memory.grad * hidden).abs().max() == 0
    assert (memory.grad * ~hidden).abs().max() > 0


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("training", [False, True])
def test_an_input_without_a_place_gives_zeros_and_no_nan(name, training):
    aligner, queries, memory = parts(name)
    pass_state = PassState()
    weights = walk(aligner.train(training), queries, memory, real([9, 0, 2]), pass_state)
    assert weights[:, 1].abs().max() == 0
    seen = sum(context(w, memory).square().sum() for w in weights)
    choices = training and isinstance(aligner, ForcedChoices)  # which learn from their log-probabilities
    told = sum(x.sum() for x in collect_choices(pass_state)[:2]) if choices else 0.0
    (seen + told).backward()
    grads = [queries.grad, memory.grad, *(p.grad for p in aligner.parameters())]
    assert all(torch.isfinite(g).all() for g in grads if g is not None)
    assert memory.grad[1].abs().max() == 0
    if training or queries.grad is not None:  # a choice that is not drawn has no gradient
        assert queries.grad[:, 1].abs().max() == 0
        assert queries.grad[:, 0].abs().max() > 0


@pytest.mark.parametrize("name", EVERY)
def test_a_batch_of_padding_alone_and_a_memory_of_one_place_are_walked(name):
    aligner, queries, memory = parts(name, m=1)
    assert walk(aligner, queries, memory, real([0, 0, 0], 1)).abs().max() == 0
    weights = walk(aligner, queries, memory)
    assert weights.shape == (STEPS, 3, 4, 1)
    if aligner.normalised:
        torch.testing.assert_close(weights, torch.ones(STEPS, 3, 4, 1))


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
def test_beams_are_reordered_by_indexing_the_state(name):
    aligner, queries, memory = parts(name, steps=5)
    mask, keys = real([9, 4, 6]), aligner.keys(memory)
    rows, beams = torch.tensor([2, 0]), torch.tensor([[3, 0, 0], [1, 2, 3]])
    state = None
    for query in queries[:3]:
        _, state = aligner(query, keys, mask, state)
    kept = each(lambda x: x[rows[:, None], beams], state)
    for after in queries[3:]:
        expected, state = aligner(after, keys, mask, state)
        after = after[rows[:, None], beams]
        weights, kept = aligner(after, keys[rows], mask[rows], kept)
        torch.testing.assert_close(weights, expected[rows[:, None], beams])
    for one, other in zip(tensors(state), tensors(kept), strict=True):
        torch.testing.assert_close(other, one[rows[:, None], beams])


@pytest.mark.parametrize("name", EVERY)
def test_a_state_keeps_its_shape_and_its_place(name):
    aligner, queries, memory = parts(name)
    keys, state, before = aligner.keys(memory), None, None
    for query in queries:
        _, state = aligner(query, keys, real([9, 4, 1]), state)
        shapes = [(x.shape, x.dtype) for x in tensors(state)]
        assert all(shape[:2] == (3, 4) for shape, _ in shapes)
        assert before is None or shapes == before
        before = shapes


@pytest.mark.parametrize("name", rest_is_long(EVERY, "location", "monotonic", "gmm"))
@torch.inference_mode()
def test_five_thousand_steps_stay_finite(name, unchecked):
    aligner, queries, memory = parts(name, batch=2, k=1)
    mask, keys, state = real([9, 4]), aligner.keys(memory), None
    for step in range(5000):
        weights, state = aligner(3 * queries[step % STEPS, :2], keys, mask, state)
    assert weights.min() >= 0
    assert all(torch.isfinite(x).all() for x in [weights, *tensors(state)])
    if aligner.normalised:
        torch.testing.assert_close(weights.sum(-1), torch.ones(2, 1))


@pytest.mark.parametrize("name", [n for n in EVERY if built(n)[0].monotonic])
def test_what_is_claimed_to_move_forward_never_moves_back(name):
    """Either the centres say so, or no place is passed twice: the weight up to any place only falls."""
    aligner, queries, memory = parts(name, steps=12)
    for training in (False, True):
        keys, state, before = aligner.train(training).keys(memory), None, None
        for query in queries:
            weights, state = aligner(2 * query, keys, real([9, 4, 7]), state)
            now = aligner.centres(state) if hasattr(aligner, "centres") else -weights.cumsum(-1)
            assert before is None or (now >= before - 1e-12).all()
            before = now


@pytest.mark.parametrize("name", EVERY)
def test_keys_are_narrow_enough_for_bfloat16_and_what_is_carried_is_not(name):
    aligner, queries, memory = parts(name)
    aligner, queries, memory = aligner.float(), queries.float(), memory.float()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        keys, state = aligner.keys(memory), None
        for query in queries:
            weights, state = aligner(query, keys, real([9, 4, 1]), state)
    assert weights.dtype == keys.dtype
    assert all(not x.is_floating_point() or x.dtype == torch.float32 for x in tensors(state))
    assert torch.isfinite(weights).all()


@pytest.mark.parametrize("name", EVERY)
def test_every_parameter_learns_from_where_it_looks(name):
    aligner, queries, memory = parts(name)
    if isinstance(aligner, ForcedChoices):
        pytest.skip("learns from what its choices are worth, which a task knows")
    weights = walk(aligner.train(), queries, memory, real([9, 4, 6]))
    sum(context(w, memory).square().sum() for w in weights).backward()
    assert not [n for n, p in aligner.named_parameters() if p.grad is None or p.grad.abs().max() == 0]


@pytest.mark.parametrize("name", rest_is_long(EVERY, "additive", "monotonic"))
def test_compiles_without_a_graph_break(name, unchecked):
    torch._dynamo.reset()  # each aligner compiles this function anew, and dynamo counts them
    aligner, queries, memory = parts(name)
    keys, mask = aligner.keys(memory), real([9, 4, 1])
    _, state = aligner(queries[0], keys, mask, None)
    run = torch.compile(lambda query, state: aligner(query, keys, mask, state)[0], backend="aot_eager", fullgraph=True)
    for before in (None, state):
        torch.testing.assert_close(run(queries[1], before), aligner(queries[1], keys, mask, before)[0])
