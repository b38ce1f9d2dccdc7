"""Folders of sentence-transformers."""

import importlib
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


TEXTS = ["the dog", "The CAT and the dog", "cat"]


def peer(path, **settings):
    """A random model, saved by the installed sentence-transformers."""
    st = pytest.importorskip("sentence_transformers")
    base, pooling = (
        importlib.import_module(f"sentence_transformers.{name}.modules") for name in ("base", "sentence_transformer")
    )
    text = Tokenizer.train(["the dog and the cat, The CAT and query: a passage"], kind="bert", size=90)
    bert.save(path / "b", build("bert", vocab=text.size, width=16, heads=2, layers=1, length=20, head=None), text)
    body = base.Transformer(str(path / "b"), **settings.pop("transformer", {}))
    pool = pooling.Pooling(16, **{"pooling_mode": "mean"} | settings.pop("pooling", {}))
    model = st.SentenceTransformer(modules=[body, pool, base.Normalize()], device="cpu", **settings)
    model.save_pretrained(str(path / "m"))
    return st.SentenceTransformer(str(path / "m"), device="cpu")


QUERY = {"prompts": {"query": "query: a "}, "default_prompt_name": "query"}


@pytest.mark.parametrize("settings", [
    {}, {"pooling": {"pooling_mode": "cls"}}, {"pooling": {"pooling_mode": "max"}}, {"truncate_dim": 6}, QUERY,
    QUERY | {"pooling": {"include_prompt": False}, "truncate_dim": 5},
    QUERY | {"pooling": {"include_prompt": False, "pooling_mode": "cls"}},
    {"prompts": {"query": "query: "}}, {"transformer": {"do_lower_case": True}},
    {"transformer": {"max_seq_length": 14}},
], ids=str)  # fmt: skip
def test_vectors_equal_those_of_sentence_transformers(tmp_path, settings):
    theirs = peer(tmp_path, **settings)
    ours = regard.load(tmp_path / "m")
    assert ours.room == theirs.max_seq_length
    torch.testing.assert_close(ours(TEXTS), torch.from_numpy(theirs.encode(TEXTS)), rtol=1e-4, atol=1e-5)
    regard.save(ours, tmp_path / "again")
    torch.testing.assert_close(regard.load(tmp_path / "again")(TEXTS), ours(TEXTS))


def test_older_folders_say_whether_text_is_lowered_first(tmp_path):
    peer(tmp_path)
    plain = regard.load(tmp_path / "m")(TEXTS)
    (tmp_path / "m/sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 12, "do_lower_case": True}))
    theirs = pytest.importorskip("sentence_transformers").SentenceTransformer(str(tmp_path / "m"), device="cpu")
    found = regard.load(tmp_path / "m")(TEXTS)
    torch.testing.assert_close(found, torch.from_numpy(theirs.encode(TEXTS)), rtol=1e-4, atol=1e-5)
    assert not torch.allclose(found[1], plain[1])  # The CAT


@pytest.mark.parametrize("said", [
    {"transformer_task": "fill-mask"}, {"module_output_name": "sentence_embedding"}, {"query_expansion": True},
    {"modality_config": {"text": {"method": "forward", "method_output_name": "pooler_output"}}},
    {"processing_kwargs": {"text": {"add_special_tokens": False}}}, {"model_type": "CrossEncoder"},
], ids=str)  # fmt: skip
def test_fields_that_would_make_other_vectors_are_refused(tmp_path, said):
    place = folder(tmp_path / "m", **said)
    if "model_type" in said:
        (place / "config_sentence_transformers.json").write_text(json.dumps(said))
    with pytest.raises(Unsupported, match=next(iter(said))):
        regard.load(place)


def test_a_length_that_only_the_tokenizer_says_is_the_limit(tmp_path):
    place = folder(tmp_path / "m", max_seq_length=None)
    said = json.loads((place / "tokenizer_config.json").read_text()) | {"model_max_length": 9}
    (place / "tokenizer_config.json").write_text(json.dumps(said))
    assert regard.load(place).room == 9


def test_every_part_of_a_long_text_has_the_prompt(tmp_path):
    peer(tmp_path, **QUERY | {"pooling": {"include_prompt": False}})
    embed = regard.load(tmp_path / "m")
    long = " ".join(["the dog and the cat"] * 8)
    rows, _ = embed._parts(embed.text.encode([embed.prompt + long]), "split")
    prompt = embed.text.encode_one("query: a")
    assert len(rows) > 2
    assert all(row[1 : 1 + len(prompt)] == prompt and len(row) <= embed.room for row in rows)
    assert embed([long], overflow="split").isfinite().all()


def test_invalid_inputs_raise(tmp_path):
    with pytest.raises(Unsupported, match="Transformer, Pooling, Dense"):
        sentence_transformers.load(folder(tmp_path / "a", ("Transformer", "Pooling", "Dense")))
    with pytest.raises(Unsupported, match="pooling mean_sqrt_len_tokens"):
        sentence_transformers.load(folder(tmp_path / "b", pool=("mean_sqrt_len_tokens",)))
    with pytest.raises(Unsupported, match="pooling cls and mean"):
        sentence_transformers.load(folder(tmp_path / "c", pool=("mean_tokens", "cls_token")))
    place = folder(tmp_path / "d")
    (place / "config_sentence_transformers.json").write_text(json.dumps({"default_prompt_name": "x", "prompts": {}}))
    with pytest.raises(BadInput, match="default prompt 'x'"):
        sentence_transformers.load(place)
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
