"""Datasets in COCO's format: BCCD, folders in the usual layouts, and files with mistakes in them."""

import contextlib
import copy
import io
import json
import re
import shutil

import numpy as np
import pytest
import torch
from PIL import Image

from regard.core.errors import BadInput
from regard.data.images import coco
from regard.data.images.coco import BCCD, COCO
from regard.metrics.average_precision import AveragePrecision
from tests.data.images import needs_data

IMAGES = [
    {"id": 10, "file_name": "a.png", "width": 20, "height": 10},
    {"id": 7, "file_name": "b.png", "width": 6, "height": 9},
]
CATEGORIES = [{"id": 90, "name": "cat"}, {"id": 3, "name": "dog"}]  # gaps, and not in order
SQUARE = [2, 2, 8, 2, 8, 8, 2, 8]


def annotation(number, box, category=90, image=10, **more):
    return {"id": number, "image_id": image, "category_id": category, "bbox": box, **more}


GOOD = {
    "images": IMAGES,
    "categories": CATEGORIES,
    "annotations": [
        annotation(1, [2, 2, 6, 6], segmentation=[SQUARE]),
        annotation(2, [15, -3, 10, 8], 3, segmentation=[SQUARE]),  # over the edge
        annotation(3, [0, 0, 20, 10], iscrowd=1, segmentation={"size": [10, 20], "counts": [50, 100, 50]}),
    ],
}


@pytest.fixture
def write(tmp_path):
    """Write a folder with these annotations and return its path."""

    def make(stored, file="instances_train.json", images="images"):
        (tmp_path / images).mkdir(exist_ok=True, parents=True)
        for each in IMAGES:
            Image.new("RGB", (each["width"], each["height"]), "red").save(tmp_path / images / each["file_name"])
        (tmp_path / file).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / file).write_text(stored if isinstance(stored, str) else json.dumps(stored))
        return str(tmp_path)

    return make


def changed(**more):
    return {**copy.deepcopy(GOOD), **more}


def with_annotation(*args, **more):
    return changed(annotations=[*GOOD["annotations"], annotation(*args, **more)])


def test_category_ids_with_gaps_crowds_clipped_boxes_and_images_without_objects(write):
    data = COCO(path=write(GOOD), masks=True)
    assert data.labels() == ["dog", "cat"]
    batch = data.load("train").collate(torch.arange(2))
    assert batch.counts.tolist() == [3, 0]
    assert batch.classes[0].tolist() == [1, 0, 1]
    assert batch.boxes[0].tolist() == [[2, 2, 8, 8], [15, 0, 20, 5], [0, 0, 20, 10]]
    assert batch.crowd[0].tolist() == [False, False, True]
    assert batch.masks[0].sum((1, 2)).tolist() == [36, 36, 100]
    assert batch.areas[0].tolist() == [36, 36, 100]  # of the masks, as none is annotated
    assert batch.sizes.tolist() == [[10, 20], [9, 6]]


def test_usual_layouts_are_found(write):
    for file, images in (
        ("annotations/instances_train2017.json", "train2017"),
        ("train/_annotations.coco.json", "train"),
        ("train.json", "images"),
    ):
        path = write(GOOD, file, images)
        assert len(COCO(path=path).load("train")) == 2
        shutil.rmtree(path)


def test_objects_without_area_are_left_out_with_a_warning(write, caplog):
    for box in ([5, 5, 0, 3], [5, 5, -2, 3], [30, 2, 4, 4], [-9, 0, 9, 5]):
        caplog.clear()
        split = COCO(path=write(with_annotation(4, box))).load("train")
        assert len(split[0]) == 3
        assert any("1 objects have no area inside their image" in line for line in caplog.messages)


def test_polygons_of_two_points_are_left_out_with_a_warning(write, caplog):
    stored = with_annotation(4, [1, 1, 4, 4], segmentation=[[1, 1, 5, 5]])
    assert len(COCO(path=write(stored), masks=True).load("train")[0]) == 3
    assert any("no polygon of three points" in line for line in caplog.messages)
    assert len(COCO(path=write(stored)).load("train")[0]) == 4, "the box is good"
    mixed = with_annotation(4, [1, 1, 4, 4], segmentation=[[1, 1, 5, 5], SQUARE])
    assert len(COCO(path=write(mixed), masks=True).load("train")[0]) == 4


def test_missing_images_are_left_out_with_a_warning(write, caplog):
    gone = {"id": 8, "file_name": "gone.png", "width": 5, "height": 5}
    split = COCO(path=write(changed(images=[gone, *IMAGES]))).load("train")
    assert len(split) == 2
    assert any("1 of 3 images" in line for line in caplog.messages)
    with pytest.raises(BadInput, match="none of the 1 images"):
        COCO(path=write(changed(images=[gone], annotations=[]))).load("train")
    outside = {**gone, "file_name": "../../secret.png"}
    assert len(COCO(path=write(changed(images=[outside, *IMAGES]))).load("train")) == 2


def test_ten_thousand_boxes_of_one_image(write, monkeypatch):
    many = [annotation(n, [n % 15, n % 7, 2, 2]) for n in range(10_000)]
    path = write(changed(annotations=many))
    batch = COCO(path=path).load("train").collate(torch.tensor([0]))
    assert batch.boxes.shape == (1, 10_000, 4)
    monkeypatch.setattr(coco, "MAX_MASK_BYTES", 599)
    with pytest.raises(BadInput, match=r"3 masks of a\.png take"):
        COCO(path=write(GOOD), masks=True).load("train").collate(torch.tensor([0]))


def test_files_with_mistakes_are_refused(write):
    twice = [*GOOD["annotations"], GOOD["annotations"][0]]
    for stored, message in (
        ("{", "cannot be read as JSON"),
        ("[]", "expected an object"),
        (changed(images=None), "no list of images"),
        (changed(images=[*IMAGES, IMAGES[0]]), "the id 10 occurs twice in 'images'"),
        (changed(annotations=twice), "the id 1 occurs twice in 'annotations'"),
        (changed(categories=[*CATEGORIES, {"id": 3, "name": "cow"}]), "two categories have the id '3'"),
        (changed(categories=[*CATEGORIES, {"id": 4, "name": "cat"}]), "two categories have the name 'cat'"),
        (with_annotation(4, [1, 1, 2, 2], image=99), "annotation 4 is of image 99"),
        (with_annotation(4, [1, 1, 2, 2], 5), "unknown category 5"),
        (with_annotation(4, [1, 1, 2]), "four finite numbers"),
        (with_annotation(4, [1, 1, 2, float("nan")]), "four finite numbers"),
        (changed(annotations=[{"id": 1, "image_id": 10}]), "has no 'bbox'"),
        (with_annotation(4, [1, 1, 2, 2], area=-1), "annotation 4 has the area -1"),
        (with_annotation(4, [1, 1, 2, 2], area="big"), "annotation 4 has the area big"),
    ):
        with pytest.raises(BadInput, match=re.escape(message)):
            COCO(path=write(stored)).load("train")


def test_masks_and_files_of_another_size_are_refused(write):
    wrong = changed(images=[{**IMAGES[0], "width": 21}, IMAGES[1]])
    with pytest.raises(BadInput, match="has 10 x 20 pixels, but"):
        COCO(path=write(wrong)).load("train")[0]
    for shape, message in (
        ({"size": [20, 10], "counts": [200]}, "annotation 4: A mask has the size"),
        ({"size": [10, 20], "counts": [1, 2]}, "annotation 4: Run lengths add up to 3 pixels"),
    ):
        data = COCO(path=write(with_annotation(4, [1, 1, 2, 2], segmentation=shape)), masks=True)
        with pytest.raises(BadInput, match=message):
            data.load("train")[0]


@needs_data("bccd")
def test_bccd_has_its_images_and_boxes():
    data = BCCD(image_size=(240, 320))
    assert data.labels() == ["RBC", "WBC", "Platelets"]
    splits = {part: data.load(part) for part in data.splits()}
    assert {part: len(split) for part, split in splits.items()} == {"train": 205, "val": 87, "test": 72}
    assert sum(len(each) for each in splits["test"].source.annotations.values()) == 945
    batch = splits["train"].collate(torch.tensor([0, 1]))
    assert batch.pixels.shape == (2, 3, 240, 320)
    np.testing.assert_allclose(batch.boxes[0, 0], [34, 157.5, 143, 240])
    assert (batch.boxes[..., 2:] >= batch.boxes[..., :2]).all()


def test_scores_of_a_read_file_are_those_of_pycocotools(write, tmp_path):
    """Gaps in the ids, crowds, images without objects, polygons and packed run lengths: boxes and masks."""
    peer, cocoeval = pytest.importorskip("pycocotools.coco"), pytest.importorskip("pycocotools.cocoeval")
    tools = pytest.importorskip("pycocotools.mask")
    rng = np.random.default_rng(0)
    annotations = []
    for number in range(24):
        image = IMAGES[0] if number < 20 else IMAGES[1]
        left, top = rng.uniform(0, image["width"] / 2), rng.uniform(0, image["height"] / 2)
        wide, high = rng.uniform(2, image["width"] / 2), rng.uniform(2, image["height"] / 2)
        corners = [left, top, left + wide, top, left + wide, top + high, left, top + high]
        packed = tools.merge(tools.frPyObjects([corners], image["height"], image["width"]))
        is_crowd = number % 5 == 0
        shape = {"size": packed["size"], "counts": packed["counts"].decode()} if is_crowd else [corners]
        each = annotation(number + 1, [left, top, wide, high], int(rng.choice([3, 90])), image["id"])
        area = wide * high * [1, 40, 400][number % 3]  # what is annotated counts, not what is drawn: all three ranges
        annotations.append({**each, "segmentation": shape, "iscrowd": int(is_crowd), "area": area})
    empty = {"id": 1, "file_name": "a.png", "width": 20, "height": 10}
    split = COCO(path=write(changed(images=[*IMAGES, empty], annotations=annotations)), masks=True).load("train")

    results, boxes, masks = [], AveragePrecision(), AveragePrecision()
    for i, image in enumerate(split.source.images):
        scene = split[i]
        n, size = 30, scene.size
        corner = rng.uniform(0, 5, (n, 2))
        found = np.concatenate([corner, corner + rng.uniform(1, 10, (n, 2))], 1)
        near = rng.random(n) < 0.6
        if len(scene):
            found[near] = (scene.boxes[rng.integers(len(scene), size=n)] + rng.normal(0, 0.4, (n, 4)))[near]
        found[:, 2:] = np.maximum(found[:, 2:], found[:, :2] + 0.5)
        scores, classes = rng.random(n), rng.integers(2, size=n)
        shapes = rng.random((n, *size)) < 0.5
        if len(scene):
            shapes[near] = scene.masks[rng.integers(len(scene), size=n)][near]
        boxes.update(
            torch.tensor(found), scores, classes, scene.boxes.astype(float), scene.classes, scene.crowd, scene.areas
        )
        masks.update(shapes, scores, classes, scene.masks, scene.classes, scene.crowd, scene.areas)
        for k in range(n):
            left, top, right, bottom = found[k].tolist()
            box = {"bbox": [left, top, right - left, bottom - top]}
            shape = {"segmentation": tools.encode(np.asfortranarray(shapes[k], np.uint8))}
            both = {"image_id": image["id"], "category_id": [3, 90][classes[k]], "score": scores[k]}
            results.append((both | box, both | shape))

    for kind, ours in ((0, boxes), (1, masks)):
        with contextlib.redirect_stdout(io.StringIO()):
            truth = peer.COCO(str(tmp_path / "instances_train.json"))
            evaluation = cocoeval.COCOeval(
                truth, truth.loadRes([each[kind] for each in results]), ("bbox", "segm")[kind]
            )
            evaluation.evaluate()
            evaluation.accumulate()
            evaluation.summarize()
        theirs = dict(zip(ours.compute(), evaluation.stats, strict=True))
        for name in theirs:
            assert ours.compute()[name] == pytest.approx(theirs[name], abs=1e-6), (kind, name)
        assert 0.05 < ours.compute()["ap50"] < 0.95


def test_class_maps_have_the_smaller_object_in_front(tmp_path):
    shapes = {1: [[0, 0, 10, 0, 10, 8, 0, 8]], 2: [[2, 2, 6, 2, 6, 5, 2, 5]], 3: [[0, 6, 4, 6, 4, 8, 0, 8]]}
    stored = {
        "images": [{"id": 1, "file_name": "a.png", "width": 12, "height": 8}],
        "categories": [{"id": 4, "name": "cat"}, {"id": 9, "name": "dog"}],
        "annotations": [
            {"id": n, "image_id": 1, "category_id": category, "bbox": [0, 0, 12, 8], "segmentation": shapes[n], **more}
            for n, category, more in ((2, 9, {}), (1, 4, {}), (3, 4, {"iscrowd": 1}))
        ],
    }
    (tmp_path / "instances_train.json").write_text(json.dumps(stored))
    Image.new("RGB", (12, 8)).save(tmp_path / "a.png")
    data = COCO(path=str(tmp_path), class_maps=True)
    assert data.labels() == ["cat", "dog", "background"]
    scene = data.load("train")[0]
    wanted = np.zeros((8, 12), np.uint8)
    wanted[2:5, 2:6], wanted[6:, :4], wanted[:, 10:] = 1, 255, 2
    np.testing.assert_array_equal(scene.labels, wanted)
    assert scene.masks is None
