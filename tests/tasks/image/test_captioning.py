"""Captioning: a folder of pictures with captions, stored vectors, training, scores, the captioner and its maps."""

import json

import numpy as np
import pytest
import torch
from PIL import Image

from regard.core.errors import BadInput
from regard.data.images import flickr8k
from regard.data.images.captions import clean_caption
from regard.data.images.flickr8k import Flickr8k
from regard.models.show_attend_and_tell import SIZES, Config, ShowAttendAndTell
from regard.tasks.image import captioning, reinforced_captioning
from regard.tasks.reinforce import Reinforce

COLOURS = {"red": (200, 30, 30), "green": (30, 180, 40), "blue": (30, 40, 200)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Pictures of one colour, with two captions each."""
    made = tmp_path_factory.mktemp("pictures")
    (made / "images").mkdir()
    lines = []
    for split, rows in (("train", 9), ("val", 3), ("test", 3)):
        for n in range(rows):
            name, colour = f"{split}{n}.png", [*COLOURS][n % 3]
            half = np.zeros((20, 24, 3), np.uint8)
            half[:, :12] = COLOURS[colour]
            Image.fromarray(half).save(made / "images" / name)
            captions = [f"A {colour} picture .", f"It is {colour}, all of it!"]
            lines.append(json.dumps({"image": name, "split": split, "captions": captions}))
    (made / "captions.jsonl").write_text("\n".join(lines), "utf-8")
    return made


def data(folder, **settings):
    given = {"encoder": None, "image_size": 32, "batch_size": 6, "min_count": 1, "flip": False} | settings
    return Flickr8k(corpus=str(folder), **given)


def build(task, **settings):
    torch.manual_seed(0)
    config = task.fit(Config(**SIZES["tiny"] | {"vocab": 5} | settings))
    return ShowAttendAndTell(config)


def test_captions_are_cleaned_and_every_one_is_a_row(folder):
    assert clean_caption("A dog, two men's hats ; and 3 balls .") == clean_caption("a dog two men's hats and 3 balls")
    task = captioning.Config().build(data(folder))
    train = task.dataset("train")
    assert (len(train), len(train.captions)) == (18, 9)
    assert train.references[0] == ["a red picture", "it is red all of it"]
    batch = train.collate(torch.tensor([0, 1, 3]))
    assert batch.pictures.shape == (3, 3, 32, 32)
    assert torch.equal(batch.pictures[0], batch.pictures[1])  # two captions of one picture
    assert not torch.equal(batch.pictures[0], batch.pictures[2])
    assert batch.target[0, 0] == task.text.bos
    assert [int(row[n - 1]) for row, n in zip(batch.target, batch.target_lengths, strict=True)] == [task.text.eos] * 3
    assert task.text.decode([batch.target[1, 1 : batch.target_lengths[1] - 1].tolist()]) == ["it is red all of it"]


def test_every_second_picture_is_mirrored_and_which_ones_depend_on_the_seed_alone(folder):
    train = captioning.Config().build(data(folder, flip=True)).dataset("train")
    rows = torch.arange(18)
    plain, seen = train.collate(rows).pictures, train.training_batch(rows, 5).pictures
    flipped = torch.tensor([torch.equal(a, b.flip(-1)) for a, b in zip(seen, plain, strict=True)])
    same = torch.tensor([torch.equal(a, b) for a, b in zip(seen, plain, strict=True)])
    assert 2 <= int(flipped.sum()) <= 16
    assert bool((same ^ flipped).all())
    assert torch.equal(seen, train.training_batch(rows, 5).pictures)
    assert not torch.equal(seen, train.training_batch(rows, 6).pictures)


def test_stored_vectors_are_those_of_the_encoder_and_give_its_losses(folder, tmp_path, monkeypatch):
    from regard.models.efficientnet_lite import SIZES as CNNS
    from regard.models.efficientnet_lite import Config as CNNConfig
    from regard.models.efficientnet_lite import EfficientNetLite

    torch.manual_seed(1)
    network = EfficientNetLite(CNNConfig(**CNNS["tiny"])).eval()
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path))
    monkeypatch.setattr(flickr8k.efficientnet_lite, "load", lambda name: (network, None))
    task = captioning.Config().build(data(folder, encoder="lite0", flip=True))
    train = task.dataset("train")
    assert len(list(tmp_path.glob("vectors-*.npy"))) == 2  # as they are, and mirrored
    pixels = captioning.Config().build(data(folder)).dataset("train")
    rows = torch.tensor([0, 3])
    images = task.data.preprocess.normalize(pixels.collate(rows).pictures)
    wanted = network.grid(images).flatten(1, 2)
    torch.testing.assert_close(train.collate(rows).pictures.float(), wanted, rtol=2e-3, atol=2e-3)
    mirrored = torch.ones(2, dtype=torch.bool)
    found = train.pictures(torch.tensor([0, 1]), mirrored).float()
    torch.testing.assert_close(found, network.grid(images.flip(-1)).flatten(1, 2), rtol=2e-3, atol=2e-3)

    model = build(task, frozen=True)
    task.initialize(model)  # the network that made the vectors
    torch.testing.assert_close(model.encoder.eval()(images), wanted)
    with pytest.raises(BadInput, match="frozen"):
        build(task, frozen=False)


def test_a_captioner_learns_colours_and_its_maps_are_on_the_picture(folder, tmp_path):
    task = captioning.Config(doubly_stochastic=0.1, beam_size=3, max_words=8).build(data(folder))
    model = build(task, frozen=True)  # norms would need many more updates for their statistics
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], 1e-2)
    train = task.dataset("train")
    for step in range(120):
        batch = train.training_batch(torch.arange(6) + 6 * step, 0)
        loss, parts = task.loss(model.train(), batch)
        optimizer.zero_grad()
        (loss / task.count(batch)).backward()
        optimizer.step()
    assert float(loss.detach()) > float(parts["loss"])  # the penalty
    scores = task.evaluate(model, "val", effort=2)
    assert scores["bleu1"] == pytest.approx(100)
    assert scores["cider"] > 1
    assert scores["perplexity"] < 2.5
    assert task.report(model, "test")["bleu4"] == task.evaluate(model, "test")["bleu4"]

    caption = captioning.Captioner(model, task.text, task.data.preprocess, max_words=8)
    photo = folder / "images" / "test1.png"
    assert "green" in caption(photo).split()
    several = caption(photo, beam_size=4, num_candidates=2).candidates
    assert len({each.text for each in several}) == 2
    text, traces = caption.analyze(photo)
    assert text == caption(photo)
    y, x = caption.grid_size
    weights = torch.cat([trace.weights.flatten(0, -2) for trace in traces])
    assert weights.shape == (len(text.split()) + 1, y * x)
    for words, reason in (("", "at least one word"), ("a green zeppelin", "zeppelin")):
        with pytest.raises(BadInput, match=reason):
            caption.attention(photo, words)


def test_hard_attention_trains_by_reinforce_and_weighs_both_terms(folder):
    how = Reinforce(entropy=0.01, credit="whole", baseline="moving_average(decay=0.9)", num_samples=2)
    task = reinforced_captioning.Config(reinforce=how).build(data(folder))
    model = build(task, aligner="hard(soft_fraction=0.5)").train()
    batch = task.dataset("train").training_batch(torch.arange(6), 0)
    torch.manual_seed(0)
    loss, parts = task.loss(model, batch)
    (loss / task.count(batch)).backward()
    assert torch.isfinite(loss)
    assert {"loss", "entropy"} <= parts.keys()
    assert all(p.grad is not None for p in model.decoder.aligner.parameters())
    torch.manual_seed(0)
    assert torch.equal(task.loss(model, batch)[1]["loss"], parts["loss"])  # the same places are sampled


def test_folders_that_cannot_be_read_are_one_clear_line(tmp_path, folder):
    for name, content, reason in (
        ("none", None, "captions.jsonl"),
        ("empty", "", "no captions"),
        ("broken", "{", "one object a line"),
        ("missing", '{"image": "1.jpg"}', "one object a line"),
        ("silent", '{"image": "1.jpg", "split": "train", "captions": ["..."]}', "at least one word"),
    ):
        made = tmp_path / name
        made.mkdir()
        if content is not None:
            (made / "captions.jsonl").write_text(content, "utf-8")
        with pytest.raises(BadInput, match=reason):
            data(made).rows()
    (tmp_path / "gone" / "images").mkdir(parents=True)
    (tmp_path / "gone" / "captions.jsonl").write_text((folder / "captions.jsonl").read_text("utf-8"), "utf-8")
    with pytest.raises(BadInput, match=r"train0\.png"):
        captioning.Config().build(data(tmp_path / "gone")).dataset("train").collate(torch.tensor([0]))


def test_captions_of_one_language_in_any_script_and_unknown_words(tmp_path):
    (tmp_path / "images").mkdir()
    words = {"train": "犬 が 雪 の 中 を 走る 。", "val": "猫 が 雪 の 中 を 走る 。", "test": "Ein Hund läuft ."}
    lines = []
    for split, caption in words.items():
        Image.new("RGB", (20, 20), "navy").save(tmp_path / "images" / f"{split}.png")
        lines.append(json.dumps({"image": f"{split}.png", "split": split, "captions": [caption] * 2}))
    (tmp_path / "captions.jsonl").write_text("\n".join(lines), "utf-8")
    task = captioning.Config(beam_size=2, max_words=4).build(data(tmp_path))
    assert task.text.size == 4 + 7, "the words of the training captions, and the special ones"
    model = build(task)
    assert task.text.unk in task.dataset("val").tokens.values.tolist(), "a cat was never described"
    assert set(task.dataset("test").tokens.values.tolist()) == {task.text.bos, task.text.eos, task.text.unk}
    for split in ("val", "test"):
        found = task.evaluate(model, split)
        assert np.isfinite(found["loss"])
        assert 0 <= found["bleu4"] <= 100
    with pytest.raises(BadInput, match="no word occurs 5 times"):
        captioning.Config().build(data(tmp_path, min_count=5))
