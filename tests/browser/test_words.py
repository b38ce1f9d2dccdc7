"""Tagged words, answers that are found and prompts that are answered, on the page: typed, read, told and lit."""

from __future__ import annotations

import pytest
import torch

import regard
from tests.tasks.text_data import model, task, written

from .conftest import PHONE, WIDE, Page


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A tagger, an answerer and a T5 of random weights, saved as runs save them."""
    from regard.models.t5 import T5, Config
    from regard.tasks.text.extractive_qa import QuestionAnswerer
    from regard.tasks.text.tagging import Tagger
    from regard.tasks.text.text_to_text import TextToTextGenerator
    from regard.tokens.tokenizer import Tokenizer

    torch.manual_seed(0)
    root = tmp_path_factory.mktemp("words")
    data = written(root / "data")
    tags, questions = task(data, "tagged"), task(data, "questions")
    regard.save(Tagger(model(tags), tags.text, tags.labels, 32), root / "tagger")
    regard.save(QuestionAnswerer(model(questions), questions.text, 64), root / "answerer")
    text = Tokenizer.train(["translate: one two three", "red cat, blue dog"], kind="bpe", size=120)
    sizes = {"width": 16, "heads": 2, "head_dim": 8, "ffn": 32, "encoder_layers": 2, "decoder_layers": 2}
    t5 = T5(Config(vocab=text.size, pad=text.pad, bos=text.pad, eos=text.eos, **sizes))
    regard.save(TextToTextGenerator(t5, text, max_length=60, max_new_tokens=9), root / "t5")
    return [str(root / name) for name in ("tagger", "answerer", "t5")]


@pytest.fixture(scope="module")
def page(folders, driver):
    from regard.serve.http import app, server
    from regard.serve.http.model_pool import ModelPool
    from regard.serve.http.settings import Settings

    with server.running_server(app.make_app(ModelPool(folders, device="cpu"), Settings(explore=True))) as address:
        found = Page(driver, address)
        found.size(*WIDE)
        yield found
        assert found.complaints() == []


def test_words_carry_their_tags_in_the_answer_and_on_the_tokens(page):
    page.open("tagger")
    page.read("the dog sees <b>the</b> garden .")
    words = page.texts(".tagged ruby")
    assert [each.split("\n")[0] for each in words] == ["the", "dog", "sees", "<b>the</b>", "garden", "."]
    tags = page.texts(".tagged rt")
    assert set(tags) <= {"B-A", "B-P", "B-V", "O"}
    chips = page.all(".panel.seen .chip[data-note]")
    assert [chip.get_attribute("data-note") for chip in chips] == tags
    page.hover(chips[1])
    page.until(lambda: page.all(".panel.look .chip.lit"), "what a tagged word looks at is lit")


def test_a_question_is_asked_beside_its_text_and_its_answer_marked_in_it(page):
    page.open("answerer")
    asked = page.one("input[name=question]")
    assert asked.get_attribute("value") == "Where is Mary?"
    asked.clear()
    asked.send_keys("what did the dog see ?")
    page.read("the dog sees the garden . the cat likes the river .")
    answer = page.text(".output .answer")
    marked = page.run(
        "return [...document.querySelectorAll('.panel.seen .chip[data-note]')].map((chip) => chip.textContent)"
    )
    assert " ".join(marked) == answer
    asked.clear()
    page.one("#read").click()
    page.until(lambda: "question" in page.text(".refused"), "it is said that a question is missing")
    page.complaints()  # the refused request


def test_a_prompt_and_its_answer_are_shown_with_cross_attention(page):
    page.open("t5")
    page.read("translate: red cat")
    assert page.all(".cell")
    page.size(*PHONE)
    assert page.run("return document.documentElement.scrollWidth") <= PHONE[0]
    page.size(*WIDE)
