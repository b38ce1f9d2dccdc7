"""Answers follow from the objects, all of a kind are as likely, and masks are those of the objects asked about."""

import numpy as np
import pytest
import torch

from regard.core.errors import BadInput
from regard.data.images import composed_scenes
from regard.data.images.scene_questions import (
    KINDS,
    SceneQuestions,
    count_objects,
    plan_scene,
    write_questions,
)

SMALL = SceneQuestions(image_size=64, batch_size=4, train_examples=6, eval_examples=3)


@pytest.fixture(autouse=True)
def cutouts(monkeypatch):
    """Squares in place of Fashion-MNIST and of digits."""
    square = np.pad(np.full((2, 20, 20), 200, np.uint8), ((0, 0), (4, 4), (4, 4)))
    monkeypatch.setattr(composed_scenes, "load_cutouts", lambda name, part: [square] * 10)


def test_answers_follow_from_the_objects_and_are_balanced():
    rng, answers = np.random.default_rng(0), {kind: [] for kind in KINDS}
    for _ in range(600):
        things, asked = plan_scene(rng, 5)
        count, same, colour, side = write_questions(things, asked, rng)
        assert int(count.answer) == len(count_objects(things, asked.colour, asked.thing)) == len(count.objects)
        first, second = (things[n] for n in same.objects)
        assert same.answer == ("yes" if first[1] == second[1] else "no")
        assert things[colour.objects[0]][1] == colour.answer
        assert [name for name, _ in things].count(things[colour.objects[0]][0]) == 1, "which one is clear"
        for question in (count, same, colour, side):
            assert SMALL.forms().explain_refusal(question.text) == ""
            answers[question.kind].append(question.answer)
    for kind, many in (("count", 5), ("same", 2), ("colour", 6), ("side", 2)):
        _, counts = np.unique(answers[kind], return_counts=True)
        assert len(counts) == many
        assert abs(counts / 600 - 1 / many).max() < 0.08


def test_side_and_masks_are_those_of_the_picture():
    split = SMALL.load("train", SMALL.words())
    batch = split.collate(torch.arange(6))
    masks = split.question_masks(torch.arange(6))
    assert batch.pixels.shape == (6, 3, 64, 64)
    assert batch.answers.shape == (6, 4)
    for n in range(6):
        scene = split[n]
        side = scene.questions[KINDS.index("side")]
        one, two = (np.argwhere(scene.masks[m])[:, 1].mean() for m in side.objects)
        assert side.answer == ("left" if one < two else "right")
        for k, question in enumerate(scene.questions):
            if k < len(KINDS):  # validation, and `collate`, ask the first set
                assert (masks[n, k].numpy() == scene.masks[list(question.objects)].any(0)).all()
                assert batch.questions[n, k].count_nonzero() == len(question.text.split())


def test_scene_depends_on_seed_and_row_alone():
    words = SMALL.words()
    again, other = SMALL.load("train", words), SceneQuestions(image_size=64, train_examples=6, seed=1)
    assert (SMALL.load("train", words)[2].pixels == again[2].pixels).all()
    assert (other.load("train", words)[2].pixels != again[2].pixels).any()


def test_every_question_about_a_scene_is_answered_by_its_objects():
    split, sides, counts = SceneQuestions(image_size=64, train_examples=12, question_sets=8), [], []
    for scene in (split.load("train", split.words())[n] for n in range(12)):
        assert len(scene.questions) == 8 * len(KINDS)
        columns = [np.argwhere(mask)[:, 1].mean() for mask in scene.masks]
        for question in scene.questions:
            assert split.forms().explain_refusal(question.text) == "", question.text
            names = [scene.things[n][0] for n in question.objects]
            colours = [scene.things[n][1] for n in question.objects]
            if question.kind == "count":
                counts.append(len(question.objects))
                assert question.answer == str(len(question.objects))
            else:
                assert all([name for name, _ in scene.things].count(name) == 1 for name in names), "which one is clear"
            if question.kind == "same":
                assert question.answer == ("yes" if colours[0] == colours[1] else "no")
            if question.kind == "colour":
                assert [question.answer] == colours
            if question.kind == "side":
                one, two = (columns[n] for n in question.objects)
                sides.append(question.answer)
                assert question.answer == ("left" if one < two else "right")
    assert 0.3 < sides.count("left") / len(sides) < 0.7
    assert {*counts} == {0, 1, 2, 3, 4}


def test_training_mirrors_scenes_and_asks_some_of_the_questions():
    words = SMALL.words()
    split = SMALL.load("train", words)
    rows = torch.arange(6)
    first, again = (split.training_batch(rows, seed=0) for _ in range(2))
    assert all(torch.equal(x, y) for x, y in zip(first, again, strict=True))
    assert not torch.equal(first.questions, split.training_batch(rows + 6, seed=0).questions), "another epoch"
    assert first.answers.shape == (6, 2 * len(KINDS))
    flips = []
    for n in range(6):
        scene = split[n]
        flips.append(not np.array_equal(first.pixels[n].numpy(), scene.pixels))
        shown = scene.pixels[..., ::-1] if flips[-1] else scene.pixels
        assert np.array_equal(first.pixels[n].numpy(), shown)
        known = {}
        for question in scene.questions:
            answer = {"left": "right", "right": "left"}.get(question.answer, question.answer)
            ids = words.encode([question.text])[0].tolist()
            known[tuple(ids)] = words.answers.index(answer if flips[-1] else question.answer)
        for ids, answer in zip(first.questions[n].tolist(), first.answers[n].tolist(), strict=True):
            assert known[tuple(each for each in ids if each)] == answer
    assert {*flips} == {True, False}


def test_more_questions_than_there_are_is_refused():
    with pytest.raises(BadInput, match="sets_per_update=5 must be at most"):
        SceneQuestions(sets_per_update=5)


def test_stored_scenes_equal_those_that_are_composed_when_they_are_asked_for(tmp_path, monkeypatch):
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path))
    settings = [SceneQuestions(image_size=48, train_examples=3, store=store) for store in (False, True)]
    lazy, stored = (each.load("train", each.words()) for each in settings)
    assert stored.fingerprint() == lazy.fingerprint()
    for one, other in zip(
        lazy.training_batch(torch.arange(3), 5), stored.training_batch(torch.arange(3), 5), strict=True
    ):
        assert torch.equal(one, other)
