"""Runs that start from given weights: what is copied, what is new, what is refused."""

import re
import shutil
from dataclasses import replace

import pytest
import torch
from torch import nn

import regard
from regard.core.errors import BadInput
from regard.data.text.text_file import TextFile
from regard.models import attention_asr, conformer, ctc, gpt, hybrid_asr, online_alignment
from regard.tasks.text import language_modeling
from regard.tasks.text.classification import TextClassifier
from regard.tokens.tokenizer import Tokenizer
from regard.training import init_from, train
from regard.training.checkpoint.checkpoints import read_weights
from regard.training.recipe import Recipe, Train, build, override_recipe
from regard.weights.folder import load_model, save_model
from regard.weights.hf import bert

from ..tasks.text_data import config, data, recipe, task, written
from .test_resume import in_pieces

SHORT = [
    "train.steps=4",
    "train.eval_interval=2",
    "train.save_interval=2",
    "train.score_interval=0",
    "train.ema_decay=0",
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return written(tmp_path_factory.mktemp("begin") / "data")


@pytest.fixture(scope="module")
def pretrained(folder, tmp_path_factory):
    """A run of masked language modelling."""
    out = tmp_path_factory.mktemp("pretrained") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("regard.training.loop.TrainingRun._draw", lambda self, force=False: None)
        train(override_recipe(recipe(folder, "documents"), SHORT), out)
    return out


def finetuned(folder, pretrained, *settings, kind="labelled"):
    return override_recipe(recipe(folder, kind), [*SHORT, f"train.init_from={pretrained}", *settings])


def test_the_body_and_the_vocabulary_are_taken_and_the_head_is_new(folder, pretrained, tmp_path, capsys):
    result = train(finetuned(folder, pretrained, "train.learning_rate=0", "data.vocab_size=50"), tmp_path / "run")
    assert result["steps"] == 4
    old, new = load_model(pretrained / "model"), load_model(tmp_path / "run" / "model")
    before, after = old.model.state_dict(), new.model.state_dict()
    body = [name for name in after if not name.startswith("head.")]
    assert "pool.weight" in body  # next-sentence prediction has trained it
    assert all(torch.equal(before[name], after[name]) for name in body)
    assert [name for name in after if name not in body] == ["head.out.weight", "head.out.bias"]
    assert old.text.encode_one("the dog sees the house") == new.text.encode_one("the dog sees the house")
    assert new.model.config.vocab == old.model.config.vocab > 50
    message = capsys.readouterr().err
    assert f"initialised from {pretrained / 'model'}: {len(body)} tensors copied" in message
    assert "; new: head.out.weight, head.out.bias" in message
    assert "not used: head.transform.weight" in message


def test_a_run_a_folder_and_a_shipped_name_are_found(pretrained):
    assert (
        init_from.resolve_source(str(pretrained))
        == init_from.resolve_source(str(pretrained / "model"))
        == pretrained / "model"
    )
    assert init_from.resolve_source("en-de").name == "en-de"


def test_going_on_needs_nothing_of_what_the_run_began_from_and_equals_training_at_once(folder, pretrained, tmp_path):
    shutil.copytree(pretrained, tmp_path / "params")
    whole = finetuned(folder, tmp_path / "params", "train.steps=6")
    train(whole, tmp_path / "once")
    train(override_recipe(whole, ["train.steps=3"]), tmp_path / "twice")
    shutil.rmtree(tmp_path / "params")
    train(whole, tmp_path / "twice", resume=True)
    once, twice = (read_weights(tmp_path / name / "checkpoints" / "final.safetensors") for name in ("once", "twice"))
    assert [name for name, x in once.items() if not torch.equal(x, twice[name])] == []


def test_a_run_can_start_from_a_fine_tuned_model(folder, pretrained, tmp_path, capsys):
    train(finetuned(folder, pretrained), tmp_path / "one")
    train(finetuned(folder, tmp_path / "one", kind="pairs"), tmp_path / "two")  # two labels instead of four
    assert "new: head.out.weight, head.out.bias" in capsys.readouterr().err
    train(finetuned(folder, tmp_path / "one"), tmp_path / "three")
    assert "; new" not in capsys.readouterr().err  # the same labels: the head goes on too


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["model.width=32"], r"embed\.weight is \(\d+, 16\) in the source, \(\d+, 32\) in the model"),
        (["model.length=64"], r"is \(32, 16\) in the source, \(64, 16\) in the model"),
        (["model.layers=3"], r"blocks\.2\.\S+ is missing in the source"),
        (["model.layers=1"], r"blocks\.1\.\S+ is not in the model"),
    ],
)
def test_any_other_difference_is_refused_by_name(folder, pretrained, tmp_path, settings, message):
    with pytest.raises(BadInput, match=message):
        train(finetuned(folder, pretrained, *settings), tmp_path / "run")


def test_what_is_not_there_or_of_another_kind_is_reported(folder, pretrained, tmp_path):
    with pytest.raises(BadInput, match=r"train\.init_from=nowhere"):
        train(finetuned(folder, "nowhere"), tmp_path / "run")
    shutil.copytree(pretrained, tmp_path / "half")
    shutil.rmtree(tmp_path / "half" / "model")
    with pytest.raises(BadInput, match=r"train\.init_from=.*half: the run in .* has not ended"):
        init_from.resolve_source(str(tmp_path / "half"))
    with pytest.raises(BadInput, match="it is a Transformer, this model is a BERT"):
        init_from.load_initial_weights(build(config(vocab=30, head=None)), init_from.resolve_source("en-de"))


def test_attention_asr_starts_from_the_encoder_of_ctc(tmp_path):
    transcript = build(ctc.Config(vocab=9, **ctc.SIZES["tiny"]))
    save_model(tmp_path / "ctc", transcript)
    model = build(attention_asr.Config(vocab=9, **attention_asr.SIZES["tiny"]))
    decoder = {name: x.clone() for name, x in model.decoder.state_dict().items()}
    message = init_from.load_initial_weights(model, tmp_path / "ctc")
    copied, new, unused = (int(n) for n in re.findall(r"(\d+) (?:tensors copied|new|not used)", message))
    assert message.startswith(f"initialised encoder from encoder of {tmp_path / 'ctc'}: ")
    assert copied == len(model.encoder.state_dict())
    assert copied + new == len(model.state_dict())
    assert copied + unused == len(transcript.state_dict())
    frames, lengths = torch.randn(2, 30, 40), torch.tensor([30, 17])
    transcript.eval()
    model.eval()
    assert torch.equal(model.encoder(frames, lengths)[0], transcript.encoder(frames, lengths)[0])
    assert all(torch.equal(decoder[name], x) for name, x in model.decoder.state_dict().items())
    other = build(attention_asr.Config(vocab=9, **attention_asr.SIZES["tiny"] | {"layers": 3}))
    stored = {name: x.clone() for name, x in other.state_dict().items()}
    with pytest.raises(BadInput, match=r"encoder\.rnn\.\S+ is missing in the source"):
        init_from.load_initial_weights(other, tmp_path / "ctc")
    assert all(torch.equal(stored[name], x) for name, x in other.state_dict().items())  # nothing taken by halves


class Captioner(nn.Module):
    """A model of one's own around an image model."""

    def __init__(self):
        super().__init__()
        self.backbone = regard.build("resnet", size="tiny")
        self.words = nn.Linear(8, 9)


def test_a_part_is_found_by_its_type_inside_another_model(tmp_path):
    resnet = regard.build("resnet", size="tiny")
    save_model(tmp_path / "resnet", resnet)
    model = Captioner()
    message = init_from.load_initial_weights(model, tmp_path / "resnet")
    assert message.startswith(f"initialised backbone from {tmp_path / 'resnet'}: ")
    assert message.endswith("2 new, 0 not used")
    for name, x in resnet.state_dict().items():
        assert torch.equal(model.backbone.state_dict()[name], x)


def test_what_writes_while_it_hears_begins_from_a_ctc_that_hears_forwards(tmp_path):
    same = {"input_dim": 5, "frame_stack": 4, "width": 6, "hidden": 7, "layers": 2}
    transcript = build(ctc.Config(vocab=9, subsampling_layers=0, encoder="lstm(directions=1)", **same)).eval()
    save_model(tmp_path / "ctc", transcript)
    model = build(online_alignment.Config(vocab=9, **same)).eval()
    assert "initialised encoder from encoder of" in init_from.load_initial_weights(model, tmp_path / "ctc")
    frames = torch.randn(2, 11, 5)
    assert torch.equal(model.encoder(frames)[0], transcript.encoder(frames)[0])
    with pytest.raises(BadInput, match=r"token_encoder\.\S+ is .* in the source"):
        init_from.load_initial_weights(build(online_alignment.Config(vocab=9)), tmp_path / "ctc")


def test_layers_below_move_slower_and_the_head_at_the_full_rate(folder):
    from regard.training.optimizers.optimizer import layer_factors

    model = build(task(folder, "labelled").fit(config()))
    found = layer_factors([name for name, _ in model.named_parameters()], 0.5)
    assert found["head.out.weight"] == found["pool.weight"] == 1
    assert {found[name] for name in found if ".blocks.1." in name} == {0.5}
    assert {found[name] for name in found if ".blocks.0." in name} == {0.25}
    below = [name for name in found if ".blocks." not in name and not name.startswith(("head.", "pool."))]
    assert {name: found[name] for name in below} == dict.fromkeys(below, 0.125)
    assert len(below) == 5  # words, segments, positions, and the norm after them


def test_a_recipe_with_a_beginning_survives_json(folder, pretrained):
    from regard.training.recipe import from_json, to_json

    whole = Recipe(
        config(), recipe(folder, "labelled").task, data(folder, "labelled"), Train(init_from=str(pretrained))
    )
    assert from_json(to_json(whole)) == whole
    assert override_recipe(whole, ["train.init_from=none"]).train.init_from is None


def test_a_run_can_start_from_a_transformers_bert_with_its_vocabulary(folder, pretrained, tmp_path, capsys):
    from regard.weights.hf import bert

    source_model = load_model(pretrained / "model")
    bert.save(tmp_path / "reference", source_model.model, source_model.text)
    train(finetuned(folder, tmp_path / "reference", "train.learning_rate=0"), tmp_path / "run")
    assert "tensors copied; new: head.out.weight, head.out.bias" in capsys.readouterr().err
    found = load_model(tmp_path / "run" / "model").model.state_dict()
    assert torch.equal(found["embed.weight"], source_model.model.state_dict()["embed.weight"])


def test_a_hybrid_starts_from_a_whole_conformer(tmp_path):
    sizes = {"input_dim": 5, "channels": 4, "width": 8, "heads": 2, "layers": 1, "kernel": 3}
    transcript = build(conformer.Config(vocab=9, **sizes))
    save_model(tmp_path / "ctc", transcript)
    model = build(hybrid_asr.Config(vocab=9, **sizes, decoder_layers=1, decoder_heads=2, decoder_ffn=8))
    message = init_from.load_initial_weights(model, tmp_path / "ctc")
    assert message.startswith(f"initialised acoustic from {tmp_path / 'ctc'}: ")
    for name, x in transcript.state_dict().items():
        assert torch.equal(model.acoustic.state_dict()[name], x), name


def test_the_tokenizer_and_rows_within_its_positions_are_adopted_and_it_is_said(folder, pretrained):
    given = override_recipe(recipe(folder, "labelled"), [f"train.init_from={pretrained}", "data.max_length=999"])
    adopted, line = init_from.adopt_source(given)
    reach = adopted.model.length
    assert adopted.data.max_length == reach < 999
    assert line.endswith(f"rows of {reach} tokens")
    assert f"its tokenizer (bert, {adopted.model.vocab:,} tokens)" in line
    kept, line = init_from.adopt_source(given, ["data.max_length"])
    assert kept.data.max_length == 999
    assert "rows of" not in line
    with pytest.raises(BadInput, match=r"brings its tokenizer; leave out data\.tokenizer, data\.vocab_size$"):
        init_from.adopt_source(given, ["data.vocab_size", "data.tokenizer"])


def test_a_source_without_a_tokenizer_cannot_start_a_model_of_texts(folder):
    given = override_recipe(recipe(folder, "labelled"), ["train.init_from=fashion"])
    with pytest.raises(BadInput, match=r"fashion has no tokenizer \(tokenizer\.json\), so a model of texts cannot"):
        init_from.adopt_source(given)


def test_a_head_of_other_labels_is_new_even_if_they_are_as_many(tmp_path):
    made = build(config(vocab=9, width=8, heads=2, layers=1, ffn=8, head="classes(3)"))
    text = Tokenizer.train(["a b c"], kind="bert", size=9)
    save_model(
        tmp_path / "old", made, text, task={"name": "classification", "labels": ["a", "b", "c"], "max_length": 8}
    )
    for labels, new in ((["a", "b", "c"], False), (["c", "b", "a"], True), (None, False)):
        other = build(made.config)
        message = init_from.load_initial_weights(other, tmp_path / "old", labels)
        assert ("new: head.out.weight, head.out.bias" in message) == new
        assert torch.equal(other.head.out.weight, made.head.out.weight) == (not new)
        assert torch.equal(other.embed.weight, made.embed.weight)
    bert.save(tmp_path / "hf", TextClassifier(made, text, ["a", "b", "c"], max_length=8))  # a folder of transformers
    for labels, new in ((["a", "b", "c"], False), (["x", "y", "z"], True)):
        message = init_from.load_initial_weights(build(made.config), tmp_path / "hf", labels)
        assert ("new: head.out.weight, head.out.bias" in message) == new


def character_run(folder, name, text, **settings):
    (folder / f"{name}.txt").write_text(text * 60, encoding="utf-8")
    data = TextFile(str(folder / f"{name}.txt"), context_length=16, batch_size=2)
    model = gpt.Config(vocab=0, width=16, heads=2, layers=1, length=16)
    return Recipe(model, language_modeling.Config(), data, Train(**{"steps": 2, "device": "cpu"} | settings))


def test_a_model_of_characters_learns_those_that_it_lacks(tmp_path):
    train(character_run(tmp_path, "old", "to be or not to be; "), tmp_path / "first")
    old = regard.load(tmp_path / "first")
    still = {"learning_rate": 0.0, "weight_decay": 0.0, "init_from": str(tmp_path / "first")}
    train(character_run(tmp_path, "new", "not 24 über ", **still), tmp_path / "second")
    new = regard.load(tmp_path / "second")
    added = new.model.config.vocab - old.model.config.vocab
    assert added == len("24ü")
    assert torch.equal(new.model.embed.weight[:-added], old.model.embed.weight)
    mean = old.model.embed.weight.mean(0)
    torch.testing.assert_close(new.model.embed.weight[-added:], mean.expand(added, -1))
    assert new.text.unk not in new.text.encode_one("24 über not")


def test_a_larger_vocabulary_is_refused_where_no_tokens_were_added(tmp_path):
    train(character_run(tmp_path, "old", "to be or not to be; "), tmp_path / "first")
    config = regard.load(tmp_path / "first").model.config
    larger = build(replace(config, vocab=config.vocab + 3))  # nothing says that its ids mean the same
    with pytest.raises(BadInput, match=r"embed\.weight is \(\d+, 16\) in the source"):
        init_from.load_initial_weights(larger, init_from.resolve_source(str(tmp_path / "first")))


def test_a_resumed_run_keeps_the_characters_that_were_added(tmp_path, monkeypatch):
    train(character_run(tmp_path, "old", "to be or not to be; "), tmp_path / "first")
    recipe = character_run(tmp_path, "new", "not 24 über ", steps=4, init_from=str(tmp_path / "first"))
    train(recipe, tmp_path / "whole")
    in_pieces(recipe, tmp_path / "pieces", [2], monkeypatch)
    one, other = (read_weights(tmp_path / name / "checkpoints" / "final.safetensors") for name in ("whole", "pieces"))
    assert all(torch.equal(one[name], other[name]) for name in one)
