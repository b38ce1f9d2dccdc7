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


def test_translator_round_trip(tmp_path, translator):
    api.save(translator, tmp_path / "en-fr", card="# Mine\n")
    found = api.load(tmp_path / "en-fr")
    assert isinstance(found, Translator)
    for name in ("source", "target", "style", "max_length"):
        assert getattr(found, name) == getattr(translator, name)
    assert found(LINES, beam_size=2) == translator(LINES, beam_size=2)
    assert (tmp_path / "en-fr" / "README.md").read_text() == "# Mine\n"


def test_bare_model_round_trip(tmp_path, translator):
    api.save(translator.model, tmp_path / "m")
    assert isinstance(api.load(str(tmp_path / "m")), Transformer)


def test_a_finished_run_loads_as_its_model(tmp_path, translator):
    run = tmp_path / "run"
    run.mkdir()
    (run / "recipe.json").write_text("{}")
    for opened in (api.load, prepare.load_predictor):
        with pytest.raises(BadInput, match=r"the run in .*run has not ended, so it has no model yet: regard train"):
            opened(str(run))
    api.save(translator, run / "model")
    for opened in (api.load, prepare.load_predictor):
        assert opened(str(run)).target == "fr"


def test_a_model_with_tokenizer_and_task_loads_as_the_task(tmp_path, translator):
    task = {"name": "translation", "source": "en", "target": "de"}
    api.save(translator.model, tmp_path / "m", text=translator.text, task=task, dtype="float16")
    assert api.load(tmp_path / "m").target == "de"


def test_a_task_without_a_tokenizer_raises(tmp_path, translator):
    api.save(translator.model, tmp_path / "m", task={"name": "translation"})
    with pytest.raises(BadInput, match=r"no tokenizer\.json"):
        api.load(tmp_path / "m")


@pytest.mark.parametrize(
    ("task", "match"),
    [({"name": "translatoin"}, "did you mean 'translation'"), ({"name": "translation", "sorce": "en"}, "'source'")],
)
def test_an_unknown_task_or_argument_suggests_the_nearest(tmp_path, translator, task, match):
    api.save(translator.model, tmp_path / "m", text=translator.text, task=task)
    with pytest.raises(UnknownName, match=match):
        api.load(tmp_path / "m")


def test_saving_other_objects_raises(tmp_path):
    with pytest.raises(BadInput, match="cannot save a dict"):
        api.save({}, tmp_path / "m")


def test_shipped_models_load_by_name(tmp_path, translator, monkeypatch):
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


def test_every_shipped_model_loads():
    for name in api.zoo():
        assert callable(api.load(name)), name
