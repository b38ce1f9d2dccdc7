"""Answers follow from the objects, all of a kind are as likely, and masks are those of the objects asked about."""

import numpy as np
import pytest
import torch

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
    assert batch.pixels.shape == (6, 3, 64, 64)
    for n in range(6):
        scene = split[n]
        side = scene.questions[KINDS.index("side")]
        one, two = (np.argwhere(scene.masks[m])[:, 1].mean() for m in side.objects)
        assert side.answer == ("left" if one < two else "right")
        for k, question in enumerate(scene.questions):
            wanted = scene.masks[list(question.objects)].any(0)
            assert (batch.masks[n, k].numpy() == wanted).all()
            assert batch.questions[n, k].count_nonzero() == len(question.text.split())


def test_scene_depends_on_seed_and_row_alone():
    words = SMALL.words()
    again, other = SMALL.load("train", words), SceneQuestions(image_size=64, train_examples=6, seed=1)
    assert (SMALL.load("train", words)[2].pixels == again[2].pixels).all()
    assert (other.load("train", words)[2].pixels != again[2].pixels).any()
