"""regard.load and regard.save: names, folders, tasks and bare models."""

import shutil

import pytest
import torch

from regard import api
from regard.core.errors import BadInput, UnknownName
from regard.models.transformer import Config, Transformer
from regard.serve.http import prepare
from regard.tasks.text.translation import Translator
from regard.tokens.tokenizer import Tokenizer

LINES = ["two dogs play in the snow", "a cat sleeps"]


@pytest.fixture(scope="module")
def translator():
    torch.manual_seed(0)
    text = Tokenizer.train(LINES * 4, kind="bytes", size=280)
    config = Config(vocab=text.size, width=16, heads=2, ffn=24, encoder_layers=1, decoder_layers=1, length=64)
    return Translator(Transformer(config), text, source="en", target="fr", max_length=20)


def test_a_translator_comes_back_and_translates_the_same(tmp_path, translator):
    api.save(translator, tmp_path / "en-fr", card="# Mine\n")
    found = api.load(tmp_path / "en-fr")
    assert isinstance(found, Translator)
    for name in ("source", "target", "style", "max_length"):
        assert getattr(found, name) == getattr(translator, name)
    assert found(LINES, beam_size=2) == translator(LINES, beam_size=2)
    assert (tmp_path / "en-fr" / "README.md").read_text() == "# Mine\n"


def test_a_bare_model_comes_back_bare(tmp_path, translator):
    api.save(translator.model, tmp_path / "m")
    assert isinstance(api.load(str(tmp_path / "m")), Transformer)


def test_a_run_is_its_model_once_it_has_ended(tmp_path, translator):
    run = tmp_path / "run"
    run.mkdir()
    (run / "recipe.json").write_text("{}")
    for opened in (api.load, prepare.load_predictor):
        with pytest.raises(BadInput, match=r"the run in .*run has not ended, so it has no model yet: regard train"):
            opened(str(run))
    api.save(translator, run / "model")
    for opened in (api.load, prepare.load_predictor):
        assert opened(str(run)).target == "fr"


def test_a_model_with_text_and_task_comes_back_as_the_task(tmp_path, translator):
    task = {"name": "translation", "source": "en", "target": "de"}
    api.save(translator.model, tmp_path / "m", text=translator.text, task=task, dtype="float16")
    assert api.load(tmp_path / "m").target == "de"


def test_a_task_without_a_vocabulary_says_so(tmp_path, translator):
    api.save(translator.model, tmp_path / "m", task={"name": "translation"})
    with pytest.raises(BadInput, match=r"no tokenizer\.json"):
        api.load(tmp_path / "m")


@pytest.mark.parametrize(
    ("task", "match"),
    [({"name": "translatoin"}, "did you mean 'translation'"), ({"name": "translation", "sorce": "en"}, "'source'")],
)
def test_an_unknown_task_or_argument_offers_the_nearest(tmp_path, translator, task, match):
    api.save(translator.model, tmp_path / "m", text=translator.text, task=task)
    with pytest.raises(UnknownName, match=match):
        api.load(tmp_path / "m")


def test_what_cannot_be_saved_is_named(tmp_path):
    with pytest.raises(BadInput, match="cannot save a dict"):
        api.save({}, tmp_path / "m")


def test_a_name_is_found_among_those_that_ship(tmp_path, translator, monkeypatch):
    shipped = tmp_path / "package" / "zoo"
    api.save(translator, shipped / "en-fr")
    (shipped / "not-a-model").mkdir()
    monkeypatch.setattr(api, "__file__", str(tmp_path / "package" / "api.py"))
    monkeypatch.chdir(tmp_path)
    assert list(api.zoo()) == ["en-fr"]
    assert api.load("en-fr").target == "fr"
    with pytest.raises(UnknownName, match="no model is called 'en-rf'; did you mean 'en-fr'"):
        api.load("en-rf")
    with pytest.raises(BadInput, match="there is no folder"):
        api.load("./en-rf")
    shutil.copytree(shipped / "en-fr", tmp_path / "mine")
    assert isinstance(api.load("mine"), Translator)  # a folder here, by its bare name


def test_everything_that_ships_loads():
    for name in api.zoo():
        assert callable(api.load(name)), name
