"""Set matching and the losses of DETR, against brute force, loops and transformers."""

import itertools

import pytest
import torch
import torch.nn.functional as F

from regard.core.errors import BadInput
from regard.losses.detection import detection_losses, mask_losses
from regard.losses.dice import dice_loss
from regard.losses.focal import sigmoid_focal_loss
from regard.losses.set_matching import Matches, MatchingWeights, assign, matching_cost, pad_targets

LAYERS, QUERIES, CLASSES = 3, 7, 4


def example(counts=(3, 0, 5), dtype=torch.float64):
    def boxes(*shape):
        return torch.rand(*shape, 4, dtype=dtype) * 0.4 + 0.1

    logits = torch.randn(LAYERS, len(counts), QUERIES, CLASSES + 1, dtype=dtype, requires_grad=True)
    found = boxes(LAYERS, len(counts), QUERIES).requires_grad_()
    targets = pad_targets([torch.randint(CLASSES, (n,)) for n in counts], [boxes(n) for n in counts])
    return logits, found, targets


def test_assignment_costs_least_of_all():
    cost = torch.randn(2, 3, 5, 3)
    matches = assign(cost, [3, 0, 2])
    assert matches.query.shape == (2, 3 + 0 + 2)
    for layer, image in itertools.product(range(2), range(3)):
        inside = matches.image[layer] == image
        query, target = matches.query[layer, inside].tolist(), matches.target[layer, inside].tolist()
        count = [3, 0, 2][image]
        assert sorted(target) == list(range(count))
        assert len(set(query)) == count
        ways = itertools.permutations(range(5), count)
        least = min(sum(cost[layer, image, q, m].item() for m, q in enumerate(way)) for way in ways)
        assert abs(cost[layer, image, query, target].sum().item() - least) < 1e-5


def test_more_objects_than_queries_match_every_query():
    matches = assign(torch.randn(1, 1, 2, 5), [5])
    assert sorted(matches.query[0].tolist()) == [0, 1]
    assert len(set(matches.target[0].tolist())) == 2


def test_costs_that_are_not_finite_are_avoided():
    cost = torch.tensor([[float("nan"), float("inf"), 1.0], [2.0, 3.0, float("-inf")], [1.0, 2.0, 5.0]])[None, None]
    matches = assign(cost, [3])
    assert dict(zip(matches.query[0].tolist(), matches.target[0].tolist(), strict=True)) in (
        {0: 2, 1: 0, 2: 1},
        {0: 2, 1: 1, 2: 0},
    )


def test_shapes_that_do_not_fit_are_refused():
    with pytest.raises(BadInput, match="does not fit the counts"):
        assign(torch.zeros(1, 2, 3, 3), [3])
    with pytest.raises(BadInput, match="up to 4 objects"):
        assign(torch.zeros(1, 2, 3, 3), [3, 4])
    with pytest.raises(BadInput, match="one box per class"):
        pad_targets([torch.zeros(2, dtype=torch.long)], [torch.zeros(3, 4)])


def test_all_layers_equal_transformers_in_value_and_gradient():
    theirs = pytest.importorskip("transformers.loss.loss_for_object_detection")
    for counts in ((3, 0, 5), (0, 0), (1,), (9, 2)):
        logits, boxes, targets = example(counts)
        matches = assign(matching_cost(logits, boxes, targets), targets.counts)
        ours = detection_losses(logits, boxes, targets, matches)
        weights = dict(zip(ours, (1.0, 5.0, 2.0), strict=True))
        ours_gradient = torch.autograd.grad(sum(weights[k] * v.sum() for k, v in ours.items()), (logits, boxes))

        matcher = theirs.HungarianMatcher(*MatchingWeights())
        criterion = theirs.ImageLoss(matcher, CLASSES, 0.1, ["labels", "boxes"]).double()
        rows = [
            {"class_labels": targets.classes[i, :n], "boxes": targets.boxes[i, :n]}
            for i, n in enumerate(targets.counts)
        ]
        layers = [{"logits": x, "pred_boxes": b} for x, b in zip(logits, boxes, strict=True)]
        found = [criterion(layer, rows) for layer in layers]
        names = {"classes": "loss_ce", "l1": "loss_bbox", "giou": "loss_giou"}
        expected = {k: torch.stack([each[name] for each in found]) for k, name in names.items()}
        gradient = torch.autograd.grad(sum(weights[k] * v.sum() for k, v in expected.items()), (logits, boxes))
        for key, value in expected.items():
            torch.testing.assert_close(ours[key], value, rtol=1e-6, atol=1e-9)  # they round the count to float32
        torch.testing.assert_close(ours_gradient, gradient, rtol=1e-6, atol=1e-9)


def test_padding_has_no_influence():
    logits, boxes, targets = example()
    cost = matching_cost(logits, boxes, targets)
    other = targets._replace(classes=targets.classes.clone(), boxes=targets.boxes.clone())
    other.classes[0, 3:], other.boxes[0, 3:], other.boxes[1] = CLASSES - 1, 0.9, 0.7
    assert torch.equal(
        assign(cost, targets.counts).query, assign(matching_cost(logits, boxes, other), other.counts).query
    )
    matches = assign(cost, targets.counts)
    for key, value in detection_losses(logits, boxes, targets, matches).items():
        assert torch.equal(value, detection_losses(logits, boxes, other, matches)[key])


def padded(matches, targets):
    """Matches as a GPU returns them: every object and the padding behind the objects, of every layer."""
    layers, (images, most) = len(matches.query), targets.classes.shape
    query = torch.randint(QUERIES, (layers, images, most))
    for layer in range(layers):
        query[layer, matches.image[layer], matches.target[layer]] = matches.query[layer]
    image, target = torch.arange(images)[:, None], torch.arange(most)
    every = image, query, target, target < targets.counts[:, None]
    return Matches(*(x.expand(layers, images, most).flatten(1) for x in every))


def test_padded_matches_have_the_losses_and_gradients_of_the_pairs():
    logits, boxes, targets = example()
    masks = torch.randn(LAYERS, 3, QUERIES, 5, 6, dtype=torch.float64, requires_grad=True)
    true = torch.rand(3, 5, 11, 9) > 0.5
    matches = assign(matching_cost(logits, boxes, targets), targets.counts)
    found = []
    for each in (matches, padded(matches, targets)):
        losses = detection_losses(logits, boxes, targets, each) | mask_losses(masks, true, targets, each)
        total = sum((i + 1) * loss.sum() for i, loss in enumerate(losses.values()))
        found.append([*losses.values(), *torch.autograd.grad(total, (logits, boxes, masks))])
    torch.testing.assert_close(*found)


def test_num_boxes_divides_the_box_losses_alone():
    logits, boxes, targets = example()
    matches = assign(matching_cost(logits, boxes, targets), targets.counts)
    one, two = (detection_losses(logits, boxes, targets, matches, num_boxes=n) for n in (8, 16))
    assert torch.equal(one["classes"], two["classes"])
    torch.testing.assert_close(one["l1"], 2 * two["l1"])
    torch.testing.assert_close(one["giou"], 2 * two["giou"])


def test_half_precision_is_summed_in_float32():
    logits, boxes, targets = example(dtype=torch.bfloat16)
    matches = assign(matching_cost(logits, boxes, targets), targets.counts)
    assert {v.dtype for v in detection_losses(logits, boxes, targets, matches).values()} == {torch.float32}


def test_masks_equal_transformers_in_value_and_gradient():
    theirs = pytest.importorskip("transformers.loss.loss_for_object_detection")
    logits, boxes, targets = example((3, 2))
    masks = torch.randn(1, 2, QUERIES, 5, 6, dtype=torch.float64, requires_grad=True)
    true = torch.rand(2, 3, 11, 9) > 0.5
    matches = assign(matching_cost(logits[:1], boxes[:1], targets), targets.counts)
    ours = mask_losses(masks, true, targets, matches)
    rows = [{"masks": true[i, :n]} for i, n in enumerate(targets.counts)]
    (image, query, target), inside = (x[0] for x in matches[:3]), matches.real
    assert inside.all()
    pairs = [(query[image == i], target[image == i]) for i in range(2)]
    criterion = theirs.ImageLoss(None, CLASSES, 0.1, ["masks"])
    expected = criterion.loss_masks({"pred_masks": masks[0]}, rows, pairs, 5)
    torch.testing.assert_close(ours["focal"][0], expected["loss_mask"])
    torch.testing.assert_close(ours["dice"][0], expected["loss_dice"])
    (a,) = torch.autograd.grad(ours["focal"].sum() + ours["dice"].sum(), masks)
    (b,) = torch.autograd.grad(expected["loss_mask"] + expected["loss_dice"], masks)
    torch.testing.assert_close(a, b)


def test_focal_and_dice_equal_loops():
    x = torch.randn(4, 6, dtype=torch.float64, requires_grad=True)
    t = (torch.rand(4, 6) > 0.6).double()
    for row, (logits, targets) in enumerate(zip(x.tolist(), t.tolist(), strict=True)):
        p = [1 / (1 + torch.tensor(-v, dtype=torch.float64).exp()) for v in logits]
        focal = [
            -0.25 * (1 - q) ** 2 * q.log() if y else -0.75 * q**2 * (1 - q).log()
            for q, y in zip(p, targets, strict=True)
        ]
        torch.testing.assert_close(sigmoid_focal_loss(x, t)[row], torch.stack(focal))
        shared = sum(q * y for q, y in zip(p, targets, strict=True))
        torch.testing.assert_close(dice_loss(x, t)[row], 1 - (2 * shared + 1) / (sum(p) + sum(targets) + 1))
    assert torch.autograd.gradcheck(sigmoid_focal_loss, (x, t))
    assert torch.autograd.gradcheck(dice_loss, (x, t))


def test_focal_loss_without_focus_is_half_the_cross_entropy():
    x, t = torch.randn(20), torch.rand(20)
    expected = F.binary_cross_entropy_with_logits(x, t, reduction="none") / 2
    torch.testing.assert_close(sigmoid_focal_loss(x, t, alpha=0.5, gamma=0.0), expected)
    far = torch.tensor([200.0, -200.0], requires_grad=True)
    loss = sigmoid_focal_loss(far, torch.tensor([0.0, 1.0]))
    loss.sum().backward()
    assert loss.isfinite().all()
    assert far.grad.isfinite().all()


def test_two_empty_masks_are_equal():
    assert dice_loss(torch.full((1, 8), -60.0), torch.zeros(1, 8)).item() < 1e-6
