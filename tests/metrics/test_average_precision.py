"""AP and AR equal those of pycocotools, on random and adversarial images."""

import contextlib
import io
import math

import numpy as np
import pytest
import torch

from regard.core.errors import BadInput
from regard.metrics.average_precision import DETECTION_METRICS, AveragePrecision
from regard.modalities.box_geometry import xywh_to_corners

coco = pytest.importorskip("pycocotools.coco")
cocoeval = pytest.importorskip("pycocotools.cocoeval")
mask_tools = pytest.importorskip("pycocotools.mask")


def image(boxes=(), scores=(), classes=(), true=(), true_classes=(), crowd=None, areas=None):
    """One image: boxes as left, top, width, height."""
    crowd = np.zeros(len(true_classes), bool) if crowd is None else np.asarray(crowd, bool)
    true = np.asarray(true, float).reshape(-1, 4)
    areas = true[:, 2] * true[:, 3] if areas is None else np.asarray(areas, float)
    return (
        np.asarray(boxes, float).reshape(-1, 4),
        np.asarray(scores, float),
        np.asarray(classes, int),
        true,
        np.asarray(true_classes, int),
        crowd,
        areas,
    )


def rle(mask):
    return mask_tools.encode(np.asfortranarray(mask.astype(np.uint8)))


def scores_of_pycocotools(images, masks=None):
    annotations, results = [], []
    for number, (boxes, scores, classes, true, true_classes, crowd, areas) in enumerate(images):
        for i, name in enumerate(true_classes):
            each = {"id": len(annotations) + 1, "image_id": number, "category_id": int(name), "bbox": true[i].tolist()}
            each |= {"iscrowd": int(crowd[i]), "area": float(areas[i])}
            annotations.append(each | ({"segmentation": rle(masks[number][1][i])} if masks else {}))
        for i, name in enumerate(classes):
            each = {"image_id": number, "category_id": int(name), "score": float(scores[i])}
            results.append(
                each | ({"segmentation": rle(masks[number][0][i])} if masks else {"bbox": boxes[i].tolist()})
            )
    names = {each["category_id"] for each in [*annotations, *results]}
    with contextlib.redirect_stdout(io.StringIO()):
        truth = coco.COCO()
        truth.dataset = {
            "images": [{"id": i, "height": 40, "width": 60} for i in range(len(images))],
            "annotations": annotations,
        }
        truth.dataset |= {"categories": [{"id": name} for name in names]}
        truth.createIndex()
        if results:
            found = truth.loadRes(results)
        else:
            found = coco.COCO()
            found.dataset = truth.dataset | {"annotations": []}
            found.createIndex()
        evaluation = cocoeval.COCOeval(truth, found, "segm" if masks else "bbox")
        evaluation.evaluate()
        evaluation.accumulate()
        evaluation.summarize()
    return evaluation.stats


def ours(images, masks=None):
    metric = AveragePrecision()
    for number, (boxes, scores, classes, true, true_classes, crowd, areas) in enumerate(images):
        regions = masks[number] if masks else [xywh_to_corners(torch.tensor(each)) for each in (boxes, true)]
        metric.update(regions[0], scores, classes, regions[1], true_classes, crowd, areas)
    return metric


def assert_equal(images, masks=None):
    found = ours(images, masks).compute()
    assert list(found) == [metric.key for metric in DETECTION_METRICS]
    theirs = [math.nan if value == -1 else value for value in scores_of_pycocotools(images, masks)]
    np.testing.assert_allclose(list(found.values()), theirs, rtol=0, atol=1e-12)
    return found


def random_image(rng, most_objects=8, most_detections=30, classes=(1, 3, 90), grid=None, size=200.0):
    """Detections near the objects and far from them; on a grid, overlaps and scores are often equal."""
    n = int(rng.integers(most_objects + 1))
    corner = rng.uniform(0, 300, (n, 2))
    true = np.concatenate([corner, rng.uniform(2, size, (n, 2))], 1)
    true_classes = rng.choice(classes, n)
    m = int(rng.integers(most_detections + 1))
    boxes = np.concatenate([rng.uniform(0, 300, (m, 2)), rng.uniform(2, size, (m, 2))], 1)
    labels = rng.choice(classes, m)
    if n:
        near = rng.random(m) < 0.7
        source = rng.integers(n, size=m)
        boxes[near] = (true[source] * rng.uniform(0.85, 1.15, (m, 4)))[near]
        labels[near] = true_classes[source][near]
    scores = rng.random(m)
    if grid:
        true, boxes, scores = np.round(true / grid) * grid, np.round(boxes / grid) * grid, np.round(scores, 1)
    return image(
        boxes, scores, labels, true, true_classes, rng.random(n) < 0.2, true[:, 2] * true[:, 3] * rng.uniform(0.3, 1, n)
    )


def test_random_images():
    for seed in range(12):
        rng = np.random.default_rng(seed)
        assert_equal([random_image(rng, grid=(None, 8, 32)[seed % 3]) for _ in range(8)])


def test_crowded_images_of_one_class_with_ties():
    for seed in range(4):
        rng = np.random.default_rng(seed)
        assert_equal([random_image(rng, 30, 150, classes=(7,), grid=(16, None)[seed % 2], size=90.0) for _ in range(4)])


def test_adversarial_images():
    square, other = (10, 10, 50, 50), (200, 10, 50, 50)
    cases = {
        "nothing at all": [image()],
        "objects, no detections": [image(true=[square], true_classes=[1])],
        "detections, no objects": [image([square], [0.5], [1])],
        "empty image beside a full one": [
            image(),
            image([square], [0.5], [1], [square], [1]),
            image([square], [0.9], [1]),
        ],
        "class without objects": [image([square, other], [0.5, 0.9], [2, 1], [other], [1])],
        "class without detections": [image([square], [0.5], [2], [square, other], [2, 900])],
        "two detections of one object": [image([square] * 2, [0.5, 0.5], [1, 1], [square], [1])],
        "one detection of two equal objects": [image([square], [0.5], [1], [square] * 2, [1, 1])],
        "equal objects of unequal size range": [
            image([square] * 2, [0.5, 0.4], [1, 1], [square] * 2, [1, 1], areas=[500, 5000])
        ],
        "equal overlaps, and the earlier object is free": [
            image([(2, 0, 10, 10), (0, 0, 10, 10)], [0.9, 0.8], [1, 1], [(0, 0, 10, 10), (4, 0, 10, 10)], [1, 1])
        ],
        "equal overlaps, and the later object is taken": [
            image([(2, 0, 10, 10), (4, 0, 10, 10)], [0.9, 0.8], [1, 1], [(0, 0, 10, 10), (4, 0, 10, 10)], [1, 1])
        ],
        "only a crowd": [image([square], [0.5], [1], [square], [1], [True])],
        "many in a crowd": [
            image(
                [(10 + i, 10, 9, 9) for i in range(9)],
                np.arange(9) / 9,
                [1] * 9,
                [(0, 0, 99, 99), other],
                [1, 1],
                [1, 0],
            )
        ],
        "crowd beside an object": [
            image(
                [square, other, square],
                [0.5, 0.9, 0.3],
                [1] * 3,
                [square, square, other],
                [1] * 3,
                [True, False, False],
            )
        ],
        "IoU of exactly 0.5 and 0.75": [
            image([(0, 0, 10, 20), (100, 0, 30, 10)], [0.9, 0.8], [1, 1], [(0, 0, 10, 10), (100, 0, 40, 10)], [1, 1])
        ],
        "zero-area boxes": [
            image(
                [(5, 5, 0, 0), (9, 9, 0, 7), square],
                [0.9, 0.8, 0.7],
                [1] * 3,
                [(5, 5, 0, 0), (9, 9, 0, 7), square],
                [1] * 3,
            )
        ],
        "areas on the borders of the ranges": [
            image([(0, 0, 32, 32), (100, 0, 96, 96)], [0.9, 0.8], [1, 1], [(0, 0, 32, 32), (100, 0, 96, 96)], [1, 1])
        ],
        "boxes outside the image": [image([(-50, -50, 100, 100)], [0.5], [1], [(-40, -50, 100, 100)], [1])],
        "negative and huge scores": [image([square, other], [-3, 1e9], [1, 1], [square, other], [1, 1])],
    }
    for name, images in cases.items():
        try:
            assert_equal(images)
        except AssertionError as error:
            raise AssertionError(name) from error


def test_more_than_100_detections():
    rng = np.random.default_rng(0)
    true = [(i * 40.0, j * 40.0, 30, 30) for i in range(20) for j in range(10)]
    boxes = np.array(true)[rng.permutation(200)] + rng.uniform(-3, 3, (200, 4))
    assert_equal([image(boxes, rng.random(200), [5] * 200, true, [5] * 200), random_image(rng, classes=(5,))])


def test_masks():
    rng = np.random.default_rng(0)
    images, masks = [], []
    for _ in range(6):
        n, m = rng.integers(1, 5), rng.integers(8)
        true, found = np.zeros((n, 40, 60), bool), np.zeros((m, 40, 60), bool)
        for mask in (*true, *found):
            y, x = rng.integers(25), rng.integers(40)
            mask[y : y + rng.integers(5, 35), x : x + rng.integers(5, 50)] = True
            mask &= rng.random((40, 60)) < 0.95
        found[: len(true)] = (true ^ (rng.random(true.shape) < 0.1))[: len(found)]
        images.append(
            image(
                np.zeros((m, 4)),
                rng.random(m),
                rng.choice([1, 4], m),
                np.zeros((n, 4)),
                rng.choice([1, 4], n),
                rng.random(n) < 0.2,
                true.sum((1, 2)),
            )
        )
        masks.append((found, true))
    assert assert_equal(images, masks)["ap"] > 0


def test_ap_of_each_class_has_the_mean_of_all():
    rng = np.random.default_rng(3)
    metric = ours([random_image(rng) for _ in range(6)])
    by_class = metric.compute_by_class()
    assert set(by_class) == {1, 3, 90}
    assert abs(sum(by_class.values()) / 3 - metric.compute()["ap"]) < 1e-12


def test_perfect_detections_score_one():
    boxes = torch.tensor([[0.0, 0, 10, 10], [20, 20, 90, 90]])
    metric = AveragePrecision()
    metric.update(boxes, torch.tensor([0.9, 0.8]), torch.tensor([1, 2]), boxes, torch.tensor([1, 2]))
    found = metric.compute()
    assert found["ap"] == found["ap_small"] == found["ar_100"] == 1
    assert math.isnan(found["ap_large"])


def test_bad_input_is_refused():
    box, none = [[0, 0, 4, 4]], np.zeros((0, 4))
    for arguments, words in [
        (([[4, 0, 0, 4]], [0.5], [1], none, []), "swapped"),
        ((box, [math.nan], [1], none, []), "finite scores"),
        ((box, [0.5, 0.4], [1], none, []), r"expected \(2, 4\)"),
        ((box, [0.5], [1.5], none, []), "integers"),
        ((box, [0.5], [1], box, [1], [True, False]), "2 crowd flags"),
        ((box, [0.5], [1], np.zeros((1, 5, 5), bool), [1]), "boxes or masks"),
    ]:
        with pytest.raises(BadInput, match=words):
            AveragePrecision().update(*arguments)
    with pytest.raises(BadInput, match="nothing to score"):
        AveragePrecision().compute()
