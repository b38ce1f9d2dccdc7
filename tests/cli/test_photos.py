"""``regard detect`` and ``regard segment``: a line for every object, a picture for every photo, whatever is found."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import regard
from regard import cli
from regard.cli.photos import RECIPES
from regard.modalities import Boxes, Masks, Preprocess
from regard.models import build
from regard.tasks.image.object_detection import ObjectDetector
from regard.tasks.image.semantic_segmentation import SemanticSegmenter
from regard.training.recipe import list_recipes

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    torch.manual_seed(0)
    place = tmp_path_factory.mktemp("photos")
    shown = Preprocess(32, crop_mode="corner")
    regard.save(ObjectDetector(build("detr", size="tiny", num_classes=2), ["cat", "dog"], shown), place / "detector")
    segmenter = build("segmenter", size="tiny", num_outputs=2)
    regard.save(SemanticSegmenter(segmenter, ["sky", "road"], shown), place / "segmenter")
    (place / "two").mkdir()
    rng = np.random.default_rng(0)
    for name, size in (("one.png", (30, 50, 3)), ("two/a.png", (40, 40, 3)), ("two/b.jpg", (20, 60, 3))):
        Image.fromarray(rng.integers(0, 256, size, np.uint8)).save(place / name)
    return place


def call(*words):
    return cli.main([str(word) for word in words])


def test_detect_prints_and_draws_boxes_and_also_where_there_are_none(home, capsys):
    photo, model = home / "one.png", home / "detector"
    assert call("detect", photo, "--model", model, "--min-score", 0, "--json", "--draw", home / "all.png") == 0
    said = capsys.readouterr()
    found = json.loads(said.out)
    boxes = Boxes.from_json({key: found[key] for key in ("boxes", "width", "height")})
    assert (boxes.width, boxes.height, len(boxes)) == (50, 30, 7)
    assert "knows cat, dog, and nothing else" in said.err
    assert call("detect", photo, "--model", model, "--min-score", 1, "--draw", home / "none.png") == 0
    said = capsys.readouterr()
    assert said.out == "nothing found\n"
    assert f"drawn: {home / 'none.png'}" in said.err
    assert Image.open(home / "none.png").size[0] > 100


def test_detect_has_a_model_that_ships(home, capsys):
    assert call("detect", home / "one.png", "--min-score", 0, "--draw", home / "ships.png") == 0
    assert len(capsys.readouterr().out.splitlines()) == 10
    assert Image.open(home / "ships.png").size[0] > 100


def test_segment_takes_a_folder_and_averages_over_sizes(home, capsys):
    model = home / "segmenter"
    assert call("segment", home / "two", "--model", model, "--draw", home / "drawn") == 0
    lines = capsys.readouterr().out.splitlines()
    assert {line.split("\t")[0].rpartition("/")[2] for line in lines} == {"a.png", "b.jpg"}
    assert sorted(file.name for file in (home / "drawn").iterdir()) == ["a.png", "b.png"]
    words = ("--scale", 0.5, "--scale", 1, "--flip", "--min-score", 0.1, "--json")
    assert call("segment", home / "one.png", "--model", model, *words) == 0
    found = json.loads(capsys.readouterr().out)
    masks = Masks.from_json({key: found[key] for key in ("masks", "width", "height")})
    assert sum(mask.pixels.sum() for mask in masks.masks) == 50 * 30


def test_wrong_use_is_one_clear_line(home, capsys):
    photo, detector, segmenter = home / "one.png", home / "detector", home / "segmenter"
    for words, status, message in (
        (("segment", photo, "--model", detector), 1, "regard segment needs a model from photos to masks"),
        (("detect", photo, "--model", segmenter), 1, "regard detect needs a model from photos to boxes"),
        (
            ("depth", photo),
            1,
            "train one (regard train rendered_unet --out runs/depth)",
        ),
        (("detect", photo, "--model", detector, "--min-score", 2), 2, "min-score"),
        (("detect", home / "two", "--model", detector, "--draw", home / "x.png"), 2, "give a folder"),
        (("detect", photo, "--model", detector, "--draw", home / "x.gif"), 2, "end its name in .png or .svg"),
        (("detect", home / "missing.png", "--model", detector), 1, "missing.png"),
    ):
        assert call(*words) == status
        assert message in " ".join(capsys.readouterr().err.split()), words


def test_models_that_ship_answer_about_the_documented_pictures(home, capsys):
    asked, looked = ROOT / "docs/assets/scene-questions.png", home / "looked.png"
    assert call("ask", asked, "How many red digits?", "--see", looked) == 0
    assert capsys.readouterr().out.split("\t")[0] == "3"
    assert Image.open(looked).size[0] > 500
    assert call("ask", asked, "How many elephants?") == 0
    printed = capsys.readouterr()
    assert printed.out.startswith("not a question that I learned")
    assert "words that were never learned: elephants" in printed.err
    assert call("segment", ROOT / "docs/assets/scene-segments.png", "--draw", home / "segments.png") == 0
    assert {"wall", "floor", "car", "house", "trouser"} <= {
        line.split("\t")[0] for line in capsys.readouterr().out.splitlines()
    }
    (home / "segments.png").write_bytes(b"mine")
    assert call("segment", ROOT / "docs/assets/scene-segments.png", "--draw", home / "segments.png") == 0
    assert "segments.png (in place of the file that was there)" in capsys.readouterr().err
    assert (home / "segments.png").is_file()


def test_verbs_without_a_model_name_recipes_that_exist():
    assert set(RECIPES.values()) <= set(list_recipes())
