"""A caption says what is where, from left to right, and follows from the masks and the horizon."""

import numpy as np
import pytest
import torch

from regard.core.errors import BadInput
from regard.data.images import composed_scenes, scene_captions
from regard.data.images.named_things import DrawnThings
from regard.data.images.scene_captions import CaptionComposer, SceneCaptions, describe

SMALL = SceneCaptions(image_size=64, batch_size=4, train_examples=12, eval_examples=4)


@pytest.fixture(autouse=True)
def cutouts(monkeypatch):
    """Squares in place of Fashion-MNIST and of digits."""
    square = np.pad(np.full((2, 20, 20), 200, np.uint8), ((0, 0), (4, 4), (4, 4)))
    monkeypatch.setattr(composed_scenes, "load_cutouts", lambda name, part: [square] * 10)


def test_a_caption_follows_from_the_picture(monkeypatch):
    drawn = []
    draw = scene_captions.draw_things

    def remember(*given):
        drawn.append(draw(*given))
        return drawn[-1]

    monkeypatch.setattr(scene_captions, "draw_things", remember)
    composer, seen = CaptionComposer(SMALL, "train"), set()
    for i in range(12):
        scene = composer[i]
        rows, columns = DrawnThings(scene.pixels, scene.masks, drawn[-1].horizon).middles().T
        assert (np.diff(columns) > 0).all()
        places = ["floor" if row > drawn[-1].horizon else "wall" for row in rows]
        assert scene.caption == describe(scene.things, places)
        assert scene.caption.count(" on the ") == len(scene.things) == len(scene.masks)
        for (_, colour), mask in zip(scene.things, scene.masks, strict=True):
            red, green, blue = (np.median(scene.pixels[c][mask]) for c in range(3))
            assert (red > 1.5 * blue) == (colour in ("red", "yellow")), (scene.caption, red, green, blue)
        seen.add(len(scene.things))
    assert seen == {1, 2, 3}
    assert (composer[3].pixels == CaptionComposer(SMALL, "train")[3].pixels).all()
    assert (composer[3].pixels != CaptionComposer(SceneCaptions(seed=1), "train")[3].pixels).any()


def test_every_word_is_known_and_a_split_has_a_caption_for_each_picture():
    text = SMALL.build_tokenizer()
    split = SMALL.load("val", text)
    assert len(split) == len(split.captions) == 4
    batch = split.collate(torch.arange(4))
    assert batch.pictures.shape == (4, 3, 64, 64)
    assert not (batch.target == text.unk).any()
    words = [row[1 : n - 1].tolist() for row, n in zip(batch.target, batch.target_lengths, strict=True)]
    assert text.decode(words) == [several[0] for several in split.captions]
    assert torch.equal(split.training_batch(torch.arange(4), 3).pictures, batch.pictures), "left stays left"


def test_sizes_that_contradict_are_refused():
    with pytest.raises(BadInput, match="min_side"):
        SceneCaptions(min_side=0.35, max_side=0.3)
