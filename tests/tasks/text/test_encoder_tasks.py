"""Tasks over an encoder: their losses, their scores, exact resume, and batch equals single, for every one of them."""

import math
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

import regard
from regard.core.errors import BadInput
from regard.data.batching import StreamPosition
from regard.data.shards.token_shards import IGNORE_INDEX
from regard.tasks.text.classification import TextClassifier
from regard.tasks.text.extractive_qa import QuestionAnswerer
from regard.tasks.text.tagging import Tagger
from regard.training import train
from regard.training.checkpoint.checkpoints import read_weights
from tests.long_params import rest_is_long
from tests.tasks.text_data import TASKS, data, model, recipe, task, written


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return written(tmp_path_factory.mktemp("reading") / "data")


def first(made):
    return next(made.batches().start(StreamPosition()))


def test_masked_words_are_asked_for_at_their_places_and_what_follows_weighs_as_much(folder):
    made = task(folder, "documents")
    m, drawn = model(made), first(made)
    batch = drawn.batch
    assert drawn.count == made.count(batch) == int((batch.targets != IGNORE_INDEX).sum())
    words, follows = m(batch.tokens, batch.segments, batch.lengths)
    at = words.gather(1, batch.masked_positions[..., None].expand(-1, -1, words.shape[-1]))
    expected = F.cross_entropy(at.flatten(0, 1), batch.targets.flatten(), reduction="sum", ignore_index=IGNORE_INDEX)
    following = F.cross_entropy(follows, batch.next_sentence_labels, reduction="sum", ignore_index=IGNORE_INDEX)
    total, parts = made.loss(m, batch)
    torch.testing.assert_close(parts["loss"], expected.detach(), rtol=1e-5, atol=1e-4)
    torch.testing.assert_close(total, expected + batch.masked_positions.shape[1] * following, rtol=1e-5, atol=1e-4)
    assert made.fit(m.config).head == "pretraining"
    alone = task(folder, "sentences")
    total, parts = alone.loss(model(alone), first(alone).batch)
    assert set(parts) == {"loss"}
    assert alone.fit(m.config).head == "masked"


def test_masked_words_are_measured_as_they_are_trained(folder):
    made = task(folder, "documents")
    m = model(made)
    nll = right = words = pairs = known = 0
    with torch.no_grad():
        for batch in made.dataset("val").eval_batches(3):
            logits, follows = m(batch.tokens, batch.segments, batch.lengths, batch.masked_positions)
            asked = batch.targets != IGNORE_INDEX
            nll += float(F.cross_entropy(logits[asked], batch.targets[asked], reduction="sum"))
            right += int((logits[asked].argmax(-1) == batch.targets[asked]).sum())
            words += int(asked.sum())
            there = batch.next_sentence_labels != IGNORE_INDEX
            pairs, known = (
                pairs + int(there.sum()),
                known + int((follows.argmax(-1) == batch.next_sentence_labels)[there].sum()),
            )
    found = made.evaluate(m, "val")
    assert found["words"] == words
    assert found["loss"] == pytest.approx(nll / words, rel=1e-5)
    assert found["perplexity"] == pytest.approx(math.exp(nll / words), rel=1e-4)
    assert found["accuracy"] == right / words
    assert (found["pairs"], found["nsp_accuracy"]) == (pairs, known / pairs)
    assert "nsp_loss" not in task(folder, "sentences").evaluate(model(task(folder, "sentences")), "val")


@pytest.mark.parametrize("kind", ["labelled", "pairs"])
def test_classification_sums_over_texts(folder, kind):
    made = task(folder, kind)
    m, drawn = model(made), first(made)
    logits = m(drawn.batch.tokens, drawn.batch.segments, drawn.batch.lengths)
    assert logits.shape == (6, len(made.labels))
    torch.testing.assert_close(
        made.loss(m, drawn.batch)[0], F.cross_entropy(logits, drawn.batch.labels, reduction="sum")
    )
    assert drawn.count == 6
    found = made.evaluate(m, "val")
    said = TextClassifier(m, made.text, made.labels)(*zip(*(row[:-1] for row in made.data.read("val")), strict=True))
    right = [each.label == row[-1] for each, row in zip(said, made.data.read("val"), strict=True)]
    assert found["accuracy"] == sum(right) / len(right)
    assert found["texts"] == len(right)
    nll = -sum(math.log(each.probabilities[row[-1]]) for each, row in zip(said, made.data.read("val"), strict=True))
    assert found["loss"] == pytest.approx(nll / len(right), rel=1e-4)


def test_tagging_asks_at_first_pieces_only(folder):
    made = task(folder, "tagged")
    m, drawn = model(made), first(made)
    logits, wanted = m(drawn.batch.tokens, None, drawn.batch.lengths), drawn.batch.targets
    expected = F.cross_entropy(logits[wanted != IGNORE_INDEX], wanted[wanted != IGNORE_INDEX], reduction="sum")
    torch.testing.assert_close(made.loss(m, drawn.batch)[0], expected)
    assert drawn.count == int((wanted != IGNORE_INDEX).sum())
    assert made.metrics[0].key == "f1"
    found = made.evaluate(m, "val")
    assert {"loss", "accuracy", "precision", "recall", "f1", "words"} == set(found)
    assert found["words"] == sum(len(words) for words, _ in made.data.read("val"))


def test_spans_sum_over_both_ends(folder):
    made = task(folder, "questions")
    m, drawn = model(made), first(made)
    scores = m(drawn.batch.tokens, drawn.batch.segments, drawn.batch.lengths)
    p = scores.log_softmax(1)
    rows = torch.arange(6)
    expected = -(p[rows, drawn.batch.start_positions, 0] + p[rows, drawn.batch.end_positions, 1]).sum()
    torch.testing.assert_close(made.loss(m, drawn.batch)[0], expected)
    assert set(made.evaluate(m, "val")) == {"loss", "exact_match", "f1", "questions"}


@pytest.mark.parametrize("kind", rest_is_long(TASKS, "classification", "extractive_qa"))
def test_training_on_equals_training_at_once(tmp_path, folder, kind):
    train(recipe(folder, kind, score_interval=0), tmp_path / "once")
    train(recipe(folder, kind, score_interval=0, steps=4), tmp_path / "twice")
    train(recipe(folder, kind, score_interval=0, num_workers=2), tmp_path / "twice", resume=True)
    once, twice = (read_weights(tmp_path / name / "checkpoints" / "final.safetensors") for name in ("once", "twice"))
    for name, value in once.items():
        assert torch.equal(value, twice[name]), name


LEARNED = {
    "labelled": ("accuracy", 0.9),
    "tagged": ("f1", 0.9),
    "questions": ("f1", 0.5),
    "sentences": ("accuracy", 0.4),
}


@pytest.mark.parametrize("kind", LEARNED)
def test_a_run_learns_and_what_it_saved_predicts(tmp_path, folder, kind):
    steps = 200 if kind == "labelled" else 120
    how = {
        "steps": steps,
        "learning_rate": 1e-2,
        "warmup_steps": 20,
        "gradient_accumulation_steps": 1,
        "eval_interval": steps,
        "save_interval": steps,
        "ema_decay": 0.0,
    }
    whole = recipe(folder, kind, schedule="linear", **how)
    result = train(replace(whole, model=replace(whole.model, width=32, layers=1, dropout=0.0)), tmp_path / "run")
    name, least = LEARNED[kind]
    assert result["validation"][result["final_weights"]][name] > least
    if kind == "sentences":
        return
    predict = regard.load(tmp_path / "run" / "model")
    made = task(folder, kind)
    if kind == "labelled":
        assert isinstance(predict, TextClassifier)
        assert predict.labels == made.labels
        said = predict(["the horse sees the river ."])[0]
        assert said.label == "horse"
        assert sum(said.probabilities.values()) == pytest.approx(1)
        assert said.probability == max(said.probabilities.values()) == next(iter(said.probabilities.values()))
    if kind == "tagged":
        assert isinstance(predict, Tagger)
        assert predict("the cat likes the house .").labels == ("O", "B-A", "B-V", "O", "B-P", "O")
    if kind == "questions":
        assert isinstance(predict, QuestionAnswerer)
        found = predict(["The Cat likes the House. the dog sees the river ."], ["what did the cat see first ?"])[0]
        assert found.text == "The Cat likes the House. the dog sees the river ."[found.begin : found.end]


def predictors(folder):
    for kind in ("labelled", "tagged", "questions"):
        made = task(folder, kind)
        yield kind, {"labelled": TextClassifier, "tagged": Tagger, "questions": QuestionAnswerer}[kind], made


@pytest.mark.parametrize("kind", ["labelled", "pairs", "tagged", "questions"])
def test_company_does_not_change_an_answer(folder, kind):
    made = task(folder, kind)
    m = model(made)
    texts = ["the dog .", "the cat sees the garden . the bird likes the house .", "river"]
    others = ["what ?", "the horse likes the river", "a"]
    if kind == "tagged":
        tag = Tagger(m, made.text, made.labels)
        assert tag(texts) == [tag([each])[0] for each in texts]
        assert [len(each.labels) for each in tag(texts)] == [3, 12, 1]
        assert tag.tags([text.split() for text in texts]) == [list(each.labels) for each in tag(texts)]
        return
    if kind == "questions":
        answer = QuestionAnswerer(m, made.text, max_length=16)  # the second text needs several windows
        whole, singles = answer(texts, others), [answer([a], [b])[0] for a, b in zip(texts, others, strict=True)]
        assert [(a.text, a.begin) for a in whole] == [(a.text, a.begin) for a in singles]
        assert [a.score for a in whole] == pytest.approx([a.score for a in singles], abs=1e-5)
        return
    classify = TextClassifier(m, made.text, made.labels)
    both = (texts, others) if kind == "pairs" else (texts,)
    whole, singles = classify(*both), [classify(*([each] for each in some))[0] for some in zip(*both, strict=True)]
    for a, b in zip(whole, singles, strict=True):
        assert a.label == b.label
        assert a.probabilities == pytest.approx(b.probabilities, abs=1e-6)


def test_a_long_sentence_is_tagged_to_its_end(folder):
    made = task(folder, "tagged")
    tag = Tagger(model(made), made.text, made.labels, max_length=10)
    assert len(tag("the dog sees the house . " * 9).labels) == 54


def test_a_long_text_is_classified_by_its_beginning_and_that_is_said(folder, caplog):
    made = task(folder, "labelled")
    classify = TextClassifier(model(made), made.text, made.labels, max_length=8)
    (cut,) = classify(["the dog sees the house . " * 9])
    assert "text 1 is longer than the 8 tokens that this model takes" in caplog.text
    classify(["a", "the dog sees the house . " * 9, "the dog sees the house . " * 2])
    assert "2 texts (the first is text 2) are longer" in caplog.text
    (short,) = classify(["the dog sees the house . "])
    assert cut.probabilities == pytest.approx(short.probabilities, abs=1e-6)


@pytest.mark.parametrize("kind", ["labelled", "tagged", "questions"])
def test_what_cannot_be_read_is_said(folder, kind):
    made = task(folder, kind)
    m = model(made)
    predict = {
        "labelled": lambda texts: TextClassifier(m, made.text, made.labels)(texts),
        "tagged": lambda texts: Tagger(m, made.text, made.labels)(texts),
        "questions": lambda texts: QuestionAnswerer(m, made.text)(texts, ["what ?"] * len(texts)),
    }[kind]
    assert predict([]) == []
    for texts, said in ((["a", " "], "2 (is empty|has no words)"), (["a", 7], "text 2: Expected a text")):
        with pytest.raises(BadInput, match=said):
            predict(texts)
    if kind == "labelled":
        with pytest.raises(BadInput, match="one value per field; got 1 texts, 2 others"):
            TextClassifier(m, made.text, made.labels)(["a"], ["b", "c"])


def test_predictors_are_saved_with_their_labels(folder, tmp_path):
    for kind, cls, made in predictors(folder):
        m = model(made)
        given = made.describe()
        assert given.pop("name")
        one = cls(m, made.text, **given)
        regard.save(one, tmp_path / kind)
        two = regard.load(tmp_path / kind)
        assert type(two) is cls
        assert two.room == one.room
        if kind == "labelled":
            assert two(["the dog"])[0].probabilities == pytest.approx(one(["the dog"])[0].probabilities)


def test_rows_longer_than_the_model_learns_positions_for_are_refused(folder):
    with pytest.raises(BadInput, match=r"data\.max_length"):
        task(folder, "labelled").fit(model(task(folder, "tagged"), length=32).config.__class__(vocab=5, length=8))


def test_data_of_all_kinds_shrink(folder):
    for kind in TASKS:
        assert data(folder, kind).quick().limit


@pytest.mark.parametrize("kind", TASKS)
def test_regard_eval_says_how_good_a_run_of_any_kind_is(tmp_path, folder, kind, capsys):
    from regard import cli

    train(
        recipe(folder, kind, steps=2, gradient_accumulation_steps=1, eval_interval=2, save_interval=2), tmp_path / "run"
    )
    capsys.readouterr()
    assert cli.main(["eval", str(tmp_path / "run"), "--split", "val", "--device", "cpu"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("val: ")
    assert {"labelled": "accuracy", "pairs": "macro F1", "tagged": "recall", "questions": "exact match"}.get(
        kind, "perplexity"
    ) in said


def test_the_cards_numbers_are_the_recipes():
    from regard.training.recipe import build, load_recipe

    with torch.device("meta"):
        sizes = {
            n: sum(p.numel() for p in build(load_recipe(n).model).parameters())
            for n in ("bert_pretrain", "bert_tatoeba_mlm")
        }
    assert 17.5e6 < sizes["bert_pretrain"] < 17.7e6
    assert sizes["bert_tatoeba_mlm"] < 7 * 2**20  # a byte each; the vocabulary needs about half a MiB more
    assert (load_recipe("bert_tatoeba_mlm").train.save_dtype, load_recipe("bert_language_id").train.save_dtype) == (
        "int8",
        "float16",
    )
    sst2, trec, chunks, body = (load_recipe(f"bert_{n}") for n in ("sst2", "trec", "conll2000", "pretrain"))
    for name in ("width", "heads", "layers", "ffn", "length", "positions"):  # what begins from another must fit it
        assert len({getattr(r.model, name) for r in (sst2, trec, chunks, body)}) == 1
    assert sst2.train.init_from is None
