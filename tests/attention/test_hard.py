"""Hard and Gumbel choices: what is drawn, what is told, and that the soft context is the mean of the hard one."""

import copy

import pytest
import torch

from regard.attention import ALIGNERS
from regard.attention.aligners.base import align
from regard.attention.aligners.hard import collect_choices, entropy
from regard.attention.capture.watch import watch
from regard.attention.protocol import context
from regard.core.categorical import sample_categorical
from regard.core.errors import RegardError, UnknownName, Unsupported
from regard.core.layer_state import PassState
from regard.core.spec import build_part

WIDTHS = {"query_width": 3, "memory_width": 4, "width": 5}


@pytest.fixture(autouse=True)
def _double(double):
    pass


def parts(spec, batch=3, m=6):
    aligner = build_part(ALIGNERS, spec, "aligner", **WIDTHS)
    mask = torch.arange(m)[None] < torch.tensor([m, 4, 1])[:batch, None]
    return aligner, torch.randn(batch, 1, 3, requires_grad=True), torch.randn(batch, m, 4, requires_grad=True), mask


@pytest.mark.parametrize("spec", ["hard", "gumbel", "gumbel(temperature=0.3)"])
@pytest.mark.parametrize("training", [True, False])
def test_every_row_is_one_at_a_single_allowed_place_to_the_bit(spec, training):
    aligner, query, memory, mask = parts(spec)
    weights, _ = aligner.train(training)(query, aligner.keys(memory), mask)
    assert torch.equal(weights.sort(-1).values, torch.eye(6)[-1].expand(3, 1, 6))
    assert not (weights * ~mask[:, None]).any()


@pytest.mark.parametrize("spec", ["hard", "gumbel"])
def test_in_eval_mode_it_is_the_likeliest_place_and_draws_nothing(spec):
    aligner, query, memory, mask = parts(spec)
    aligner.eval()
    before = torch.get_rng_state()
    keys = aligner.keys(memory)
    weights, _ = aligner(query, keys, mask)
    soft, _ = aligner.base(query, keys, mask)
    assert torch.equal(weights.argmax(-1), soft.argmax(-1))
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("spec", ["hard", "gumbel", "gumbel(temperature=0.2)"])
def test_places_are_drawn_as_often_as_their_weight_says(spec):
    aligner, query, memory, mask = parts(spec, batch=1)
    draws = 20_000
    keys = aligner.keys(memory)
    soft = aligner.base(query, keys, mask)[0][0, 0]
    with torch.no_grad():
        seen = aligner(query.expand(draws, 1, 3), keys.expand(draws, -1, -1), mask.expand(draws, -1))[0]
    spread = (soft * (1 - soft) / draws).sqrt()
    assert ((seen.mean((0, 1)) - soft).abs() < 4 * spread).all()
    assert (soft.max() - soft.min()) > 20 * spread.max()  # places that are drawn evenly would be noticed


@pytest.mark.parametrize("spec", ["hard", "gumbel"])
def test_the_soft_context_is_the_expectation_of_the_hard_one(spec):
    aligner, query, memory, mask = parts(spec)
    keys = aligner.keys(memory)
    soft, _ = aligner.base(query, keys, mask)
    every = sum(  # Σ_m p(s = m) h_m, each h_m read by a hard choice of that place
        soft[..., m : m + 1] * context(torch.eye(6)[m].expand(3, 1, 6), memory) for m in range(6)
    )
    torch.testing.assert_close(context(soft, memory), every)
    draws = 20_000
    with torch.no_grad():
        rows = [x[:1].expand(draws, *x.shape[1:]) for x in (query, keys, mask, memory)]
        hard = context(aligner(*rows[:3])[0], rows[3])[:, 0]
        error = hard.std(0) / draws**0.5
    assert ((hard.mean(0) - context(soft, memory)[0, 0]).abs() < 4 * error).all()


def test_log_probability_entropy_and_query_of_each_choice_are_published_in_training():
    aligner, query, memory, mask = parts("hard")
    keys, pass_state = aligner.keys(memory), PassState()
    steps, chosen = torch.randn(5, 3, 1, 3), []
    for t, step in enumerate(steps):
        chosen.append(aligner(step, keys, mask, None, pass_state.layer(t))[0])
    log_p, spread, queries = collect_choices(pass_state)
    soft = torch.stack([aligner.base(step, keys, mask)[0] for step in steps])
    torch.testing.assert_close(log_p, (soft * torch.stack(chosen)).sum(-1).log().squeeze(-1).T)
    torch.testing.assert_close(spread, torch.special.entr(soft).sum(-1).squeeze(-1).T)
    torch.testing.assert_close(queries, steps.squeeze(2).transpose(0, 1))
    aligner(query, keys, mask, None, pass_state.layer(4))  # recomputed: it overwrites
    assert collect_choices(pass_state).log_probs.shape == (3, 5)
    pass_state = PassState()
    aligner.eval()(query, aligner.keys(memory), mask, None, pass_state.layer(0))
    with pytest.raises(RegardError, match="training mode"):
        collect_choices(pass_state)
    copy.deepcopy(aligner)  # nothing with a history is left in it


def test_an_input_without_a_place_has_no_choice_and_teaches_nothing():
    for spec in ("hard", "gumbel"):
        aligner, query, memory, _ = parts(spec)
        mask = torch.tensor([[True] * 6, [False] * 6, [True] * 2 + [False] * 4])
        pass_state = PassState()
        weights, _ = align(aligner, query, aligner.keys(memory), mask, None, pass_state.layer(0))
        assert weights[1].abs().max() == 0
        told = sum(x.sum() for x in collect_choices(pass_state)[:2]) if spec == "hard" else 0.0
        (context(weights, memory).square().sum() + told).backward()
        for x in (query, memory, *aligner.parameters()):
            assert torch.isfinite(x.grad).all()
        assert query.grad[1].abs().max() == 0


def test_entropy_has_a_finite_gradient_where_nothing_is_likely():
    chances = torch.tensor([[[0.5, 0.5, 0.0], [1.0, 0.0, 0.0]]], requires_grad=True)
    found = entropy(chances)
    torch.testing.assert_close(found, torch.tensor([[2.0, 1.0]]).log())
    found.sum().backward()
    assert torch.isfinite(chances.grad).all()


def test_following_a_path_looks_there_and_never_draws():
    aligner, query, memory, mask = parts("hard(soft_fraction=0.9)")
    path = torch.tensor([[5, 0], [3, 1], [0, 2]])
    before = torch.get_rng_state()
    with aligner.force_path(path):
        keys, pass_state = aligner.keys(memory), PassState()
        seen = torch.cat([aligner(query, keys, mask, None, pass_state.layer(t))[0] for t in range(2)], 1)
        log_p = collect_choices(pass_state).log_probs
    assert torch.equal(torch.get_rng_state(), before)
    soft = aligner.base(query, keys, mask)[0].squeeze(1)
    torch.testing.assert_close(log_p.exp(), soft.gather(1, path))
    assert log_p[2, 1] == -torch.inf  # behind the mask: never drawn
    assert torch.equal(seen.argmax(-1)[:2], path[:2])


def test_a_share_of_the_inputs_stays_soft_for_a_whole_reading():
    aligner, _, _, _ = parts("hard(soft_fraction=0.5)")
    memory, query = torch.randn(2000, 6, 4), torch.randn(2000, 1, 3)
    keys = aligner.keys(memory)
    pass_state = PassState()
    first, second = (aligner(query, keys, None, None, pass_state.layer(t))[0] for t in range(2))
    log_p = collect_choices(pass_state).log_probs
    stays = (first.max(-1).values < 1).squeeze(1)
    assert 0.45 < stays.double().mean() < 0.55
    assert torch.equal(stays, (second.max(-1).values < 1).squeeze(1))
    assert torch.equal(log_p == 0, stays[:, None].expand(-1, 2))
    torch.testing.assert_close(first[stays], aligner.base(query, keys)[0][stays])


def test_watching_shows_the_choice_and_what_it_was_drawn_from():
    aligner, query, memory, mask = parts("hard")
    with watch(aligner) as seen:
        chosen, _ = aligner(query, aligner.keys(memory), mask)
    assert torch.equal(seen[""].weights[:, 0], chosen)
    assert 0 < seen["base"].weights.max() < 1 + 1e-9
    assert (seen["base"].weights > 0).sum() == mask.sum()


def test_the_command_shows_the_choice_first_and_the_chances_as_another_layer():
    from regard.core.trace import Trace
    from regard.interpret.figures.token_maps import select_traces

    chances, choice = (Trace(name, torch.rand(1, 1, 2, 3), "align") for name in ("aligner.base", "aligner"))
    other = Trace("encoder.blocks.0.mix", torch.rand(1, 1, 3, 3), "self")
    assert select_traces([other, chances, choice], "cross", None) == [choice]
    assert select_traces([other, chances, choice], "cross", 1) == [chances]
    layers = [Trace(f"decoder.blocks.{n}.cross", torch.rand(1, 1, 2, 3), "cross") for n in range(12)]
    assert select_traces(layers, "layers") == layers  # blocks.1 is no part of blocks.11, nor the other way round


@pytest.mark.parametrize("base", ["bilinear", "concat", "location", "coverage", "neural_coverage"])
def test_any_aligner_with_probabilities_can_be_drawn_from(base):
    """What it remembers from step to step stays its own."""
    aligner, query, memory, mask = parts(f"hard(base='{base}')")
    keys, state, plain, pass_state = aligner.keys(memory), None, None, PassState()
    for t in range(3):
        soft, plain = aligner.base(query, keys, mask, plain)
        weights, state = aligner(query, keys, mask, state, pass_state.layer(t))
        assert torch.equal(weights.sum(-1), torch.ones(3, 1))
        assert (soft[weights > 0] > 0).all()
    log_p = collect_choices(pass_state).log_probs
    torch.testing.assert_close(log_p[:, -1], (soft * weights).sum(-1).squeeze(1).log())
    with pytest.raises(Unsupported, match="no probabilities"):
        build_part(ALIGNERS, "hard(base='gmm')", "aligner", **WIDTHS)


def test_drawing_never_takes_what_has_no_chance():
    chances = torch.zeros(1000, 1, 4)
    chances[..., 2] = 1e-30
    assert (sample_categorical(chances) == 2).all()


@pytest.mark.parametrize(
    ("spec", "error", "said"),
    [
        ("hard(base='addative')", UnknownName, "additive"),
        ("hard(base='hard')", Unsupported, "base='additive'"),
        ("hard(soft_fraction=1.5)", RegardError, "soft_fraction=1.5"),
        ("gumbel(temperature=0.0)", RegardError, "must be above 0"),
    ],
)
def test_what_does_not_fit_is_refused(spec, error, said):
    with pytest.raises(error, match=said):
        build_part(ALIGNERS, spec, "aligner", **WIDTHS)


def test_probabilities_are_not_narrowed_under_autocast():
    torch.set_default_dtype(torch.float32)
    aligner, query, memory, mask = parts("hard")
    with torch.autocast("cpu", dtype=torch.bfloat16):
        pass_state = PassState()
        weights, _ = aligner(query, aligner.keys(memory), mask, None, pass_state.layer(0))
        assert weights.dtype == torch.bfloat16
        log_p, spread, _ = collect_choices(pass_state)
    assert (log_p.dtype, spread.dtype) == (torch.float32, torch.float32)
