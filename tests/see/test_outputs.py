"""Outputs over their picture: where each kind is drawn, and what has no drawing."""

from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from regard.core.errors import Unsupported
from regard.interpret.figures.output import OutputFigure
from regard.modalities import Boxes, Classes, Depth, GeneratedImage, Masks, Text
from regard.modalities.boxes import Box
from regard.modalities.masks import Mask
from regard.see.outputs import COLORS, can_draw, draw_output, label_colors

WIDTH, HEIGHT = 60, 40
GREY = 90


@pytest.fixture
def photo():
    return Image.new("RGB", (WIDTH, HEIGHT), (GREY, GREY, GREY))


def drawn(path):
    return np.asarray(Image.open(path).convert("RGB")).astype(int)


def at(pixels, x, y):
    """The colour at a place of the picture, in its pixels; a title stands above it."""
    scale = pixels.shape[1] / WIDTH
    title = pixels.shape[0] - round(HEIGHT * scale)
    return pixels[min(pixels.shape[0] - 1, round(title + y * scale)), min(pixels.shape[1] - 1, round(x * scale))]


def rgb(label, *others):
    return np.array([int(label_colors([label, *others])[label][k : k + 2], 16) for k in (1, 3, 5)])


def is_close(color, wanted, within=25):
    return bool(np.abs(color - wanted).max() <= within)


@pytest.mark.parametrize("title", ["", "street.jpg"])
def test_box_is_a_frame_with_its_label(photo, tmp_path, title):
    draw_output(photo, Boxes((Box(10, 10, 30, 30, "cup", 0.9),), WIDTH, HEIGHT), title, tmp_path / "boxes.png")
    pixels = drawn(tmp_path / "boxes.png")
    for x, y in ((10, 25), (30, 20), (20, 30)):
        assert is_close(at(pixels, x, y), rgb("cup"))
    assert is_close(at(pixels, 20, 25), GREY)
    assert is_close(at(pixels, 45, 20), GREY)


def test_most_certain_box_is_on_top(photo, tmp_path):
    boxes = (Box(10, 10, 30, 30, "cup", 0.9), Box(10, 10, 30, 30, "cat", 0.2))
    draw_output(photo, Boxes(boxes, WIDTH, HEIGHT), path=tmp_path / "boxes.png")
    assert is_close(at(drawn(tmp_path / "boxes.png"), 30, 20), rgb("cup", "cat"))


def test_mask_is_translucent(photo, tmp_path):
    mask = np.zeros((HEIGHT, WIDTH), bool)
    mask[20:40, 30:60] = True
    draw_output(photo, Masks((Mask(mask, "cup"),), WIDTH, HEIGHT), path=tmp_path / "masks.png")
    pixels = drawn(tmp_path / "masks.png")
    assert is_close(at(pixels, 35, 38), (rgb("cup") + GREY) / 2)
    assert is_close(at(pixels, 5, 5), GREY)
    assert is_close(at(pixels, 35, 15), GREY)


def test_depth_covers_the_picture_with_near_and_far_apart(photo, tmp_path):
    ramp = np.tile(np.linspace(1, 5, WIDTH), (HEIGHT, 1))
    ramp[30:, :20] = np.nan
    draw_output(photo, Depth(ramp, metric=True), path=tmp_path / "depth.png")
    pixels = drawn(tmp_path / "depth.png")
    assert at(pixels, 2, 10).sum() > at(pixels, 45, 10).sum() + 200
    assert is_close(at(pixels, 5, 36), GREY)  # unknown: the picture itself


def test_classes_are_listed_on_the_picture(photo, tmp_path):
    draw_output(photo, Classes.rank(["cat", "cup"], [0.25, 0.75]), path=tmp_path / "classes.png")
    draw_output(photo, Boxes((), WIDTH, HEIGHT), path=tmp_path / "nothing.png")
    listed, empty = drawn(tmp_path / "classes.png"), drawn(tmp_path / "nothing.png")
    assert listed.shape == empty.shape
    assert is_close(empty.reshape(-1, 3).mean(0), GREY)
    assert at(listed, 0, 0).min() > 200
    assert is_close(at(listed, 50, 35), GREY)


def test_vector_files_hold_the_labels_as_text(photo, tmp_path):
    draw_output(photo, Boxes((Box(10, 10, 30, 30, "cup", 0.9),), WIDTH, HEIGHT), "street.jpg", tmp_path / "boxes.svg")
    text = (tmp_path / "boxes.svg").read_text()
    assert "cup 90 %" in text
    assert "street.jpg" in text


def test_picture_keeps_its_shape_whatever_it_is(tmp_path):
    for size in ((500, 20), (20, 500), (3, 3)):
        boxes = Boxes((Box(0, 0, *size, "a long label for a small picture", 1.0),), *size)
        draw_output(np.zeros((size[1], size[0], 3), np.uint8), boxes, path=tmp_path / "box.png")
        high, wide = drawn(tmp_path / "box.png").shape[:2]
        assert wide / high == pytest.approx(size[0] / size[1], rel=0.05)


def test_labels_of_one_output_have_distinct_colours_that_do_not_depend_on_their_order():
    labels = [f"label {n}" for n in range(20)]
    assert len(set(label_colors(labels).values())) == 20
    assert label_colors(labels) == label_colors([*reversed(labels), "label 3"])
    assert len(set(COLORS)) == len(COLORS)


def test_what_has_no_drawing_says_so(photo, tmp_path):
    assert not can_draw(Text("two dogs"))
    with pytest.raises(Unsupported, match="no drawing of text over a picture; there is one of boxes, masks"):
        draw_output(photo, Text("two dogs"))
    heard = SimpleNamespace(item=np.zeros(8000), prediction=Classes("dog", 0.9, {"dog": 0.9}))
    with pytest.raises(
        Unsupported, match="no drawing of classes without a picture to draw over; the answer is printed"
    ):
        OutputFigure.save(SimpleNamespace(inspection=heard), tmp_path / "x.png")


def test_an_enlarged_picture_covers_the_small_one(photo, tmp_path):
    pixels = np.zeros((HEIGHT * 2, WIDTH * 2, 3), np.uint8)
    pixels[:, WIDTH:] = (250, 10, 60)
    draw_output(photo, GeneratedImage(pixels), path=tmp_path / "large.png")
    found = drawn(tmp_path / "large.png")
    assert is_close(at(found, 10, 20), (0, 0, 0))
    assert is_close(at(found, 50, 20), (250, 10, 60))
