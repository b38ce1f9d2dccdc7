"""Any predictor on the explorer's page: controls made from its declaration, its output drawn by kind."""

import io
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pytest
import torch
from PIL import Image as PIL
from torch import nn

from regard.core.config import field
from regard.modalities import Boxes, Classes, Depth, Embedding, GeneratedImage, Image, Masks, Number, Preprocess, Text
from regard.modalities.boxes import Box
from regard.modalities.masks import Mask
from regard.modalities.neighbors import Neighbors, WordNeighbor
from regard.see.outputs import label_colors
from regard.tasks.predictor import Predictor
from tests.stories.own_task import imported

from .conftest import WIDE, Page

WIDTH, HEIGHT = 60, 40


@dataclass(frozen=True)
class Options:
    """One option of each type."""

    min_score: float = field(0.0, low=0, high=1, help="leave out what has a lower score")
    corner: Literal["left", "right"] = "left"
    outline: bool = False


class Fixed(Predictor):
    """A predictor without attention that returns a fixed output."""

    inputs = {"image": Image}  # noqa: RUF012

    def __init__(self):
        self.model = nn.Linear(1, 1)


class Detects(Fixed):
    outputs, options = Boxes, Options

    def predict(self, batch, options):
        left = 0 if options.corner == "left" else 30
        boxes = (Box(left, 10, left + 20, 30, "cup", 0.9), Box(40, 5, 55, 20, "cat", 0.4))
        return [Boxes(boxes, each.width, each.height).above(options.min_score) for each in batch]


class Segments(Fixed):
    outputs = Masks

    def predict(self, batch, options):
        pixels = np.zeros((HEIGHT, WIDTH), bool)
        pixels[10:30, 0:20] = True
        return [Masks((Mask(pixels, "cup", 0.8),), WIDTH, HEIGHT) for _ in batch]


class Measures(Fixed):
    outputs = Depth

    def predict(self, batch, options):
        return [Depth(np.tile(np.linspace(1, 5, WIDTH), (HEIGHT, 1)), metric=True) for _ in batch]


class Classifies(Fixed):
    outputs = Classes

    def predict(self, batch, options):
        return [Classes.rank(["cat", "cup"], [0.25, 0.75]) for _ in batch]


class Compares(Fixed):
    """Two inputs: an image and a text."""

    inputs = {"image": Image, "question": Text}  # noqa: RUF012
    outputs = Text

    def predict(self, batch, options):
        return [Text(f"{each['question']} {each['image'].width} x {each['image'].height}") for each in batch]


class Embeds(Fixed):
    inputs = {"text": Text}  # noqa: RUF012
    outputs, examples = Embedding, ("Two dogs.",)

    def predict(self, batch, options):
        return [Embedding(np.arange(3.0)) for _ in batch]


class Sums(Fixed):
    """The neighbours of a sum of words."""

    inputs = {"text": Text}  # noqa: RUF012
    outputs, examples = Neighbors, ("king - man + woman",)

    def predict(self, batch, options):
        near = WordNeighbor("queen", 0.578), WordNeighbor("actress", 0.541)
        return [Neighbors(each, near, (WordNeighbor("king", 0.8),)) for each in batch]


class Draws(Fixed):
    """A seed in, a picture and its two steps out: dark, then as light as the seed."""

    inputs = {"seed": Number}  # noqa: RUF012
    outputs, examples = GeneratedImage, ("200",)

    def predict(self, batch, options):
        frames = [np.stack([np.zeros((4, 8), np.uint8), np.full((4, 8), int(seed), np.uint8)]) for seed in batch]
        return [GeneratedImage(each[-1], each) for each in frames]


@pytest.fixture(scope="module")
def predictors(own_task):
    torch.manual_seed(0)
    model = own_task.ToyDetector(own_task.ModelConfig())
    every = {"boxes": Detects, "masks": Segments, "depth": Measures, "classes": Classifies, "two": Compares}
    made = {name: cls() for name, cls in every.items()} | {"vector": Embeds(), "picture": Draws(), "near": Sums()}
    return made | {"toy": own_task.Detector(model, own_task.LABELS, Preprocess(32))}


@pytest.fixture(scope="module")
def own_task():
    with imported() as module:
        yield module


@pytest.fixture(scope="module")
def site(predictors):
    from regard.serve.http import app, server
    from regard.serve.http.model_pool import ModelPool
    from regard.serve.http.settings import Settings

    pool = ModelPool([f"{name}=made" for name in predictors], device="cpu")
    for name, predictor in predictors.items():
        pool._models[name].predictor = predictor
    made = app.make_app(pool, Settings(explore=True))
    with server.running_server(made) as address:
        yield address, made.state.inspections


@pytest.fixture
def page(site, driver, tmp_path):
    found = Page(driver, *site)
    found.size(*WIDE)
    found.media("light")
    photo = tmp_path / "photo.png"
    PIL.new("RGB", (WIDTH, HEIGHT), (90, 90, 90)).save(photo)
    found.photo = str(photo)
    yield found
    assert found.complaints() == []


def open_with(page, model, file=None):
    """The page with a model, and its answer to a picture."""
    page.driver.get("about:blank")
    page.driver.get(f"{page.address}/?model={model}")
    page.until(lambda: page.look() and not page.one("html").get_attribute("class"), "the example is read")
    if file:
        before = page.look()
        page.one("#file").send_keys(file)
        page.until(lambda: page.look() != before and not page.one("html").get_attribute("class"), "the file is read")


def pixel(page, x, y):
    """The colour of the overlay at a place, from 0 to 1 of its sides, as hexadecimal digits."""
    page.until(lambda: page.all(".overlay.drawn"), "the output is drawn")
    script = """
    const canvas = document.querySelector('.overlay'), [x, y] = arguments;
    const data = canvas.getContext('2d').getImageData(x * canvas.width, y * canvas.height, 1, 1).data;
    return '#' + [...data].slice(0, 3).map(v => v.toString(16).padStart(2, '0')).join('').toUpperCase();
    """
    return page.run(script, x, y)


def test_boxes_are_drawn_over_the_picture_with_label_and_score(page):
    open_with(page, "boxes", page.photo)
    colors = label_colors(["cup", "cat"])
    assert pixel(page, 20 / WIDTH, 20 / HEIGHT) == colors["cup"]  # the right side of the first box
    assert pixel(page, 55 / WIDTH, 12 / HEIGHT) == colors["cat"]
    assert pixel(page, 10 / WIDTH, 22 / HEIGHT) == "#5A5A5A"  # inside: the picture
    assert page.texts(".drawn-output li .word") == ["cup", "cat"]
    assert page.texts(".drawn-output li .share") == ["90 %", "40 %"]
    assert "cup 90 %, cat 40 %" in page.one(".overlay").get_attribute("aria-label")


def test_options_have_controls_made_from_their_schema(page):
    open_with(page, "boxes", page.photo)
    page.one(".options > summary").click()
    score = page.one(".options [name='min_score']")
    assert [score.get_attribute(name) for name in ("type", "min", "max")] == ["number", "0", "1"]
    assert "leave out what has a lower score" in page.texts(".options .hint")
    assert page.one("[name='outline']").get_attribute("type") == "checkbox"
    assert page.texts("[name='corner'] option") == ["left", "right"]
    before = page.look()
    score.send_keys("0.5")
    page.run("document.querySelector(\"[name='corner']\").value = 'right'")
    page.one("#read").click()
    page.until(lambda: page.look() != before, "it is read again")
    page.until(lambda: page.texts(".drawn-output li .word") == ["cup"], "one box is left")
    assert pixel(page, 50 / WIDTH, 20 / HEIGHT) == label_colors(["cup"])["cup"]


def test_neighbours_are_listed_with_their_cosines(page):
    open_with(page, "near")
    assert page.texts(".output .list h3") == [
        "nearest to king - man + woman, cosine",
        "words of the sum, left out above",
    ]
    assert page.texts(".output .list .word") == ["queen", "actress", "king"]
    assert page.texts(".output .list .share") == ["0.578", "0.541", "0.800"]
    saves = {each.text for each in page.all("[data-export]") if each.is_displayed()}
    assert saves == {"HTML", "JSON"}  # there is no map to draw


def test_model_without_attention_says_so_and_shows_its_output(page):
    open_with(page, "boxes", page.photo)
    assert "no attention maps" in page.text(".note")
    assert not page.all(".cell")


def test_masks_are_translucent(page):
    open_with(page, "masks", page.photo)
    inside, outside = pixel(page, 5 / WIDTH, 28 / HEIGHT), pixel(page, 0.9, 0.9)
    mixed = [round((int(label_colors(["cup"])["cup"][k : k + 2], 16) + 90) / 2) for k in (1, 3, 5)]
    assert np.allclose([int(inside[k : k + 2], 16) for k in (1, 3, 5)], mixed, atol=3)
    assert outside == "#5A5A5A"


NAMES = """
const done = arguments[arguments.length - 1];
import(`${location.origin}/page/overlay.js`).then(async ({ overlay }) => {
  const sheet = new OffscreenCanvas(20, 20);
  sheet.getContext("2d").fillRect(0, 0, 20, 20);
  const masks = [{ counts: [0, 400], label: "all", score: 1 }, { counts: [0, 100, 300], label: "left", score: 1 }];
  const made = overlay({ kind: "masks", masks, width: 20, height: 20 }, [0, 0, 20, 20], sheet.convertToBlob());
  const canvas = made.querySelector("canvas");
  while (!canvas.classList.contains("drawn")) await new Promise((go) => setTimeout(go, 20));
  const name = [2 / 20 * canvas.width + 3, 9.5 / 20 * canvas.height + 3];
  done([...canvas.getContext("2d").getImageData(...name, 1, 1).data]);
});
"""


def test_names_of_masks_are_not_painted_over(page):
    open_with(page, "boxes", page.photo)
    colour = label_colors(["all", "left"])["left"]
    assert page.driver.execute_async_script(NAMES) == [*(int(colour[k : k + 2], 16) for k in (1, 3, 5)), 255]


def test_depth_is_a_colour_map_with_its_range(page):
    open_with(page, "depth", page.photo)
    near, far = (sum(int(pixel(page, x, 0.5)[k : k + 2], 16) for k in (1, 3, 5)) for x in (0.02, 0.98))
    assert near > far + 200
    assert page.text(".depth-range") == "near 1 m\nfar 5 m"


def test_classes_are_bars(page):
    open_with(page, "classes", page.photo)
    assert page.texts(".output li .word") == ["cup", "cat"]
    assert page.texts(".output li .share") == ["75 %", "25 %"]


def test_several_inputs_have_a_control_each(page):
    page.driver.get("about:blank")
    page.driver.get(f"{page.address}/?model=two")
    page.until(lambda: page.text(".refused"), "the example lacks a question")
    assert "question" in page.text(".refused")
    page.one("[name='question']").send_keys("How large?")
    page.one("#file").send_keys(page.photo)
    page.until(lambda: page.all(".answer") and page.text(".answer") == f"How large? {WIDTH} x {HEIGHT}", "the answer")
    page.complaints()  # the first request was refused: the browser notes that


def test_other_outputs_are_shown_as_json(page):
    open_with(page, "vector")
    assert '"kind": "embedding"' in page.text(".json")


def test_own_detector_shows_boxes_and_its_attention_on_the_picture(page, predictors, own_task, tmp_path):
    pixels = own_task.Shapes(examples=8).load("train").examples.pixels[0].permute(1, 2, 0).numpy()
    file = io.BytesIO()
    PIL.fromarray(pixels).save(file, "PNG")
    (tmp_path / "shape.png").write_bytes(file.getvalue())
    open_with(page, "toy", str(tmp_path / "shape.png"))
    page.drawn()
    (box,) = predictors["toy"](pixels).boxes
    assert page.texts(".drawn-output li .word") == [box.label]
    assert pixel(page, box.right / 32, (box.top + box.bottom) / 64) == label_colors([box.label])[box.label]
    assert len(page.all(".cell")) == 2 * 5  # layers, four heads and their mean
    assert page.all(".panel canvas.picture")


def test_a_generated_image_is_drawn_with_its_steps(page):
    open_with(page, "picture")
    page.until(lambda: len(page.all(".made")) == 3, "the picture and its steps are there")
    script = """
    return [...document.querySelectorAll('.made')].map(image => {
      const canvas = document.createElement('canvas');
      const context = canvas.getContext('2d');
      context.drawImage(image, 0, 0);
      return [image.naturalWidth, image.naturalHeight, image.width, context.getImageData(3, 3, 1, 1).data[0]];
    });
    """
    page.until(lambda: page.run(script)[0][0] == 8, "the picture is decoded")
    assert page.run(script) == [[8, 4, 224, 200], [8, 4, 56, 0], [8, 4, 56, 200]]
    assert page.one(".made").get_attribute("alt") == "generated image, 8 by 4 pixels"
