"""Whatever picture is put in: an answer about the whole picture, or one clear sentence."""

import io

import numpy as np
import pytest
from PIL import Image

from regard.core.errors import BadInput
from regard.modalities.boxes import Boxes
from regard.modalities.depth import Depth
from regard.modalities.masks import Masks
from tests.contracts.test_predictors import predictor

QUESTION = "What colour is the bag?"
MODELS = (
    *("captioning", "visual_question_answering", "glimpse_classification", "object_detection"),
    *("panoptic_segmentation", "semantic_segmentation", "depth_estimation"),
)


def file(image, kind="PNG", **settings):
    made = io.BytesIO()
    image.save(made, kind, **settings)
    return made.getvalue()


def noise(columns, rows, mode="RGB"):
    pixels = np.random.default_rng(0).integers(0, 256, (rows, columns, 3), dtype=np.uint8)
    return Image.fromarray(pixels).convert(mode)


def animation():
    frames = [noise(20, 14), noise(20, 14).transpose(Image.Transpose.ROTATE_180)]
    return file(frames[0], "GIF", save_all=True, append_images=frames[1:])


GOOD = {  # name -> file, columns, rows
    "grey": (file(noise(21, 15, "L")), 21, 15),
    "black and white": (file(noise(21, 15, "1")), 21, 15),
    "transparent": (file(noise(21, 15, "RGBA")), 21, 15),
    "16 bits": (file(Image.fromarray(np.arange(20 * 15, dtype=np.uint16).reshape(15, 20) * 200)), 20, 15),
    "print colours": (file(noise(21, 15, "CMYK"), "JPEG"), 21, 15),
    "one pixel": (file(noise(1, 1)), 1, 1),
    "thin": (file(noise(60, 2)), 60, 2),
    "huge": (file(Image.new("RGB", (3000, 2000), "teal"), "JPEG", quality=20), 3000, 2000),
    "animated": (animation(), 20, 14),
}
BAD = {
    "empty": b"",
    "text": b"no picture at all",
    "cut off": file(noise(40, 40), "JPEG")[:300],
    "damaged": file(noise(40, 40))[:60] + bytes(100),
}


@pytest.mark.parametrize("name", MODELS)
def test_every_picture_gets_an_answer_and_what_is_none_one_sentence(name):
    found = predictor(name)
    is_asked = "question" in found.inputs
    for what, (picture, columns, rows) in GOOD.items():
        if what == "huge" and name == "semantic_segmentation":
            continue  # thousands of windows of the tiny model's size; test_semantic_segmentation has the limit
        answer = found(picture, QUESTION) if is_asked else found(picture)
        if isinstance(answer, (Boxes, Masks)):
            assert (answer.width, answer.height) == (columns, rows), what
        if isinstance(answer, Depth):
            assert answer.values.shape == (rows, columns), what
            assert np.isfinite(answer.values).all(), what
    for what, picture in BAD.items():
        with pytest.raises(BadInput) as raised:
            found(picture, QUESTION) if is_asked else found(picture)
        assert "\n" not in str(raised.value), what


def test_an_animation_is_its_first_picture():
    caption = predictor("captioning")
    first = file(Image.open(io.BytesIO(animation())).convert("RGB"))
    assert caption(animation()).score == pytest.approx(caption(first).score)
