"""Folders of transformers' BERT, in and out."""

import json
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file, save_file

import regard
from regard.core.errors import BadInput
from regard.models.bert import BERT, Config
from regard.tasks.text.classification import TextClassifier
from regard.tokens.tokenizer import Tokenizer
from regard.weights.folder import load_model
from regard.weights.hf import bert

transformers = pytest.importorskip("transformers")
transformers.utils.logging.disable_progress_bar()

ASKED = torch.tensor([[5, 6, 7, 0], [8, 9, 1, 2]])
CONFIG = Config(vocab=40, width=16, heads=2, layers=2, length=12)
HEADS = [None, "pretraining", "masked", "classes(3)", "tags(4)", "span"]


def model(**settings):
    made = BERT(replace(CONFIG, **settings)).eval()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    return made


def answers(found):
    return [found] if isinstance(found, torch.Tensor) else [*found]


@pytest.mark.parametrize("head", HEADS, ids=str)
def test_folders_are_exchanged_with_transformers(tmp_path, head):
    ours = model(head=head)
    bert.save(tmp_path / "a", ours)
    named = json.loads((tmp_path / "a/config.json").read_text())["architectures"][0]
    theirs, info = getattr(transformers, named).from_pretrained(tmp_path / "a", output_loading_info=True)
    assert not info["unexpected_keys"]
    assert not info["mismatched_keys"]
    assert not info["missing_keys"]
    with torch.no_grad():
        out = theirs.eval()(ASKED)
        expected = torch.stack([out[0], out[1]], -1) if head == "span" else out[0]
        torch.testing.assert_close(answers(ours(ASKED))[0], expected, rtol=1e-4, atol=1e-5)
    theirs.save_pretrained(tmp_path / "b")
    found, text = bert.load(tmp_path / "b")
    assert text is None
    assert not found.training
    assert found.config == replace(ours.config, ffn=64)
    for mine, wanted in zip(answers(found(ASKED)), answers(ours(ASKED)), strict=True):
        assert torch.equal(mine, wanted)


def test_the_first_published_files_load(tmp_path):
    """gamma and beta for a norm's weight and bias, an index as a tensor, and a config that names one of two heads."""
    ours = model()
    bert.save(tmp_path / "m", ours)
    old = {}
    for name, value in load_file(tmp_path / "m/model.safetensors").items():
        name = name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")
        old[name] = value
    save_file(old | {"bert.embeddings.position_ids": torch.arange(12)[None]}, tmp_path / "m/model.safetensors")
    said = json.loads((tmp_path / "m/config.json").read_text()) | {"architectures": ["BertForMaskedLM"]}
    (tmp_path / "m/config.json").write_text(json.dumps(said))
    found, _ = bert.load(tmp_path / "m")
    assert found.config.head == "masked"
    assert torch.equal(found(ASKED), ours(ASKED)[0])
    both, _ = bert.load(tmp_path / "m", head="pretraining")
    assert torch.equal(both(ASKED)[1], ours(ASKED)[1])


def test_load_without_the_head(tmp_path):
    ours = model()
    bert.save(tmp_path / "m", ours)
    body, _ = bert.load(tmp_path / "m", head=None)
    assert torch.equal(body(ASKED), ours.hidden(ASKED))
    words, _ = bert.load(tmp_path / "m", head="masked")
    assert torch.equal(words(ASKED), ours(ASKED)[0])
    with pytest.raises(BadInput, match=r"head\.out\.weight"):
        bert.load(tmp_path / "m", head="tags(3)")


def test_the_tokenizer_is_saved_and_must_fit(tmp_path):
    text = Tokenizer.train(["a dog and a cat"], kind="bert", size=40)
    bert.save(tmp_path / "m", model(vocab=text.size), text)
    _, found = bert.load(tmp_path / "m")
    assert found.encode(["a cat"]) == text.encode(["a cat"])
    bert.save(tmp_path / "n", model(vocab=text.size - 1), text)
    with pytest.raises(BadInput, match=f"has {text.size} tokens, its weights have {text.size - 1}"):
        bert.load(tmp_path / "n")


def test_a_predictor_is_saved_with_its_tokenizer_and_labels(tmp_path):
    text = Tokenizer.train(["a dog and a cat"], kind="bert", size=40)
    one = TextClassifier(model(vocab=text.size, head="classes(2)"), text, ["bad", "good"], 12)
    bert.save(tmp_path / "m", one)
    assert json.loads((tmp_path / "m/config.json").read_text())["id2label"] == {"0": "bad", "1": "good"}
    again = regard.load(tmp_path / "m")
    assert again("a dog").probabilities == pytest.approx(one("a dog").probabilities, abs=1e-6)
    bert.save(tmp_path / "n", one.model, text)  # without labels: the names that transformers would generate
    assert json.loads((tmp_path / "n/config.json").read_text())["id2label"] == {"0": "LABEL_0", "1": "LABEL_1"}


def test_other_folders_raise(tmp_path):
    bert.save(tmp_path / "m", model())
    with pytest.raises(BadInput, match=r"regard\.weights\.hf\.bert\.load"):
        load_model(tmp_path / "m")
    (tmp_path / "m/notes.txt").write_text("mine")
    with pytest.raises(BadInput, match="holds other things"):
        bert.save(tmp_path / "m", model())


@pytest.mark.parametrize(
    ("head", "named", "why"),
    [
        ("tags(4)", "BertForMaskedLM", r"weights have no cls\.pred.*they are those of a BertForTokenClassification"),
        ("masked", "BertForTokenClassification", "weights have no classifier.*they are those of a BertForMaskedLM"),
        ("span", "BertForSequenceClassification", "weights have no classifier.*of a BertForQuestionAnswering"),
    ],
)
def test_a_file_that_disagrees_with_its_config_is_refused(tmp_path, head, named, why):
    bert.save(tmp_path / "m", model(head=head))
    said = json.loads((tmp_path / "m/config.json").read_text()) | {"architectures": [named]}
    (tmp_path / "m/config.json").write_text(json.dumps(said))
    with pytest.raises(BadInput, match=f"names {named}, but its {why}"):
        bert.load(tmp_path / "m")
