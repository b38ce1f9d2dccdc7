"""Outputs print themselves, travel as JSON that fits their schema, and tell how far another one is from them."""

import json

import numpy as np
import pytest
import torch

from regard.core.errors import BadInput
from regard.modalities import (
    Boxes,
    Classes,
    Depth,
    Embedding,
    Episode,
    GeneratedImage,
    MaskFills,
    Masks,
    Neighbors,
    Span,
    Strokes,
    Text,
    TokenEmbeddings,
    TokenLabels,
    Transcript,
)
from regard.modalities.boxes import Box
from regard.modalities.mask_fills import MaskPrediction
from regard.modalities.masks import Mask, decode_runs, encode_runs
from regard.modalities.neighbors import WordNeighbor
from regard.modalities.text import Candidate
from regard.modalities.transcript import TimedWord
from tests.contracts.test_predictors import check_schema, fits


def square(top, left, size=3, height=6, width=8):
    pixels = np.zeros((height, width), bool)
    pixels[top : top + size, left : left + size] = True
    return pixels


def line(end):
    points = torch.tensor([[1.0, 0.0, 0.0], [1.0, end, 1.0], [0.5, 0.5, 0.0]])
    return Strokes("31", points, torch.tensor([[0.9, 0.1, 0.0], [0.8, 0.2, 0.0], [0.0, 1.0, 0.0]]))


def episode(reward):
    return Episode(torch.zeros(2, 3), torch.tensor([0, 1]), torch.tensor([1.0, reward]), torch.tensor([5.0, 4.0]))


# Each kind: an output, and one that is as far from it as can be.
PAIRS = {
    "text": (Text("two dogs play", -0.5, [Candidate("two dogs play", -0.5), Candidate("dogs", -2.0)]), Text("a cat")),
    "classes": (Classes.rank(["cat", "dog"], [1.0, 0.0]), Classes.rank(["cat", "dog"], [0.0, 1.0])),
    "token_labels": (TokenLabels(("a", "dog"), ("DET", "NOUN")), TokenLabels(("a", "dog"), ("NOUN", "DET"))),
    "span": (Span("dog", 4, 7, 2.5), Span("cat", 10, 13, 1.0)),
    "mask_fills": (
        MaskFills("a dog", ((MaskPrediction("dog", 5, 0.9), MaskPrediction("cat", 6, 0.1)),)),
        MaskFills("a cat", ((MaskPrediction("cat", 6, 0.8),),)),
    ),
    "neighbors": (Neighbors("dog", (WordNeighbor("cat", 0.9),)), Neighbors("dog", (WordNeighbor("house", 0.5),))),
    "embedding": (Embedding(torch.tensor([1.0, 0.0])), Embedding(torch.tensor([-1.0, 0.0]))),
    "transcript": (Transcript("three one", -1.5, (TimedWord("three", 0.0, 0.4),)), Transcript("nine", -2.0)),
    "strokes": (line(1.0), line(9.0)),
    "boxes": (
        Boxes((Box(0, 0, 4, 4, "cat", 0.3), Box(2, 2, 6, 6, "dog", 0.9)), 8, 6),
        Boxes((Box(2, 2, 6, 6, "cat", 0.9),), 8, 6),
    ),
    "masks": (
        Masks((Mask(square(0, 0), "cat", 0.5), Mask(square(2, 4), "dog", 0.8)), 8, 6),
        Masks((Mask(square(3, 0), "cat", 0.5),), 8, 6),
    ),
    "depth": (Depth(np.array([[1.0, 2.0], [4.0, np.nan]])), Depth(np.full((3, 3), 2.0))),
    "generated_image": (
        GeneratedImage(np.arange(24, dtype=np.uint8).reshape(2, 4, 3)),
        GeneratedImage(np.zeros((2, 4), np.uint8)),
    ),
    "episode": (episode(3.0), episode(-1.0)),
}
every = pytest.mark.parametrize("kind", PAIRS)


@every
def test_json_fits_the_schema_and_gives_the_output_again(kind):
    output, _ = PAIRS[kind]
    assert output.kind == kind
    schema = getattr(type(output), "output_schema", type(output).json_schema)()
    check_schema(schema)
    for one in PAIRS[kind]:
        values = json.loads(json.dumps(one.to_json(), allow_nan=False))
        assert fits(values, schema), values
        again = type(one).from_json(values)
        assert type(again) is type(one)
        assert json.loads(json.dumps(again.to_json())) == values
        assert str(again) == str(one)


@every
def test_schema_refuses_other_values(kind):
    output, _ = PAIRS[kind]
    schema = getattr(type(output), "output_schema", type(output).json_schema)()
    values = output.to_json()
    assert not fits({**values, "no_such": 1}, schema)
    assert not fits({}, schema)
    assert not fits([values], schema)


@every
def test_difference_is_0_to_itself_and_large_to_another(kind):
    output, other = PAIRS[kind]
    assert output.difference(output) == pytest.approx(0, abs=1e-6)
    assert output.difference(other) == pytest.approx(other.difference(output), abs=1e-6)
    assert 0.5 < output.difference(other) <= 1


PRINTED = {
    "text": "two dogs play",
    "classes": "cat\t1.0000\tdog\t0.0000",
    "token_labels": "a/DET dog/NOUN",
    "span": "dog",
    "mask_fills": "a dog",
    "neighbors": "cat\t0.9000",
    "embedding": "1 0",
    "transcript": "three one",
    "strokes": "31: 3 points in 2 strokes",
    "boxes": "dog\t0.9000\t2,2,6,6\ncat\t0.3000\t0,0,4,4",
    "masks": "dog\t0.8000\t18.8 % of the image\ncat\t0.5000\t18.8 % of the image",
    "depth": "depth 1 to 4 (relative), median 2",
    "generated_image": "RGB image of 4 x 2 pixels, mean 11.5 of 255",
    "episode": "2 steps, return 4.00 (target 5.00)",
}


@every
def test_output_prints_itself(kind):
    assert str(PAIRS[kind][0]) == PRINTED[kind]


# -- boxes -------------------------------------------------------------------------------------------------------------


def test_intersection_over_union_is_that_of_the_formula():
    box = Box(0, 0, 4, 4, "a")
    assert box.area == 16
    for other, wanted in ((Box(0, 0, 4, 4, "b"), 1), (Box(2, 0, 6, 4, "a"), 8 / 24), (Box(4, 4, 5, 5, "a"), 0)):
        assert box.iou(other) == pytest.approx(wanted)
    assert Box(1, 1, 1, 1, "a").iou(Box(1, 1, 1, 1, "a")) == 0


def test_boxes_are_sorted_by_score_and_can_be_filtered():
    boxes = PAIRS["boxes"][0]
    assert [box.label for box in boxes.boxes] == ["dog", "cat"]
    assert [box.label for box in boxes.above(0.3).boxes] == ["dog", "cat"]
    assert len(boxes.above(0.31)) == 1
    assert str(boxes.above(0.95)) == "nothing found"


def test_corners_in_the_wrong_order_are_refused():
    for corners in ((4, 0, 0, 4), (0, 4, 4, 0), (float("nan"), 0, 4, 4)):
        with pytest.raises(BadInput, match="expected left, top, right, bottom"):
            Boxes((Box(*corners, "a"),), 8, 8)


def test_difference_of_boxes_matches_each_box_once():
    one = Boxes((Box(0, 0, 4, 4, "a"),), 8, 8)
    two = Boxes((Box(0, 0, 4, 4, "a"), Box(0, 0, 4, 4, "a")), 8, 8)
    assert one.difference(two) == pytest.approx(0.5)
    assert one.difference(Boxes((), 8, 8)) == 1
    assert Boxes((), 8, 8).difference(Boxes((), 8, 8)) == 0


# -- masks and depth ---------------------------------------------------------------------------------------------------


FILLS = {
    "random": np.random.default_rng(0).random((5, 7)) < 0.4,
    "empty": np.zeros((5, 7), bool),
    "full": np.ones((5, 7), bool),
    "first": np.arange(35).reshape(5, 7) == 0,
}


@pytest.mark.parametrize("fill", FILLS)
def test_run_lengths_give_the_mask_again(fill):
    counts = encode_runs(FILLS[fill])
    assert sum(counts) == 35
    assert np.array_equal(decode_runs(counts, 5, 7), FILLS[fill])


def test_run_lengths_go_down_the_columns_and_begin_with_zeros():
    assert encode_runs(np.array([[0, 1], [1, 1]], bool)) == [1, 3]
    assert encode_runs(np.array([[1, 0], [0, 0]], bool)) == [0, 1, 3]


def test_run_lengths_are_cocos():
    coco = pytest.importorskip("pycocotools.mask")
    for pixels in FILLS.values():
        counts = {"counts": encode_runs(pixels), "size": [5, 7]}
        assert np.array_equal(coco.decode(coco.frPyObjects(counts, 5, 7)), pixels)


@pytest.mark.parametrize("counts", [[3], [36], [-1, 36], []])
def test_run_lengths_of_another_size_are_refused(counts):
    with pytest.raises(BadInput):
        decode_runs(counts, 5, 7)


def test_masks_have_the_size_of_the_image():
    with pytest.raises(BadInput, match=r"shape \(6, 8\); expected \(8, 6\)"):
        Masks((Mask(square(0, 0), "cat"),), 6, 8)


def test_masks_come_from_a_map_of_classes():
    labels = np.array([[0, 1, 1], [2, 2, 9]])
    masks = Masks.from_labels(labels, {1: "cat", 2: "dog"})
    assert {mask.label: int(mask.pixels.sum()) for mask in masks.masks} == {"cat": 2, "dog": 2}
    assert (masks.width, masks.height) == (3, 2)


def test_depth_keeps_what_is_unknown_and_its_unit():
    depth = Depth(np.array([[1.0, np.nan]]), metric=True)
    again = Depth.from_json(json.loads(json.dumps(depth.to_json())))
    assert (again.unit, str(again)) == ("m", "depth 1 to 1 m, median 1")
    assert np.array_equal(again.values, depth.values, equal_nan=True)
    assert str(Depth(np.full((2, 2), np.nan))) == "depth unknown everywhere"
    for values in (np.zeros(3), np.zeros((0, 3)), np.zeros((2, 2, 2))):
        with pytest.raises(BadInput, match="expected rows and columns"):
            Depth(values)


def test_relative_depth_is_compared_up_to_its_scale():
    values = np.array([[1.0, 2.0], [3.0, 4.0]])
    assert Depth(values).difference(Depth(5 * values)) == pytest.approx(0, abs=1e-6)
    assert Depth(values, True).difference(Depth(1.1 * values, True)) == pytest.approx(0.1, abs=1e-6)


# -- others ------------------------------------------------------------------------------------------------------------


def test_classes_are_ranked_and_cut():
    classes = Classes.rank(["a", "b", "c"], [0.2, 0.7, 0.1])
    assert (classes.label, classes.probability) == ("b", 0.7)
    assert list(classes.probabilities) == ["b", "a", "c"]
    assert list(classes.top(2).probabilities) == ["b", "a"]


def test_every_word_has_a_label():
    with pytest.raises(BadInput, match="2 words have 1 labels"):
        TokenLabels(("a", "dog"), ("DET",))


def test_text_carries_its_candidates():
    text = PAIRS["text"][0]
    again = Text.from_json(text.to_json())
    assert (again.score, [each.text for each in again.candidates]) == (-0.5, ["two dogs play", "dogs"])
    assert Text.from_candidates(text.candidates) == "two dogs play"


def test_token_embeddings_are_an_output():
    check_schema(getattr(TokenEmbeddings, "output_schema", TokenEmbeddings.json_schema)())


def test_generated_images_are_lossless_and_other_arrays_are_refused():
    for shape in ((5, 3), (5, 3, 3)):
        pixels = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
        again = GeneratedImage.from_json(json.loads(json.dumps(GeneratedImage(pixels).to_json())))
        assert np.array_equal(again.pixels, pixels)
        assert np.array_equal(np.asarray(again.to_pil()), pixels)
    black, white = (GeneratedImage(np.full((2, 2), value, np.uint8)) for value in (0, 255))
    assert black.difference(white) == 1
    for pixels in (np.zeros((2, 2)), np.zeros((2, 2, 4), np.uint8), np.zeros((0, 2), np.uint8), np.zeros(3, np.uint8)):
        with pytest.raises(BadInput, match="uint8 of shape Y X or Y X 3"):
            GeneratedImage(pixels)
