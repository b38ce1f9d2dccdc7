"""Small images on large canvases: each in its place, from the seed alone."""

import numpy as np
import pytest
import torch

from regard.core.errors import BadInput
from regard.data.batching import StreamPosition
from regard.data.images.translated_images import TranslatedImages


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    """A small MNIST of random images."""
    folder, dice = tmp_path_factory.mktemp("home"), np.random.default_rng(0)
    (folder / "mnist").mkdir()
    made = {}
    for part, count in (("train", 60), ("test", 20)):
        made[f"{part}_images"] = dice.integers(1, 256, (count, 28, 28), np.uint8)
        made[f"{part}_labels"] = np.arange(count, dtype=np.uint8) % 10
    np.savez(folder / "mnist" / "mnist.npz", **made)
    return folder


@pytest.fixture
def data(digits, monkeypatch):
    monkeypatch.setenv("REGARD_DATA", str(digits))
    return lambda **settings: TranslatedImages(batch_size=8, **{"canvas_size": 40} | settings)


def test_every_canvas_is_its_image_somewhere_on_black(data):
    split = data().load("test")
    places = set()
    for row, batch in enumerate(split.eval_batches(1)):
        canvas, label = batch.to("cpu").pixels[0, 0], int(batch.to("cpu").labels[0])
        (top, left), image = batch.places[0].tolist(), split.small.pixels[row, 0]
        assert torch.equal(canvas[top : top + 28, left : left + 28], image)
        assert canvas.sum() == image.sum()  # black elsewhere
        assert label == row % 10
        places.add((top, left))
    assert len(places) > 15
    assert all(0 <= place <= 12 for pair in places for place in pair)


def test_clutter_equals_a_plain_loop(data):
    split = data(clutter=3, clutter_size=9).load("train")
    rows = torch.tensor([3, 40, 3 + len(split)])
    batch = split.collate(rows)
    found = batch.to("cpu").pixels
    for row in range(3):
        canvas = np.zeros((40, 40), np.uint8)
        top, left = batch.places[row].tolist()
        canvas[top : top + 28, left : left + 28] = split.small.pixels[rows[row] % len(split), 0]
        for image, y, x, down, right in batch.pieces[row].tolist():
            piece = split.small.pixels[image, 0, y : y + 9, x : x + 9].numpy()
            here = canvas[down : down + 9, right : right + 9]
            assert piece.shape == here.shape == (9, 9)
            canvas[down : down + 9, right : right + 9] = np.maximum(here, piece)
        assert np.array_equal(found[row, 0].numpy(), canvas)
    assert torch.equal(batch.to("cpu").labels, split.labels[rows % len(split)])


def test_canvases_depend_on_seed_split_and_row_alone(data):
    split = data(clutter=2).load("train")
    together = split.collate(torch.arange(8)).to("cpu").pixels
    for row in range(8):
        assert torch.equal(split.collate(torch.tensor([row])).to("cpu").pixels[0], together[row])
    again = data(clutter=2).load("train").collate(torch.arange(8)).to("cpu").pixels
    assert torch.equal(again, together)
    other = data(clutter=2, seed=1).load("test").collate(torch.arange(8))
    assert not torch.equal(other.places, data(clutter=2).load("test").collate(torch.arange(8)).places)
    assert torch.equal(split.collate(torch.arange(8)).rows(3).to("cpu").pixels, together[:3])


def test_each_epoch_has_new_places_for_the_same_images(data):
    split = data().load("train")
    first, second = (split.order(0, epoch) for epoch in (0, 1))
    rows = [torch.cat([order[i] for i in range(len(order))]) for order in (first, second)]
    assert rows[0].max() < len(split) <= rows[1].min()
    assert not torch.equal(split.collate(torch.arange(8)).places, split.collate(torch.arange(8) + len(split)).places)
    one, same = (next(iter(split.stream(3).start(StreamPosition(1, 2)))).batch.to("cpu").pixels for _ in range(2))
    assert torch.equal(one, same)


def test_what_does_not_fit_is_refused(data):
    for settings, why in (({"canvas_size": 27}, "do not fit"), ({"clutter": 1, "clutter_size": 29}, "do not fit")):
        with pytest.raises(BadInput, match=why):
            data(**settings)
    with pytest.raises(BadInput, match="at 1, got 2"):
        data(repeats=2)
    assert data(canvas_size=28).load("test").collate(torch.arange(2)).places.tolist() == [[0, 0], [0, 0]]
