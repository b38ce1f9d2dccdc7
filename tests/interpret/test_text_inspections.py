"""Looks at tagged words, found answers and answered prompts say what their predictors say."""

import numpy as np
import pytest
import torch

from regard.attention.capture.watch import watch
from regard.core.errors import BadInput, UnknownName
from regard.interpret.compare import compare_outputs
from regard.interpret.inspection import inspect
from regard.models.t5 import T5, Config
from regard.tasks.text.extractive_qa import QuestionAnswerer
from regard.tasks.text.tagging import Tagger
from regard.tasks.text.text_to_text import TextToTextGenerator
from regard.tokens.sentinels import add_sentinels, encode_with_sentinels, offsets_with_sentinels, sentinel_ids
from regard.tokens.tokenizer import Tokenizer
from tests.interpret.test_inspection import everything_can_be_asked
from tests.tasks.text_data import model, task, written

SENTENCE = "The  dog sees 😀 the gardenkitchen ."
STORY = "the dog sees the garden . the cat likes the river ."


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return written(tmp_path_factory.mktemp("words") / "data")


@pytest.fixture(scope="module")
def tagger(folder):
    torch.manual_seed(0)
    made = task(folder, "tagged")
    return Tagger(model(made), made.text, made.labels, 32)


@pytest.fixture(scope="module")
def answerer(folder):
    torch.manual_seed(0)
    made = task(folder, "questions")
    return QuestionAnswerer(model(made), made.text, 32)


@pytest.fixture(scope="module")
def writer():
    torch.manual_seed(0)
    lines = ["translate: one two three", "count: one two", "red cat, blue dog", "the end of it"]
    text = add_sentinels(Tokenizer.train(lines, kind="bpe", size=120), 4)
    sizes = {"width": 16, "heads": 2, "head_dim": 8, "ffn": 32, "encoder_layers": 2, "decoder_layers": 2}
    made = T5(Config(vocab=text.size, pad=text.pad, bos=text.pad, eos=text.eos, **sizes))
    return TextToTextGenerator(made, text, max_length=40, max_new_tokens=9)


def cut_out(side, line):
    return [line[slice(*place["text"])] if "text" in place else None for place in side.positions]


def test_the_maps_of_an_answer_are_of_the_question_and_the_text(answerer):
    question = "what did the cat see first ?"
    traces = answerer.attention(STORY, question)
    (found,) = answerer.find([STORY], [question])
    pieces = tuple(answerer.text.pieces(found.window.tokens))
    assert [trace.rows for trace in traces] == [trace.columns for trace in traces] == [pieces] * len(traces)
    seen = inspect(answerer, {"text": STORY, "question": question}, name="answers")
    for trace, name in zip(traces, seen.store.names(), strict=True):
        assert np.allclose(trace.weights[0, 0, 2], seen.row(name, 0, 2), atol=1e-6)
    with pytest.raises(BadInput, match="needs a question"):
        answerer.attention(STORY)


def test_a_tagged_sentence_shows_the_tag_of_every_word_at_its_first_piece(tagger):
    found = inspect(tagger, {"text": SENTENCE}, name="tags")
    about = everything_can_be_asked(found)
    words = SENTENCE.split()
    assert [each["word"] for each in found.output["tags"]] == words
    assert [each["tag"] for each in found.output["tags"]] == list(tagger(SENTENCE).labels)
    side = found.axes["text"]
    noted = [(token, note) for token, note in enumerate(side.notes) if note]
    assert noted == [(each["token"], each["tag"]) for each in found.output["tags"]]
    assert about["axes"]["text"]["notes"] == side.notes
    firsts = [cut_out(side, SENTENCE)[token] for token, _ in noted]
    assert all(word.startswith(first) for word, first in zip(words, firsts, strict=True))
    assert cut_out(side, SENTENCE)[0] is None
    assert cut_out(side, SENTENCE)[-1] is None


def test_pieces_of_a_tagged_word_stand_within_it(tagger):
    found = inspect(tagger, {"text": SENTENCE})
    at = found.output["tags"][5]["token"]
    pieces = cut_out(found.axes["text"], SENTENCE)[at:-2]
    assert len(pieces) > 1
    assert "".join(pieces) == "gardenkitchen"


def test_relevance_of_a_tag_is_that_of_its_own_logit(tagger):
    found = inspect(tagger, {"text": SENTENCE})
    tags = found.output["tags"]
    assert found.about()["relevance_targets"] == [f"{each['word']}: {each['tag']}" for each in tags]
    target, (tokens,) = 1, found.model_inputs
    with torch.enable_grad(), watch(tagger.model, gradients=True) as seen:
        logit = tagger.model(tokens)[0, tags[target]["token"], tagger.labels.index(tags[target]["tag"])]
        torch.autograd.grad(logit, tagger.model.parameters(), allow_unused=True)
    row = np.zeros(len(found.axes["text"].tokens))
    row[tags[target]["token"]] = 1
    start = row.copy()
    for trace in reversed(seen.traces()):
        row = row + row @ (trace.gradient[0] * trace.weights[0]).clamp(min=0).mean(0).double().numpy()
    np.testing.assert_allclose(found.relevance(target), row - start, atol=1e-6)
    assert found.rollout(3).sum() == pytest.approx(1, abs=1e-5)


def test_a_question_and_its_text_stand_below_one_another_with_the_answer_marked(answerer):
    question = "what did the dog see first ?"
    found = inspect(answerer, {"text": STORY, "question": question}, name="answers")
    everything_can_be_asked(found)
    (said,) = answerer([STORY], [question])
    assert found.output == {"text": said.text, "begin": said.begin, "end": said.end, "score": said.score}
    side, line = found.axes["text"], f"{question}\n{STORY}"
    assert side.text == line
    marked = [place["text"] for place, note in zip(side.positions, side.notes, strict=True) if note]
    assert side.notes.count("answer") == 1
    assert line[marked[0][0] : marked[-1][1]] == said.text
    assert cut_out(side, line)[1:8] == question.split()
    assert len(found.targets) == 2
    assert found.relevance(1).shape == (len(side.tokens),)


def test_of_a_long_text_the_window_with_the_answer_is_shown(answerer):
    long, question = " ".join([STORY] * 5), "what ?"
    found = inspect(answerer, {"text": long, "question": question})
    assert found.output["text"] == answerer([long], [question])[0].text
    assert len(found.axes["text"].tokens) <= answerer.room
    side, line = found.axes["text"], f"{question}\n{long}"
    marked = [place["text"] for place, note in zip(side.positions, side.notes, strict=True) if note]
    assert line[marked[0][0] : marked[-1][1]] == found.output["text"]


def test_a_prompt_and_its_answer_are_looked_at_as_attention_says(writer):
    prompt = "count: one two"
    found = inspect(writer, {"text": prompt}, name="t5")
    everything_can_be_asked(found)
    assert found.output["text"] == writer([prompt])[0]
    for trace in writer.attention(prompt):
        rows, columns = found.axes_of(found.store[trace.name])
        assert tuple(found.axes[rows].tokens) == trace.rows
        assert tuple(found.axes[columns].tokens) == trace.columns
        np.testing.assert_allclose(found.row(trace.name, 1, 1), trace.weights[0, 1, 1].numpy(), atol=1e-6)
    assert found.rollout(0).shape == found.relevance(0).shape == (len(found.axes["source"].tokens),)
    given = inspect(writer, {"text": prompt, "target_text": "two one"})
    assert given.output["text"] == "two one"
    assert given.output["score"] is None


def test_sentinels_stand_where_they_were_typed(writer):
    prompt = "red <extra_id_0> cat,  <extra_id_1>  the <extra_id_77> end"
    places, ids = offsets_with_sentinels(writer.text, prompt), encode_with_sentinels(writer.text, [prompt])[0]
    assert len(places) == len(ids)
    known = sentinel_ids(writer.text)
    assert [prompt[slice(*place)] for place, token in zip(places, ids, strict=True) if token in known] == [
        "<extra_id_0>",
        "<extra_id_1>",
    ]
    side = inspect(writer, {"text": prompt, "target_text": "<extra_id_0> blue"}).axes["source"]
    assert cut_out(side, prompt)[:-1] == [prompt[slice(*place)] for place in places]


@pytest.mark.parametrize(
    ("which", "given", "wrong"),
    [
        ("tagger", {"text": "  "}, BadInput),
        ("tagger", {"text": "dog " * 50}, BadInput),
        ("tagger", {"text": "dog", "question": "what ?"}, UnknownName),
        ("answerer", {"text": STORY}, BadInput),
        ("answerer", {"text": STORY, "question": " "}, BadInput),
        ("answerer", {"question": "what ?"}, BadInput),
        ("writer", {"text": ""}, BadInput),
        ("writer", {"text": "one " * 60}, BadInput),
    ],
)
def test_words_that_cannot_be_read_are_refused_in_one_line(request, which, given, wrong):
    with pytest.raises(wrong) as refused:
        inspect(request.getfixturevalue(which), given)
    assert "\n" not in str(refused.value)


def test_what_a_change_does_to_tags_answers_and_prompts_is_told(tagger, answerer, writer):
    off = [{"do": "off"}]
    tags = compare_outputs(tagger, {"text": SENTENCE}, off)
    assert tags["target"]["tokens"] == SENTENCE.split()
    probabilities = [each["probability"] for each in inspect(tagger, {"text": SENTENCE}).output["tags"]]
    np.testing.assert_allclose(np.exp(tags["target"]["original"]), probabilities, rtol=1e-4)
    assert tags["loss"]["original"] != tags["loss"]["changed"]
    spans = compare_outputs(answerer, {"text": STORY, "question": "what ?"}, off)
    assert spans["target"]["tokens"] == ["begins", "ends"]
    assert spans["original"]["text"] == answerer([STORY], ["what ?"])[0].text
    assert spans["loss"]["original"] != spans["loss"]["changed"]
    answered = compare_outputs(writer, {"text": "count: one two", "target_text": "two"}, off)
    assert answered["original"]["text"] == "two"
