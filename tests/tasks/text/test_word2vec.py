"""Word vectors: trained by the one loop, resumed to the bit, saved, and asked for neighbours."""

import pytest
import torch

import regard
from regard.core.errors import BadInput, UnknownName
from regard.data.batching import StreamPosition
from regard.data.text.word_sentences import WordSentences
from regard.models.word2vec import Config, Word2Vec
from regard.tasks.text import word2vec
from regard.tasks.text.word2vec import NearestWords
from regard.tokens.word_tokenizer import build_vocabulary
from regard.training import train
from regard.training.recipe import Recipe, Train

LINES = [f"{a} {b} {c}" for a in ("dog", "cat") for b in ("sees", "likes") for c in ("bone", "fish", "tree")]


@pytest.fixture
def recipe(tmp_path):
    place = tmp_path / "lines.txt"
    place.write_text("\n".join(LINES * 6) + "\n", encoding="utf-8")
    return Recipe(
        Config(vocab=1, width=8),
        word2vec.Config(window=2, negatives=3, subsample=0.0, eval_examples=16),
        WordSentences((str(place),), vocab_size=50, min_count=1, batch_tokens=16),
        Train(
            steps=12,
            device="cpu",
            learning_rate=0.02,
            schedule="constant",
            warmup_steps=1,
            eval_interval=6,
            save_interval=6,
            log_interval=4,
        ),
        name="mine",
    )


def test_the_loss_of_a_batch_is_the_models_and_its_count_the_words(recipe):
    task = recipe.task.build(recipe.data, seed=1)
    model = Word2Vec(task.fit(recipe.model))
    drawn = next(task.batches().start(StreamPosition()))
    assert drawn.count == task.count(drawn.batch) == 16
    total, parts = task.loss(model, drawn.batch)
    assert torch.equal(total.detach(), parts["loss"])
    assert torch.equal(total, model(*drawn.batch))
    # all scores are 0 at first: every word near costs (1 + drawn) log 2, less what was drawn of the near ones
    near = int((drawn.batch.contexts >= 0).sum())
    assert 0.5 * near * 4 * 0.6931 < float(total.detach()) <= near * 4 * 0.6932
    assert (task.counts[:4] == 0).all()
    found = task.evaluate(model, "val")
    assert found["words"] == len(task.dataset("val"))
    assert task.evaluate(model, "val")["loss"] == found["loss"]


@pytest.mark.parametrize("reads", ["skipgram", "cbow"])
def test_trained_in_one_go_or_resumed_is_the_same_to_the_bit(recipe, tmp_path, reads):
    from dataclasses import replace

    recipe = replace(recipe, model=replace(recipe.model, algorithm=reads))
    first = train(recipe, tmp_path / "whole")
    train(recipe, tmp_path / "parts", settings=["train.steps=6"])
    second = train(recipe, tmp_path / "parts", settings=["train.steps=12"], resume=True)
    assert first["validation"] == second["validation"]
    a, b = (regard.load(tmp_path / name / "model").model.state_dict() for name in ("whole", "parts"))
    assert all(torch.equal(a[name], b[name]) for name in a)


def test_training_learns_what_is_near(recipe, tmp_path):
    task = recipe.task.build(recipe.data)
    before = task.evaluate(Word2Vec(task.fit(recipe.model)), "val")["loss"]
    result = train(
        recipe, tmp_path / "run", settings=["train.steps=300", "train.eval_interval=100", "train.save_interval=300"]
    )
    assert result["validation"][result["final_weights"]]["loss"] < 0.9 * before
    found = regard.load(tmp_path / "run" / "model")
    assert isinstance(found, NearestWords)
    assert found.nearest("dog", 1)[0].word == "cat"  # the same company
    assert found.nearest("sees", 1)[0].word == "likes"


# -- neighbours --------------------------------------------------------------------------------------------------------

VECTORS = {"king": [2.0, 0.2], "queen": [2.0, 2.2], "man": [1.0, -1.0], "woman": [1.0, 1.0], "bread": [-3.0, 0.1]}


@pytest.fixture
def toy():
    text = build_vocabulary([list(VECTORS)], size=20, lower=True)
    model = Word2Vec(Config(vocab=text.size, width=2))
    with torch.no_grad():
        model.embed.weight.fill_(5.0)  # no special token is ever a neighbour, whatever its vector
        for word, vector in VECTORS.items():
            model.embed.weight[text.encode_one(word)[0]] = torch.tensor(vector)
    return NearestWords(model, text)


def test_neighbours_are_those_of_the_largest_cosine(toy):
    found = toy.nearest("king", 9)
    assert len(found) == 4  # all others; itself and the special ones are left out
    x = torch.tensor(VECTORS["king"])
    cosines = {w: float(torch.cosine_similarity(x, torch.tensor(v), dim=0)) for w, v in VECTORS.items() if w != "king"}
    assert [each.word for each in found] == sorted(cosines, key=cosines.get, reverse=True)
    for each in found:
        assert each.cosine == pytest.approx(cosines[each.word], abs=1e-6)
    assert list(toy(["king", "bread"], top_k=2)[0].neighbors) == toy.nearest("King", 2)


def test_an_analogy_is_a_difference_of_unit_vectors_added(toy):
    unit = {w: torch.nn.functional.normalize(torch.tensor(v), dim=0) for w, v in VECTORS.items()}
    wanted = unit["woman"] - unit["man"] + unit["king"]
    found = toy.analogy("man", "woman", "king", 2)
    assert found[0].word == "queen"
    assert found[0].cosine == pytest.approx(float(torch.cosine_similarity(wanted, unit["queen"], dim=0)), abs=1e-6)


def test_vectors_come_as_they_were_trained_and_back_from_a_folder(toy, tmp_path):
    assert toy.vectors(["man", "bread"]).tolist() == [pytest.approx([1.0, -1.0]), pytest.approx([-3.0, 0.1])]
    regard.save(toy, tmp_path / "v", dtype="float16")
    again = regard.load(tmp_path / "v")
    assert [n.word for n in again.nearest("king")] == [n.word for n in toy.nearest("king")]
    assert toy.vocabulary == sorted(VECTORS)


def test_every_known_word_is_found_also_one_that_a_line_would_be_cut_at():
    text = build_vocabulary([["--", "o'clock's-", "dog"]], size=20, lower=True)
    words = NearestWords(Word2Vec(Config(vocab=text.size, width=2)), text)
    assert words.vectors(words.vocabulary).shape == (3, 2)
    assert words.word_id("--") == text.size - 3


def test_what_is_not_a_known_word_is_one_clear_line(toy):
    with pytest.raises(UnknownName, match=r"'quen' is not among the 5 words of this model; similar ones: queen"):
        toy.nearest("quen")
    with pytest.raises(UnknownName, match="none is spelled like it"):
        toy.vectors(["zzzz"])
    with pytest.raises(BadInput, match="is 2 words"):
        toy.nearest("new york")
    with pytest.raises(BadInput, match="empty"):
        toy.nearest(" ")
    with pytest.raises(BadInput, match="list of words"):
        toy.vectors("king")
    with pytest.raises(BadInput, match="top_k must be at least 1, got 0"):
        toy.nearest("king", 0)
    with pytest.raises(BadInput, match="is 4 words"):
        toy.nearest("</s>")  # the characters, not the token
