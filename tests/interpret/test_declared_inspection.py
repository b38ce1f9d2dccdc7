"""Inspections of predictors whose task has none of its own: by the kind of their first input."""

import base64
import io
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from PIL import Image as PIL
from torch import nn

import regard
from regard.core.config import field
from regard.core.errors import BadInput, RegardError, UnknownName, Unsupported
from regard.interpret.inspection import inspect, inspection_class
from regard.interpret.inspections.declared import DeclaredInspection
from regard.interpret.inspections.image import ImageInspection
from regard.interpret.inspections.image_classification import ImageClassificationInspection
from regard.interpret.inspections.text import TextInspection
from regard.modalities import Boxes, Classes, Image, Number, Preprocess, Text
from regard.modalities.boxes import Box
from regard.models.bert import BERT
from regard.models.bert import Config as BERTConfig
from regard.models.vit import Config as ViTConfig
from regard.models.vit import ViT
from regard.tasks.image.image_classification import ImageClassifier
from regard.tasks.predictor import Predictor
from regard.tokens.tokenizer import Tokenizer


def picture(width=48, height=32):
    file = io.BytesIO()
    rng = np.random.default_rng(0)
    PIL.fromarray(rng.integers(0, 256, (height, width, 3), dtype=np.uint8)).save(file, "PNG")
    return file.getvalue()


@dataclass(frozen=True)
class Options:
    min_score: float = field(0.0, low=0, high=1, help="leave out boxes with a lower score")


class Detects(Predictor):
    """Boxes of an untrained ViT."""

    inputs = {"image": Image}  # noqa: RUF012
    outputs, options = Boxes, Options

    def __init__(self, **settings):
        torch.manual_seed(0)
        sizes = {"width": 16, "heads": 2, "layers": 2, "patch_size": 8, "image_size": 32, "num_classes": 4}
        self.model, self.preprocess = ViT(ViTConfig(**sizes | settings)).eval(), Preprocess(32)

    @torch.no_grad()
    def predict(self, batch, options):
        found = self.model(self.preprocess.batch(batch)).sigmoid()
        boxes = [torch.cat([row[:2] / 2, (1 + row[2:]) / 2]).tolist() for row in found]
        return [
            Boxes((Box(*self.preprocess.to_image(image, box), "thing", 0.5),), *image.size).above(options.min_score)
            for image, box in zip(batch, boxes, strict=True)
        ]


class Reads(Predictor):
    """Classes of an untrained BERT."""

    inputs = {"sentence": Text}  # noqa: RUF012
    outputs = Classes

    def __init__(self):
        torch.manual_seed(0)
        self.text = Tokenizer.train(["the old dog barks at the cat"] * 3, kind="bert", size=60, lower=True)
        config = BERTConfig(vocab=self.text.size, width=16, heads=2, layers=2, length=32, head="classes(2)")
        self.model = BERT(config).eval()

    @torch.no_grad()
    def predict(self, batch, options):
        rows = [self.text.encode([line])[0] for line in batch]
        ids = [[self.text.bos, *row, self.text.eos] for row in rows]
        return [Classes.rank(["a", "b"], self.model(torch.tensor([row]))[0].softmax(-1).tolist()) for row in ids]


class Doubles(Predictor):
    """A number, without attention."""

    inputs = {"value": Number}  # noqa: RUF012
    outputs = Text

    def __init__(self):
        self.model = nn.Linear(1, 1)

    def predict(self, batch, options):
        return [Text(str(2 * value)) for value in batch]


def test_inspection_is_found_by_task_then_by_the_first_input():
    assert inspection_class(ImageClassifier) is ImageClassificationInspection
    assert inspection_class(Detects) is ImageInspection
    assert inspection_class(Reads) is TextInspection
    assert inspection_class(Doubles) is DeclaredInspection
    with pytest.raises(Unsupported, match="declares no inputs"):
        inspection_class(nn.Linear)


def test_fields_are_those_of_the_declaration():
    inputs, options = ImageInspection.fields(Detects)
    assert inputs == {"image": "image"}
    assert options["min_score"]["maximum"] == 1
    assert inspection_class(type(regard.load("en-de"))).fields(None)[0] == {"text": "text"}


def test_picture_gives_the_output_with_maps_on_its_patches():
    detect = Detects()
    seen = inspect(detect, {"image": picture(), "min_score": 0.25}, name="mine")
    about = seen.about()
    assert about["output"] == {"kind": "boxes", **detect(picture()).to_json()}
    assert about["region"] == [8, 0, 40, 32]
    assert {name: len(side["tokens"]) for name, side in about["axes"].items()} == {"patches": 17}
    assert len(about["maps"]) == 2
    for each in about["maps"]:
        assert seen.row(each["name"], 0, 3).sum() == pytest.approx(1, abs=1e-5)
    assert seen.rollout(0).shape == (17,)
    assert about["relevance_targets"] == []
    assert about["note"] == ""


def test_image_may_come_as_base64_and_never_as_a_path(tmp_path):
    (tmp_path / "a.png").write_bytes(picture())
    text = base64.b64encode(picture()).decode()
    assert inspect(Detects(), {"image": text}).output["kind"] == "boxes"
    with pytest.raises(BadInput):
        inspect(Detects(), {"image": str(tmp_path / "a.png")})


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({}, BadInput),
        ({"image": b"no picture"}, BadInput),
        ({"image": 5}, BadInput),
        ({"image": picture(), "minimum": 0.5}, UnknownName),
        ({"image": picture(), "min_score": 2}, RegardError),
        ({"image": picture(), "min_score": "high"}, RegardError),
    ],
    ids=["missing", "broken", "number", "unknown option", "out of range", "wrong type"],
)
def test_bad_input_is_refused(given, error):
    with pytest.raises(error):
        inspect(Detects(), given)


def test_interventions_change_the_output():
    plain = inspect(Detects(), {"image": picture()})
    changed = inspect(Detects(), {"image": picture()}, interventions=[{"do": "off"}])
    assert plain.output["boxes"] != changed.output["boxes"]


def test_tokens_of_a_text_have_their_places():
    seen = inspect(Reads(), {"sentence": "the old dog"})
    side = seen.axes["text"]
    places = [side.text[slice(*place["text"])] for place in side.positions if "text" in place]
    assert "".join(places) == "theolddog"
    assert (side.special[0], side.special[-1]) == (True, True)
    assert {each["rows"] for each in seen.about()["maps"]} == {"text"}
    assert seen.output["kind"] == "classes"


def test_model_without_attention_has_its_output_and_a_sentence():
    seen = inspect(Doubles(), {"value": 4})
    assert seen.output == {"kind": "text", "text": "8.0", "score": None}
    assert seen.about()["maps"] == []
    assert "no attention maps" in seen.note


def test_convolutional_classifier_is_inspected_too():
    model = regard.build("resnet", size="tiny", num_classes=3)
    seen = inspect(ImageClassifier(model, ["cat", "cup", "boat"], Preprocess(32)), {"image": picture()})
    assert seen.output["label"] in ("cat", "cup", "boat")
    assert seen.about()["relevance_targets"] == []
    assert [each["name"] for each in seen.about()["maps"]] == ["gradcam", "layercam"]  # it has no attention
    with pytest.raises(Unsupported):
        seen.rollout(0)


def test_handwriting_is_drawn_with_its_window(tmp_path):
    import regard
    from regard.interpret.figures import make_figure
    from regard.interpret.inspection import inspect

    figure = make_figure(inspect(regard.load("pen-digits"), {"text": "42"}))
    figure.save(tmp_path / "digits.svg")
    drawn = (tmp_path / "digits.svg").read_text(encoding="utf-8")
    assert figure.text().startswith("42: ")
    assert "pen points" in drawn
