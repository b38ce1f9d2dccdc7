"""Scores of maps: exact on small cases, at chance for a model that has learned nothing, refused for what is no map."""

import json

import numpy as np
import pytest
import torch

import regard
from regard.cli import main
from regard.core.errors import BadInput, RegardError
from regard.data.images.scene_batch import Scene
from regard.interpret.faithfulness import (
    MapScores,
    attention_mass,
    bounding_box,
    curve_area,
    deletion_curve,
    energy_pointing_game,
    evaluate_maps,
    insertion_curve,
    mask_share,
    masked_scenes,
    place_mask,
    pointing_game,
    rank_correlation,
    shuffle_weights,
)
from regard.interpret.image_maps import TargetMap, find_maps
from regard.modalities.image import Image, Preprocess
from regard.tasks.image.image_classification import ImageClassifier
from regard.tasks.image.semantic_segmentation import SemanticSegmenter
from tests.contracts.test_predictors import captioner, question_answerer
from tests.data.images import needs_data

QUESTION = "What colour is the bag?"
RNG = np.random.default_rng(0)
MASK = np.zeros((6, 8))
MASK[1:4, 2:5] = 1
MASK[3, 2] = 0  # no rectangle


def test_a_map_equal_to_the_mask_scores_one():
    assert attention_mass(MASK, MASK) == pointing_game(MASK, MASK) == energy_pointing_game(MASK, MASK) == 1
    assert attention_mass(1 - MASK, MASK) == pointing_game(1 - MASK, MASK) == 0
    assert energy_pointing_game(1 - MASK, MASK) == pytest.approx(1 / 40)  # the corner of the box


def test_a_uniform_map_scores_the_share_of_the_mask():
    uniform = np.full(MASK.shape, 0.3)
    assert mask_share(MASK) == pytest.approx(8 / 48)
    assert attention_mass(uniform, MASK) == pytest.approx(8 / 48)
    assert pointing_game(uniform, MASK) == pytest.approx(8 / 48)
    assert energy_pointing_game(uniform, MASK) == pytest.approx(9 / 48)
    assert bounding_box(MASK).sum() == 9


def test_one_peak_decides_the_pointing_game():
    for where, wanted in (((2, 3), 1.0), ((0, 0), 0.0)):
        weights = RNG.random(MASK.shape)
        weights[where] = 2
        assert pointing_game(weights, MASK) == wanted


def test_random_maps_are_at_chance():
    maps = RNG.random((1500, *MASK.shape))
    assert np.mean([attention_mass(each, MASK) for each in maps]) == pytest.approx(8 / 48, abs=0.01)
    assert np.mean([pointing_game(each, MASK) for each in maps]) == pytest.approx(8 / 48, abs=0.03)
    assert np.mean([rank_correlation(one, two) for one, two in zip(maps[:100], maps[100:200], strict=True)]) == (
        pytest.approx(0, abs=0.06)
    )


def test_rank_correlation_of_known_orders():
    a = RNG.random((4, 5))
    assert rank_correlation(a, np.exp(3 * a)) == pytest.approx(1)
    assert rank_correlation(a, -a) == pytest.approx(-1)
    assert rank_correlation(a, np.ones((4, 5))) == 0


def test_masks_are_placed_on_the_part_that_is_shown():
    mask = np.zeros((4, 8), bool)
    mask[:2, 4:] = True
    assert place_mask(mask, (4, 0, 8, 4), (2, 2)).tolist() == [[1, 1], [0, 0]]
    assert place_mask(mask, (0, 0, 8, 4), (1, 2)).tolist() == [[0, 0.5]]
    assert place_mask(mask, (-8, 0, 8, 4), (1, 4)).tolist() == [[0, 0, 0, 0.5]]  # a border to the left


def test_curves_of_a_model_that_needs_one_half():
    picture = np.zeros((4, 6, 3), np.uint8)
    picture[:, :3] = 250
    picture[::2, :3] = 40  # details that a blur removes

    def score(pictures):
        return [float((each[:, :3] == picture[:, :3]).all(-1).mean()) for each in pictures]

    left = np.zeros((4, 6))
    left[:, :3] = 1
    useful, useless = deletion_curve(score, picture, left, 4), deletion_curve(score, picture, 1 - left, 4)
    assert useful.tolist() == [1, 0.5, 0, 0, 0]
    assert useless.tolist() == [1, 1, 1, 0.5, 0]
    assert (curve_area(useful), curve_area(useless)) == (0.25, 0.75)
    assert insertion_curve(score, picture, left, 4).tolist() == [0, 0.5, 1, 1, 1]
    assert curve_area(np.ones(5)) == 1


def classifier(seed=0):
    torch.manual_seed(seed)
    model = regard.build("vit", size="tiny", num_classes=2, image_size=8, patch_size=2, width=8, heads=2, layers=2)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.5 * torch.randn_like(parameter))
    return ImageClassifier(model, ["a", "b"], Preprocess((8, 8), mean=(0.5,) * 3, std=(0.5,) * 3))


def scenes(count):
    pixels = np.random.default_rng(0).integers(0, 256, (3, 8, 8), np.uint8)
    for n in range(count):  # of 16, every patch of one picture is in the mask equally often
        mask = np.zeros((8, 8), bool)
        mask[:4, :4] = True
        mask = np.roll(mask, (2 * (n // 4), 2 * n), (0, 1))
        yield Scene(pixels, np.array([0]), masks=mask[None])


@pytest.mark.parametrize("method", ["rollout", "class", "relevance"])
def test_maps_without_regard_to_the_mask_are_at_chance(method):
    predictor = classifier()
    found = evaluate_maps(predictor, scenes(16), method, {0: "thing"}, curves=method == "class")
    assert isinstance(found, MapScores)
    assert found.maps == 16
    assert found.share == found.pointing == 0.25
    assert found.gain == pytest.approx(1, abs=1e-5)
    assert found.random_mass / found.share == pytest.approx(1, abs=1e-5)
    if method == "class":
        assert 0 < found.deletion < 1
        assert found.deletion == pytest.approx(found.insertion, abs=0.3)
    (one,) = find_maps(predictor, next(scenes(1)).pixels.transpose(1, 2, 0), method)
    assert one.weights.shape == one.picture.shape[:2] == (8, 8)
    assert one.score([one.picture])[0] == pytest.approx(predictor(one.picture).probability, abs=1e-5)


def test_shuffled_weights_are_the_same_numbers_elsewhere():
    model = classifier().model
    other = shuffle_weights(model, 1)
    for a, b in zip(model.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(a.flatten().sort().values, b.flatten().sort().values)
    assert sum(not torch.equal(a, b) for a, b in zip(model.parameters(), other.parameters(), strict=True)) > 5
    again = shuffle_weights(model, 1)
    assert all(torch.equal(a, b) for a, b in zip(again.parameters(), other.parameters(), strict=True))


def test_maps_of_the_shipped_detector_lie_on_the_objects_and_those_of_shuffled_weights_do_not():
    found, things = masked_scenes("scenes", limit=4)
    scores = evaluate_maps(regard.load("scenes"), found, "cross", things, curves=False)
    assert scores.gain > 3
    assert scores.random_mass / scores.share < 2.5
    assert scores.mass <= scores.energy


def test_words_of_a_caption_and_an_answer_have_maps_too():
    picture = RNG.integers(0, 256, (40, 40, 3), np.uint8)
    caption = captioner()
    words = find_maps(caption, picture)
    assert " ".join(each.label for each in words) == str(caption(picture))
    for each in words:
        assert each.weights.shape == each.picture.shape[:2]
        assert each.weights.sum() > 0
        (probability,) = each.score([each.picture])
        assert 0 < probability < 1
    ask = question_answerer()
    (answer,) = find_maps(ask, {"image": picture, "question": QUESTION})
    assert answer.weights.shape == answer.picture.shape[:2]
    said = ask(picture, QUESTION)
    assert answer.label == said.label
    assert answer.score([answer.picture]) == pytest.approx([said.probability], abs=1e-4)


def segmenter(side=32):
    settings = {"num_outputs": 12, "image_size": side, "patch_size": 8, "width": 16, "heads": 2, "layers": 1}
    torch.manual_seed(0)
    model = regard.build("segmenter", **settings, decoder_layers=1)
    return SemanticSegmenter(model, [f"class {i}" for i in range(12)], Preprocess(side))


def test_maps_of_class_tokens_are_compared_with_all_pixels_of_the_class():
    segment, picture = segmenter(), RNG.integers(0, 256, (32, 32, 3), np.uint8)
    found = find_maps(segment, picture)
    assert {each.label for each in found} == {mask.label for mask in segment(picture).masks}
    for each in found:
        (probability,) = each.score([each.picture])
        index = segment.labels.index(each.label)
        own = segment.probabilities(Image.read(picture))
        assert probability == pytest.approx(float(own[index][own.argmax(0) == index].mean()), abs=1e-5)
    number = segment.labels.index(found[0].label)
    masks = np.zeros((3, 32, 32), bool)
    masks[0, :9], masks[1, 20:, :5], masks[2] = True, True, True
    scene = Scene(picture.transpose(2, 0, 1), classes=np.array([number, number, 99]), masks=masks)
    things = {number: found[0].label, 99: "other"}
    scores = evaluate_maps(segment, [scene], "class", things, curves=False, randomize=False)
    assert scores.maps == 1
    assert scores.share == pytest.approx((masks[0] | masks[1]).mean())


@needs_data("fashion_mnist")
def test_questions_and_captions_are_compared_with_what_they_concern():
    for kind in ("count", "side"):
        items, _ = masked_scenes(f"{kind}_questions", limit=3)
        for each in items:
            mask = each.mask_of([], 0)
            assert mask.shape == each.item["image"].shape[:2]
            assert each.item["question"].lower().startswith("how many" if kind == "count" else "is the")
            assert mask.any() or kind == "count"
    items, _ = masked_scenes("scene_captions", limit=2)
    scores = evaluate_maps(regard.load("scene-captions"), items, curves=False, randomize=False)
    assert scores.gain > 1.5, "the captioner that ships looks at what it names"


def test_the_second_bag_is_the_second_from_the_left(monkeypatch):
    from regard.data.images import scene_captions

    masks = np.zeros((3, 4, 6), bool)
    masks[0, :, :2], masks[1, :, 2:4], masks[2, :, 4:] = True, True, True
    scene = scene_captions.CaptionedScene(
        np.zeros((3, 4, 6), np.uint8), masks, [("bag", "red"), ("boot", "red"), ("bag", "blue")], ""
    )
    monkeypatch.setattr(scene_captions, "CaptionComposer", lambda *_: [scene])
    ((item,), _) = masked_scenes("scene_captions", limit=1)
    words = ["a", "bag", "on", "the", "wall", "and", "a", "bag", "and", "a", "boot", "and", "a", "bag"]
    maps = [TargetMap(word, MASK, MASK, (0, 0, 1, 1), len) for word in words]
    found = [item.mask_of(maps, n) for n in range(len(words))]
    named = {n: found[n] for n in range(len(words)) if found[n] is not None}
    assert [words[n] for n in named] == ["bag", "bag", "boot"], "there is no third bag"
    for mask, wanted in zip(named.values(), (masks[0], masks[2], masks[1]), strict=True):
        np.testing.assert_array_equal(mask, wanted)


def test_what_is_no_map_or_mask_is_refused():
    for weights in (np.zeros(MASK.shape), -np.ones(MASK.shape), np.full(MASK.shape, np.nan), np.ones((2, 2))):
        with pytest.raises(BadInput):
            attention_mass(weights, MASK)
    with pytest.raises(RegardError, match="no images with masks are called 'scene'"):
        masked_scenes("scene")
    with pytest.raises(BadInput, match="no map of this model is called"):
        find_maps(classifier(), np.zeros((8, 8, 3), np.uint8), "rollouts")
    with pytest.raises(RegardError, match="has no maps of an image"):
        find_maps(regard.load("fill-en"), "text")
    with pytest.raises(BadInput, match="no map could be compared"):
        evaluate_maps(classifier(), [], "rollout")


def test_the_command_prints_and_writes_the_scores(tmp_path, capsys):
    file = tmp_path / "maps.json"
    words = ["eval", "scenes", "--maps", "cross", "--limit", "2", "--device", "cpu", "-o", str(file)]
    assert main(words) == 0
    assert "gain over uniform" in capsys.readouterr().out
    found = json.loads(file.read_text())
    assert found["gain"] > 2
    assert 0 <= found["deletion"] <= found["insertion"] <= 1
    assert main(["eval", "scenes", "--maps", "gates", "--limit", "1"]) != 0
    assert "no map of this model is called 'gates'" in capsys.readouterr().err
    assert main(["eval", "scene-questions", "--maps", "cross", "--limit", "1"]) != 0
    assert "cannot be scored on scenes: --data count_questions" in capsys.readouterr().err
