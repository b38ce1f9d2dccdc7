"""Laws of ConvS2S, ByteNet and the Neural GPU: padding changes nothing, nothing sees ahead, steps equal one forward,
searches equal their simple twins, at every length."""

import copy

import pytest
import torch

import regard
from regard.core.config import from_dict, to_dict
from regard.core.decodable import Decodable
from regard.decoding.beam_search import beam_search, greedy_search, sample
from tests.long_params import rest_is_long

from .brute_force_search import brute_beam, ragged, targets
from .sequence_checks import (
    check_batch_equals_singles,
    check_padding_gets_no_gradient,
    check_padding_has_no_influence,
    check_steps_equal_one_forward,
)
from .small_convolutional import FAMILY, SMALL, small

WRITES = [name for name in SMALL if name != "image"]  # what it writes depends on what it wrote


@pytest.fixture(params=SMALL)
def name(request):
    return request.param


def test_batch_equals_singles(name):
    model, (source, lengths), target = small(name, 1), ragged(), targets()
    check_batch_equals_singles(model, source, target, lengths, written=torch.tensor([7, 3, 1, 5, 7, 2]))


def test_padding_has_no_influence_and_no_gradient(name):
    model, (source, lengths), target = small(name, 2), ragged(), targets()
    check_padding_has_no_influence(model, source, target, lengths)
    check_padding_gets_no_gradient(model, source, target, lengths)


def test_outputs_do_not_depend_on_later_words(name):
    model, (source, lengths), target = small(name, 3), ragged(), targets()
    whole = model(source, target, lengths)
    torch.testing.assert_close(model(source, target[:, :4], lengths), whole[:, :4])
    other = torch.cat([target[:, :4], (target[:, 4:] + 3) % 8 + 3], 1)
    changed = model(source, other, lengths)
    torch.testing.assert_close(changed[:, :4], whole[:, :4], rtol=0, atol=0)
    assert (name == "image") or (changed[:, 4:] - whole[:, 4:]).abs().amax((0, 2)).min() > 1e-6  # but it sees its own


@pytest.mark.parametrize("which", WRITES)
def test_no_gradient_comes_from_a_later_word(which):
    model, (source, lengths), target = small(which, 3), ragged(), torch.arange(3, 10).expand(6, 7).clone()
    table = model.embed_target if hasattr(model, "embed_target") else model.decoder.embed
    for at in range(7):
        model.zero_grad()
        model(source, target, lengths)[:, at].square().sum().backward()
        seen = table.weight.grad.abs().sum(1)[3:10]
        assert not seen[at + 1 :].any()
        assert seen[at] > 0


def test_an_input_of_padding_only_gives_finite_outputs(name):
    model, target = small(name), targets(2)
    source, lengths = torch.full((2, 3), 5), torch.tensor([3, 0])
    logits = model(source, target, lengths)
    logits.square().sum().backward()
    assert torch.isfinite(logits).all()
    assert all(torch.isfinite(p.grad).all() for p in model.parameters() if p.grad is not None)
    torch.testing.assert_close(logits[:1].detach(), model(source[:1], target[:1]))
    found = beam_search(model, source, lengths, beam_size=3, max_length=5)
    assert all(len(row[0].tokens) <= 5 for row in found)


def test_one_token_in_and_one_token_out(name):
    model = small(name)
    assert model(torch.tensor([[4]]), torch.tensor([[1]]), torch.tensor([1])).shape == (1, 1, 11)
    (found,) = greedy_search(model, torch.tensor([[4]]), torch.tensor([1]), max_length=1)
    assert len(found.tokens) <= 1


def test_steps_equal_one_forward(name):
    assert isinstance(small(name), Decodable)
    model, (source, lengths), target = small(name, 2), ragged(), targets(length=25)  # longer than any unfolded source
    check_steps_equal_one_forward(model, source, target, lengths)


def _sizes(value):
    if isinstance(value, torch.Tensor):
        return [tuple(value.shape)]
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, (tuple, list)) else []
    return [size for part in parts for size in _sizes(part)]


@pytest.mark.parametrize("name", rest_is_long(sorted(SMALL.keys() - {"multiplicative"}), "bytenet"), indirect=True)
def test_memory_does_not_grow_with_steps(name, unchecked):
    settings = {"positions": "sinusoidal"} if name == "convs2s" else {}
    model = small(name, louder=1.0, **settings).float()
    with torch.inference_mode():
        tokens, state = model.start(torch.tensor([[4, 5, 6]]), torch.tensor([3]), capacity=5000)
        _, state = model.step(tokens, state)
        before = _sizes(list(vars(state).values()))
        state = model.freeze(state)
        for t in range(5000 - 1):
            logits, state = model.step(torch.full((1, 1), 3 + t % 8), state)
    assert torch.isfinite(logits).all()
    assert _sizes(list(vars(state).values())) == before
    assert int(state.time) == 5000


def test_beams_are_selected_like_rows(name):
    model, (source, lengths) = small(name, 3), ragged(4)
    paths = torch.randint(3, 11, (4, 3, 6))
    _, state = model.start(source, lengths, capacity=15)
    _, state = model.step(torch.ones(4, 1, dtype=torch.long), state)
    state = model.select(state, None, torch.zeros(4, 3, dtype=torch.long))  # one beam becomes three
    for t in range(5):
        _, state = model.step(paths[:, :, t], state)
    rows, beams = torch.tensor([2, 0]), torch.tensor([[1, 1], [2, 0]])
    logits, _ = model.step(paths[rows[:, None], beams, 5], model.select(state, rows, beams))
    for r, row in enumerate(rows.tolist()):
        for k in range(2):
            target = torch.cat([torch.ones(1, dtype=torch.long), paths[row, beams[r, k]]])
            whole = model(source[row : row + 1, : lengths[row]], target[None])
            torch.testing.assert_close(logits[r, k], whole[0, -1])


def test_a_state_is_a_value(name):
    model, (source, lengths) = small(name), ragged(3)
    first, state = model.start(source, lengths, capacity=4)
    _, state = model.step(first, state)
    before = model.step(torch.full((3, 1), 4), state)[0]
    model.step(torch.full((3, 1), 5), state)
    model.select(state, None, torch.zeros(3, 2, dtype=torch.long))
    torch.testing.assert_close(model.step(torch.full((3, 1), 4), state)[0], before, rtol=0, atol=0)


def test_a_frozen_state_is_updated_in_place_and_gives_the_same_result(name):
    model, (source, lengths) = small(name, 1), ragged(4)
    words, order = torch.randint(3, 11, (5, 4, 3)), torch.randint(3, (5, 4, 3))
    with torch.inference_mode():
        first, state = model.start(source, lengths, capacity=20)
        _, state = model.step(first, state)
        state = model.select(state, None, torch.zeros(4, 3, dtype=torch.long))
        frozen = model.freeze(copy.deepcopy(state))
        held = [frozen.time, *frozen.hidden]
        for word, beams in zip(words, order, strict=True):
            expected, state = model.step(word, state)
            logits, frozen = model.step(word, frozen)
            torch.testing.assert_close(logits, expected, rtol=0, atol=0)
            state, frozen = model.select(state, None, beams), model.select(frozen, None, beams)
        now = [frozen.time, *frozen.hidden]
        assert all(a is b for a, b in zip(held, now, strict=True))
        logits, _ = model.step(words[0, :2], model.select(frozen, torch.tensor([1, 3]), order[0, :2]))
        assert logits.shape == (2, 3, 11)


@pytest.mark.parametrize(("beams", "penalty"), [(1, 1.0), (4, 0.6)])
def test_beam_equals_brute_force(name, beams, penalty):
    model, (source, lengths) = small(name, 4), ragged(3, longest=7, seed=3)
    found = beam_search(
        model, source, lengths, beam_size=beams, length_penalty=penalty, num_candidates=beams, max_length=lengths + 3
    )
    for row, length in enumerate(lengths.tolist()):
        expected = brute_beam(model, source[row, :length], length + 3, beams, penalty)
        assert [h.tokens for h in found[row]] == [tokens for _, tokens, _ in expected]
        torch.testing.assert_close(
            [h.score for h in found[row]], [score for score, *_ in expected], rtol=1e-5, atol=1e-5
        )


SEARCHES = {
    "greedy": lambda m, s, n, seed: [[h] for h in greedy_search(m, s, n, max_length=n + 6)],
    "diverse": lambda m, s, n, seed: beam_search(m, s, n, beam_size=4, groups=2, num_candidates=4, max_length=n + 6),
    "sample": lambda m, s, n, seed: sample(m, s, n, num_samples=3, top_k=8, top_p=0.9, seed=seed, max_length=n + 6),
}


@pytest.mark.parametrize("search", SEARCHES)
def test_search_over_a_batch_equals_singles(name, search):
    model, (source, lengths) = small(name, 5), ragged(7, seed=5)
    batch = SEARCHES[search](model, source, lengths, list(range(7)))
    assert len({tuple(h.tokens) for found in batch for h in found}) > 3  # not all the same by chance
    for row, length in enumerate(lengths.tolist()):
        (single,) = SEARCHES[search](model, source[row : row + 1, :length], lengths[row : row + 1], [row])
        assert [h.tokens for h in batch[row]] == [h.tokens for h in single]


def test_every_parameter_is_used_and_dropout_acts_in_training_only(name):
    model, (source, lengths), target = small(name, dropout=0.5), ragged(), targets()
    assert torch.equal(model(source, target, lengths), model(source, target, lengths))
    model(source, target, lengths).square().sum().backward()
    assert [key for key, p in model.named_parameters() if p.grad is None or not p.grad.any()] == []
    model.train()
    assert not torch.equal(model(source, target, lengths), model(source, target, lengths))


def test_every_size_survives_a_config_round_trip(name):
    family = FAMILY.get(name, name)
    module = __import__(f"regard.models.{family}", fromlist=["SIZES"])
    for size in module.SIZES:
        with torch.device("meta"):
            model = regard.build(family, size=size, vocab=50)
        assert from_dict(module.Config, to_dict(model.config)) == model.config


@pytest.mark.long
def test_compiled_equals_eager(unchecked):
    for which in ("convs2s", "bytenet"):
        model, (source, lengths), target = small(which), ragged(), targets()
        run = torch.compile(model, backend="aot_eager", dynamic=True)
        expected, found = model(source, target, lengths), run(source, target, lengths)
        torch.testing.assert_close(found, expected)
        wanted = torch.autograd.grad(expected.square().sum(), list(model.parameters()))
        for a, b in zip(torch.autograd.grad(found.square().sum(), list(model.parameters())), wanted, strict=True):
            torch.testing.assert_close(a, b)


@pytest.mark.gpu
@pytest.mark.parametrize("search", SEARCHES)
def test_a_cuda_graph_step_equals_the_cpu(name, search):
    model, (source, lengths) = small(name, 1), ragged(9, seed=5)
    expected = SEARCHES[search](model, source, lengths, list(range(9)))
    model = model.cuda()
    found = SEARCHES[search](model, source.cuda(), lengths.cuda(), list(range(9)))
    kept = 1 if search == "diverse" else None  # what groups are kept from makes ties among the others
    assert [[h.tokens for h in row[:kept]] for row in found] == [[h.tokens for h in row[:kept]] for row in expected]


@pytest.mark.gpu
def test_trains_under_autocast(name):
    model = small(name, louder=1.0).float().cuda().train()
    (source, lengths), target = ragged(), targets()
    source, lengths, target = source.cuda(), lengths.cuda(), target.cuda()
    with torch.autocast("cuda", dtype=torch.bfloat16):
        logits = model(source, target, lengths)
    logits.float().square().mean().backward()
    assert all(torch.isfinite(p.grad).all() for p in model.parameters())
