"""MViT: what it costs, what it reads, what it gives; the laws of images. Parity is in tests/parity."""

import pytest
import torch
import torch.nn.functional as F
from torch.utils.flop_counter import FlopCounterMode

from regard import see
from regard.attention.capture.watch import watch
from regard.core.errors import BadInput, RegardError
from regard.models import build
from regard.models.mvit import SIZES
from tests.long_params import rest_is_long

KINDS = {
    "v2": {},
    "v1": {name: value for name, value in SIZES["v1-b"].items() if name != "layers"},
    "class token": {"class_token": True},
    "wider in the feed-forward": {"widen_in": "feedforward", "heads": 2},
    "means": {"pooling": "mean"},
    "plain backend": {"attention": "softmax(backend='eager')"},
    "folded backend": {"attention": "softmax(backend='sdpa_factorized')"},
}


def small(size=None, **settings):
    given = {"width": 6, "layers": (1, 2, 1, 1), "image_size": 64, "num_classes": 5}
    return build("mvit", **(SIZES[size] if size else {}) | given | settings).eval()


# -- as published ------------------------------------------------------------------------------------------------------

# Millions of parameters and thousands of millions of multiply-adds, at 224 x 224. The papers say T 24 and 4.7, S 35 and
# 7.0, B 52 and 10.2, L 218, H 667; v1 37.0 and 7.8. Clips are as torchvision counts them, to the last digit. Of L the
# paper says 42.1; the counter finds 43.7, for timm's as for ours.
PUBLISHED = {
    "t": (24.17332, 4.68),
    "s": (34.870216, 6.96),
    "b": (51.472744, 10.10),
    "l": (217.992952, 43.71),
    "h-token": (666.879912, None),
    "v1-b": (36.9826, 7.81),
    "v1-b-clips": (36.610672, 70.599),
    "s-clips": (34.537744, 64.224),
}


LARGE = ("b", "l", "s-clips", "v1-b-clips")


@pytest.mark.parametrize("size", [pytest.param(s, marks=pytest.mark.long) if s in LARGE else s for s in PUBLISHED])
def test_parameters_and_multiply_adds_are_as_published(size):
    millions, adds = PUBLISHED[size]
    with torch.device("meta"):
        model = build("mvit", size=size).eval()
        assert sum(p.numel() for p in model.parameters()) == round(millions * 1e6)
        if adds is None:
            return
        frames = [model.config.num_frames] if model.config.num_frames else []
        with FlopCounterMode(display=False) as counted, torch.no_grad():
            model(torch.empty(1, 3, *frames, 224, 224))
    assert counted.get_total_flops() / 2e9 == pytest.approx(adds, rel=2e-3)


def test_the_sizes_for_small_images_are_small():
    with torch.device("meta"):
        assert sum(p.numel() for p in build("mvit", size="cifar").parameters()) < 4_000_000
        assert [f.shape[-1] for f in build("mvit", size="cifar").features(torch.empty(1, 3, 32, 32))] == [16, 8, 4, 2]


# -- what goes in and comes out ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "sides", rest_is_long([(64, 64), (32, 32), (97, 70), (5, 200), (1, 1)], (97, 70), (1, 1)), ids=str
)
def test_images_of_any_size_work(kind, sides):
    model, images = small(**KINDS[kind]), torch.randn(2, 3, *sides)
    assert model(images).shape == (2, 5)
    features = model.features(images)
    assert [f.shape[2:] for f in features] == [tuple(-(-n // s) for n in sides) for s in (4, 8, 16, 32)]
    assert model.grid(images).shape == (2, *features[-1].shape[2:], 48)
    torch.testing.assert_close(model.grid(images), model.norm(features[-1].permute(0, 2, 3, 1)))
    pooled = model.pooled(images)
    torch.testing.assert_close(model(images), model.head(pooled))
    if not model.num_prefix_tokens:
        torch.testing.assert_close(pooled, model.grid(images).mean((1, 2)))


@pytest.mark.parametrize("size", ["v1-b-clips", "s-clips"])
@pytest.mark.parametrize("shape", [(4, 64, 64), (6, 48, 64), (1, 33, 20)], ids=str)
def test_clips_of_any_size_work(size, shape):
    model, clips = small(size, num_frames=4), torch.randn(2, 3, *shape)
    assert model(clips).shape == (2, 5)
    strides = ((2, n, n) for n in (4, 8, 16, 32))
    expected = [tuple(-(-n // s) for n, s in zip(shape, stride, strict=True)) for stride in strides]
    assert [f.shape[2:] for f in model.features(clips)] == expected
    assert model.grid(clips).shape == (2, *expected[-1], 48)


@pytest.mark.parametrize("kind", KINDS)
def test_batch_equals_singles(double, kind):
    model, images = small(**KINDS[kind]), torch.randn(3, 3, 40, 33)
    together = model(images)
    for n in range(3):
        torch.testing.assert_close(model(images[n : n + 1])[0], together[n])


def test_without_classes_the_output_is_the_pooled_vector():
    model, images = small(num_classes=0), torch.randn(2, 3, 64, 64)
    assert torch.equal(model(images), model.pooled(images))
    assert model(images).shape == (2, 48)


def test_invalid_inputs_raise():
    with pytest.raises(BadInput, match="with 3 channels, got"):
        small()(torch.zeros(2, 1, 64, 64))
    with pytest.raises(BadInput, match="clips B C T Y X"):
        small("s-clips", num_frames=4)(torch.zeros(2, 3, 64, 64))
    with pytest.raises(RegardError, match="not divisible by"):
        small(width=7, heads=2)
    with pytest.raises(RegardError, match="'residual_pooling' is 'some'"):
        small(residual_pooling="some")


# -- what it looks at --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_watch_captures_every_layer_and_does_not_change_the_output(kind):
    model, images = small(**KINDS[kind]), torch.randn(2, 3, 64, 48)
    plain = model(images)
    with watch(model) as seen:
        assert torch.equal(model(images), plain)
    assert list(seen) == ["stages.0.0.mix", "stages.1.0.mix", "stages.1.1.mix", "stages.2.0.mix", "stages.3.0.mix"]
    cells = [16 * 12, 8 * 6, 8 * 6, 4 * 3, 2 * 2]
    assert [t.weights.shape[2] for t in seen.values()] == [model.num_prefix_tokens + n for n in cells]
    for trace in seen.values():
        torch.testing.assert_close(trace.weights.sum(-1), torch.ones(trace.weights.shape[:3]))
        assert trace.exact == (kind == "means")


@pytest.mark.parametrize("kind", ["v2", "v1", "class token"])
def test_layers_of_a_pyramid_multiply_to_a_map_of_the_first_grid(kind):
    model, images = small(**KINDS[kind]), torch.randn(2, 3, 64, 48)
    with torch.no_grad(), watch(model) as seen:
        model(images)
    rolled = see.rollout(seen.traces())
    assert rolled.weights.shape == (2, 1, model.num_prefix_tokens + 4, model.num_prefix_tokens + 16 * 12)
    torch.testing.assert_close(rolled.weights.sum(-1), torch.ones(2, 1, model.num_prefix_tokens + 4))
    assert not rolled.exact


# -- training ----------------------------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("kind", ["v2", "v1", "means"])
def test_it_overfits_a_few_images(kind):
    model = build("mvit", size="tiny", **KINDS[kind]).train()
    images, labels = torch.randn(10, 3, 32, 32), torch.arange(10)
    descent = torch.optim.AdamW(model.parameters(), 2e-3)
    for _ in range(12):
        loss = F.cross_entropy(model(images), labels)
        descent.zero_grad()
        loss.backward()
        descent.step()
    idle = {name for name, p in model.named_parameters() if p.grad is None or not p.grad.abs().sum()}
    # Of the last block only the class token is read, and its query is not pooled.
    assert idle == ({"stages.3.0.mix.q_pool.filter.weight"} if model.num_prefix_tokens else set())
    assert (model.eval()(images).argmax(-1) == labels).sum() >= 8


def test_drop_path_acts_in_training_only():
    model, images = small(drop_path=0.9, class_token=True), torch.randn(2, 3, 64, 64)
    assert torch.equal(model(images), model(images))
    model.train()
    assert not torch.equal(model(images), model(images))
    drops = [block.drop.p for stage in model.stages for block in stage]
    assert drops == pytest.approx([0.0, 0.225, 0.45, 0.675, 0.9])


def test_initial_weights_follow_the_paper():
    model = small(width=24, class_token=True)
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.Linear) and module.weight.numel() > 2000:
            assert float(module.weight.detach().std()) == pytest.approx(0.02, rel=0.1), name
            assert module.bias.abs().max() == 0


COMPILED = """
import torch
from regard.models import build
from regard.models.mvit import SIZES
folded = {"attention": "softmax(backend='sdpa_factorized')", "class_token": True}
for settings in (folded, SIZES["v1-b"], SIZES["s-clips"] | {"num_frames": 4}):
    model = build("mvit", **settings | dict(width=6, layers=(1, 1), image_size=16, num_classes=5)).eval()
    images = torch.randn(2, 3, *[4] * bool(model.config.num_frames), 16, 16)
    run = torch.compile(model, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(run(images), model(images), rtol=1e-4, atol=1e-5)
"""


@pytest.mark.long
def test_all_variants_compile_to_one_graph(python):
    """In a child process: dynamo cannot trace through the shape checks that tests switch on."""
    python(COMPILED)
