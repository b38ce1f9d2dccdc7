"""What all datasets of scenes share: settings, resizing, memory, files."""

import zipfile
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from PIL import Image

from regard.core import config
from regard.core.errors import BadInput
from regard.core.spec import resolve
from regard.data import DATA
from regard.data.batching import StreamPosition
from regard.data.images import scene_dataset
from regard.data.images.scene_batch import Scene, mask_boxes
from regard.data.images.scene_dataset import ImageFiles, SceneDataset, clip_objects, resize_scene

SCENES = ("camvid", "bccd", "scenes", "rendered_depth", "middlebury", "coco", "voc", "yolo", "mask_folder")


@dataclass(frozen=True)
class Squares(SceneDataset):
    """Five images, each with a square of its number's size; counts how often each was made."""

    def labels(self):
        return ["square"]

    def source(self, part):
        return Source()


class Source:
    def __init__(self):
        self.made = []

    def __len__(self):
        return 5

    def __getitem__(self, i):
        self.made.append(i)
        mask = np.zeros((1, 12, 8 + i), bool)
        mask[0, : i + 1, : i + 1] = True
        labels = np.where(mask[0], 1, 0).astype(np.uint8)
        pixels = np.repeat(200 * mask, 3, 0).astype(np.uint8)
        return Scene(pixels, np.zeros(1, int), mask_boxes(mask), np.zeros(1, bool), mask, labels)

    def contents(self):
        yield np.zeros(1)


def test_settings_survive_json_and_the_command_line():
    for name in SCENES:
        cls = resolve(DATA, name, "data")
        for settings in (cls(), cls().quick()):
            assert config.from_dict(cls, config.to_dict(settings)) == settings
            assert issubclass(cls, SceneDataset)
    changed = config.override(resolve(DATA, "camvid", "data")(), ["image_size=(48, 64)", "annotations=panoptic"])
    assert changed.image_size == (48, 64)


def test_scenes_are_read_once_and_come_back_whole(monkeypatch):
    split = Squares().load("train")
    first = [split[i] for i in range(5)]
    again = [split[i] for i in range(5)]
    assert split.source.made == [*range(5)]
    for one, other in zip(first, again, strict=True):
        for name in ("pixels", "boxes", "masks", "labels"):
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
        assert other.masks.dtype == bool
    monkeypatch.setattr(scene_dataset, "MAX_CACHED_BYTES", 100)
    split = Squares().load("train")
    assert [len(split[0]) for _ in range(2)] == [1, 1]
    assert split.source.made == [0, 0], "too large to keep"


def test_training_stream_pads_to_the_largest_or_to_the_canvas():
    split = Squares(batch_size=2).load("train")
    items = split.stream(seed=0).start(StreamPosition())
    for _ in range(4):
        item = next(items)
        assert item.batch.pixels.shape[-1] == int(item.batch.sizes[:, 1].max())
    split = Squares(batch_size=2, image_size=24).load("train")
    batch = next(split.stream(seed=0).start(StreamPosition())).batch
    assert batch.pixels.shape == (2, 3, 24, 24)
    assert (batch.sizes.max(1).values == 24).all()
    assert len(Squares(limit=3).load("val")) == 3


def test_resizing_moves_everything_together():
    rng = np.random.default_rng(0)
    mask = np.zeros((2, 20, 30), bool)
    mask[0, 4:12, 6:18] = True
    mask[1, 0, 0] = True  # vanishes
    labels = mask[0].astype(np.uint8)
    depth = np.where(mask[0], 2.0, np.nan).astype(np.float32)
    pixels = np.broadcast_to(200 * mask[0], (3, 20, 30)).astype(np.uint8)
    whole = Scene(pixels, np.array([3, 4]), mask_boxes(mask), np.array([True, False]), mask, labels, depth)
    half = resize_scene(whole, (10, 100))
    assert half.size == (10, 15)
    assert half.classes.tolist() == [3]
    assert half.crowd.tolist() == [True]
    assert half.boxes.tolist() == [[3, 2, 9, 6]] == mask_boxes(half.masks).tolist()
    np.testing.assert_array_equal(half.masks[0], half.labels == 1)
    np.testing.assert_array_equal(half.masks[0], np.isfinite(half.depth))
    assert (half.pixels[:, 2:6, 3:9].astype(int) > 100).all()
    assert resize_scene(whole, (20, 30)) is whole
    for size in rng.integers(1, 90, (20, 2)):
        assert (resize_scene(whole, tuple(size.tolist())).size <= size).all()


def test_boxes_outside_are_clipped_or_dropped(caplog):
    boxes = np.array([[-3, 2, 5, 5], [1, 1, 1, 4], [9, 9, 20, 20], [10, 0, 12, 3]], np.float32)
    scene = Scene(np.zeros((3, 10, 10), np.uint8), np.arange(4), boxes, np.zeros(4, bool))
    found = clip_objects(scene, "photo")
    assert found.boxes.tolist() == [[0, 2, 5, 5], [9, 9, 10, 10]]
    assert found.classes.tolist() == [0, 2]
    assert any("photo: 2 objects have no area" in line for line in caplog.messages)


def test_image_files_of_folders_and_archives(tmp_path):
    (tmp_path / "some" / "deep").mkdir(parents=True)
    file = tmp_path / "some" / "deep" / "a.png"
    Image.new("RGB", (5, 4), "red").save(file)
    with zipfile.ZipFile(tmp_path / "some.zip", "w") as archive:
        archive.write(file, "deep/a.png")
    for files in (ImageFiles(tmp_path / "some"), ImageFiles(tmp_path / "some.zip")):
        assert files.names() == ["deep/a.png"]
        assert files.pixels("deep/a.png").shape == (3, 4, 5)
        assert len([*files.contents(["deep/a.png"])]) == 2
        with pytest.raises(BadInput, match="has no file 'b'"):
            files.read("b")
        assert "../some/deep/a.png" not in files
    (tmp_path / "bad.zip").write_bytes(b"no archive")
    for name, message in (("bad.zip", "cannot be read as a zip"), ("gone", "there is no folder or zip")):
        with pytest.raises(BadInput, match=message):
            ImageFiles(tmp_path / name)
    file.write_bytes(b"no image")
    with pytest.raises(BadInput, match=r"deep/a\.png in"):
        ImageFiles(tmp_path / "some").pixels("deep/a.png")


def test_empty_split_is_refused(monkeypatch):
    monkeypatch.setattr(Source, "__len__", lambda self: 0)
    with pytest.raises(BadInput, match="has no image"):
        Squares().load("train")


def test_row_numbers_alone_decide_a_batch():
    one, other = (Squares().load("train") for _ in range(2))
    for a, b in zip(one.collate(torch.tensor([4, 1])), other.collate(torch.tensor([4, 1])), strict=True):
        torch.testing.assert_close(a, b, equal_nan=True)
