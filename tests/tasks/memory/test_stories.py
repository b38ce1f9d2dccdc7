"""Stories: the text form, batches, the settings of training, and a small model that learns."""

import logging

import pytest
import torch

import regard
from regard.core.errors import BadInput
from regard.data.text.stories import Stories, parse_stories
from regard.models.memn2n import Config as MemN2NConfig
from regard.tasks.memory.stories import Config, StoryAnswerer, gate_loss, noisy_ages
from regard.training import train
from regard.training.recipe import Recipe, Train

TEXT = """1 Mary moved to the bathroom.
2 John went to the hallway.
3 Where is Mary? \tbathroom\t1
4 Mary took the milk.
5 What is Mary carrying?\tmilk,football\t4 1
1 Where is John?\tNowhere
"""


def test_the_text_form_keeps_sentences_and_supporting_facts_apart():
    (first, second), (third,) = parse_stories(TEXT, 4)
    assert first.story == ("Mary moved to the bathroom.", "John went to the hallway.")
    assert (first.question, first.answer, first.support, first.task) == ("Where is Mary?", "bathroom", (0,), 4)
    assert (len(second.story), second.answer, second.support) == (3, "milk,football", (2, 0))
    assert (third.story, third.answer, third.support) == ((), "nowhere", ())


def test_bad_lines_are_named():
    for line, message in (
        ("1 A dog.\n2 Where?\tx\t7", "line 2: the supporting line 7"),
        ("Mary moved", "line 1: expected a line that begins with its number"),
        ("1 ?\tx", "a question needs words"),
    ):
        with pytest.raises(BadInput, match=message):
            parse_stories(line)


def test_bad_settings_are_refused():
    with pytest.raises(BadInput, match="no size '5k'"):
        Stories(size="5k").read("train")
    with pytest.raises(BadInput, match="tasks 1 to 20, got 21"):
        Stories(tasks=(1, 21)).read("train")


def own(tmp_path, rows=60):
    """One fact and one distractor: where is somebody?"""
    people, places = ("mary", "john", "anna"), ("garden", "hall", "kitchen")
    lines = []
    for n in range(rows):
        a, b = n % 3, (n // 3 + n) % 3
        lines += [f"1 {people[a]} went to the {places[n % 5 % 3]}.", f"2 {people[(a + 1) % 3]} is in the {places[b]}."]
        lines += [f"3 Where is {people[a]}?\t{places[n % 5 % 3]}\t1"]
    (tmp_path / "own.txt").write_text("\n".join(lines))
    return Stories(str(tmp_path / "own.txt"), max_sentences=4, batch_size=8)


def test_batches_keep_the_newest_sentences(tmp_path, caplog):
    path = tmp_path / "few.txt"
    path.write_text(TEXT * 12)
    data = Stories(str(path), max_sentences=2)
    words = data.words()
    batch = data.load("train", words).collate(torch.tensor([1, 0]))
    assert batch.sentences.shape[:2] == (2, 2)
    assert batch.support.tolist() == [[1, -1], [0, -1]]  # of three sentences the oldest is forgotten
    known = ("", "?", *words.answers, *words.others)
    assert [known[i] for i in batch.sentences[0, 1]][:4] == ["mary", "took", "the", "milk"]
    assert words.answers == ("bathroom", "milk,football", "nowhere")
    with caplog.at_level(logging.WARNING, "regard"):
        other = parse_stories("1 A dog.\n2 Where?\tgarden\t1")[0]
        from regard.data.text.stories import StorySplit

        assert StorySplit(other, words, 2, 4).labels.tolist() == [-100]
    assert "garden" in caplog.text


def test_time_noise_leaves_gaps_in_order():
    lengths = torch.tensor([3, 10, 0, 10, 1])
    for share in (0.0, 0.1, 0.5, 1.0):
        ages = noisy_ages(lengths, 10, share, torch.Generator().manual_seed(0))
        for n, row in zip(lengths.tolist(), ages, strict=True):
            assert (row[: n - 1] > row[1:n]).all() if n > 1 else True
            assert int(row[: max(n, 1)].max()) <= max(0, n - 1 + -(-share * n // 1))
    plain = noisy_ages(lengths, 10, 0.0, None)
    assert plain[1].tolist() == list(range(9, -1, -1))


def test_gate_loss_is_the_cross_entropy_of_supporting_sentences(tmp_path):
    data = own(tmp_path)
    batch = data.load("train", data.words()).collate(torch.arange(4))
    scores = torch.randn(4, 3, 2)
    wanted = -sum(float(scores[i, 0].log_softmax(-1)[0]) for i in range(4))
    assert float(gate_loss(scores, batch)) == pytest.approx(wanted, rel=1e-5)


def test_training_learns_and_the_saved_model_answers(tmp_path, caplog):
    recipe = Recipe(
        MemN2NConfig(vocab=0, width=20, hops=2),
        Config(linear_start=20, time_noise=0.1, gate_weight=0.2),
        own(tmp_path, 300),
        Train(steps=150, learning_rate=1e-2, schedule="cosine", warmup_steps=5, eval_interval=75, metric="error"),
    )
    run = train(recipe, tmp_path / "run")
    answer = regard.load(tmp_path / "run")
    assert isinstance(answer, StoryAnswerer)
    found = answer("Mary went to the garden. John is in the hall.", "Where is Mary?")
    assert found.label == "garden", run
    reading = answer.read_story("Mary went to the garden. John is in the hall.", "Where is Mary?")
    assert reading.weights.shape == (2, 2)
    assert ((reading.weights.sum(-1) > 0.9) & (reading.weights.sum(-1) < 1)).all()  # the rest is on empty slots
    with caplog.at_level(logging.WARNING, "regard"):
        answer("Zeno went to the garden. " * 6, "Where is Zeno?")
    assert "unknown: zeno" in caplog.text
    assert "6 sentences; the newest 4 are read" in caplog.text
    for text, question, message in (
        ("...", "Where?", "no sentence"),
        ("A garden.", "?", "no words"),
        ("a " * 501, "Where?", "at most 500 words, got 501"),
        ("A garden.", "a " * 501, "at most 500 words, got 501"),
    ):
        with pytest.raises(BadInput, match=message):
            answer(text, question)
