"""Folders of sentence-transformers."""

import json

import pytest
import torch

import regard
from regard.core.errors import BadInput, Unsupported
from regard.models import build
from regard.tasks.text.embedder import TextEmbedder
from regard.tokens.tokenizer import Tokenizer
from regard.weights.hf import bert, sentence_transformers

KINDS = {"Transformer": "", "Pooling": "1_Pooling", "Normalize": "2_Normalize", "Dense": "2_Dense"}


def folder(path, kinds=("Transformer", "Pooling", "Normalize"), pool=("mean_tokens",), **said):
    text = Tokenizer.train(["the dog and the cat"], kind="bert", size=40)
    bert.save(path, build("bert", vocab=text.size, width=16, heads=2, layers=1, length=20, head=None), text)
    parts = [{"idx": i, "path": KINDS[k], "type": f"sentence_transformers.models.{k}"} for i, k in enumerate(kinds)]
    (path / "modules.json").write_text(json.dumps(parts))
    (path / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 12, "do_lower_case": False} | said))
    (path / "1_Pooling").mkdir()
    modes = dict.fromkeys(("cls_token", "mean_tokens", "max_tokens", "mean_sqrt_len_tokens"), False)
    (path / "1_Pooling/config.json").write_text(
        json.dumps({f"pooling_mode_{k}": k in pool for k in modes} | {"word_embedding_dimension": 16})
    )
    return path


@pytest.mark.parametrize(("theirs", "ours"), [("mean_tokens", "mean"), ("cls_token", "first"), ("max_tokens", "max")])
@pytest.mark.parametrize("normal", [True, False])
def test_pooling_and_normalisation_equal_those_of_the_folder(tmp_path, theirs, ours, normal):
    place = folder(tmp_path / "m", ("Transformer", "Pooling", "Normalize")[: 2 + normal], (theirs,))
    embed = regard.load(place)
    assert isinstance(embed, TextEmbedder)
    assert (embed.pooling, embed.normalize, embed.room) == (ours, normal, 12)
    assert not embed.model.training
    assert torch.allclose(embed(["the dog"]).norm(), torch.tensor(1.0)) is normal


def test_maximum_length_is_limited_by_the_positions(tmp_path):
    assert regard.load(folder(tmp_path / "m", max_seq_length=999)).room == 20
    assert regard.load(folder(tmp_path / "n", max_seq_length=None)).room == 20


def test_invalid_inputs_raise(tmp_path):
    with pytest.raises(Unsupported, match="Transformer, Pooling, Dense"):
        sentence_transformers.load(folder(tmp_path / "a", ("Transformer", "Pooling", "Dense")))
    with pytest.raises(Unsupported, match="pooling_mode_mean_sqrt_len_tokens"):
        sentence_transformers.load(folder(tmp_path / "b", pool=("mean_sqrt_len_tokens",)))
    with pytest.raises(Unsupported, match="pooling pooling_mode_cls_token, pooling_mode_mean_tokens"):
        sentence_transformers.load(folder(tmp_path / "c", pool=("mean_tokens", "cls_token")))
    with pytest.raises(Unsupported, match="do_lower_case=True"):
        sentence_transformers.load(folder(tmp_path / "d", do_lower_case=True))
    place = folder(tmp_path / "e")
    (place / "modules.json").write_text("{}")
    with pytest.raises((BadInput, Unsupported)):
        sentence_transformers.load(place)
    (place / "modules.json").write_text("[1]")
    with pytest.raises(BadInput, match="damaged"):
        sentence_transformers.load(place)
    place = folder(tmp_path / "f")
    (place / "tokenizer.json").unlink()
    with pytest.raises(BadInput, match="no tokenizer"):
        sentence_transformers.load(place)
