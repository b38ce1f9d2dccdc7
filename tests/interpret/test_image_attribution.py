"""Watched passes of models over images: every one of them gives maps on the grid of the pixels it was shown."""

import numpy as np
import pytest
import torch
from PIL import Image

import regard
from regard.core.errors import RegardError, UnknownName
from regard.interpret.image_attribution import attribute_image, run_with_attribution
from regard.modalities.image import Preprocess
from regard.tasks.image.image_classification import ImageClassifier

SIZE = (30, 44)  # divided by no patch, window or stride
MODELS = {
    "vit": ("vit", {"image_size": (24, 32), "patch_size": 8, "width": 12, "heads": 3, "layers": 3}),
    "vit mean": (
        "vit",
        {
            "image_size": 24,
            "patch_size": 8,
            "width": 12,
            "heads": 3,
            "layers": 2,
            "num_prefix_tokens": 0,
            "pool": "mean",
        },
    ),
    "vit registers": (
        "vit",
        {"image_size": 24, "patch_size": 8, "width": 12, "heads": 2, "layers": 2, "num_prefix_tokens": 3},
    ),
    "deit": ("deit", {"image_size": 24, "patch_size": 8, "width": 12, "heads": 3, "layers": 2}),
    "swin": (
        "swin",
        {"image_size": 32, "patch_size": 2, "width": 8, "heads": (1, 2, 4), "layers": (2, 1, 2), "window_size": 4},
    ),
    "swinv2": (
        "swinv2",
        {"image_size": 32, "patch_size": 2, "width": 8, "heads": (1, 2), "layers": (2, 2), "window_size": 4},
    ),
    "mvit": ("mvit", {"image_size": 32, "patch_size": 4, "width": 8, "layers": (1, 2, 1), "kv_stride": 2}),
    "mvit token": (
        "mvit",
        {"image_size": 32, "patch_size": 4, "width": 8, "layers": (1, 2), "kv_stride": 2, "class_token": True},
    ),
    "cct": ("cct", {"image_size": 32, "width": 12, "heads": 2, "layers": 2, "convolutions": 1}),
}
ROUGH = {"mvit", "mvit token", "cct"}  # convolutions pool


def built(name):
    torch.manual_seed(0)
    kind, sizes = MODELS[name]
    model = regard.build(kind, num_classes=5, **sizes).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():  # away from the beginning: scales of 0, looks that are even
            parameter.add_(0.2 * torch.randn_like(parameter))
    return model


@pytest.mark.parametrize("name", MODELS)
def test_maps_lie_on_the_pixels_and_no_look_is_more_than_whole(name):
    model, image = built(name), torch.randn(1, 3, *SIZE, dtype=torch.float64)
    sight, logits = run_with_attribution(model, image, gradients=True, answer=2)
    assert torch.equal(logits, model(image)[0])
    assert sight.exact == (name not in ROUGH)
    for found in (sight.rollout(), sight.relevance(), *(h for n in range(len(sight.layers)) for h in sight.heads(n))):
        assert found.shape == SIZE
        assert found.min() >= 0
        assert found.max() > found.min()
    assert 0.3 < sight.rollout().sum() <= 1 + 1e-6
    if not model.num_prefix_tokens:  # what is beyond the edge is the only thing that is missing
        assert sight.rollout().sum() == pytest.approx(sight.uniform_weight() * SIZE[0] * SIZE[1], rel=0.3)
    assert all(p.grad is None for p in model.parameters())


@pytest.mark.parametrize("name", MODELS)
def test_a_place_looks_from_there(name):
    """From two places far apart something else is seen, and the way around attention ends where it was asked."""
    sight, _ = run_with_attribution(built(name), torch.randn(1, 3, *SIZE, dtype=torch.float64))
    places = [(0.05, 0.05), (0.9, 0.95)]
    assert (sight.rollout(places[0]) - sight.rollout(places[1])).abs().max() > 1e-4
    for down, right in places:
        stayed = sight.rollout((down, right), residual=1.0)  # attention left out: the token itself
        assert stayed.sum() == pytest.approx(1) or (sight.exact and down > 0.5 and stayed.sum() < 1)  # cut by the edge
        assert stayed[int(down * SIZE[0]), int(right * SIZE[1])] > 0


@pytest.mark.parametrize("name", MODELS)
def test_the_head_reads_the_tokens_that_the_sight_says(name):
    """The pooled vector has a gradient with respect to these of the last tokens, and to no other."""
    model, image, box = built(name), torch.randn(1, 3, *SIZE, dtype=torch.float64), []

    def keep(module, inputs, output):
        box.append(output[0] if isinstance(output, tuple) else output)
        box[-1].retain_grad()

    blocks = (
        model.encoder.blocks if hasattr(model, "encoder") else getattr(model.stages[-1], "blocks", model.stages[-1])
    )
    handle = blocks[-1].register_forward_hook(keep)
    pooled = model.pooled(image)
    (pooled * torch.randn_like(pooled)).sum().backward()
    handle.remove()
    felt = box[-1].grad.flatten(1, -2)[0].abs().sum(-1) > 0
    sight, _ = run_with_attribution(model, image)
    assert torch.equal(felt, sight.reads > 0)
    assert sight.reads.sum() == pytest.approx(1)


def test_relevance_sees_the_label_that_is_asked_for():
    model, image = built("vit"), torch.randn(1, 3, *SIZE, dtype=torch.float64)
    likeliest = int(model(image)[0].argmax())
    maps = [run_with_attribution(model, image, True, n)[0].relevance() for n in range(5)]
    assert torch.equal(run_with_attribution(model, image, True)[0].relevance(), maps[likeliest])
    assert all((maps[likeliest] - maps[n]).abs().max() > 1e-9 for n in range(5) if n != likeliest)


def test_a_classifier_is_looked_at_with_its_labels(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (50, 60, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "a.png")
    classify = ImageClassifier(built("vit").float(), list("abcde"), Preprocess((24, 32)))
    sight, found = attribute_image(classify, tmp_path / "a.png", answer="d")
    (alone,) = classify([tmp_path / "a.png"])
    assert found.label == alone.label
    assert found.probabilities == pytest.approx(alone.probabilities, rel=1e-5)
    assert sight.relevance().shape == (24, 32)
    with pytest.raises(UnknownName, match="knows no label 'f'"):
        attribute_image(classify, tmp_path / "a.png", answer="f")


def test_where_nothing_attends_there_is_nothing_to_look_at():
    model = regard.build("resnet", size="18", num_classes=5).eval()
    with pytest.raises(RegardError, match="nothing attends in this ResNet"):
        run_with_attribution(model, torch.randn(1, 3, 32, 32))
