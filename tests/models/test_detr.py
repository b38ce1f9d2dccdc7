"""DETR: sizes that are refused, groups of queries, denoising queries, a small run of training."""

import pytest
import torch

import regard
from regard.core.errors import BadInput
from regard.losses.denoising import denoising_losses, denoising_queries
from regard.losses.set_matching import assign, pad_targets
from regard.modalities.box_geometry import centres_to_corners, generalized_iou


def tiny(name="detr", **settings):
    torch.manual_seed(0)
    return regard.build(name, size="tiny", **settings).double()


BOTH = {"detr": {}, "deformable_detr": {"anchor_boxes": True}}


def images(batch=2):
    return torch.randn(batch, 3, 64, 96, dtype=torch.float64)


def objects(counts):
    boxes = [torch.rand(n, 4, dtype=torch.float64) * 0.3 + 0.2 for n in counts]
    return pad_targets([torch.randint(5, (n,)) for n in counts], boxes)


def frozen_statistics(model):
    """In training, but with the running statistics of the backbone, so that images do not change each other."""
    model.train()
    model.stem.eval()
    return model


@pytest.mark.usefixtures("unchecked")
def test_bad_input_is_refused():
    model = tiny()
    with pytest.raises(BadInput, match="1 x 1 to 64 x 96"):
        model(images(), torch.tensor([[64, 96], [0, 5]]))
    with pytest.raises(BadInput, match="integers, 2 x 2"):
        model(images(), torch.tensor([64, 96]))
    with pytest.raises(BadInput, match="channels"):
        model(images()[:, :1])
    with pytest.raises(BadInput, match="denoising=True"):
        model(images(), denoising=denoising_queries(objects((1, 2)), 5))
    for settings, why in (
        ({"width": 30, "heads": 5}, "divisible by 4"),
        ({"masks": True, "heads": 4}, "masks need"),
        ({"frozen_stages": 5}, "at most 4"),
    ):
        with pytest.raises(BadInput, match=why):
            tiny(**settings)


def test_a_new_class_head_has_other_classes():
    model = tiny(denoising=True)
    model.reset_classifier(3)
    assert model(images()).logits.shape[-1] == 4
    assert model.config.num_classes == 3
    with pytest.raises(BadInput, match="at least 1"):
        model.reset_classifier(0)


@pytest.mark.parametrize("name", BOTH)
def test_groups_of_queries_are_as_many_models(name):
    """In training every group predicts what a model with its queries alone would; afterwards only the first is used."""
    model, alone = (frozen_statistics(tiny(name, query_groups=groups, **BOTH[name])) for groups in (3, 1))
    state, x = model.state_dict(), images()
    own = [key for key in ("queries", "anchors") if key in state]
    with torch.no_grad():
        together = model(x)
        assert together.logits.shape == (2, 2, 21, 6)
        for group in range(3):
            inside = slice(7 * group, 7 * group + 7)
            alone.load_state_dict(state | {key: state[key][inside] for key in own})
            for found, expected in zip(together[:2], alone(x)[:2], strict=True):
                torch.testing.assert_close(found[:, :, inside], expected, rtol=1e-10, atol=1e-10)
        alone.load_state_dict(state | {key: state[key][:7] for key in own})
        torch.testing.assert_close(model.eval()(x).logits, alone.eval()(x).logits)


def pairs(matches):
    every = (matches.layer.expand_as(matches.image), *matches[:3])
    return set(zip(*(x.flatten().tolist() for x in every), strict=True))


def test_groups_are_matched_each_by_itself():
    cost, counts = torch.randn(2, 3, 12, 4), [4, 0, 2]
    found = pairs(assign(cost, counts, groups=3))
    expected = {
        (layer, image, query + 4 * group, target)
        for group in range(3)
        for layer, image, query, target in pairs(assign(cost[:, :, 4 * group : 4 * group + 4], counts))
    }
    assert found == expected
    assert len(found) == 2 * 3 * 6
    with pytest.raises(BadInput, match="5 groups"):
        assign(cost, counts, groups=5)


@pytest.mark.parametrize("name", BOTH)
def test_denoising_queries_change_no_other_prediction_and_not_each_other(name):
    """Matched queries do not see them; a group does not see another; padding is seen by nobody."""
    model, x, targets = frozen_statistics(tiny(name, denoising=True, **BOTH[name])), images(), objects((3, 1))
    noised = denoising_queries(targets, 5, groups=2)
    with torch.no_grad():
        before, found = model(x).logits, model(x, denoising=noised).logits
        torch.testing.assert_close(found[:, :, :7], before, rtol=1e-10, atol=1e-10)
        other = noised._replace(boxes=noised.boxes.clone())
        other.boxes[:, 3:] = 0.5  # the second group
        other.boxes[1, 1:3] = 0.5  # padding of the first
        changed = model(x, denoising=other).logits
    torch.testing.assert_close(changed[:, 0, :10], found[:, 0, :10], rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(changed[:, 1, :8], found[:, 1, :8], rtol=1e-10, atol=1e-10)
    assert (changed[:, 0, 10:] - found[:, 0, 10:]).abs().min() > 0
    assert noised.real.tolist() == [[True] * 6, [True, False, False] * 2]


def test_noise_is_as_large_as_said():
    targets = objects((200,))
    noised = denoising_queries(targets, 5, groups=10, generator=torch.Generator().manual_seed(0))
    true = targets.boxes.repeat(1, 10, 1)
    moved = (noised.boxes - true) / true[..., [2, 3, 2, 3]]
    assert moved[..., :2].abs().max() <= 0.2 + 1e-9
    assert moved[..., 2:].abs().max() <= 0.4 + 1e-9
    assert moved.abs().amax((0, 1)).tolist() == pytest.approx([0.2, 0.2, 0.4, 0.4], abs=0.01)
    flipped = (noised.classes != targets.classes.repeat(1, 10)).double().mean()
    assert flipped == pytest.approx(0.2 * 4 / 5, abs=0.03)  # a random class may be the true one
    assert noised.group.tolist() == [g for g in range(10) for _ in range(200)]
    still = denoising_queries(targets, 5, 1, label_noise=0.0, box_noise=0.0)
    assert torch.equal(still.boxes, targets.boxes)
    assert torch.equal(still.classes, targets.classes)


def test_denoising_losses_equal_a_loop():
    counts, groups = (3, 0, 2), 2
    targets = objects(counts)
    logits = torch.randn(2, 3, 6, 6, dtype=torch.float64)
    boxes = torch.rand(2, 3, 6, 4, dtype=torch.float64) * 0.4 + 0.1
    found = denoising_losses(logits, boxes, targets, groups)
    for layer in range(2):
        sums = dict.fromkeys(found, 0.0)
        for image, count in enumerate(counts):
            for group in range(groups):
                for m in range(count):
                    box, true = boxes[layer, image, 3 * group + m], targets.boxes[image, m]
                    logit = logits[layer, image, 3 * group + m]
                    sums["classes"] -= logit.log_softmax(-1)[targets.classes[image, m]] / 10
                    sums["l1"] += (box - true).abs().sum() / 10
                    sums["giou"] += (1 - generalized_iou(centres_to_corners(box), centres_to_corners(true))) / 10
        for name, value in sums.items():
            torch.testing.assert_close(found[name][layer], value, msg=name)
    nothing = denoising_losses(logits[:, :1, :0], boxes[:, :1, :0], objects((0,)), groups)
    assert all(torch.equal(x, torch.zeros(2, dtype=torch.float64)) for x in nothing.values())
