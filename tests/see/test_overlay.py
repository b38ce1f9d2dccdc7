from __future__ import annotations

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from PIL import Image

from regard.core.errors import BadInput
from regard.see import overlay, overlay_grid
from regard.see.overlay import relative_to_max, relative_to_uniform

PHOTO = np.random.default_rng(0).integers(0, 256, (30, 45, 3), dtype=np.uint8)
HILL = np.outer(np.hanning(6), np.hanning(9))


def test_overlay_is_brightest_where_the_weights_are():
    """Where the map is strong its colour shows, where it is nothing the grey photo does."""
    grey = np.full((40, 40, 3), 200, np.uint8)
    corner = np.zeros((4, 4))
    corner[0, 3] = 1.0
    figure = overlay(grey, corner)
    axes = figure.axes[1]
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    image = np.asarray(canvas.buffer_rgba())[:, :, :3].astype(int)
    box = axes.get_window_extent()
    height = image.shape[0]

    def at(y, x):  # shares of the picture, from its top left
        return image[int(height - box.y1 + y * box.height), int(box.x0 + x * box.width)]

    assert at(0.1, 0.9).sum() > 600  # magma's bright end
    assert at(0.1, 0.9)[0] > at(0.1, 0.9)[2] + 20  # and it is yellowish, not grey
    dark = at(0.8, 0.2)
    assert dark.max() - dark.min() < 12  # grey


def test_grey_rgb_and_rgba_photos_are_accepted(tmp_path):
    for photo in (
        PHOTO,
        PHOTO[:, :, 0],
        PHOTO[:, :, :1],
        Image.fromarray(PHOTO),
        Image.fromarray(PHOTO).convert("RGBA"),
    ):
        overlay(photo, HILL, path=tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


def test_small_maps_share_a_colour_scale():
    figure = overlay_grid(PHOTO, {f"head {h}": HILL * h for h in range(1, 6)}, "title", "caption")
    assert len(figure.axes) == 6  # and a bar
    tops = [axes.images[1].get_array()[..., 3].max() for axes in figure.axes[:5]]
    assert tops == sorted(tops)
    assert tops[0] < tops[-1]


def test_layers_are_rows_and_heads_are_columns():
    rows = [(f"layer {y}", {f"head {x}": HILL for x in range(y + 1)}) for y in range(3)]
    figure = overlay_grid(PHOTO, rows)
    assert len(figure.axes) == 1 + 2 + 3 + 1


def test_the_same_input_gives_the_same_file(tmp_path):
    for name in ("a.svg", "b.svg"):
        overlay_grid(PHOTO, {"one": HILL}, "title", place=(0.5, 0.25), path=tmp_path / name)
    a, b = ((tmp_path / name).read_text("utf-8") for name in ("a.svg", "b.svg"))
    assert len(a) == len(b)


def test_units():
    assert relative_to_uniform(np.full((4, 5), 1 / 20)).max() == pytest.approx(1)
    assert relative_to_uniform(np.full((4, 5), 1 / 24), uniform=1 / 24).max() == pytest.approx(1)
    assert relative_to_max(HILL).max() == 1
    assert relative_to_max(np.zeros((2, 2))).max() == 0


@pytest.mark.parametrize("shape", [(1, 1), (1, 300), (300, 1), (2000, 3)])
def test_photos_of_odd_shapes_can_be_drawn(shape, tmp_path):
    photo = np.zeros((*shape, 3), np.uint8)
    figure = overlay(photo, np.ones((1, 1)), "t" * 300, "c" * 300, place=(0.0, 0.0), path=tmp_path / "a.png")
    assert max(figure.get_size_inches()) < 12


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: overlay(PHOTO.astype(float), HILL), "Expected a uint8 photo"),
        (lambda: overlay(PHOTO[0, 0], HILL), "Expected a uint8 photo"),
        (lambda: overlay(PHOTO[:0], HILL), "Expected a uint8 photo"),
        (lambda: overlay(PHOTO, HILL[0]), "shape Y X, got"),
        (lambda: overlay(PHOTO, HILL * np.nan), "NaN"),
        (lambda: overlay_grid(PHOTO, {}), "Nothing to draw"),
        (lambda: overlay_grid(PHOTO, [("layer 0", {})]), "Nothing to draw"),
    ],
)
def test_invalid_input_raises_a_one_line_error(call, message):
    with pytest.raises(BadInput, match=message) as error:
        call()
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("many", [False, True])
def test_caption_is_wrapped_not_truncated(many):
    caption = "the tokens that the answer is read from, every layer and head; what is pooled is a receptive field"
    if many:
        figure = overlay_grid(PHOTO, {"head 0": HILL}, "a", caption)
    else:
        figure = overlay(PHOTO, HILL, "a", f"{caption} {caption}")
    texts = [text.get_text() for text in figure.texts]
    assert caption in " ".join(texts)
    assert not any("…" in text for text in texts)
    boxes = [text.get_window_extent(FigureCanvasAgg(figure).get_renderer()) for text in figure.texts[-2:]]
    assert boxes[0].y0 >= boxes[1].y1 - 1  # one under the other
    assert min(box.y0 for box in boxes) > max(axes.get_window_extent().y1 for axes in figure.axes)  # above all maps
