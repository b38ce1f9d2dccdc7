import math
import warnings

import numpy as np
import pytest
import torch

from regard.core.errors import BadInput
from regard.metrics.panoptic_quality import PANOPTIC_METRICS, PanopticQuality

THINGS, STUFF = (3, 7), (11, 12)


def scores_by_loop(images):
    """PQ, SQ and RQ of every class, one pair of segments after another, as the paper and COCO's task define them."""
    sums = {}
    for segments, classes, true_segments, true_classes, crowd in images:
        masks, true = ({i: m == i for i in k} for m, k in ((segments, classes), (true_segments, true_classes)))
        void, hit, true_hit = true_segments == 0, set(), set()
        for j, b in true.items():
            for i, a in masks.items():
                union = ((a & ~void) | b).sum()
                if j not in crowd and classes[i] == true_classes[j] and (a & b).sum() / union > 0.5:
                    each = sums.setdefault(classes[i], [0.0, 0, 0, 0])
                    each[0] += (a & b).sum() / union
                    each[1] += 1
                    hit.add(i)
                    true_hit.add(j)
        for i in masks.keys() - hit:
            free = void.copy()
            for j in crowd:
                free |= true[j] & (true_classes[j] == classes[i])
            if (masks[i] & free).sum() <= 0.5 * masks[i].sum():
                sums.setdefault(classes[i], [0.0, 0, 0, 0])[2] += 1
        for j in true.keys() - true_hit - set(crowd):
            sums.setdefault(true_classes[j], [0.0, 0, 0, 0])[3] += 1
    found = {}
    for name, (iou, tp, fp, fn) in sums.items():
        found[name] = {"pq": iou / (tp + (fp + fn) / 2), "sq": iou / max(tp, 1), "rq": tp / (tp + (fp + fn) / 2)}
    return found


def random_segments(rng, void, size=(14, 17)):
    """A map of rectangles with a class each; stuff has one segment per class. Numbers are large, as in PNG files."""
    segments, classes = np.zeros(size, int), {}
    names = [*STUFF, *rng.choice(THINGS, 4).tolist()]
    for number, name in zip(rng.choice(70_000, len(names), replace=False) + 1, names, strict=True):
        y, x = rng.integers(10), rng.integers(12)
        segments[y : y + rng.integers(4, 14), x : x + rng.integers(4, 17)] = number
        classes[int(number)] = name
    if not void:
        segments[segments == 0] = min(classes, key=lambda i: classes[i] != STUFF[0])
    return segments, {i: name for i, name in classes.items() if (segments == i).any()}


def random_image(rng, void=True):
    true, true_classes = random_segments(rng, void)
    if rng.random() < 0.2:
        found, classes = random_segments(rng, void)
    else:  # the truth, shifted and in part given to others
        found = np.roll(true, rng.integers(-1, 2, 2), (0, 1))
        ids = np.unique(found[found > 0])
        names = (*THINGS, *STUFF)
        classes = {int(i): true_classes[int(i)] if rng.random() < 0.8 else int(rng.choice(names)) for i in ids}
    things = [i for i, name in true_classes.items() if name in THINGS]
    crowd = [i for i in things if rng.random() < 0.2]
    return found, classes, true, true_classes, crowd


def merge_stuff(segments, classes):
    """The same with one segment per stuff class."""
    segments, first = segments.copy(), {}
    for i, name in classes.items():
        if name in STUFF:
            segments[segments == i] = first.setdefault(name, i)
    return segments, {i: name for i, name in classes.items() if name not in STUFF or first[name] == i}


def test_random_images_equal_a_loop_written_from_the_paper():
    for seed in range(20):
        rng = np.random.default_rng(seed)
        images = [random_image(rng) for _ in range(4)]
        metric = PanopticQuality(STUFF)
        for each in images:
            metric.update(*each)
        merged = [(*merge_stuff(*each[:2]), *merge_stuff(*each[2:4]), each[4]) for each in images]
        expected, found = scores_by_loop(merged), metric.compute_by_class()
        assert found.keys() == expected.keys()
        for name, values in expected.items():
            assert found[name] == pytest.approx(values, abs=1e-12), (seed, name)
        means = metric.compute()
        assert list(means) == [each.key for each in PANOPTIC_METRICS]
        for kind, names in (
            ("", expected),
            ("_things", set(expected) & set(THINGS)),
            ("_stuff", set(expected) & set(STUFF)),
        ):
            for key in ("pq", "sq", "rq"):
                assert means[key + kind] == pytest.approx(np.mean([expected[name][key] for name in names]))


def test_without_crowds_and_predicted_void_it_equals_torchmetrics():
    # Torchmetrics has no crowds, and leaves predicted void pixels out too, which COCO's rule does not.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        detection = pytest.importorskip("torchmetrics.detection")
    for seed in range(6):
        rng = np.random.default_rng(seed)
        ours = PanopticQuality(STUFF)
        theirs = detection.PanopticQuality(
            set(THINGS), set(STUFF), allow_unknown_preds_category=False, return_sq_and_rq=True
        )
        for _ in range(3):
            found, classes = random_segments(rng, void=False)
            true, true_classes = random_segments(rng, void=seed % 2 == 0)
            if rng.random() < 0.6:
                true, true_classes = np.roll(found, 1, 0), classes
                if seed % 2 == 0:
                    true[:3, :5] = 0
                    true_classes = {i: name for i, name in classes.items() if (true == i).any()}
            ours.update(found, classes, true, true_classes)
            pairs = [(found, classes), (true, true_classes | {0: 999})]
            theirs.update(*(torch.tensor([[[k[i], i] for i in row] for row in m.tolist()])[None] for m, k in pairs))
        found = ours.compute()
        assert [found[key] for key in ("pq", "sq", "rq")] == pytest.approx(theirs.compute().tolist(), abs=1e-6)


def test_perfect_and_hopeless():
    segments = np.array([[1, 1, 2], [1, 1, 2]])
    metric = PanopticQuality()
    metric.update(segments, {1: 5, 2: 6}, segments, {1: 5, 2: 6})
    assert metric.compute()["pq"] == 1
    assert math.isnan(metric.compute()["pq_stuff"])
    metric = PanopticQuality()
    metric.update(np.zeros((2, 3), int), {}, segments, {1: 5, 2: 6})
    assert metric.compute()["pq"] == 0


def test_bad_input_is_refused():
    ones = np.ones((2, 2), int)
    for arguments, words in [
        ((ones, {1: 5}, np.ones((2, 3), int), {1: 5}), "shapes"),
        ((ones, {}, ones, {1: 5}), "Segment 1 has no class"),
        ((ones, {1: 5, 4: 5}, ones, {1: 5}), "Segment 4 has a class but no pixels"),
        ((ones, {0: 5, 1: 5}, ones, {1: 5}), "0 is void"),
        ((ones, {1: 5}, ones, {1: 5}, [9]), r"\[9\]"),
    ]:
        with pytest.raises(BadInput, match=words):
            PanopticQuality().update(*arguments)
    with pytest.raises(BadInput, match="nothing to score"):
        PanopticQuality().compute()
