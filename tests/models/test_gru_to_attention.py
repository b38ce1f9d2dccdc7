"""The road from gated units to attention: its law, and that each step is the one before with something freed."""

import pytest
import torch

from regard import build
from regard.attention.capture.watch import watch
from regard.attention.mask import CausalMask
from regard.core.errors import BadInput, UnknownName
from regard.core.scan import scan
from regard.core.spec import resolve
from regard.decoding.beam_search import beam_search
from regard.models.gru_to_attention import (
    LAYERS,
    GatedLayer,
    GatedSum,
    MultiHeadLayer,
    ParallelCandidatesLayer,
    SingleHeadLayer,
    SoftmaxWeightsLayer,
)

EVERY = list(LAYERS)
SMALL = {"vocab": 11, "width": 8, "heads": 2, "layers": 2, "length": 16}


@pytest.fixture(autouse=True)
def _double(double):
    pass


# -- the law ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("times", [1, 2, 7, 33])
def test_a_gated_unit_is_a_weighted_sum_of_its_candidates(times):
    """h_t = Σ_i (Π_{j>i} u_j) (1 - u_i) h̃_i, every product written out."""
    part, x = GatedLayer(5), torch.randn(2, times, 5)
    state, gates, new, states = torch.zeros(2, 5), [], [], []
    for projected in part.input_projection(x).unbind(1):
        u, candidate = part.next(projected, state)
        state = u * state + (1 - u) * candidate
        gates.append(u)
        new.append(candidate)
        states.append(state)
    out = part(x)
    torch.testing.assert_close(out, torch.stack(states, 1))
    for t in range(times):
        total = torch.zeros(2, 5)
        for i in range(t + 1):
            weight = 1 - gates[i]
            for j in range(i + 1, t + 1):
                weight = weight * gates[j]
            total = total + weight * new[i]
        torch.testing.assert_close(out[:, t], total)


def test_the_sum_on_the_slide_differs_from_the_unit():
    """Its products run over other indices: Π_{j=i}^{t-i+1} u_j and Π_{k<i} (1 - u_k)."""
    u, new = torch.rand(4), torch.randn(4)
    states = scan(u, (1 - u) * new)
    slide = sum(u[i : 4 - i].prod() * (1 - u[:i]).prod() * new[i] for i in range(4))
    assert abs(slide - states[-1]) > 1e-3


def test_the_weights_of_gates_are_what_they_apply():
    u, v = torch.rand(2, 3, 6, 1), torch.randn(2, 3, 6, 4)
    mechanism = GatedSum()
    weights = mechanism.weights(u, u, CausalMask())
    torch.testing.assert_close(weights @ v, mechanism(u, u, v, CausalMask()))
    torch.testing.assert_close(weights.sum(-1), 1 - u[..., 0].cumprod(-1))
    assert weights.triu(1).abs().max() == 0
    torch.testing.assert_close(mechanism.weights(u, u, CausalMask(), queries=[4, 1]), weights[:, :, [4, 1]])


@pytest.mark.parametrize("gate", [0.0, 1.0])
def test_closed_and_open_gates(gate):
    """Shut, a unit is its latest candidate; open, it stays as it was before the first: nothing."""
    u, v = torch.full((1, 2, 5, 1), gate), torch.randn(1, 2, 5, 1)
    torch.testing.assert_close(GatedSum()(u, u, v), v * (1 - gate))


def test_a_scan_is_the_recurrence():
    a, b = torch.randn(3, 13), torch.randn(3, 13)
    state, expected = torch.zeros(3), []
    for t in range(13):
        state = a[:, t] * state + b[:, t]
        expected.append(state)
    torch.testing.assert_close(scan(a, b), torch.stack(expected, -1))


# -- each step from the one before -------------------------------------------------------------------------------------


def test_step_1_replaces_the_gates_and_keeps_recurrent_candidates():
    part, x = SoftmaxWeightsLayer(5), torch.randn(2, 6, 5)
    out = part(x)
    state, known = torch.zeros(2, 5), []
    for t in range(6):
        known.append(torch.tanh(part.input_projection(x[:, t]) + part.state(state)))
        scores = torch.stack([(h * x[:, t]).sum(-1) for h in known], -1) / 5**0.5
        state = sum(w[:, None] * h for w, h in zip(scores.softmax(-1).unbind(-1), known, strict=True))
        torch.testing.assert_close(out[:, t], state)


def test_step_2_is_step_1_whose_candidates_do_not_see_the_state():
    before, after = SoftmaxWeightsLayer(5), ParallelCandidatesLayer(5)
    torch.nn.init.zeros_(before.state.weight)
    after.input_projection.load_state_dict(before.input_projection.state_dict())
    x = torch.randn(2, 6, 5)
    torch.testing.assert_close(after(x), before(x))


def test_step_3_is_step_2_where_keys_values_and_queries_are_the_same_thing():
    before, after = ParallelCandidatesLayer(5), SingleHeadLayer(5)
    after.input_projection.load_state_dict(before.input_projection.state_dict())
    with torch.no_grad():
        after.project.kv.weight.copy_(torch.eye(5).repeat(2, 1))
        for part in (after.project.q, after.join.out):
            torch.nn.init.eye_(part.weight)
        for part in (after.project.q, after.project.kv, after.join.out):
            torch.nn.init.zeros_(part.bias)
    x = torch.randn(2, 6, 5)
    torch.testing.assert_close(after(x), before(x))


def test_step_4_is_step_3_several_times_in_parallel():
    one, several = SingleHeadLayer(6), MultiHeadLayer(6, heads=1)
    several.load_state_dict(one.state_dict())
    x = torch.randn(2, 5, 6)
    torch.testing.assert_close(several(x), one(x))
    assert MultiHeadLayer(6, heads=3).project.heads == 3


@pytest.mark.parametrize("name", EVERY[2:])
def test_from_step_2_on_times_are_independent_of_states(name):
    """With its order turned round, a past gives the last time the same sum: only positions tell it apart."""
    part, x = resolve(LAYERS, name, "step")(8), torch.randn(1, 5, 8)
    turned = torch.cat([x[:, :-1].flip(1), x[:, -1:]], 1)
    torch.testing.assert_close(part(turned)[:, -1], part(x)[:, -1])


@pytest.mark.parametrize("name", EVERY[:2])
def test_recurrent_variants_depend_on_order(name):
    part, x = resolve(LAYERS, name, "step")(8), torch.randn(1, 5, 8)
    turned = torch.cat([x[:, :-1].flip(1), x[:, -1:]], 1)
    assert (part(turned)[:, -1] - part(x)[:, -1]).abs().max() > 1e-3


# -- the model ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", EVERY)
def test_watch_captures_every_step(name):
    model = build("gru_to_attention", variant=name, **SMALL).eval()
    tokens = torch.randint(0, 11, (2, 7))
    plain = model(tokens)
    with watch(model) as seen:
        assert torch.equal(model(tokens), plain)
    assert list(seen) == ["decoder.blocks.0.mix", "decoder.blocks.1.mix"]
    heads = {"gated": 8, "heads": 2}.get(name, 1)
    for trace in seen.traces("self"):
        assert trace.weights.shape == (2, heads, 7, 7)
        assert trace.weights.triu(1).abs().max() == 0
        sums = trace.weights.sum(-1)
        if name == "gated":
            assert (sums < 1).all()
        else:
            torch.testing.assert_close(sums, torch.ones_like(sums))


@pytest.mark.parametrize("name", EVERY)
def test_steps_equal_one_forward_for_ragged_prompts(name):
    model = build("gru_to_attention", variant=name, **SMALL).eval()
    tokens, lengths = torch.randint(0, 11, (3, 9)), torch.tensor([4, 1, 3])
    prompts = tokens[:, :4].clone()
    first, state = model.start(prompts, lengths, capacity=8)
    assert torch.equal(first[:, 0], prompts[torch.arange(3), lengths - 1])
    text = [prompts[b, : lengths[b]].tolist() for b in range(3)]
    fed = first
    for t in range(4):
        logits, state = model.step(fed, state)
        for b in range(3):
            torch.testing.assert_close(logits[b, 0], model(torch.tensor([text[b]]))[0, -1])
            text[b].append(int(tokens[b, 4 + t]))
        fed = tokens[:, 4 + t : 5 + t]


@pytest.mark.parametrize("name", EVERY)
def test_beams_carry_their_aligner_state(name):
    model = build("gru_to_attention", variant=name, **SMALL).eval()
    tokens = torch.randint(0, 11, (2, 3))
    first, state = model.start(tokens, capacity=8)
    state = model.select(state, None, torch.zeros(2, 3, dtype=torch.long))
    said = torch.randint(0, 11, (2, 3))
    _, state = model.step(first.expand(2, 3), state)
    _, state = model.step(said, state)
    rows, beams = torch.tensor([1]), torch.tensor([[2, 0]])
    state = model.select(state, rows, beams)
    last = torch.tensor([[5, 7]])
    logits, _ = model.step(last, state)
    for k in range(2):
        text = [*tokens[1].tolist(), int(said[1, beams[0, k]]), int(last[0, k])]
        torch.testing.assert_close(logits[0, k], model(torch.tensor([text]))[0, -1])


def test_search_works():
    model = build("gru_to_attention", variant="gated", **SMALL).eval()
    found = beam_search(model, torch.randint(1, 11, (2, 3)), beam_size=3, max_length=6)
    assert len(found) == 2


@pytest.mark.parametrize("name", EVERY)
def test_every_parameter_learns(name):
    model = build("gru_to_attention", variant=name, **SMALL)
    model(torch.randint(0, 11, (2, 7))).logsumexp(-1).sum().backward()
    idle = [n for n, p in model.named_parameters() if p.grad is None or p.grad.abs().max() == 0]
    assert not idle


def test_invalid_settings_raise():
    with pytest.raises(UnknownName, match="did you mean 'gated'"):
        build("gru_to_attention", variant="gatted", **SMALL)
    with pytest.raises(BadInput, match="positions must be added"):
        build("gru_to_attention", positions="rotary", **SMALL)
    with pytest.raises(BadInput, match="prompt is empty"):
        build("gru_to_attention", **SMALL).start(torch.zeros(1, 0, dtype=torch.long), capacity=3)
