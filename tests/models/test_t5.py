"""T5's own laws: sizes, padding, stepping, frozen steps, and what a head may be."""

import pytest
import torch

from regard.attention.capture.watch import watch
from regard.decoding.beam_search import beam_search, greedy_search, sample
from regard.decoding.constrained_search import constrained_beam_search
from regard.losses.fused_linear_cross_entropy import fused_linear_cross_entropy
from regard.models import build
from regard.models.t5 import SIZES

from .sequence_checks import check_batch_equals_singles, check_steps_equal_one_forward

SMALL = {"vocab": 17, "width": 16, "heads": 3, "head_dim": 6, "ffn": 24, "encoder_layers": 2, "decoder_layers": 2}
SMALL |= {"num_buckets": 8, "max_distance": 9}
VARIANTS = {
    "v1.0": {},
    "v1.1": {"feedforward": "geglu_tanh", "tied": False},
    "untied and scaled": {"tied": False, "scale_decoder_outputs": True},
    "layer norm": {"norm_kind": "layer"},
    "plain backend": {"attention": "softmax(backend='eager')"},
}

# As the published files have them: 60, 220, 770 million, 3 and 11 billion in the paper.
PARAMETERS = {
    "small": 60_506_624,
    "base": 222_903_552,
    "large": 737_668_096,
    "3b": 2_851_598_336,
    "11b": 11_307_321_344,
    "small-1.1": 76_961_152,
    "base-1.1": 247_577_856,
    "large-1.1": 783_150_080,
    "xl-1.1": 2_849_757_184,
    "xxl-1.1": 11_135_332_352,
}


def small(**settings):
    return build("t5", **(SMALL | settings)).eval()


@pytest.mark.parametrize("size", PARAMETERS)
def test_sizes_have_the_published_parameters(size):
    with torch.device("meta"):
        model = build("t5", size=size)
    assert sum(p.numel() for p in model.parameters()) == PARAMETERS[size]


def test_every_size_except_tiny_is_published():
    assert set(SIZES) == {*PARAMETERS, "tiny"}


@pytest.mark.parametrize("name", VARIANTS)
def test_batch_equals_singles(double, name):
    model = small(**VARIANTS[name])
    source, target = torch.randint(3, 17, (3, 14)), torch.randint(3, 17, (3, 11))
    lengths = torch.tensor([14, 2, 9])
    check_batch_equals_singles(model, source, target, lengths, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", VARIANTS)
def test_padding_and_the_future_have_no_influence(double, name):
    model = small(**VARIANTS[name])
    source, target = torch.randint(3, 17, (2, 6)), torch.randint(3, 17, (2, 5))
    lengths = torch.tensor([6, 3])
    out = model(source, target, lengths)
    changed_source, changed_target = source.clone(), target.clone()
    changed_source[1, 3:] = 5
    changed_target[:, 3:] = 4
    again = model(changed_source, changed_target, lengths)
    torch.testing.assert_close(out[:, :3], again[:, :3], rtol=1e-10, atol=1e-10)
    assert not torch.allclose(out[:, 3:], again[:, 3:])


@pytest.mark.parametrize("name", VARIANTS)
def test_steps_equal_one_forward(double, name):
    model = small(**VARIANTS[name])
    source, lengths = torch.randint(3, 17, (3, 6)), torch.tensor([6, 1, 4])
    target = torch.randint(3, 17, (3, 12))
    check_steps_equal_one_forward(model, source, target, lengths)


def test_frozen_steps_equal_growing_ones(double):
    """What a GPU records: counters as tensors, static shapes, and a bias that reads times off the device."""
    model = small()
    source, target = torch.randint(3, 17, (3, 6)), torch.randint(3, 17, (3, 2, 8))
    results = []
    for freeze in (False, True):
        first, state = model.start(source, torch.tensor([6, 4, 5]), capacity=17)
        seen = []
        logits, state = model.step(first, state)
        state = model.select(state, None, torch.zeros(3, 2, dtype=torch.long))
        state = model.freeze(state) if freeze else state
        for t in range(8):
            logits, state = model.step(target[..., t], state)
            state = model.select(state, None, torch.tensor([[1, 0], [0, 0], [1, 1]]))
            seen.append(logits)
        results.append(torch.stack(seen))
    torch.testing.assert_close(*results, rtol=1e-10, atol=1e-10)


def test_all_searches_run_and_a_batch_equals_singles(double):
    model = small()
    with torch.no_grad():
        model.head.weight.mul_(4)  # decided enough for outputs to end
    source, lengths = torch.randint(3, 17, (3, 7)), torch.tensor([7, 3, 5])
    how = {"max_length": 9}
    ways = {
        "greedy": lambda *x, **k: [[h] for h in greedy_search(model, *x, **how)],
        "beam": lambda *x, **k: beam_search(model, *x, beam_size=3, num_candidates=2, **how),
        "diverse": lambda *x, **k: beam_search(model, *x, beam_size=4, groups=2, num_candidates=2, **how),
        "sample": lambda *x, seed=0: sample(model, *x, num_samples=2, seed=seed, **how),
        "constrained": lambda *x, **k: constrained_beam_search(
            model, *x, phrases=[[[9, 10]]] * len(x[0]), beam_size=4, **how
        ),
    }
    for name, way in ways.items():
        whole = way(source, lengths, seed=[5, 6, 7])
        for row in range(3):
            n = int(lengths[row])
            alone = way(source[row : row + 1, :n], lengths[row : row + 1], seed=[5 + row])
            assert [h.tokens for h in whole[row]] == [h.tokens for h in alone[0]], name


def test_every_parameter_gets_a_gradient():
    for settings in VARIANTS.values():
        model = small(**settings)
        source, target = torch.randint(3, 17, (2, 6)), torch.randint(3, 17, (2, 5))
        model(source, target).square().sum().backward()
        assert not [n for n, p in model.named_parameters() if p.grad is None or not p.grad.abs().sum() > 0]


@pytest.mark.parametrize("name", VARIANTS)
def test_loss_inside_forward_equals_loss_of_the_logits(double, name):
    model = small(**VARIANTS[name])
    source, target, wanted = torch.randint(3, 17, (2, 6)), torch.randint(3, 17, (2, 5)), torch.randint(3, 17, (2, 5))
    wanted[1, 3:] = -100
    expected = torch.nn.functional.cross_entropy(model(source, target).flatten(0, 1), wanted.flatten(), reduction="sum")
    torch.testing.assert_close(model(source, target, targets=wanted, loss=fused_linear_cross_entropy), expected)


def test_initial_scores_and_logits_have_unit_scale():
    """No √D in the attention and a table of ones for tokens: the fresh weights make up for both."""
    torch.manual_seed(0)
    model = build("t5", vocab=500, width=256, heads=8, head_dim=32, ffn=512, encoder_layers=2, decoder_layers=2).eval()
    x = torch.randn(4, 20, 256)
    for mix in (model.encoder.blocks[0].mix, model.decoder.blocks[1].mix):
        q, k, _ = mix.project(x)
        assert 0.7 < (q @ k.mT).std() < 1.4
    source, target = torch.randint(500, (4, 20)), torch.randint(500, (4, 9))
    assert 0.3 < model(source, target).std() < 3


def test_decoder_buckets_are_for_the_past_and_encoder_buckets_for_both_sides():
    model = small()
    assert model.decoder.positions.causal
    assert not model.encoder.positions.causal
    with torch.no_grad(), watch(model) as seen:
        model(torch.randint(3, 17, (1, 5)), torch.randint(3, 17, (1, 4)))
    parts = ["encoder.blocks.0.mix", "encoder.blocks.1.mix"]
    parts += [f"decoder.blocks.{n}.{part}" for n in range(2) for part in ("mix", "cross")]
    assert list(seen) == parts
    assert seen["decoder.blocks.1.mix"].weights[0, 0].triu(1).abs().sum() == 0
    assert seen["encoder.blocks.1.mix"].weights[0, 0].triu(1).abs().sum() > 0


@pytest.mark.long
@pytest.mark.parametrize("dynamic", [False, pytest.param(True, marks=pytest.mark.long)])
def test_compiled_equals_eager(unchecked, dynamic):
    torch._dynamo.reset()
    model = small(dropout=0.0, attention_dropout=0.0, activation_dropout=0.0)
    compiled = torch.compile(model, backend="aot_eager", dynamic=dynamic)
    for n, t in ((9, 6), (12, 7)):
        source, target, wanted = (torch.randint(3, 17, (3, size)) for size in (n, t, t))
        lengths = torch.tensor([n, 4, 2])
        for run in (model, compiled):
            run(source, target, lengths, targets=wanted, loss=fused_linear_cross_entropy).backward()
            if run is model:
                expected = [p.grad.clone() for p in model.parameters()]
                model.zero_grad()
        for p, wanted_gradient in zip(model.parameters(), expected, strict=True):
            torch.testing.assert_close(p.grad, wanted_gradient, rtol=1e-4, atol=1e-4)
        model.zero_grad()


@pytest.mark.parametrize("mode", ["train", "infer", "decode"])
def test_its_cost_is_counted(mode):
    from regard.cost.estimate import Scenario, estimate
    from regard.cost.meta_model import InputShape, resolve_config

    config = resolve_config("t5", "tiny", ["vocab=300"])
    found = estimate(Scenario(config=config, shape=InputShape(batch=4, length=32), mode=mode))
    assert found.parameters == sum(p.numel() for p in build("t5", size="tiny", vocab=300).parameters())
    assert found.seconds > 0
