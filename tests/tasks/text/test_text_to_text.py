"""Text to text: the loss, the scores of every task, the predictor and what it refuses; trained on a task made here."""

import random
from dataclasses import dataclass

import pytest
import torch

import regard
from regard.core.errors import BadInput
from regard.data import TEXT_TASKS
from regard.data.batching import StreamPosition
from regard.data.text.span_corruption import SpanCorruption
from regard.data.text.task_mixture import TaskMixture
from regard.data.text.text_tasks import Example
from regard.decoding.generation_config import GenerationConfig
from regard.losses.fused_linear_cross_entropy import fused_linear_cross_entropy
from regard.models.t5 import T5, Config
from regard.tasks.text.text_to_text import Config as TaskConfig
from regard.tasks.text.text_to_text import TextToTextGenerator
from regard.tokens.sentinels import sentinel_ids

WORDS = ["red", "one", "two", "cat", "dog"]


@dataclass(frozen=True)
class Toy:
    """Words to be said backwards, or counted: short enough to be learned in seconds."""

    what: str = "back"
    name: str = "back"
    metric: str = "exact_match"

    @property
    def prefix(self):
        return f"{self.what}: "

    def splits(self):
        return ["test", "train", "val"]

    def read(self, split):
        rng = random.Random(split + self.what)
        lines = [rng.choices(WORDS, k=rng.randint(1, 3)) for _ in range(400 if split == "train" else 12)]
        if self.what == "count":
            return [Example(" ".join(w), str(len(w)), (str(len(w)),)) for w in lines]
        return [Example(" ".join(w), " ".join(w[::-1]), (" ".join(w[::-1]),)) for w in lines]


@pytest.fixture(autouse=True)
def toys(monkeypatch):
    monkeypatch.setitem(TEXT_TASKS, "toy", (__name__, "Toy"))


TOYS = ("toy", "toy(what='count', name='count', metric='accuracy')")
SMALL = {"width": 32, "heads": 2, "head_dim": 16, "ffn": 64, "encoder_layers": 1, "decoder_layers": 1}
SMALL |= {"dropout": 0.0, "attention_dropout": 0.0, "activation_dropout": 0.0}


def build(**settings):
    data = TaskMixture(
        **({"tasks": TOYS, "tokenizer": "word", "vocab_size": 60, "batch_tokens": 256, "max_length": 16} | settings)
    )
    task = TaskConfig(beam_size=2, eval_examples=6).build(data)
    torch.manual_seed(0)
    return task, T5(task.fit(Config(vocab=1, **SMALL))).eval()


@pytest.fixture(scope="module")
def trained():
    """A model that has learned both tasks: seconds of training, shared by the tests below."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(TEXT_TASKS, "toy", (__name__, "Toy"))
        task, model = build()
        optimizer = torch.optim.Adam(model.parameters(), 4e-3)
        stream = task.batches().start(StreamPosition())
        for _ in range(220):
            drawn = next(stream)
            (task.loss(model, drawn.batch)[0] / drawn.count).backward()
            optimizer.step()
            optimizer.zero_grad()
        return task, model.eval()


def test_the_loss_is_the_cross_entropy_of_the_targets_tokens(double):
    task, model = build()
    batch = next(task.batches().start(StreamPosition())).batch
    total, parts = task.loss(model, batch)
    logits = model(batch.source, batch.target[:, :-1], batch.source_lengths)
    expected = 0.0
    for row in range(len(logits)):
        n = int(batch.target_lengths[row]) - 1
        p = logits[row, :n].log_softmax(-1)
        expected -= float(p.gather(1, batch.target[row, 1 : n + 1, None]).sum().detach())
    assert float(total.detach()) == pytest.approx(expected)
    assert float(parts["loss"]) == pytest.approx(expected)
    assert task.count(batch) == int((batch.target_lengths - 1).sum())


def test_smoothing_is_part_of_the_objective_and_not_of_the_measure():
    task, model = build()
    smooth = TaskConfig(label_smoothing=0.1).build(task.data)
    batch = next(task.batches().start(StreamPosition())).batch
    x, weight, targets = torch.randn(4, 32), model.head.weight, torch.tensor([1, 2, 3, 4])
    with torch.no_grad():
        torch.testing.assert_close(
            smooth.objective(x, weight, targets), fused_linear_cross_entropy(x, weight, targets, label_smoothing=0.1)
        )
    assert float(smooth.loss(model, batch)[0].detach()) != pytest.approx(float(task.loss(model, batch)[0].detach()))
    assert smooth.evaluate(model, "val", 0)["loss"] == pytest.approx(task.evaluate(model, "val", 0)["loss"])


def test_both_tasks_are_learned_by_one_model_and_scored_apart(trained):
    task, model = trained
    found = task.evaluate(model, "test", 2)
    assert found["count_accuracy"] > 80
    assert found["back_exact_match"] > 30
    assert found["back_f1"] >= found["back_exact_match"]
    assert found["score"] == pytest.approx((found["back_exact_match"] + found["count_accuracy"]) / 2)
    assert found["loss"] == pytest.approx((found["back_loss"] + found["count_loss"]) / 2)
    assert {"back_exact_match_signature", "count_accuracy_signature"} <= found.keys()
    assert "score" not in task.evaluate(model, "test", 0)


def test_a_report_shows_what_was_asked_and_said(trained):
    task, model = trained
    found = task.report(model, "test", beam_size=1)
    assert found["sentences"] == 24
    prompt, output = found["samples"]["count"][0]
    assert prompt.startswith("count: ")
    assert output.strip() in ("1", "2", "3")


def test_a_batch_gives_what_singles_give_in_every_way_of_searching(trained):
    task, model = trained
    write = TextToTextGenerator(model.double(), task.text)
    prompts = ["back: red dog", "count: one two cat", "back: two"]
    short = {"max_new_tokens": 6}
    for how in (
        {"beam_size": 1},
        {"beam_size": 3},
        {"beam_size": 4, "groups": 2, "num_candidates": 2},
        {"prefix": "red"},
        {"must": ["two"]},
    ):
        how = how | short
        batch, singles = write(prompts, **how), [write(prompt, **how) for prompt in prompts]
        assert batch == singles, how
        assert [[c.text for c in each.candidates] for each in batch] == [
            [c.text for c in each.candidates] for each in singles
        ]
    drawn = write(prompts, sample=True, seed=3, temperature=2.0, **short)
    assert drawn == write(prompts, sample=True, seed=3, temperature=2.0, **short)
    assert write(prompts[:1], sample=True, seed=3, temperature=2.0, **short) == drawn[:1]
    model.float()


def test_the_model_and_its_words_are_saved_and_loaded_as_a_predictor(trained, tmp_path):
    task, model = trained
    write = TextToTextGenerator(model, task.text, max_length=16, max_new_tokens=9, overflow="truncate")
    regard.save(write, tmp_path / "kept")
    again = regard.load(tmp_path / "kept")
    assert isinstance(again, TextToTextGenerator)
    assert (again.max_length, again.max_new_tokens, again.overflow) == (16, 9, "truncate")
    assert again(["back: red dog", "count: one"]) == write(["back: red dog", "count: one"])


def test_a_prompt_that_is_too_long_is_refused_or_cut_as_asked_and_never_silently(trained, caplog):
    task, model = trained
    long = "count: " + "red " * 40
    with pytest.raises(BadInput, match=r"prompt 2 has \d+ tokens, but the model was trained on at most 15"):
        TextToTextGenerator(model, task.text, max_length=16)(["count: red", long])
    cut = TextToTextGenerator(model, task.text, max_length=16, overflow="truncate")
    assert cut([long]) == cut(["count: " + "red " * 13])
    assert "prompt 1 has 42 tokens and is truncated to 15" in caplog.text
    with pytest.raises(BadInput, match="'error' or 'truncate'"):
        TextToTextGenerator(model, task.text, overflow="whatever")


@pytest.mark.parametrize("prompts", [[""], ["count: red", "  "], ["\t\n"]])
def test_an_empty_prompt_is_refused(trained, prompts):
    task, model = trained
    with pytest.raises(BadInput, match=f"prompt {len(prompts)} is empty"):
        TextToTextGenerator(model, task.text)(prompts)


def test_an_answer_has_at_most_as_many_tokens_as_asked_for(trained):
    task, model = trained
    write = TextToTextGenerator(model, task.text)
    assert write(["back: red one dog"], max_new_tokens=2)[0].split() == write(["back: red one dog"])[0].split()[:2]
    with pytest.raises(BadInput, match="max_new_tokens must be at least 1, got 0"):
        write(["back: red"], max_new_tokens=0)


def test_a_vocabulary_larger_than_the_model_is_refused_and_spare_rows_are_never_written():
    task, _ = build()
    with pytest.raises(BadInput, match="use the tokenizer that the model"):
        TextToTextGenerator(T5(Config(vocab=9, **SMALL)), task.text)
    spare = T5(Config(vocab=task.text.size + 50, **SMALL))
    with torch.no_grad():
        spare.embed.weight[task.text.size :] *= 50  # what it would like to write most
    write = TextToTextGenerator(spare, task.text)
    found = write._search([[5, 6]], GenerationConfig(3, max_new_tokens=8), 64, [0])
    assert all(token < task.text.size for row in found for h in row for token in h.tokens)


def test_attention_of_an_answer_has_the_words_at_its_sides(trained):
    task, model = trained
    traces = TextToTextGenerator(model, task.text).attention("back: red dog", beam_size=1)
    kinds = {trace.name: trace.kind for trace in traces}
    assert kinds == {"encoder.blocks.0.mix": "self", "decoder.blocks.0.mix": "self", "decoder.blocks.0.cross": "cross"}
    cross = next(trace for trace in traces if trace.kind == "cross")
    assert cross.weights.shape[-1] == len(task.text.encode_one("back: red dog")) + 1


def test_running_text_has_a_loss_and_no_score(tmp_path):
    file = tmp_path / "story.txt"
    file.write_text("\n\n".join(f"The whale {n} swims {n * n} miles." for n in range(200)), "utf-8")
    task = TaskConfig().build(
        SpanCorruption((str(file),), context_length=24, batch_size=4, vocab_size=300, sentinels=10)
    )
    model = T5(task.fit(Config(vocab=1, **SMALL))).eval()
    assert (task.metrics[0].key, task.ragged) == ("loss", False)
    found = task.evaluate(model, "val", 2)
    assert found["loss"] > 1
    assert "score" not in found
    report = task.report(model, "val")
    assert report["tokens"] == found["tokens"]
    assert len(sentinel_ids(task.text)) == 10
    write = TextToTextGenerator(model, task.text)
    assert write._encode(["whale <extra_id_0> miles"], "")[0].count(sentinel_ids(task.text)[0]) == 1
