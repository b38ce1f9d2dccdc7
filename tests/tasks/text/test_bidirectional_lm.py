"""Two language models at once: the loss, the loop, and vectors of words in their sentences."""

import math

import pytest
import torch
import torch.nn.functional as F

import regard
from regard.core.errors import BadInput, UnknownName
from regard.data.batching import StreamPosition
from regard.data.text.word_sentences import WordSentences
from regard.models.elmo import Config, ELMo
from regard.tasks.text import bidirectional_lm
from regard.tasks.text.bidirectional_lm import ContextualEmbedder
from regard.training import train
from regard.training.recipe import Recipe, Train

LINES = [f"{a} {b} the {c} ." for a in ("One", "Two", "No") for b in ("saw", "ate") for c in ("dog", "fish", "end")]
MODEL = Config(vocab=1, width=8, hidden=12, filters=(4, 4, 6), highway_layers=1, max_word_length=12, dropout=0.1)


@pytest.fixture
def recipe(tmp_path):
    place = tmp_path / "lines.txt"
    place.write_text("\n".join(LINES * 4) + "\n", encoding="utf-8")
    return Recipe(
        MODEL,
        bidirectional_lm.Config(eval_examples=8),
        WordSentences((str(place),), vocab_size=12, min_count=1, lowercase=False, batch_tokens=64),
        Train(
            steps=6,
            device="cpu",
            learning_rate=0.01,
            schedule="constant",
            warmup_steps=1,
            eval_interval=3,
            save_interval=3,
            log_interval=2,
        ),
        name="mine",
    )


@pytest.fixture
def task(recipe):
    return recipe.task.build(recipe.data, seed=2)


def test_the_loss_is_that_of_both_directions(task):
    model = ELMo(task.fit(MODEL)).eval()
    drawn = next(task.batches().start(StreamPosition()))
    spelled, words, lengths, targets = drawn.batch
    top = model(spelled, words, lengths)[-1]
    expected = 0.0
    for i, n in enumerate(lengths.tolist()):
        forth, back = model.head(top[i, : n - 1, :8]), model.head(top[i, 1:n, 8:])
        expected += F.cross_entropy(forth, targets[i, 1:n], reduction="sum")
        expected += F.cross_entropy(back, targets[i, : n - 1], reduction="sum")
    total, parts = task.loss(model, drawn.batch)
    torch.testing.assert_close(total, expected, rtol=1e-5, atol=1e-4)
    assert torch.equal(parts["loss"], total.detach())
    assert drawn.count == task.count(drawn.batch) == 2 * int((lengths - 1).sum())


def test_a_part_is_measured_whole_and_by_direction(task):
    model = ELMo(task.fit(MODEL)).eval()
    found, loss, count = task.evaluate(model, "val"), 0.0, 0
    for batch in task.dataset("val").eval_batches(16):
        loss += float(task.loss(model, batch)[0].detach())
        count += task.count(batch)
    assert found["tokens"] == count
    assert found["loss"] == pytest.approx(loss / count, rel=1e-5)
    assert found["loss"] == pytest.approx((found["forward_loss"] + found["backward_loss"]) / 2)
    assert found["perplexity"] == pytest.approx(math.exp(found["loss"]))
    assert found["forward_loss"] != found["backward_loss"]
    assert 0 <= found["accuracy"] <= 1


def test_trained_in_one_go_or_resumed_is_the_same_to_the_bit(recipe, tmp_path):
    first = train(recipe, tmp_path / "whole")
    train(recipe, tmp_path / "parts", settings=["train.steps=3"])
    second = train(recipe, tmp_path / "parts", settings=["train.steps=6"], resume=True)
    assert first["validation"] == second["validation"]
    a, b = (regard.load(tmp_path / name / "model").model.state_dict() for name in ("whole", "parts"))
    assert all(torch.equal(a[name], b[name]) for name in a)


@pytest.mark.long
def test_training_learns_both_directions(recipe, tmp_path):
    result = train(
        recipe, tmp_path / "run", settings=["train.steps=150", "train.eval_interval=50", "train.save_interval=150"]
    )
    found = result["validation"][result["final_weights"]]
    assert found["forward_loss"] < 1.2
    assert found["backward_loss"] < 1.2
    assert isinstance(regard.load(tmp_path / "run" / "model"), ContextualEmbedder)


# -- vectors in context ------------------------------------------------------------------------------------------------

SENTENCES = ["One saw the dog.", "The dog saw no fish , and ate it at once.", "Fish!"]


@pytest.fixture
def reader(task):
    return ContextualEmbedder(ELMo(task.fit(MODEL)), task.text)


def test_a_batch_of_sentences_gives_the_vectors_of_each_alone(reader):
    together = reader.layers(SENTENCES, batch_tokens=30)
    for line, found in zip(SENTENCES, together, strict=True):
        assert found.shape == (3, len(reader.words(line)), 16)
        (alone,) = reader.layers([line])
        torch.testing.assert_close(found, alone, rtol=1e-5, atol=1e-6)
    assert reader.layers([]) == []


def test_layer_0_knows_the_word_alone_and_the_others_its_sentence(reader):
    a, b = reader.layers(["One saw the dog.", "The dog saw no fish."])
    torch.testing.assert_close(a[0, 3], b[0, 1])
    assert (a[1:, 3] - b[1:, 1]).abs().amax(-1).min() > 1e-3
    assert torch.equal(reader.vectors(["One saw."], 2)[0], reader.layers(["One saw."])[0][2])
    found = reader("One saw.")
    assert found.words == ("One", "saw", ".")
    torch.testing.assert_close(found.vectors, reader.layers(["One saw."])[0].mean(0))
    assert torch.equal(reader("One saw.", layer=2).vectors, reader.layers(["One saw."])[0][2])


def test_near_finds_the_same_place_first(reader):
    found = reader.nearest("One saw the dog.", "dog", SENTENCES, top_k=3)
    assert found[0].word == "dog"
    assert found[0].sentence == "One saw the dog ."
    assert found[0].cosine == pytest.approx(1.0, abs=1e-5)
    assert found[0].cosine >= found[1].cosine >= found[2].cosine


def test_what_cannot_be_read_is_one_clear_line(reader):
    with pytest.raises(BadInput, match="at least one word"):
        reader.layers([" "])
    with pytest.raises(UnknownName, match="did you mean 'dog'"):
        reader.nearest("One saw the dog.", "dgo", SENTENCES)
    with pytest.raises(BadInput, match=r"layer must be from 0 .* to 2, got 3"):
        reader.vectors(SENTENCES, 3)
    with pytest.raises(BadInput, match="top_k must be at least 1, got 0"):
        reader.nearest("One saw.", "saw", SENTENCES, top_k=0)
