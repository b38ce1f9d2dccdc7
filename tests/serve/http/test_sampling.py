"""Drawing is asked for by the same names everywhere and does the same: with min_p 1 only the likeliest is left."""

from __future__ import annotations

import pytest
import torch
from starlette.testclient import TestClient

import regard
from regard.cli import main
from regard.interpret.inspection import inspect
from regard.models.t5 import T5, Config
from regard.serve.http.app import make_app
from regard.serve.http.model_pool import ModelPool
from regard.serve.http.settings import Settings
from regard.tasks.text.text_to_text import TextToTextGenerator
from regard.tokens.tokenizer import Tokenizer
from tests.serve.conftest import HERE

LINE = "Two dogs are playing in the snow."


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    torch.manual_seed(0)
    text = Tokenizer.train(["translate: one two three", "red cat, blue dog"], kind="bpe", size=120)
    sizes = {"width": 16, "heads": 2, "head_dim": 8, "ffn": 32, "encoder_layers": 1, "decoder_layers": 1}
    model = T5(Config(vocab=text.size, pad=text.pad, bos=text.pad, eos=text.eos, **sizes))
    where = tmp_path_factory.mktemp("models") / "t5"
    regard.save(TextToTextGenerator(model, text, max_length=40, max_new_tokens=9), where)
    return where


@pytest.fixture(scope="module")
def answers(folder):
    return TestClient(
        make_app(ModelPool([str(folder)], device="cpu"), Settings()), base_url=HERE, raise_server_exceptions=False
    )


def test_translations_are_drawn_by_min_p(client):
    def said(**options):
        return client.post("/v1/translate", json={"inputs": [LINE], "options": options}).json()["outputs"][0]["text"]

    wild = {"sample": True, "temperature": 5.0, "seed": 3}
    assert said(**wild, min_p=1.0) == said(beam_size=1) != said(**wild)


def test_completions_are_drawn_by_min_p_and_top_k(client):
    asked = {"model": "shakespeare", "prompt": "ROMEO:", "max_tokens": 8, "seed": 1}
    greedy = client.post("/v1/completions", json=asked | {"temperature": 0}).json()["choices"][0]["text"]
    for only in ({"min_p": 1}, {"top_k": 1}):
        found = client.post("/v1/completions", json=asked | {"temperature": 2} | only).json()
        assert found["choices"][0]["text"] == greedy


def test_the_command_line_draws_by_min_p(capsys):
    def said(*options):
        assert main(["translate", LINE, "--to", "de", "--device", "cpu", *options]) == 0
        return capsys.readouterr().out

    wild = ["--sample", "--temperature", "5", "--seed", "3"]
    assert said(*wild, "--min-p", "1") == said("--beam-size", "1") != said(*wild)
    assert main(["translate", LINE, "--to", "de", "--min-p", "0.1"]) == 2
    assert "--min-p is for sampling; add --sample" in capsys.readouterr().err


def test_inspect_takes_the_same_sampling_names():
    write = regard.load("shakespeare")
    given = {"text": "ROMEO:", "max_new_tokens": 6}
    greedy = inspect(write, given).output["text"]
    for only in ({"min_p": 1.0}, {"top_k": 1}, {"top_p": 0.0001}):
        assert inspect(write, given | {"temperature": 2.0} | only).output["text"] == greedy


def test_prompts_are_answered_by_search_or_drawn_as_asked(answers, folder):
    answer, prompts = regard.load(folder), ["one two", "red cat"]

    def said(**options):
        body = {"inputs": prompts, "options": options | {"max_new_tokens": 5}}
        return answers.post("/v1/generate", json=body).json()["outputs"]

    found = said(beam_size=4, num_candidates=2)
    wanted = answer(prompts, beam_size=4, max_new_tokens=5, num_candidates=2)
    assert [[c["text"] for c in each["candidates"]] for each in found] == [
        [c.text for c in each.candidates] for each in wanted
    ]
    greedy = [each["text"] for each in said(beam_size=1)]
    assert greedy == answer(prompts, beam_size=1, max_new_tokens=5)
    drawn = {"temperature": 3.0, "seed": 4, "sample": True}
    texts = [[each["text"] for each in said(**drawn, **more)] for more in ({}, {"min_p": 1.0})]
    assert texts[0] == answer(prompts, max_new_tokens=5, **drawn)
    assert texts[1] == greedy
    assert texts[0] != greedy


@pytest.mark.parametrize("more", [{"stop": ["."]}, {"repetition_penalty": 2.0}, {"slide": True}])
def test_what_an_answering_model_would_ignore_is_refused(answers, more):
    found = answers.post("/v1/generate", json={"inputs": ["one two"], "options": more})
    assert found.status_code == 422
    assert found.json()["error"]["field"] == f"options.{next(iter(more))}"
    assert answers.post("/v1/generate", json={"inputs": ["one two"], "stream": True}).status_code == 422


def test_the_command_line_draws_answers_by_min_p(folder, capsys):
    def said(*options):
        assert main(["generate", "one two", "--model", str(folder), "--max-new-tokens", "5", *options]) == 0
        return capsys.readouterr().out

    assert said("--temperature", "3", "--min-p", "1") == said("--beam-size", "1")
