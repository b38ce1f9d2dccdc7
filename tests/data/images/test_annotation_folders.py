"""Folders in the formats of VOC and YOLO, and folders of masks."""

import numpy as np
import pytest
import torch
from PIL import Image

from regard.core.errors import BadInput
from regard.data.images.mask_folder import MaskFolder
from regard.data.images.scene_batch import VOID
from regard.data.images.voc import VOC
from regard.data.images.yolo import YOLO, class_names

OBJECT = (
    "<object><name>{}</name>{}<bndbox><xmin>{}</xmin><ymin>{}</ymin><xmax>{}</xmax><ymax>{}</ymax></bndbox></object>"
)


def write(folder, files):
    """Write texts, and images given by (columns, rows)."""
    for name, content in files.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, str):
            file.write_text(content)
        elif isinstance(content, tuple):
            Image.new("RGB", content, "blue").save(file)
        else:
            content.save(file)
    return str(folder)


def voc(folder, *objects, **more):
    files = {
        "ImageSets/Main/train.txt": "one\ntwo\n",
        "JPEGImages/one.jpg": (20, 10),
        "JPEGImages/two.png": (8, 8),
        "Annotations/one.xml": f"<annotation>{''.join(objects)}</annotation>",
        "Annotations/two.xml": "<annotation/>",
    }
    return VOC(path=write(folder, files | more))


def test_voc_boxes_begin_at_one_and_difficult_objects_are_crowds(tmp_path):
    data = voc(
        tmp_path,
        OBJECT.format("dog", "", 3, 2, 8, 10),
        OBJECT.format("cat", "<difficult>1</difficult>", 1, 1, 25, 5),
    )
    assert data.labels() == ["cat", "dog"]
    batch = data.load("train").collate(torch.arange(2))
    assert batch.counts.tolist() == [2, 0]
    assert batch.classes[0].tolist() == [1, 0]
    assert batch.boxes[0].tolist() == [[2, 1, 8, 10], [0, 0, 20, 5]]
    assert batch.crowd[0].tolist() == [False, True]


def test_voc_objects_outside_are_left_out_with_a_warning(tmp_path, caplog):
    data = voc(tmp_path, OBJECT.format("dog", "", 30, 2, 38, 9), OBJECT.format("dog", "", 5, 5, 4, 9))
    assert len(data.load("train")[0]) == 0
    assert any("2 objects have no area" in line for line in caplog.messages)


def test_voc_mistakes_are_refused(tmp_path):
    for number, (objects, message, more) in enumerate((
        (["<object>"], "cannot be read as an annotation", {}),
        ([OBJECT.format("dog", "", "a", 1, 2, 2)], "could not convert", {}),
        ([OBJECT.format("dog", "", "nan", 1, 2, 2)], "not finite", {}),
        ([OBJECT.format(" ", "", 1, 1, 2, 2)], "no name", {}),
        ([], "occurs twice", {"ImageSets/Main/train.txt": "one\none\n"}),
        ([], "three.xml", {"ImageSets/Main/train.txt": "three\n"}),
    )):  # fmt: skip
        with pytest.raises(BadInput, match=message):
            voc(tmp_path / str(number), *objects, **more).load("train")
    data = voc(tmp_path / "val", **{
        "ImageSets/Main/val.txt": "new", "JPEGImages/new.jpg": (4, 4),
        "Annotations/new.xml": f"<annotation>{OBJECT.format('cow', '', 1, 1, 2, 2)}</annotation>",
    })  # fmt: skip
    with pytest.raises(BadInput, match="'cow' occurs in the split 'val'"):
        data.load("val")
    (tmp_path / "val" / "JPEGImages" / "one.jpg").unlink()
    with pytest.raises(BadInput, match=r"has no file 'one\.jpg'"):
        data.load("train")[0]
    with pytest.raises(BadInput, match=r"no train\.txt"):
        VOC(path=str(tmp_path)).load("train")


def yolo(folder, text, **more):
    files = {
        "images/train/a.jpg": (20, 10),
        "images/train/b.jpg": (6, 6),
        "labels/train/a.txt": text,
        "classes.txt": "cat\ndog\n",
    }
    return write(folder, files | more)


def test_yolo_boxes_and_polygons(tmp_path):
    path = yolo(tmp_path, "1 0.5 0.5 0.2 0.4\n0 0.1 0.2 0.4 0.2 0.4 0.8 0.1 0.8\n\n")
    batch = YOLO(path=path).load("train").collate(torch.arange(2))
    assert batch.counts.tolist() == [2, 0]
    assert batch.classes[0].tolist() == [1, 0]
    np.testing.assert_allclose(batch.boxes[0], [[8, 3, 12, 7], [2, 2, 8, 8]], rtol=1e-6)
    path = yolo(tmp_path, "0 0.1 0.2 0.4 0.2 0.4 0.8 0.1 0.8\n")
    masks = YOLO(path=path, masks=True).load("train")[0].masks
    assert masks.sum() == 36
    assert masks[0, 2:8, 2:8].all()


def test_yolo_splits_are_found_in_either_layout(tmp_path):
    path = write(tmp_path, {
        "train/images/a.png": (4, 4), "train/labels/a.txt": "0 .5 .5 1 1",
        "valid/images/b.png": (4, 4), "valid/labels/b.txt": "", "data.yaml": "nc: 1\nnames: ['cell']\n",
    })  # fmt: skip
    data = YOLO(path=path)
    assert data.splits() == ["train", "val"]
    assert data.labels() == ["cell"]
    assert len(data.load("train")[0]) == 1
    assert len(data.load("val")[0]) == 0


def test_names_in_yaml(tmp_path):
    for text in ("names: [a, 'b c']\n", "names:\n  - a\n  - b c  # two words\nnc: 2\n", "names:\n  1: b c\n  0: a\n"):
        (tmp_path / "data.yaml").write_text(f"path: x\n{text}")
        assert class_names(tmp_path) == ["a", "b c"]
    (tmp_path / "data.yaml").write_text("names:\n  0: a\n  2: b\n")
    with pytest.raises(BadInput, match="0 to 1, each once"):
        class_names(tmp_path)
    (tmp_path / "data.yaml").unlink()
    with pytest.raises(BadInput, match=r"no classes\.txt"):
        class_names(tmp_path)


def test_yolo_mistakes_are_refused(tmp_path):
    for text, message in (
        ("cat 0 0 1 1", "expected a class and numbers"),
        ("2 0.5 0.5 1 1", "class 2, but there are 2 names"),
        ("0 0.5 0.5 1", "expected 4 numbers"),
        ("0 0.5 0.5 1 nan", "expected 4 numbers"),
        ("0 0 0 1 1 0", "expected 4 numbers"),
    ):
        with pytest.raises(BadInput, match=message):
            YOLO(path=yolo(tmp_path, text)).load("train")
    with pytest.raises(BadInput, match="a box has no mask"):
        YOLO(path=yolo(tmp_path, "0 .5 .5 1 1"), masks=True).load("train")
    with pytest.raises(BadInput, match="neither images/train"):
        YOLO(path=str(tmp_path / "labels")).load("train")


def mask(values, mode="L"):
    image = Image.fromarray(np.array(values, np.uint8))
    if mode == "P":
        image.putpalette([0] * 768)
    return image


def test_mask_folder_reads_grey_and_palette_masks(tmp_path):
    values = [[0, 1, 2], [255, 0, 1]]
    path = write(tmp_path, {
        "train/images/a.png": (3, 2), "train/masks/a.png": mask(values),
        "train/images/b.jpg": (3, 2), "train/masks/b.png": mask(values, "P"), "classes.txt": "x\ny\nz\n",
    })  # fmt: skip
    data = MaskFolder(path=path)
    batch = data.load("train").collate(torch.arange(2))
    assert batch.labels.tolist() == [values, values]
    assert batch.labels[0, 1, 0] == VOID
    assert data.things() == []


def test_mask_folder_mistakes_are_refused(tmp_path):
    for number, (content, message) in enumerate((
        (mask([[0, 1]]), "has 1 x 2 pixels, its image 2 x 3"),
        (mask([[0, 1, 3], [0, 0, 0]]), "has the class 3; expected 0 to 2, or 255"),
        ((3, 2), "has 3 channels; expected one"),
        ("no image", "cannot be read as a map of numbers"),
    )):  # fmt: skip
        files = {"train/images/a.png": (3, 2), "train/masks/a.png": content, "classes.txt": "x\ny\nz\n"}
        with pytest.raises(BadInput, match=message):
            MaskFolder(path=write(tmp_path / str(number), files)).load("train")[0]
    (tmp_path / "0" / "train" / "masks" / "a.png").unlink()
    with pytest.raises(BadInput, match=r"has no a\.png, the mask"):
        MaskFolder(path=str(tmp_path / "0")).load("train")
